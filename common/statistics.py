"""Statistics of samples and codes that several parts need: energies, shares, root mean square."""

from __future__ import annotations

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


def frobenius_norm(Y: Columns) -> float:
    """Return the Frobenius norm of samples.

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns, complete.
    """
    return float(total_norm([np.linalg.norm(B) for B in blocks(Y)])) if Y.shape[1] else 0.0


def mean_share(Y: Columns) -> float:
    """Return the share of the samples' energy that their mean carries, in [0, 1].

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns.
    """
    size = frobenius_norm(Y) ** 2
    return float(np.linalg.norm(feature_means(Y))) ** 2 * Y.shape[1] / size if size > 0 else 0.0


def largest_feature_share(Y: Columns, channels: int = 0) -> float:
    """Return the share of the samples' energy that the largest feature carries, in [0, 1].

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns.
    channels : int
        Channels of windows. From 3 on, channels are compared: all moments of one are of one kind.
    """
    energies = np.zeros(len(Y))
    for B in blocks(Y):
        energies += np.einsum("ij,ij->i", B, B, dtype=np.float64)
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
    return max((float(np.abs(B).max(initial=0.0)) for B in blocks(Y)), default=0.0)


def rms(Y: Columns) -> float:
    """Return the root mean square of all entries that are not NaN; 0 if there are none.

    Parameters
    ----------
    Y : array or Stream
        Numbers of any shape.
    """
    if isinstance(Y, Stream):
        return Y.once("rms", lambda: _rms_of_blocks(Y))  # clients ask for it in every round
    return _rms_of_blocks(Y) if Y.ndim == 2 else _rms(Y)


def _rms(Y: Floats) -> float:
    squares = np.square(Y, dtype=np.float64)
    mean = float(np.mean(squares))
    if np.isnan(mean):
        known = squares[~np.isnan(squares)]
        mean = float(np.mean(known)) if known.size else 0.0
    return float(np.sqrt(mean))


def _rms_of_blocks(Y: Columns) -> float:
    if (one_block := whole(Y)) is not None:
        return _rms(one_block)
    total, count = 0.0, 0
    for B in blocks(Y):
        squares = np.square(B, dtype=np.float64)
        one = float(squares.sum())
        if np.isnan(one):
            one, count = float(np.nansum(squares)), count - int(np.count_nonzero(np.isnan(squares)))
        total, count = total + one, count + B.size
    return float(np.sqrt(total / count)) if count else 0.0
