"""Reconstruct samples with a client's model, in the units of the file: their shared part, own part, or both."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from common.blocks import in_memory
from common.errors import DataError, SettingsError
from perdl_client.data.samples import Samples, plainly
from perdl_client.formats.columns import lacking
from perdl_client.learning.missing import observed_residual, zero_filled
from perdl_client.model import ClientModel

Floats = NDArray[np.floating]
Part = Literal["all", "shared", "own", "rest"]
PARTS = get_args(Part)


@dataclass(frozen=True)
class Reconstruction:
    """Reconstructed samples and their error.

    Parameters
    ----------
    rows : (n, d) array
        Samples in rows, whole, as before any cut into windows or patches.
    error : float
        ||Z - DX|| / ||Z||, where Z are the cut and preprocessed samples: what the part alone leaves. For ``all`` and
        ``rest`` it is of all atoms, as the table of a run shows it.
    error_in_units : float
        ||Y - reconstruction|| / ||Y||, where Y are the samples of the file, with all atoms. It is smaller for samples
        far from zero, because their mean counts as explained.
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
    """Reconstruct samples with a model's atoms.

    Parameters
    ----------
    model : ClientModel
        The client's model. Its preprocessing is applied and undone. Overlapping windows and patches are averaged.
    samples : Samples
        Samples with the features of the model.
    part : {"all", "shared", "own", "rest"}
        What to return. ``shared`` and ``own`` add up to ``all`` (with ``center`` the mean is own); ``rest`` is what
        ``all`` leaves over.
    n_nonzero : int, optional
        Largest number of atoms per sample, by orthogonal matching pursuit. By default the coder of the run is used.

    Returns
    -------
    Reconstruction

    Raises
    ------
    DataError, SettingsError
        If the samples have other features than the model, or cannot be cut.
    """
    check_features(model, samples)
    if n_nonzero is not None and n_nonzero < 0:
        raise SettingsError(f"--atoms {n_nonzero}: must be 0 or more")
    if n_nonzero is not None and part in ("shared", "own"):
        raise SettingsError(f"--atoms is for the parts all and rest: {part} is coded as the run learnt")
    Y = in_memory(samples.data).astype(model.global_dictionary.dtype, copy=False)
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
    size = float(np.linalg.norm(zero_filled(Y)))
    in_units = float(np.linalg.norm(observed_residual(Y, written))) / size if size > 0 else 0.0
    error = model.error(pieces, n_nonzero, "all" if part == "rest" else part)
    if part == "rest":
        return Reconstruction((Y - written).T, error, in_units)
    chosen = written if part == "all" else cut.undo(parts[part], Y.shape[1])
    return Reconstruction(chosen.T, error, in_units)


def check_features(model: ClientModel, samples: Samples) -> None:
    """Raise if samples have other features than a model.

    Parameters
    ----------
    model : ClientModel
        The client's model.
    samples : Samples
        Samples to check.

    Raises
    ------
    DataError
        It names both numbers of features, or the first name that differs.
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
    """Write samples as ``.csv`` with the names of the features, or as ``.npy`` in their shape.

    Parameters
    ----------
    rows : (n, d) array
        Samples in rows.
    path : Path
        File to write; its suffix is the format.
    shape : tuple of int
        Shape of one sample, for ``.npy``.
    names : tuple of str
        Names of the features, for ``.csv``; may be empty.

    Raises
    ------
    SettingsError
        If the suffix is neither ``.csv`` nor ``.npy``.
    """
    if path.suffix not in (".csv", ".npy"):
        raise SettingsError(f"--output {path}: must end in .csv or .npy")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, rows.reshape(-1, *shape))
    else:
        np.savetxt(path, rows, delimiter=",", fmt="%.17g", header=",".join(names), comments="")
