"""The command that uses a client's model, and the one that makes samples: ``perdl reconstruct``, ``samples``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from common.errors import SettingsError
from perdl.cli.command import command, err, out
from perdl.cli.console import print_line


@command
def reconstruct(
    model: Annotated[Path, typer.Argument(help="a client's folder, as perdl-clients/NAME or RUN/clients/NAME")],
    data: Annotated[Path, typer.Argument(help="samples, as for perdl client --data")],
    output: Annotated[Path, typer.Option(help="file to write, .csv or .npy")],
    part: Annotated[str, typer.Option(help="all, shared, own, or rest: what is not explained")] = "all",
    atoms: Annotated[int | None, typer.Option(help="at most so many atoms a sample; default: as the run coded")] = None,
    samples_in: Annotated[str, typer.Option(help="rows or columns")] = "rows",
    variable: Annotated[str | None, typer.Option(help="name of the array in .npz, .mat and HDF5 files")] = None,
    drop: Annotated[str | None, typer.Option(help="columns of tables to leave out, names or numbers: id,time")] = None,
) -> None:
    """Write samples anew with a client's model, in the units of the file.

    Shared and own add up to all. A mean that was taken off (data.center) is in own, not in shared. What a part leaves
    is told as the run counts it: the norm of what is left over that of the samples, cut and preprocessed. The table of
    a run has the same: its shared share is 1 minus the square of what the shared part leaves.
    """
    from perdl.results import reconstruct as parts
    from perdl_client.formats.features import Orientation
    from perdl_client.formats.read import load_samples
    from perdl_client.model import load_model

    if part not in parts.PARTS:
        raise SettingsError(f"--part {part}: must be {', '.join(parts.PARTS[:-1])} or {parts.PARTS[-1]}")
    if output.suffix not in (".csv", ".npy"):
        raise SettingsError(f"--output {output}: must end in .csv or .npy")
    loaded = load_model(model)
    # What is missing is filled in by the model.
    samples = load_samples(data, samples_in=cast(Orientation, samples_in), variable=variable, drop=drop, missing="mask")
    for note in samples.notes:
        print_line(err, f"note: {note}")
    result = parts.reconstruct(loaded, samples, cast(parts.Part, part), atoms)
    parts.write_rows(result.rows, output, samples.shape, samples.names or loaded.names)
    told = result.describe(cast(parts.Part, part), loaded.preprocessing.shifts)
    print_line(out, f"{told}; {len(result.rows)} samples, {part}: {output}")


@command
def samples(
    folder: Annotated[Path, typer.Argument(help="where they go")] = Path("samples"),
) -> None:
    """Write a few clients' made-up samples as CSV, to try the other commands with: 1.csv, 2.csv, 3.csv.

    They share two of four patterns of eight features. Files that are there already stay as they are.
    """
    import numpy as np

    from common.synthetic import generate

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise SettingsError(f"{folder} is a file, or lies in one: name a folder: perdl samples FOLDER") from None
    for i in (1, 2, 3):
        path = folder / f"{i}.csv"
        if path.exists():
            print_line(out, f"is there already: {path}")
            continue
        made = generate(0, f"client-{i}", n_features=8, n_global=2, n_local=2, n_samples=300, sparsity=0.3, noise=0.02)
        np.savetxt(path, made.data.T, delimiter=",", fmt="%.6f")
        print_line(out, f"made {path}: 300 samples of 8 features")
