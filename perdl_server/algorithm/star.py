r"""Match around one client instead of along a chain.

Every atom of a *centre* client is paired with one atom of each other client. Shared is what the majority has near:

.. math:: \ell_j(m) = \operatorname{median}_{i \ne m} \min_k d_2((D_m)_{(j)}, (D_i)_{(k)})

A client offers its ``n_paths`` atoms of smallest :math:`\ell_j`, and the centre is the client whose offer costs least
once it is paired, atom by atom, with every other client's: one that offers the same shared atom several times is near
to all, but finds it once in each. A client whose start is wrong, that has no samples of an atom, or that lies, spoils
its own edges only, and of the others of each client fewer than half may. On a chain two paths that pass through such a
client may change places there, and every later client is then matched to the wrong atom.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from common.dictionaries import atom_distances

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]

_ENOUGH = 50
"""Clients to compare one with, where there are more: who fits nobody fits none of these."""


def star_paths(dictionaries: Sequence[Floats], n_paths: int) -> tuple[Ints, Floats, int]:
    """Pair the ``n_paths`` atoms of the centre that are most shared with one atom of every client.

    Parameters
    ----------
    dictionaries : sequence of (d, r_i) arrays
    n_paths : int
        ``0 <= n_paths <= min(r_i)``.

    Returns
    -------
    indices : (N, n_paths) int
        Column ``j`` holds the atoms paired with the centre's ``j``-th most shared one; no client's atom twice.
    lengths : (n_paths,) or (n_paths + 1,) array
        ``N - 1`` times the median edge of each, ascending; comparable with the sum of a chain's ``N - 1`` edges. Where
        the centre has one more atom, also of its most shared one.
    centre : int

    Notes
    -----
    ``N (N - 1) / 2`` matrix products to find who may be the centre, ``N - 1`` assignments to pair each of those that
    may: one client where shared atoms stand out. A paired atom is never nearer than the nearest one, so whoever offers
    no less by the nearest ones than another paired is not looked at.
    """
    nearest = _nearest(dictionaries)
    typical: list[Floats] = [np.median(edges, axis=0) if len(edges) else np.zeros(edges.shape[1]) for edges in nearest]
    offers = [np.argsort(edges, kind="stable")[:n_paths] for edges in typical]
    at_least = np.array([edges[offer].sum() for edges, offer in zip(typical, offers, strict=True)])
    least, centre, indices = np.inf, 0, np.empty((len(dictionaries), n_paths), dtype=np.intp)
    for m in np.argsort(at_least, kind="stable"):
        # What rounding leaves of a pairing with itself is no reason to look at all.
        if at_least[m] >= least - 1e-9 * n_paths:
            break
        pairs = [pair_atoms(dictionaries[m][:, offers[m]], D) for D in dictionaries]
        edges = np.array([edge for i, (_, edge) in enumerate(pairs) if i != m]).reshape(len(pairs) - 1, n_paths)
        cost = np.median(edges, axis=0).sum() if len(edges) else 0.0
        if cost < least:
            least, centre, indices = cost, int(m), np.array([index for index, _ in pairs])
            indices[m] = offers[m]  # itself, even among atoms that it has twice
    return indices, (len(dictionaries) - 1) * np.sort(typical[centre])[: n_paths + 1], centre


def pair_atoms(A: Floats, B: Floats) -> tuple[Ints, Floats]:
    """Pair each atom of ``A`` with one of ``B``, none twice, at the least sum of squared distances.

    Returns
    -------
    indices : (r_a,) int
    distances : (r_a,) array
    """
    distances = atom_distances(A, B).astype(np.float64)
    rows, indices = linear_sum_assignment(distances**2)
    return indices, distances[rows, indices]


def _nearest(dictionaries: Sequence[Floats]) -> list[Floats]:
    """For each client (N - 1, r_i): distances of its atoms to the nearest atom of every other client."""
    rows: list[list[Floats]] = [[] for _ in dictionaries]
    for i, A in enumerate(dictionaries):
        for k, B in enumerate(dictionaries[:i]):
            distances = atom_distances(A, B).astype(np.float64)
            rows[i].append(distances.min(axis=1, initial=np.inf))
            rows[k].append(distances.min(axis=0, initial=np.inf))
    return [np.array(edges).reshape(len(edges), D.shape[1]) for edges, D in zip(rows, dictionaries, strict=True)]


def misfits(dictionaries: Sequence[Floats], indices: Ints, unrelated: Floats) -> list[int]:
    """Return the clients whose matched atoms are no nearer to the other clients' than unrelated atoms would be.

    Parameters
    ----------
    dictionaries : sequence of (d, r_i) arrays
    indices : (N, n_global) int
        What matching chose, by either method. Atoms are paired anew: behind a client that fits nobody, paths of a chain
        may have changed places.
    unrelated : (r,) array
        How far apart unrelated atoms lie, see :func:`~perdl_server.algorithm.matching.unrelated_edges`.

    Returns
    -------
    list of int
        Empty where less than half of the clients fit: then it is the match that is wrong, not they.

    Notes
    -----
    Of each atom the median over the other clients, of each client the median over its atoms.
    """
    N, n_global = indices.shape
    # Of two that differ, neither is the one that does; and in one dimension all atoms are the same.
    if N < 3 or n_global == 0 or unrelated[0] == 0:
        return []
    atoms = [D[:, chosen] for D, chosen in zip(dictionaries, indices, strict=True)]
    others = np.unique(np.linspace(0, N - 1, min(N, _ENOUGH)).astype(int))
    fits = [np.median([pair_atoms(A, atoms[k])[1] for k in others if k != i], axis=0) for i, A in enumerate(atoms)]
    far = np.flatnonzero(np.median(fits, axis=1) > 0.8 * unrelated[0])
    return far.tolist() if len(far) <= N / 2 else []
