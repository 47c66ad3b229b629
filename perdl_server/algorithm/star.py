r"""Match around one client instead of along a chain.

Every atom of a *centre* client is paired with one atom of each other client. An atom is shared if most clients have
an atom near it:

.. math:: \ell_j(m) = \operatorname{median}_{i \ne m} \min_k d_2((D_m)_{(j)}, (D_i)_{(k)})

Each client offers its ``n_paths`` atoms with the smallest :math:`\ell_j`. The offer is paired, atom by atom, with every
other client, and the client with the least cost is the centre. Pairing matters: a client that offers the same shared
atom several times has small :math:`\ell_j`, but each other client has that atom only once.

A client with a wrong start, without samples of an atom, or with false data spoils only its own edges. The median
tolerates this from fewer than half of the other clients. On a chain, two paths through such a client may swap there,
and every later client is then matched to the wrong atom.

Where this takes long, with many clients or large dictionaries, a random dozen are candidates for the centre, and
:math:`\ell_j` is the median over 50 clients drawn at random. The cost of a candidate is over all clients. So time and
memory grow with N.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from common.dictionaries import atom_distances

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]

_ENOUGH = 50
"""Most clients to compare one with. If 30 of 100 clients are hostile, most of 50 are with a probability of 0.002."""

_MANY, _LONG = 128, 1e11
"""Clients, and operations, up to which each client is compared with each."""

_CANDIDATES = 12
"""Candidates for the centre of more clients. If 30 of 100 are hostile, all of these are with a probability of 5e-7."""

_JUDGES = 9
"""Clients that fit the others, to which each of many clients is compared."""

_ENTRIES = 2**20
"""Numbers of many clients that are held at once: 8 MB."""


def star_paths(dictionaries: Sequence[Floats], n_paths: int) -> tuple[Ints, Floats, int]:
    """Pair the centre's ``n_paths`` most shared atoms with one atom of every client.

    Parameters
    ----------
    dictionaries : sequence of (d, r_i) arrays
        Initial dictionaries, by client.
    n_paths : int
        Number of paths, ``0 <= n_paths <= min(r_i)``.

    Returns
    -------
    indices : (N, n_paths) int
        Column ``j`` holds the atoms paired with the centre's ``j``-th most shared one. No atom occurs twice.
    lengths : (n_paths,) or (n_paths + 1,) array
        ``N - 1`` times the median edge of each path, ascending: comparable to the sum of a chain's ``N - 1`` edges.
        If the centre has more atoms, the next one is included.
    centre : int
        Number of the centre client.

    Notes
    -----
    At most ``N (N - 1) / 2`` matrix products, of many clients 600, rank the candidates; each that is tried then costs
    ``N - 1`` assignments.
    A paired atom is never nearer than the nearest one. So a client whose nearest atoms already cost as much as the best
    pairing is skipped: if shared atoms stand out, only one client is paired.
    """
    candidates, typical = _typical(dictionaries)
    offers = [np.argsort(edges, kind="stable")[:n_paths] for edges in typical]
    at_least = np.array([edges[offer].sum() for edges, offer in zip(typical, offers, strict=True)])
    least, best, indices = np.inf, 0, np.empty((len(dictionaries), n_paths), dtype=np.intp)
    for c in np.argsort(at_least, kind="stable"):
        # The margin keeps rounding errors from making every client a candidate.
        if at_least[c] >= least - 1e-9 * n_paths:
            break
        m, offer = candidates[c], offers[c]
        pairs = [pair_atoms(dictionaries[m][:, offer], D) for D in dictionaries]
        edges = np.array([edge for i, (_, edge) in enumerate(pairs) if i != m]).reshape(len(pairs) - 1, n_paths)
        cost = np.median(edges, axis=0).sum() if len(edges) else 0.0
        if cost < least:
            least, best, indices = cost, int(c), np.array([index for index, _ in pairs])
            indices[m] = offer  # pair the centre with itself, even if it has an atom twice
    return indices, (len(dictionaries) - 1) * np.sort(typical[best])[: n_paths + 1], int(candidates[best])


def pair_atoms(A: Floats, B: Floats) -> tuple[Ints, Floats]:
    """Pair each atom of ``A`` with an atom of ``B``, all different, at the least sum of squared distances.

    Parameters
    ----------
    A : (d, r_a) array
        Atoms to pair.
    B : (d, r_b) array
        Atoms to choose from, ``r_b >= r_a``.

    Returns
    -------
    indices : (r_a,) int
        The atom of ``B`` for each atom of ``A``.
    distances : (r_a,) array
        The distance of each pair.
    """
    from scipy.optimize import linear_sum_assignment  # no chain needs it

    distances = atom_distances(A, B).astype(np.float64)
    rows, indices = linear_sum_assignment(distances**2)
    return indices, distances[rows, indices]


def _typical(dictionaries: Sequence[Floats]) -> tuple[Ints, list[Floats]]:
    """Return candidates for the centre, and for each the median distance of its atoms to other clients' nearest."""
    N, largest = len(dictionaries), max(D.size * D.shape[1] for D in dictionaries)
    if N <= _ENOUGH or (N <= _MANY and N**2 * largest <= _LONG):
        nearest = _nearest(dictionaries)
        return np.arange(N), [np.median(e, axis=0) if len(e) else np.zeros(e.shape[1]) for e in nearest]
    drawn = np.random.default_rng(N).permutation(N)
    candidates, others = np.sort(drawn[:_CANDIDATES]), drawn[-_ENOUGH:]
    edges = [[atom_distances(dictionaries[m], dictionaries[k]) for k in others if k != m] for m in candidates]
    return candidates, [
        np.median([e.min(axis=1, initial=np.inf).astype(np.float64) for e in some], axis=0) for some in edges
    ]


def _nearest(dictionaries: Sequence[Floats]) -> list[Floats]:
    """Return for each client (N - 1, r_i): distances of its atoms to the nearest atom of every other client."""
    rows: list[list[Floats]] = [[] for _ in dictionaries]
    for i, A in enumerate(dictionaries):
        for k, B in enumerate(dictionaries[:i]):
            distances = atom_distances(A, B).astype(np.float64)
            rows[i].append(distances.min(axis=1, initial=np.inf))
            rows[k].append(distances.min(axis=0, initial=np.inf))
    return [np.array(edges).reshape(len(edges), D.shape[1]) for edges, D in zip(rows, dictionaries, strict=True)]


def misfits(dictionaries: Sequence[Floats], indices: Ints, unrelated: Floats) -> list[int]:
    """Return the clients whose matched atoms are as far from the others' as unrelated atoms would be.

    Parameters
    ----------
    dictionaries : sequence of (d, r_i) arrays
        Initial dictionaries, by client.
    indices : (N, n_global) int
        Atoms that matching chose, by either method. They are paired again, because paths of a chain may have
        swapped after a misfit.
    unrelated : (r,) array
        Distances of unrelated atoms, see :class:`~perdl_server.algorithm.null.Null`.

    Returns
    -------
    list of int
        Numbers of the clients. Empty if less than half of them fit: then the matching itself is wrong.

    Notes
    -----
    The distance of an atom is the median over the other clients, that of a client the median over its atoms.
    """
    N, n_global = indices.shape
    # Two clients differ from each other, so neither is the misfit. In one dimension all atoms are the same.
    if N < 3 or n_global == 0 or unrelated[0] == 0:
        return []
    judges = np.arange(N)
    if N > _ENOUGH:
        drawn = np.sort(np.random.default_rng(N).permutation(N)[:_ENOUGH])
        judges = drawn[np.argsort(_fits(dictionaries, indices, drawn, drawn), kind="stable")[:_JUDGES]]
    far = np.flatnonzero(_fits(dictionaries, indices, np.arange(N), judges) > 0.8 * unrelated[0])
    return far.tolist() if len(far) <= N / 2 else []


def _fits(dictionaries: Sequence[Floats], indices: Ints, clients: Ints, judges: Ints) -> Floats:
    """Return for each client the median over its atoms of the median distance to those of the judges."""
    theirs = [dictionaries[k][:, indices[k]] for k in judges]
    (d, m), fits = theirs[0].shape, np.empty(len(clients))
    at_once = max(1, _ENTRIES // (m * max(d, len(judges) * m)))
    for start in range(0, len(clients), at_once):
        some = clients[start : start + at_once]
        atoms = np.stack([dictionaries[i][:, indices[i]] for i in some])
        edges = np.array([_edges(B, atoms) for B in theirs])
        typical = np.median(edges, axis=0)
        for k, judge in enumerate(judges):  # nobody judges itself
            for i in np.flatnonzero(some == judge):
                typical[i] = np.median(np.delete(edges[:, i], k, axis=0), axis=0)
        fits[start : start + at_once] = np.median(typical, axis=1)
    return fits


def _edges(B: Floats, many: Floats) -> Floats:
    """Return the distances (M, m) of the atoms of M dictionaries (M, d, m) to those of ``B``, by :func:`pair_atoms`."""
    distances = atom_distances(many, np.broadcast_to(B, many.shape)).astype(np.float64)
    nearest = np.sort(distances.argmin(axis=2), axis=1)
    edges: Floats = distances.min(axis=2)
    # Where each has a nearest atom of its own, no other pairing costs less.
    for i in np.flatnonzero((nearest[:, 1:] == nearest[:, :-1]).any(axis=1)):
        edges[i] = pair_atoms(many[i], B)[1]
    return edges
