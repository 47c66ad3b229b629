"""Statistics of samples and codes that several parts need: energies, shares, root mean square."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
    energies = atom_energies(X)
    alive = (energies > 0) & (energies >= min_usage * energies.max(initial=0))
    if min_samples > 1:
        alive &= np.count_nonzero(X, axis=1) >= min_samples
        alive &= (X * X).max(axis=1, initial=0) <= 0.9 * energies
    return np.flatnonzero(alive)


def mean_share(Y: Floats) -> float:
    """Return the share of the samples' energy that their mean carries, in [0, 1].

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns.
    """
    size = float(np.linalg.norm(Y)) ** 2
    return float(np.linalg.norm(Y.mean(axis=1))) ** 2 * Y.shape[1] / size if size > 0 else 0.0


def largest_feature_share(Y: Floats, channels: int = 0) -> float:
    """Return the share of the samples' energy that the largest feature carries, in [0, 1].

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns.
    channels : int
        Channels of windows. From 3 on, channels are compared: all moments of one are of one kind.
    """
    energies = np.einsum("ij,ij->i", Y, Y, dtype=np.float64)
    energies = energies.reshape(-1, channels).sum(axis=0) if channels > 2 else energies
    total = float(energies.sum())
    return float(energies.max()) / total if total > 0 else 0.0


def rms(Y: Floats) -> float:
    """Return the root mean square of all entries that are not NaN; 0 if there are none.

    Parameters
    ----------
    Y : array
        Numbers of any shape.
    """
    squares = np.square(Y, dtype=np.float64)
    mean = float(np.mean(squares))
    if np.isnan(mean):
        known = squares[~np.isnan(squares)]
        mean = float(np.mean(known)) if known.size else 0.0
    return float(np.sqrt(mean))
