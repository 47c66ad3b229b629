r"""Aggregations: from the clients' aligned global atoms to one D^g.

Every aggregation takes a stack ``A`` (N, d, r) of aligned contributions in the order of client ids, non-negative
weights ``w`` (N, r), and the present D^g (d, r). It returns the new D^g. All aggregations commute with an orthogonal
transform of the feature space. To add one, write such a function, enter it in :data:`COMBINE`, and declare in
``common.aggregations.AGGREGATIONS`` what it needs from clients.

The contribution of a client depends on the aggregation, see ``common.aggregations``:

=========================  ====================================  ==========================================
name                       client i sends                        server takes
=========================  ====================================  ==========================================
``mean``                   D^g_i                                 the mean (the paper; its theorems hold)
``normalized``             D^g_i                                 the mean, atoms scaled to unit norm
``polar``                  D^g_i                                 the polar factor of the sum
``energy``                 D^g_i and energies w_ij               Polar(sum_i D^g_i diag(w_i) / sum_i w_i)
``procrustes``             D^g_i P^gg_i                          the polar factor of the sum
``trimmed``                D^g_i                                 the mean without the farthest from the median
``geometric-median``       D^g_i                                 for each atom the point of least total distance
=========================  ====================================  ==========================================
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from common.aggregations import AGGREGATIONS
from common.errors import SettingsError
from common.polar import polar_factor

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]
Combine = Callable[[Floats, Floats, Floats], Floats]


def mean(A: Floats, w: Floats, present: Floats) -> Floats:
    """Return the mean with uniform weights: algorithm 1, step 13, of the paper.

    Parameters
    ----------
    A : (N, d, r) array
        Aligned contributions, one per client.
    w : (N, r) array
        Not used.
    present : (d, r) array
        Not used.
    """
    out: Floats = np.asarray(np.sum(A, axis=0) / len(A), dtype=A.dtype)
    return out


def normalized(A: Floats, w: Floats, present: Floats) -> Floats:
    """Return the mean with atoms scaled to unit norm. An atom whose mean vanishes keeps its present value.

    Parameters
    ----------
    A : (N, d, r) array
        Aligned contributions, one per client.
    w : (N, r) array
        Not used.
    present : (d, r) array
        The present D^g.
    """
    M = mean(A, w, present)
    norms = np.linalg.norm(M, axis=0)
    # If contributions cancel, only rounding is left, which is no direction.
    alive = norms > 100 * np.finfo(M.dtype).eps * np.linalg.norm(A, axis=1).max(axis=0)
    return np.where(alive, M / np.where(alive, norms, 1), present)


def polar(A: Floats, w: Floats, present: Floats) -> Floats:
    """Return the polar factor of the sum, which is the orthonormal dictionary nearest to the mean.

    Parameters
    ----------
    A : (N, d, r) array
        Aligned contributions, one per client.
    w : (N, r) array
        Not used.
    present : (d, r) array
        The present D^g, which completes atoms that nobody uses.
    """
    return polar_factor(A.sum(axis=0), prior=present)


def energy(A: Floats, w: Floats, present: Floats) -> Floats:
    """Return the polar factor of the mean in which each client's atom is weighted by its energy there.

    Parameters
    ----------
    A : (N, d, r) array
        Aligned contributions, one per client.
    w : (N, r) array
        Energies of the atoms at each client.
    present : (d, r) array
        The present D^g, which completes atoms that nobody uses.
    """
    total = w.sum(axis=0)
    M = np.einsum("idr,ir->dr", A, w) / np.where(total > 0, total, 1)
    return polar_factor(M, prior=present)


def trimmed(A: Floats, w: Floats, present: Floats, trim: float = 0.3) -> Floats:
    """Return, for each atom, the mean without the contributions farthest from their geometric median.

    Distances are used, not coordinates, so that it commutes with a rotation of the feature space.

    Parameters
    ----------
    A : (N, d, r) array
        Aligned contributions, one per client.
    w : (N, r) array
        Not used.
    present : (d, r) array
        The present D^g.
    trim : float
        Share of clients that is left out, 0 to 0.5.
    """
    n_kept = len(A) - int(trim * len(A) + 1e-9)  # 0.29 * 100 is a little less than 29
    distances = np.linalg.norm(A - geometric_median(A, w, present), axis=1)
    kept = np.argsort(distances, axis=0, kind="stable")[:n_kept]
    # A mask keeps the order of summation by client, whatever the distances.
    mask = np.zeros(distances.shape, dtype=A.dtype)
    np.put_along_axis(mask, kept, 1, axis=0)
    out: Floats = np.asarray((A * mask[:, None, :]).sum(axis=0) / n_kept, dtype=A.dtype)
    return out


def geometric_median(A: Floats, w: Floats, present: Floats) -> Floats:
    r"""Return, for each atom, the point with the least total distance to the clients' atoms.

    .. math:: \min_m \sum_i \lVert A_{i(j)} - m \rVert_2

    Parameters
    ----------
    A : (N, d, r) array
        Aligned contributions, one per client.
    w : (N, r) array
        Not used.
    present : (d, r) array
        The present D^g; returned if there are no atoms.
    """
    return np.stack([_median_point(A[:, :, j]) for j in range(A.shape[2])], axis=1) if A.shape[2] else present


def _median_point(points: Floats, n_steps: int = 1000) -> Floats:
    """Return the geometric median of points (N, d): one of them if it is optimal, else by Weiszfeld's iteration."""
    P = points.astype(np.float64)
    gaps = np.linalg.norm(P[:, None] - P, axis=2)
    scale = np.abs(P).max(initial=0.0)
    same = gaps <= 1e-14 * scale
    inverse = np.where(same, 0, 1 / np.where(same, 1, gaps))
    # A point is the median if the pull of the others is less than the number of points that lie there. If it is equal,
    # as for two points, all points between are medians, and the iteration starts and stays at the mean.
    pull = np.linalg.norm(inverse @ P - inverse.sum(axis=1, keepdims=True) * P, axis=1)
    optimal = np.flatnonzero((pull < (1 - 1e-9) * same.sum(axis=1)) | same.all(axis=1))
    if len(optimal):
        median: Floats = points[optimal[0]]
        return median
    m = P.mean(axis=0)
    for _ in range(n_steps):
        closeness = 1 / np.maximum(np.linalg.norm(P - m, axis=1), 1e-300)
        step = closeness @ P / closeness.sum() - m
        m = m + step
        if np.linalg.norm(step) <= np.finfo(np.float64).eps * scale:
            break
    return np.asarray(m, dtype=points.dtype)


COMBINE: dict[str, Combine] = {
    "mean": mean,
    "normalized": normalized,
    "polar": polar,
    "energy": energy,
    "procrustes": polar,
    "trimmed": trimmed,
    "geometric-median": geometric_median,
}
"""Aggregations by name, as in the setting ``aggregation``."""


def combiner(name: str, trim: float = 0.3) -> Combine:
    """Return the function that aggregates a round's contributions. It first aligns their signs with D^g.

    Honest clients send aligned atoms already, and their bits do not change. A stretched atom D^g_i P^gg_i has no sign
    of its own, so it is not changed.

    Parameters
    ----------
    name : str
        Name of the aggregation.
    trim : float
        Share of clients that ``trimmed`` leaves out.
    """
    combine = _combine(name, trim)
    if AGGREGATIONS[name].contribution == "procrustes":
        return combine

    def turned(A: Floats, w: Floats, present: Floats) -> Floats:
        signs = np.where((A * present).sum(axis=1, keepdims=True) < 0, -1, 1).astype(A.dtype)
        return combine(A * signs, w, present)

    return turned


def over_members(combine: Combine, A: Floats, w: Floats, present: Floats, members: Bools) -> Floats:
    """Aggregate each atom over its members. Atoms without members keep their present value.

    Atoms with the same members are aggregated together, so that an orthonormal aggregation makes them orthonormal.

    Parameters
    ----------
    combine : callable
        The aggregation.
    A : (N, d, r) array
        Aligned contributions; columns of others than members are not read.
    w : (N, r) array
        Their energies.
    present : (d, r) array
        The present D^g.
    members : (N, r) bool array
        Members of each atom.

    Returns
    -------
    (d, r) array
    """
    if members.all():
        return combine(A, w, present)
    out = present.copy()
    patterns, which = np.unique(members, axis=1, return_inverse=True)
    for k, pattern in enumerate(patterns.T):
        rows, atoms = np.flatnonzero(pattern), np.flatnonzero(which.ravel() == k)
        if len(rows):
            out[:, atoms] = combine(A[rows][:, :, atoms], w[rows][:, atoms], present[:, atoms])
    return out


def _combine(name: str, trim: float) -> Combine:
    combine = COMBINE[name]
    return functools.partial(trimmed, trim=trim) if combine is trimmed else combine


def first_average(
    dictionaries: Sequence[Floats], usages: Sequence[Floats], indices: Ints, signs: Floats, name: str, trim: float = 0.3
) -> tuple[Floats, Floats]:
    """Aggregate the matched atoms to D^{g,(0)}.

    Parameters
    ----------
    dictionaries : sequence of (d, m_i) arrays
        Dictionaries that were matched.
    usages : sequence of (m_i,) arrays
        Energy of each atom.
    indices : (N, r_g) int array
        The atom of client i on path j; negative if it has none.
    signs : (N, r_g) array, +1 or -1
        Signs that align these atoms.
    name : str
        Name of the aggregation. Before the first round there are no stretched atoms, so ``procrustes`` begins with
        ``energy``.
    trim : float
        Share of clients that ``trimmed`` leaves out.

    Returns
    -------
    contributions : (N, d, r_g) array
        The aligned atoms of each client; zero where it has none.
    global_dictionary : (d, r_g) array

    Raises
    ------
    SettingsError
        If the aggregation is orthonormal and a client has more global atoms than features.
    """
    d, r_g = len(dictionaries[0]), indices.shape[1]
    members = indices >= 0
    most = int(members.sum(axis=1).max(initial=0))
    if AGGREGATIONS[name].orthonormal and most > d:
        raise SettingsError(f'n_global = {most}: must be at most the {d} features for aggregation = "{name}"')
    A = np.zeros((len(dictionaries), d, r_g), dtype=dictionaries[0].dtype)
    w = np.zeros((len(dictionaries), r_g), dtype=dictionaries[0].dtype)
    for i, (D, usage) in enumerate(zip(dictionaries, usages, strict=True)):
        own = members[i]
        A[i][:, own], w[i, own] = D[:, indices[i, own]] * signs[i, own], usage[indices[i, own]]
    start = "energy" if AGGREGATIONS[name].contribution == "procrustes" else name
    return A, over_members(_combine(start, trim), A, w, over_members(mean, A, w, A[0], members), members)


def idle_atoms(A: Floats, w: Floats) -> list[int]:
    """Return the atoms that no client uses: their energy, or their second moment, is zero at all clients.

    For aggregations in which clients send plain atoms without energies this is unknown, and the result is empty.

    Parameters
    ----------
    A : (N, d, r) array
        Contributions, one per client.
    w : (N, r) array
        Energies; ones if there are none.
    """
    carried = w.sum(axis=0) * np.linalg.norm(A, axis=1).max(axis=0)
    return np.flatnonzero(carried <= 1e-12 * carried.max(initial=0.0)).tolist()


def consensus(A: Floats) -> Floats:
    """Return the norm of the mean of each atom's unit-norm contributions: 1 if all clients agree.

    Parameters
    ----------
    A : (N, d, r) array
        Contributions, one per client.

    Returns
    -------
    (r,) array in [0, 1]
    """
    norms = np.linalg.norm(A, axis=1, keepdims=True)
    units = A / np.where(norms > 0, norms, 1)
    present = (norms > 0).sum(axis=0).ravel()
    norm_of_mean: Floats = np.linalg.norm(units.sum(axis=0), axis=0) / np.maximum(present, 1)
    return norm_of_mean
