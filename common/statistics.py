"""Statistics of samples and codes that several parts need: energies, shares, root mean square."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.blocks import Columns, Stream, blocks, total_norm, whole

Floats = NDArray[np.floating]


def atom_energies(X: Floats) -> Floats:
    """Return the energy of every atom's code row, which is how much of the data it carries.

    Parameters
    ----------
    X : (r, n) array
        Codes.

    Returns
    -------
    (r,) array
    """
    energies: Floats = (X * X).sum(axis=1)
    return energies


def used_atoms(X: Floats, min_usage: float, min_samples: int = 2) -> NDArray[np.intp]:
    """Return the indices of atoms that are alive and do not depend on a single sample.

    Parameters
    ----------
    X : (r, n) array
        Codes.
    min_usage : float
        Share of the most used atom's energy that an atom must carry; 0 keeps all used atoms.
    min_samples : int
        Samples that must use an atom. From 2 on, an atom with more than 0.9 of its energy in one sample is left out
        too: it would reveal that sample.

    Returns
    -------
    (m,) int array, ascending
    """
    largest = (X * X).max(axis=1, initial=0)
    return used_of(atom_energies(X), np.count_nonzero(X, axis=1), largest, min_usage, min_samples)


def used_of(
    energies: Floats, users: NDArray[np.intp], largest: Floats, min_usage: float, min_samples: int = 2
) -> NDArray[np.intp]:
    """Return what :func:`used_atoms` returns, from sums over samples.

    Parameters
    ----------
    energies : (r,) array
        Energy of each atom.
    users : (r,) int array
        How many samples use it.
    largest : (r,) array
        Largest energy of one sample in it.
    min_usage : float
        As for :func:`used_atoms`.
    min_samples : int
        As for :func:`used_atoms`.
    """
    alive = (energies > 0) & (energies >= min_usage * energies.max(initial=0))
    if min_samples > 1:
        alive &= users >= min_samples
        alive &= largest <= 0.9 * energies
    return np.flatnonzero(alive)


def feature_means(Y: Columns) -> Floats:
    """Return the mean of each feature, (d,).

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns, complete.
    """
    if (B := whole(Y)) is not None:
        plain: Floats = B.mean(axis=1)
        return plain
    total: Floats = sum(B.sum(axis=1, dtype=np.float64) for B in blocks(Y)) / Y.shape[1]
    return total.astype(Y.dtype)


@dataclass(frozen=True)
class _Sums:
    """Sums over blocks of samples, from one pass."""

    means: Floats
    norm: float
    energies: Floats
    largest: float
    rms: float


def _sums(Y: Columns) -> _Sums:
    """Return sums over the blocks of complete samples; of a stream they are kept."""
    if isinstance(Y, Stream) and "sums" in Y.known:
        found: _Sums = Y.known["sums"]
        return found
    d, n = Y.shape
    total, energies, norms, largest, squares = np.zeros(d), np.zeros(d), [], 0.0, 0.0
    for B in blocks(Y):
        total += B.sum(axis=1, dtype=np.float64)
        energies += np.einsum("ij,ij->i", B, B, dtype=np.float64)
        norms.append(np.linalg.norm(B))
        largest = max(largest, float(np.abs(B).max(initial=0.0)))
        squares += float(np.square(B, dtype=np.float64).sum())
    mean = (total / max(n, 1)).astype(Y.dtype)
    found = _Sums(mean, float(total_norm(norms)), energies, largest, float(np.sqrt(squares / max(Y.size, 1))))
    if isinstance(Y, Stream):
        Y.known["sums"] = found
    return found


def mean_share(Y: Columns) -> float:
    """Return the share of the samples' energy that their mean carries, in [0, 1].

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns.
    """
    if (B := whole(Y)) is not None:
        size, mean = float(np.linalg.norm(B)) ** 2, B.mean(axis=1)
    else:
        sums = _sums(Y)
        size, mean = sums.norm**2, sums.means
    return float(np.linalg.norm(mean)) ** 2 * Y.shape[1] / size if size > 0 else 0.0


def largest_feature_share(Y: Columns, channels: int = 0) -> float:
    """Return the share of the samples' energy that the largest feature carries, in [0, 1].

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns.
    channels : int
        Channels of windows. From 3 on, channels are compared: all moments of one are of one kind.
    """
    B = whole(Y)
    energies = _sums(Y).energies if B is None else np.einsum("ij,ij->i", B, B, dtype=np.float64)
    energies = energies.reshape(-1, channels).sum(axis=0) if channels > 2 else energies
    total = float(energies.sum())
    return float(energies.max()) / total if total > 0 else 0.0


def largest_size(Y: Columns) -> float:
    """Return the size of the largest entry; 0 if there is none.

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns, complete.
    """
    return _sums(Y).largest if isinstance(Y, Stream) else float(np.abs(Y).max(initial=0.0))


def rms(Y: Columns) -> float:
    """Return the root mean square of all entries that are not NaN; 0 if there are none.

    Parameters
    ----------
    Y : array or Stream
        Numbers of any shape.
    """
    if isinstance(Y, Stream) or Y.ndim == 2:
        if (found := whole(Y)) is None:
            return _sums(Y).rms if isinstance(Y, Stream) else _rms_of_blocks(Y)
        Y = found
    squares = np.square(Y, dtype=np.float64)
    mean = float(np.mean(squares))
    if np.isnan(mean):
        known = squares[~np.isnan(squares)]
        mean = float(np.mean(known)) if known.size else 0.0
    return float(np.sqrt(mean))


def _rms_of_blocks(Y: Floats) -> float:
    total, count = 0.0, 0
    for B in blocks(Y):
        squares = np.square(B, dtype=np.float64)
        one = float(squares.sum())
        if np.isnan(one):
            one, count = float(np.nansum(squares)), count - int(np.count_nonzero(np.isnan(squares)))
        total, count = total + one, count + B.size
    return float(np.sqrt(total / count)) if count else 0.0
