"""Write samples anew with a client's model: what is shared, what is its own, or both; in the files' own units."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from common.errors import DataError, SettingsError
from perdl_client.data.samples import Samples, plainly
from perdl_client.formats.columns import lacking
from perdl_client.model import ClientModel

Floats = NDArray[np.floating]
Part = Literal["all", "shared", "own", "rest"]
PARTS = get_args(Part)


@dataclass(frozen=True)
class Reconstruction:
    """Samples written anew.

    Attributes
    ----------
    rows : (n, d) array
        In rows, as people have them, whole as they were before they were cut.
    error : float
        ||Z - DX|| / ||Z|| of samples as the run learnt from them, cut and preprocessed: what the part alone leaves. Of
        ``all`` and ``rest`` it is with all atoms, as in the table of a run, whose shared share is 1 - error² of
        ``shared``.
    error_in_units : float
        ||Y - reconstruction|| / ||Y|| of the samples as they came, with all atoms. Where they lie far from zero it is
        smaller, for their mean counts as explained.
    """

    rows: Floats
    error: float
    error_in_units: float

    def describe(self, part: Part, centered: bool) -> str:
        """Say in words how much of the data a part leaves.

        Parameters
        ----------
        part : {"all", "shared", "own", "rest"}
        centered : bool
            Whether the model takes a mean off.
        """
        if part in ("shared", "own"):
            where = {"shared": "not in it but in the own part", "own": "in it"}[part]
            mean = f"; the mean of the features is {where}" if centered else ""
            return f"the {part} part alone leaves {self.error:.3g} of the norm of the data as the run counts it{mean}"
        as_run, in_units = f"{self.error:.3g}", f"{self.error_in_units:.3g} in the units of the file"
        if part == "rest":
            return f"the rest is {as_run} of the norm of the data as the run counts it, {in_units}"
        return f"relative error {as_run} as the run counts it, {in_units}"


def reconstruct(
    model: ClientModel, samples: Samples, part: Part = "all", n_nonzero: int | None = None
) -> Reconstruction:
    """Return samples as a model's atoms write them.

    Parameters
    ----------
    model : ClientModel
        Its preprocessing is done to the samples and undone again: windows and patches are cut end to end, or as they
        were if they overlapped, and averaged where they overlap.
    samples : Samples
        Of the features that the model knows.
    part : {"all", "shared", "own", "rest"}
        ``shared`` and ``own`` add up to ``all`` (with ``center`` the mean is in ``own``), and ``rest`` is what is left.
    n_nonzero : int, optional
        At most so many atoms a sample, by orthogonal matching pursuit; default the coder that the run learnt with.

    Returns
    -------
    Reconstruction

    Raises
    ------
    DataError, SettingsError
        If the samples are not of the model's features, or cannot be cut.
    """
    check_features(model, samples)
    if n_nonzero is not None and n_nonzero < 0:
        raise SettingsError(f"--atoms {n_nonzero}: must be 0 or more")
    if n_nonzero is not None and part in ("shared", "own"):
        raise SettingsError(f"--atoms is for the parts all and rest: {part} is coded as the run learnt")
    Y = samples.data.astype(model.global_dictionary.dtype, copy=False)
    cut = model.cut.on(samples.shape)
    pieces = cut.apply(Y)
    if n_nonzero is not None:
        whole = model.reconstruct(pieces, n_nonzero)
        parts = {"all": whole}
    else:
        shared, own = model.split(pieces)
        whole = shared + own
        parts = {"all": whole, "shared": shared, "own": own}
    written = cut.undo(whole, Y.shape[1])
    size = float(np.linalg.norm(Y))
    in_units = float(np.linalg.norm(Y - written)) / size if size > 0 else 0.0
    error = model.error(pieces, n_nonzero, "all" if part == "rest" else part)
    if part == "rest":
        return Reconstruction((Y - written).T, error, in_units)
    chosen = written if part == "all" else cut.undo(parts[part], Y.shape[1])
    return Reconstruction(chosen.T, error, in_units)


def check_features(model: ClientModel, samples: Samples) -> None:
    """Hold samples to the features of a model.

    Raises
    ------
    DataError
        With both numbers, or the first name that differs.
    """
    cut = model.cut
    same = len(samples.data) == math.prod(cut.shape)
    if cut.kind == "patch":  # images may be of any size
        same = len(samples.shape) == len(cut.shape) and samples.shape[2:] == cut.shape[2:]
    if not same and samples.names and model.names and (lacks := lacking(samples.names, model.names)):
        raise DataError(
            f"the samples have {len(samples.names)} columns, those of the model {len(model.names)}: the file {lacks}; "
            "give it the same columns (--drop leaves columns out)"
        )
    if not same:
        turns = cut.kind != "patch" and samples.data.shape[1] == math.prod(cut.shape)
        turned = "; the transpose would fit: --samples-in" if turns else ""
        raise DataError(
            f"the samples have the shape {samples.shape}, those of the model {cut.shape}: give samples of the features "
            f"that the model was learnt from{turned}"
        )
    pairs = zip(plainly(samples.names), plainly(model.names), strict=False)
    names = [(i, samples.names[i], model.names[i]) for i, (a, b) in enumerate(pairs) if a != b]
    if names:
        i, found, expected = names[0]
        raise DataError(
            f"feature {i + 1} is called {found!r}, the model's {expected!r}: give the same columns in the same order"
        )


def write_rows(rows: Floats, path: Path, shape: tuple[int, ...], names: tuple[str, ...]) -> None:
    """Write samples as ``.csv`` with the names of features if they have any, or as ``.npy`` in the shape they had.

    Raises
    ------
    SettingsError
        If the name ends otherwise.
    """
    if path.suffix not in (".csv", ".npy"):
        raise SettingsError(f"--output {path}: must end in .csv or .npy")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, rows.reshape(-1, *shape))
    else:
        np.savetxt(path, rows, delimiter=",", fmt="%.17g", header=",".join(names), comments="")
