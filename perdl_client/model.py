"""A client's own model: its dictionary, its coder, and its preprocessing. It is never sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from common.coders import CODERS, Coder
from common.errors import PerdlError
from common.files import ForeignFileError, read_record, write_record
from common.simulation import is_simulation
from perdl_client.data.preprocessing import Preprocessing
from perdl_client.data.windows_patches import Cut
from perdl_client.learning.measures import measured, relative_error
from perdl_client.learning.missing import codes_of, observed_residual, pursuit

Floats = NDArray[np.floating]

VERSION = 3
"""Version of the file's format. Files of another version are refused."""

FILE = "dictionary.npz"


@dataclass(frozen=True)
class ClientModel:
    """A client's model. Samples are columns, and pieces as ``cut`` makes them. NaN marks what was not measured.

    Parameters
    ----------
    global_dictionary : (d, r_g) array
        D^g.
    local_dictionary : (d, r_l) array
        D^l_i.
    preprocessing : Preprocessing
        Preprocessing that was fitted to the client's data.
    coder : Coder
        Coder with its threshold in the units of preprocessed data.
    cut : Cut
        How samples of a file become pieces of d numbers.
    names : tuple of str
        Names of the features, if the file has them.
    usage : (r,) array
        Share of the data's energy that each atom carries, global atoms first.
    measures : dict of str to number
        Final measures on the client's data: ``n_samples``, ``error``, ``shared``, ``own``.
    """

    global_dictionary: Floats
    local_dictionary: Floats
    preprocessing: Preprocessing
    coder: Coder
    cut: Cut
    names: tuple[str, ...] = ()
    usage: Floats = field(default_factory=lambda: np.empty(0))
    measures: Mapping[str, float] = field(default_factory=dict)

    @property
    def dictionary(self) -> Floats:
        """All atoms, (d, r), the global ones first."""
        return np.hstack([self.global_dictionary, self.local_dictionary])

    def encode(self, Y: Floats) -> Floats:
        """Return the codes (r, n) of samples (d, n), global atoms first.

        Parameters
        ----------
        Y : (d, n) array
            Samples before preprocessing, in columns.
        """
        Z = self.preprocessing.apply(Y)
        return codes_of(Z, self.dictionary, self.coder)

    def decode(self, X: Floats) -> Floats:
        """Return the samples (d, n) of given codes.

        Parameters
        ----------
        X : (r, n) array
            Codes, global atoms first.
        """
        return self.preprocessing.undo(self.dictionary @ X)

    def split(self, Y: Floats) -> tuple[Floats, Floats]:
        """Return the shared and the own part of samples, each (d, n). Their sum is ``decode(encode(Y))``.

        Parameters
        ----------
        Y : (d, n) array
            Samples before preprocessing, in columns.
        """
        X, r_g = self.encode(Y), self.global_dictionary.shape[1]
        shared = self.preprocessing.undo_part(self.global_dictionary @ X[:r_g])
        return shared, self.preprocessing.undo(self.local_dictionary @ X[r_g:])

    def reconstruct(self, Y: Floats, k: int) -> Floats:
        """Return samples (d, n) reconstructed from at most ``k`` atoms each, by orthogonal matching pursuit.

        Parameters
        ----------
        Y : (d, n) array
            Samples before preprocessing, in columns.
        k : int
            Most atoms per sample.
        """
        D = self.dictionary
        return self.preprocessing.undo(D @ pursuit(self.preprocessing.apply(Y), D, k))

    def unshared_energy(self, Y: Floats) -> Floats:
        """Return the energy (n,) of each preprocessed sample without its shared part.

        Parameters
        ----------
        Y : (d, n) array
            Samples before preprocessing, in columns.
        """
        Z = self.preprocessing.apply(Y)
        D, D_g = self.dictionary, self.global_dictionary
        left = observed_residual(Z, D_g @ codes_of(Z, D, self.coder)[: D_g.shape[1]])
        energy: Floats = (left * left).sum(axis=0)
        return energy

    def error(self, Y: Floats, k: int | None = None, part: Literal["all", "shared", "own"] = "all") -> float:
        """Return ||Z - DX|| / ||Z|| of preprocessed samples Z, as a run reports it; 0 if all are zero.

        Parameters
        ----------
        Y : (d, n) array
            Samples before preprocessing, in columns.
        k : int, optional
            Most atoms per sample, with orthogonal matching pursuit. Default: the run's coder.
        part : {"all", "shared", "own"}
            Which atoms write the samples; the error of a part is what it leaves alone.
        """
        Z, D, r_g = self.preprocessing.apply(Y), self.dictionary, self.global_dictionary.shape[1]
        codes = codes_of(Z, D, self.coder) if k is None else pursuit(Z, D, k)
        atoms = {"all": slice(None), "shared": slice(r_g), "own": slice(r_g, None)}[part]
        return relative_error(Z, D[:, atoms], codes[atoms])

    def explained(self, Y: Floats) -> float:
        """Return 1 - ||Z - DX||^2 / ||Z||^2 of preprocessed samples Z; 1 if all are zero.

        Parameters
        ----------
        Y : (d, n) array
            Samples before preprocessing, in columns.
        """
        found = measured(self.preprocessing.apply(Y), self.dictionary, self.coder, self.global_dictionary.shape[1])
        return found.shared + found.own


def save_model(model: ClientModel, folder: Path) -> None:
    """Write a model to ``dictionary.npz``.

    Parameters
    ----------
    model : ClientModel
        The client's model.
    folder : Path
        Folder of the file.

    Notes
    -----
    The file holds ``global`` (d, r^g), ``local`` (d, r^l), ``usage`` (r,), the ``shape`` of a sample and the ``names``
    of its features. It also holds ``offset``, ``scale`` and ``whitener`` of the preprocessing and its ``steps``, and in
    ``head`` the rest as JSON.
    """
    head = {"coder": _named(model.coder), "cut": astuple(model.cut), "measures": model.measures}
    arrays = {"global": model.global_dictionary, "local": model.local_dictionary, "usage": model.usage}
    arrays |= model.preprocessing.arrays()
    names = np.array(model.names, dtype=np.str_)
    described = {**arrays, "names": names, "shape": np.array(model.cut.piece)}
    # A simulation's models can be made again, and of thousands the disk would take most of the time.
    write_record(folder / FILE, "model", VERSION, head, described, durable=not is_simulation())


def load_model(path: Path) -> ClientModel:
    """Read a model that :func:`save_model` wrote.

    Parameters
    ----------
    path : Path
        The file, or its folder.

    Raises
    ------
    PerdlError
        If there is no such file, it is not a client's model, or another version of perdl wrote it.
    """
    if path.is_dir():
        path = path / FILE
    try:
        head, arrays = read_record(path, "model", VERSION)
    except OSError as error:
        raise PerdlError(
            f"{path}: {error.strerror or 'cannot be read'}; give a client's folder, which holds {FILE}: "
            "perdl-clients/NAME, or clients/NAME of a simulation"
        ) from None
    except ForeignFileError:
        raise PerdlError(
            f"{path} is not a client's model: give perdl-clients/NAME, or clients/NAME of a simulation"
        ) from None
    coder, value = head["coder"]
    kind, size, stride, shape = head["cut"]
    return ClientModel(
        arrays["global"],
        arrays["local"],
        Preprocessing.of(arrays),
        CODERS[coder].make(value),
        Cut(kind, size, stride, tuple(shape)),
        tuple(arrays["names"].tolist()),
        arrays["usage"],
        head["measures"],
    )


def _named(coder: Coder) -> tuple[str, float]:
    """Return the name of a coder and its number."""
    name = next(name for name, kind in CODERS.items() if type(kind.make(coder.number)) is type(coder))
    return name, coder.number
