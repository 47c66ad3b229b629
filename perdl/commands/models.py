"""The commands that use a client's model: ``perdl reconstruct``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from common.errors import SettingsError
from perdl.command import command, err, out
from perdl.console import print_line


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
    """Write samples anew with a client's model, in the units of the file."""
    from perdl import reconstruct as parts
    from perdl_client.model import load_model
    from perdl_client.sources import Orientation, load_samples

    if part not in parts.PARTS:
        raise SettingsError(f"--part {part}: must be {', '.join(parts.PARTS[:-1])} or {parts.PARTS[-1]}")
    if output.suffix not in (".csv", ".npy"):
        raise SettingsError(f"--output {output}: must end in .csv or .npy")
    loaded = load_model(model)
    samples = load_samples(data, samples_in=cast(Orientation, samples_in), variable=variable, drop=drop)
    for note in samples.notes:
        print_line(err, f"note: {note}")
    result = parts.reconstruct(loaded, samples, cast(parts.Part, part), atoms)
    parts.write_rows(result.rows, output, samples.shape, samples.names or loaded.names)
    print_line(out, f"relative error {result.error:.3g}; {len(result.rows)} samples, {part}: {output}")
