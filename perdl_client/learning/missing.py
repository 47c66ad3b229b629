r"""Entries that were not measured: fill them in from the model, so that coders and learners use the observed ones.

NaN marks an entry that was not measured. With W = 1 where Y was observed and 0 elsewhere, a client minimises

.. math:: \min_{D, X} \lVert W \odot (Y - DX)\rVert_F^2 + \text{penalty} \cdot \lVert X\rVert_0 .

Its steps are those for complete samples, on filled samples

.. math:: F = W \odot Y + (1 - W) \odot (D X).

This is majorisation and minimisation: :math:`\lVert F - D^+ X^+\rVert_F^2` is at least
:math:`\lVert W \odot (Y - D^+ X^+)\rVert_F^2`, and equal to it where :math:`D^+ X^+ = D X`. So a step that lowers the
one lowers the other. For orthonormal dictionaries with a hard threshold both the codes and the dictionary of a step
are exact minimisers. OMP takes its atoms by the observed entries of each sample alone.

Sources: Dempster, Laird and Rubin 1977 (EM); Blumensath and Davies 2008, "Iterative thresholding for sparse
approximations".
"""

from __future__ import annotations

from typing import overload

import numpy as np
from numpy.typing import NDArray

from common.arrays import namespace
from common.blocks import Columns, Stream
from common.coders import OMP, Coder, omp

Floats = NDArray[np.floating]

_FILLS = 50
"""Most repetitions of coding and filling. Each lowers the distance to the fixed point by the share that is missing."""

_SETTLED = 1e-6
"""Change of the filled entries, in units of their size, below which they are settled."""


def gaps(Y: Columns) -> NDArray[np.bool_] | None:
    """Return which entries are missing; None if there is none.

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns; NaN marks a missing entry. A stream is complete.

    Returns
    -------
    (d, n) array of bool, or None
    """
    if isinstance(Y, Stream):
        return None
    # A sum is NaN if one of its terms is. It needs no second array of the samples' size.
    if not np.isnan(float(Y.sum())):
        return None
    missing: NDArray[np.bool_] = namespace(Y).isnan(Y)
    return missing


@overload
def zero_filled(Y: Floats) -> Floats: ...
@overload
def zero_filled(Y: Stream) -> Stream: ...
def zero_filled(Y: Columns) -> Columns:
    """Return the samples with zero in place of what is missing; the samples themselves if nothing is.

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns; NaN marks a missing entry.
    """
    if isinstance(Y, Stream) or (missing := gaps(Y)) is None:
        return Y
    return np.where(missing, Y.dtype.type(0), Y)


def observed_features(Y: Columns) -> NDArray[np.bool_]:
    """Return which features at least one sample has.

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns; NaN marks a missing entry.

    Returns
    -------
    (d,) array of bool
    """
    missing = gaps(Y)
    if missing is None:  # of a stream too
        return np.ones(len(Y), bool)
    seen: NDArray[np.bool_] = np.logical_not(missing.all(axis=1))
    return seen


def observed_residual(Y: Floats, estimate: Floats) -> Floats:
    """Return ``Y - estimate``, with zero where Y is missing.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns; NaN marks a missing entry.
    estimate : (d, n) array
        D X.
    """
    return zero_filled(Y - estimate)


def refill(Y: Floats, estimate: Floats) -> Floats:
    """Return the samples with an estimate in place of what is missing.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns; NaN marks a missing entry.
    estimate : (..., d, n) array
        D X. A stack of estimates gives a stack of samples.

    Returns
    -------
    array of the estimate's shape
    """
    return np.where(np.isnan(Y), estimate, Y)


def complete(Y: Floats, D: Floats, coder: Coder) -> Floats:
    r"""Fill in what is missing from a dictionary.

    .. math:: X \leftarrow \text{coder}(F, D), \qquad F \leftarrow W \odot Y + (1 - W) \odot (D X) \text{, repeated}

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns; NaN marks a missing entry.
    D : (d, r) array
        Dictionary.
    coder : Coder
        Computes the codes. OMP finds them from the observed entries at once, without repetition.

    Returns
    -------
    (d, n) array
        Without missing entries ``Y`` itself.
    """
    missing = gaps(Y)
    if missing is None:
        return Y
    columns = np.flatnonzero(missing.any(axis=0))
    part, holes = Y[:, columns], missing[:, columns]
    F = np.where(holes, Y.dtype.type(0), part)
    if isinstance(coder, OMP):
        F = np.where(holes, D @ observed_omp(part, D, coder.number), F)
    else:
        settled = _SETTLED * float(np.linalg.norm(F))
        for _ in range(_FILLS):
            before, F = F, np.where(holes, D @ coder(F, D), F)
            if float(np.linalg.norm(F - before)) <= settled:
                break
    out = Y.copy()
    out[:, columns] = F
    return out


def codes_of(Y: Floats, D: Floats, coder: Coder) -> Floats:
    """Return the codes (r, n) of samples, by what was observed of them.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns; NaN marks a missing entry.
    D : (d, r) array
        Dictionary.
    coder : Coder
        Computes the codes.
    """
    return coder(complete(Y, D, coder), D)


def pursuit(Y: Floats, D: Floats, k: int) -> Floats:
    """Return codes (r, n) of at most ``k`` atoms a sample by orthogonal matching pursuit, by what was observed.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns; NaN marks a missing entry.
    D : (d, r) array
        Dictionary.
    k : int
        Most atoms a sample may use.
    """
    return omp(Y, D, k) if gaps(Y) is None else observed_omp(Y, D, k)


def observed_omp(Y: Floats, D: Floats, k: int) -> Floats:
    r"""Orthogonal matching pursuit by the observed entries of each sample.

    .. math:: \min_x \sum_{a \text{ observed}} (y_a - (D x)_a)^2, \qquad \lVert x\rVert_0 \le k

    For each sample, ``k`` times: take the atom whose observed part is most correlated with the residual, then refit all
    atoms taken by least squares over the observed entries.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns; NaN marks a missing entry.
    D : (d, r) array
        Atoms of any norm.
    k : int
        Most atoms a sample may use. A sample stops when its residual is zero, or when it has as many atoms as observed
        entries.

    Returns
    -------
    (r, n) array
    """
    W = (~np.isnan(Y)).astype(D.dtype)
    known = np.where(W > 0, Y, 0).astype(D.dtype)
    r, n = D.shape[1], Y.shape[1]
    norms = np.sqrt((D * D).T @ W)  # (r, n), of the observed parts
    scale = np.where(norms > 1e-6 * np.linalg.norm(D, axis=0)[:, None], norms, np.inf)
    floor = 100 * np.finfo(D.dtype).eps * np.linalg.norm(known, axis=0)
    most = np.minimum(k, W.sum(axis=0))
    columns, taken, X = np.arange(n), np.zeros((r, n), bool), np.zeros((r, n), D.dtype)
    support = np.zeros((n, 0), np.intp)
    for step in range(min(k, r)):
        sizes = np.where(taken, -1, np.abs(D.T @ (known - W * (D @ X))) / scale)
        best = sizes.argmax(axis=0)
        alive = (sizes[best, columns] > floor) & (step < most)
        if not alive.any():
            break
        taken[best[alive], columns[alive]] = True
        support = np.column_stack([support, np.where(alive, best, -1)])
        X = _refit(known, W, D, support)
    return X


def _refit(known: Floats, W: Floats, D: Floats, support: NDArray[np.intp]) -> Floats:
    """Return the least-squares codes of each sample on its support, over observed entries; -1 is an unused place."""
    unused = support < 0
    atoms = np.where(unused[:, None, :], 0, D[:, support].transpose(1, 0, 2)) * W.T[:, :, None]  # (n, d, places)
    atoms = atoms.astype(np.float64)  # in float32 the small term below would be lost
    gram, right = atoms.mT @ atoms, atoms.mT @ known.T[:, :, None]
    diagonal = np.arange(support.shape[1])
    # Without the small term, observed parts that are parallel make the matrix singular.
    gram[:, diagonal, diagonal] = np.where(unused, 1, gram[:, diagonal, diagonal] * (1 + 1e-14))
    codes = np.linalg.solve(gram, right)[:, :, 0]
    X = np.zeros((D.shape[1], len(support)), D.dtype)
    np.add.at(X, (np.where(unused, 0, support).T, np.arange(len(support))), np.where(unused, 0, codes).T)
    return X
