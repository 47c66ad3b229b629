"""A client's own model: its dictionary, how it codes, and what was done to its data. None of it is ever sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from common.coders import CODERS, Coder, omp
from common.errors import PerdlError
from common.files import ForeignFileError, read_record, write_record
from perdl_client.data.preprocessing import Preprocessing
from perdl_client.data.windows_patches import Cut
from perdl_client.learning.initialization import usage
from perdl_client.learning.local_update import relative_error

Floats = NDArray[np.floating]

VERSION = 2
"""Of the file; another perdl's are refused rather than misread."""

FILE = "dictionary.npz"


@dataclass(frozen=True)
class ClientModel:
    """What one client's dictionary says of samples. Samples are in rows here, pieces as ``cut`` makes them.

    Attributes
    ----------
    global_dictionary : (d, r_g) array
    local_dictionary : (d, r_l) array
    preprocessing : Preprocessing
        What is done to samples first, learnt from the client's data.
    coder : Coder
        With its threshold in the units of the preprocessed data.
    cut : Cut
        How samples of a file become pieces of d numbers.
    names : tuple of str
        Of a file's features, where it told them.
    usage : (r,) array
        The share of the energy of its data that each atom carries, global atoms first; see :func:`carried`.
    measures : dict of str to number
        What was measured on its data in the end: ``n_samples``, ``error``, ``shared``, ``own``.
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

    def encode(self, X: Floats) -> Floats:
        """Return codes (n, r) of samples (n, d), global atoms first."""
        return self.coder(self._prepared(X), self.dictionary).T

    def decode(self, codes: Floats) -> Floats:
        """Return the samples (n, d) that codes (n, r) stand for."""
        return self.preprocessing.undo(self.dictionary @ codes.T).T

    def split(self, X: Floats) -> tuple[Floats, Floats]:
        """Return the shared and the own part of samples, each (n, d); their sum is ``decode(encode(X))``."""
        codes, r_g = self.encode(X).T, self.global_dictionary.shape[1]
        shared = self.preprocessing.undo_part(self.global_dictionary @ codes[:r_g])
        return shared.T, self.preprocessing.undo(self.local_dictionary @ codes[r_g:]).T

    def reconstruct(self, X: Floats, k: int) -> Floats:
        """Return samples (n, d) written with at most ``k`` atoms each, by orthogonal matching pursuit."""
        D = self.dictionary
        return self.preprocessing.undo(D @ omp(self._prepared(X), D, k)).T

    def unshared_energy(self, X: Floats) -> Floats:
        """Return the squared length (n,) of what is left of each preprocessed sample without its shared part."""
        Z = self._prepared(X)
        left = Z - self.global_dictionary @ self.coder(Z, self.dictionary)[: self.global_dictionary.shape[1]]
        energy: Floats = (left * left).sum(axis=0)
        return energy

    def error(self, X: Floats, k: int | None = None, part: Literal["all", "shared", "own"] = "all") -> float:
        """Return ||Z - DX|| / ||Z|| of preprocessed samples Z, as a run reports it; 0 if they are all zero.

        Parameters
        ----------
        X : (n, d) array
            Samples, before they are preprocessed.
        k : int, optional
            At most so many atoms a sample, by orthogonal matching pursuit; default the coder that the run learnt with.
        part : {"all", "shared", "own"}
            Of which atoms D and X are: what this part alone leaves.
        """
        Z, D, r_g = self._prepared(X), self.dictionary, self.global_dictionary.shape[1]
        codes = self.coder(Z, D) if k is None else omp(Z, D, k)
        atoms = {"all": slice(None), "shared": slice(r_g), "own": slice(r_g, None)}[part]
        return relative_error(Z, D[:, atoms], codes[atoms])

    def explained(self, X: Floats) -> float:
        """Return 1 - ||Z - DX||^2 / ||Z||^2 of preprocessed samples Z; 1 if they are all zero."""
        Z = self._prepared(X)
        shared, own = shares(Z, self.global_dictionary, self.local_dictionary, self.coder(Z, self.dictionary))
        return shared + own

    def _prepared(self, X: Floats) -> Floats:
        return self.preprocessing.apply(X.T)


def shares(Y: Floats, global_dictionary: Floats, local_dictionary: Floats, X: Floats) -> tuple[float, float]:
    r"""Return which shares of the data's energy are shared and own.

    .. math:: \text{shared} = 1 - \frac{\lVert Y - D^g X^g\rVert^2}{\lVert Y\rVert^2}, \qquad
              \text{own} = \frac{\lVert Y - D^g X^g\rVert^2 - \lVert Y - D X\rVert^2}{\lVert Y\rVert^2}

    What is left to one is not explained. All-zero data are all shared.

    Parameters
    ----------
    Y : (d, n) array
    global_dictionary, local_dictionary : (d, r_g), (d, r_l) array
    X : (r, n) array
        Codes, of the global atoms first.

    Returns
    -------
    shared, own : float
    """
    size = float(np.linalg.norm(Y)) ** 2
    if not size > 0:
        return 1.0, 0.0
    r_g = global_dictionary.shape[1]
    without = Y - global_dictionary @ X[:r_g]
    left = float(np.linalg.norm(without)) ** 2 / size
    unexplained = float(np.linalg.norm(without - local_dictionary @ X[r_g:])) ** 2 / size
    return 1 - left, left - unexplained


def carried(X: Floats, Y: Floats) -> Floats:
    """Return the share (r,) of the energy of samples (d, n) that each atom's codes (r, n) carry."""
    share: Floats = usage(X) / max(float(np.linalg.norm(Y)) ** 2, np.finfo(np.float64).tiny)
    return share


def save_model(model: ClientModel, folder: Path) -> None:
    """Write ``dictionary.npz``.

    Parameters
    ----------
    model : ClientModel
    folder : Path
        The client's own.

    Notes
    -----
    ``global`` (d, r^g), ``local`` (d, r^l), ``usage`` (r,), ``shape`` of a sample, ``names`` of its features;
    ``offset``, ``scale`` and ``whitener`` of its preprocessing; ``head``, the rest as JSON.
    """
    head = {"coder": _named(model.coder), "cut": astuple(model.cut), "measures": model.measures}
    arrays = {"global": model.global_dictionary, "local": model.local_dictionary, "usage": model.usage}
    arrays |= model.preprocessing.arrays()
    names = np.array(model.names, dtype=np.str_)
    write_record(folder / FILE, "model", VERSION, head, {**arrays, "names": names, "shape": np.array(model.cut.piece)})


def load_model(path: Path) -> ClientModel:
    """Read what :func:`save_model` wrote; ``path`` is the file or its folder.

    Raises
    ------
    PerdlError
        If there is none, it is no client's model, or another version of perdl wrote it.
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
    """The name of a coder and its one number."""
    name = next(name for name, kind in CODERS.items() if type(kind.make(coder.number)) is type(coder))
    return name, coder.number
