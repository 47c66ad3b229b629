"""Geometry of dictionaries: distances that ignore the order and the sign of atoms, and coherence.

Source: Liang, Shi, Al Kontar, Fattahi, "Personalized Dictionary Learning for Heterogeneous Datasets", 2023,
definition 1 and assumption 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]

ABSENT = -1
"""Index that stands for an atom that a client does not have."""

_PAIRS_AT_ONCE = 4096
_ENTRIES_AT_ONCE = 2**15
"""Entries of a block that is passed over several times: two such blocks of float64 take half a megabyte of cache."""


def chosen(used: Ints, indices: Ints) -> Ints:
    """Return which atoms a client was told to share, among all of its own.

    Parameters
    ----------
    used : (m,) int array
        The atoms that it offered.
    indices : (r_g,) int array
        Which of those it shares, ``ABSENT`` where it has none.

    Returns
    -------
    (r_g,) int array
    """
    found = np.full(len(indices), ABSENT, dtype=np.intp)
    found[indices >= 0] = used[indices[indices >= 0]]
    return found


def atom_distances(A: ArrayLike, B: ArrayLike) -> Floats:
    r"""Return the distance d_2 of every atom of ``A`` to every atom of ``B``, up to sign.

    .. math:: d_2(a, b) = \min(\lVert a - b\rVert, \lVert a + b\rVert)
              = \sqrt{\lVert a\rVert^2 + \lVert b\rVert^2 - 2 |\langle a, b\rangle|}

    Parameters
    ----------
    A : (..., d, r_a) array
        Atoms of any norm, in columns. More axes in front stand for many dictionaries.
    B : (..., d, r_b) array
        Atoms of any norm, in columns.

    Returns
    -------
    (..., r_a, r_b) array, float32 if both are, else float64

    Notes
    -----
    One matrix product gives all pairs. For near atoms the formula cancels; their distance is computed from the
    difference itself, which is exact up to rounding.
    """
    A, B = _as_floats(A, B)
    distances: Floats = A.mT @ B
    a, b = (A * A).sum(axis=-2)[..., :, None], (B * B).sum(axis=-2)[..., None, :]
    if distances.ndim > 2:
        _from_inner(distances, a, b, A, B)
        return distances
    rows = max(1, _ENTRIES_AT_ONCE // max(1, distances.shape[1]))
    for start in range(0, len(distances), rows):  # each block is passed over several times while the cache holds it
        block = slice(start, start + rows)
        _from_inner(distances[block], a[block], b, A[:, block], B)
    return distances


def _from_inner(inner: Floats, a: Floats, b: Floats, A: Floats, B: Floats) -> None:
    """Turn inner products of atoms into distances, in place; ``a`` and ``b`` are the squared norms."""
    squares = a + b
    np.abs(inner, out=inner)
    inner *= 2
    squared = np.subtract(squares, inner, out=inner)
    share = np.sqrt(np.finfo(inner.dtype).eps)
    if squared.size == 0 or squared.min() > share * squares.max():
        np.sqrt(squared, out=squared)
        return
    near = np.nonzero(squared <= share * squares)
    squared[near] = 0
    np.sqrt(squared, out=squared)
    for start in range(0, len(near[0]), _PAIRS_AT_ONCE):
        *lead, i, j = (index[start : start + _PAIRS_AT_ONCE] for index in near)
        x, y = (C.mT[(*lead, k)].T if lead else C[:, k] for C, k in ((A, i), (B, j)))
        signs = np.where((x * y).sum(axis=0) < 0, -1, 1).astype(inner.dtype)
        squared[(*lead, i, j)] = np.linalg.norm(x - signs * y, axis=0)


@dataclass(frozen=True)
class AtomMatch:
    """A pairing of atoms that ignores signs.

    Parameters
    ----------
    order : (r,) int
        ``order[j]`` is the atom of the first dictionary paired with atom ``j`` of the second.
    errors : (r,) float
        d_{2,(j)}: the distance of each pair.
    """

    order: Ints
    errors: Floats


def match_atoms(A: ArrayLike, B: ArrayLike) -> AtomMatch:
    r"""Pair the atoms of two dictionaries so that the largest distance is smallest.

    .. math:: \Pi^* \in \arg\min_{\Pi \in \mathcal P(r)} \lVert A\Pi - B\rVert_{1,2}

    Several pairings may reach that value. The one with the least sum is returned, so that each d_{2,(j)} is well
    defined.

    Parameters
    ----------
    A : (d, r_a) array
        Atoms of any norm. If ``r_a > r``, the best ``r`` of them are used.
    B : (d, r) array
        Atoms of any norm.

    Returns
    -------
    AtomMatch

    Raises
    ------
    ValueError
        If ``A`` has fewer atoms than ``B``, or other features.

    Notes
    -----
    Bottleneck assignment: a binary search over the distances, each step a maximum bipartite matching.
    """
    from scipy.optimize import linear_sum_assignment  # takes a third of a client's imports

    A, B = _as_floats(A, B)
    if len(A) != len(B) or A.shape[1] < B.shape[1]:
        raise ValueError(f"dictionaries of shapes {A.shape} and {B.shape} cannot be paired atom by atom")
    if B.shape[1] == 0:
        return AtomMatch(np.empty(0, dtype=np.intp), np.empty(0))
    distances = atom_distances(A, B).astype(np.float64)
    bottleneck = _bottleneck(distances)
    # Pairs beyond the bottleneck cost more than any pairing within it.
    forbidden = bottleneck * (len(distances) + 1) + 1
    _, order = linear_sum_assignment(np.where(distances <= bottleneck, distances, forbidden).T)
    return AtomMatch(order, distances[order, np.arange(len(order))])


def dictionary_distance(A: ArrayLike, B: ArrayLike) -> float:
    r"""Return the distance d_{1,2}: the largest atom error under the best signed permutation.

    Parameters
    ----------
    A : (d, r_a) array
        Atoms of any norm. If ``r_a > r``, only the best ``r`` of them count.
    B : (d, r) array
        Atoms of any norm.

    Returns
    -------
    float
        0 for dictionaries without atoms.
    """
    return float(match_atoms(A, B).errors.max(initial=0.0))


def mutual_coherence(D: ArrayLike) -> float:
    r"""Return the largest inner product, in size, of two different atoms scaled to unit norm.

    The paper's :math:`\mu` is this times :math:`\sqrt d`.

    Parameters
    ----------
    D : (d, r) array
        Atoms of any norm.

    Returns
    -------
    float
        In [0, 1]; 0 for fewer than two atoms. An atom of norm zero counts as orthogonal to all.
    """
    (D,) = _as_floats(D)
    norms = np.linalg.norm(D, axis=0)
    U = D / np.where(norms > 0, norms, 1)
    gram = np.abs(U.T @ U)
    np.fill_diagonal(gram, 0)
    return float(min(gram.max(initial=0.0), 1.0))


def _bottleneck(distances: Floats) -> float:
    """Return the smallest t such that the pairs at distance <= t give every column a row of its own."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    least = distances.min(axis=0).max()
    if distances.shape[0] == distances.shape[1]:
        least = max(least, distances.min(axis=1).max())
    values = np.unique(distances[distances >= least])
    low, high = 0, len(values) - 1
    middle = 0  # try the lower bound first: it is usually the answer
    while low < high:
        if (maximum_bipartite_matching(csr_array(distances <= values[middle]), perm_type="row") >= 0).all():
            high = middle
        else:
            low = middle + 1
        middle = (low + high) // 2
    return float(values[low])


def _as_floats(*arrays: ArrayLike) -> list[Floats]:
    out = [np.asarray(a) for a in arrays]
    dtype = np.float32 if all(a.dtype == np.float32 for a in out) else np.float64
    return [a.astype(dtype, copy=False) for a in out]
