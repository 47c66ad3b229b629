r"""Separate the atoms that all clients share from those of one client alone.

Takes, greedily, the ``n_global`` vertex-disjoint paths of least length through the layered graph whose layer ``i``
holds the atoms of client ``i`` and whose edges cost

.. math:: d_2(a, b) = \min(\lVert a - b \rVert_2, \lVert a + b \rVert_2).

Source: Liang, Shi, Al Kontar, Fattahi, "Personalized Dictionary Learning for Heterogeneous Datasets", 2023,
algorithm 2 and theorem 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.dictionaries import atom_distances
from common.errors import PerdlError

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]


class MatchingError(PerdlError, ValueError):
    """Dictionaries that cannot be matched; ``client`` is whose is the cause."""

    def __init__(self, text: str, client: str = "") -> None:
        super().__init__(text)
        self.client = client


@dataclass(frozen=True)
class Matching:
    """What matching decided.

    Attributes
    ----------
    indices : (N, n_global) int
        ``indices[i, j]`` is the atom of client ``i`` on path ``j``.
    signs : (N, n_global) float, +1 or -1
        Sign that aligns that atom with the first client's.
    path_lengths : (n_global,) float
        Sum of the ``N - 1`` edges of each path, in the order found. A jump tells where shared atoms end.
    global_dictionary : (d, n_global) float
        Mean of the aligned atoms of each path; shorter than one where clients disagree.
    local_dictionaries : list of (d, r_i - n_global) float
        What is left of each dictionary, in its own order.
    """

    indices: Ints
    signs: Floats
    path_lengths: Floats
    global_dictionary: Floats
    local_dictionaries: list[Floats]


def global_matching(dictionaries: Sequence[Floats], n_global: int, names: Sequence[str] | None = None) -> Matching:
    """Match ``n_global`` atoms across clients by successive shortest paths.

    Parameters
    ----------
    dictionaries : sequence of (d, r_i) arrays
        Initial dictionaries in the order of the chain; the ``r_i`` may differ.
    n_global : int
        Number of shared atoms, ``0 <= n_global <= min(r_i)``.
    names : sequence of str, optional
        What errors call the clients; default "client 0", "client 1", ...

    Returns
    -------
    Matching

    Raises
    ------
    MatchingError
        If feature counts differ or some client has fewer than ``n_global`` atoms; the message names the client.

    Notes
    -----
    Edge weights cost ``N - 1`` matrix products. After a path leaves the graph only nodes whose best predecessor
    became dearer are computed again, which gives the same paths as a full pass. Greedy removal is the paper's
    algorithm; it need not be the optimum of the paper's objective, which sums spectral norms.
    """
    _check(dictionaries, n_global, names)
    indices, lengths = _shortest_paths(dictionaries, n_global)
    signs, global_dictionary = _average(dictionaries, indices)
    local = [D[:, np.setdiff1d(np.arange(D.shape[1]), chosen)] for D, chosen in zip(dictionaries, indices, strict=True)]
    return Matching(indices, signs, lengths, global_dictionary, local)


def suggest_n_global(dictionaries: Sequence[Floats], names: Sequence[str] | None = None) -> tuple[int, Floats]:
    r"""Guess how many atoms are shared, from the jump in path lengths.

    Finds every path, takes the mean edge :math:`\ell_j` of each, and returns the place of the largest jump in

    .. math:: 0, \min(\ell_1, \ell_0), \dots, \min(\ell_r, \ell_0), \ell_0

    where :math:`\ell_0` is what the best path through unrelated atoms costs, for dictionaries of these sizes.

    Parameters
    ----------
    dictionaries : sequence of (d, r_i) arrays
    names : sequence of str, optional
        What errors call the clients.

    Returns
    -------
    n_global : int
        Between 0 and ``min(r_i)``; all atoms for a single client, which has nobody to differ from.
    path_lengths : (min(r_i),) array
        All path lengths.
    """
    _check(dictionaries, 0, names)
    sizes = [D.shape[1] for D in dictionaries]
    _, lengths = _shortest_paths(dictionaries, min(sizes))
    if len(sizes) == 1 or min(sizes) == 0:
        return min(sizes), lengths
    unrelated = unrelated_edge(len(dictionaries[0]), sizes)
    edges = np.minimum(lengths / (len(sizes) - 1), unrelated)
    return int(np.diff(edges, prepend=0.0, append=unrelated).argmax()), lengths


def unrelated_edge(d: int, sizes: Sequence[int], n_draws: int = 5, n_layers: int = 10) -> float:
    """Mean edge of the best path through random unit atoms: what to hold the edges of real paths against.

    Parameters
    ----------
    d : int
        Features.
    sizes : sequence of int
        Atoms of each client, two clients or more.
    n_draws, n_layers : int
        A few layers tell, however many clients there are.

    Returns
    -------
    float
        0 for a single client.
    """
    if len(sizes) < 2 or min(sizes) == 0:
        return 0.0
    rng = np.random.default_rng(0)
    edges = []
    for _ in range(n_draws):
        layers = [G / np.linalg.norm(G, axis=0) for r in sizes[:n_layers] if (G := rng.standard_normal((d, r))).size]
        _, lengths = _shortest_paths(layers, 1)
        edges.append(lengths[0] / (len(layers) - 1))
    return float(np.mean(edges))


def _shortest_paths(dictionaries: Sequence[Floats], n_paths: int) -> tuple[Ints, Floats]:
    # Rows are the later layer, so that the search for the best predecessor reads memory in order.
    weights = [atom_distances(b, a) for a, b in itertools.pairwise(dictionaries)]
    cost, pred = _first_pass(weights, dictionaries[0].shape[1])
    indices = np.empty((len(dictionaries), n_paths), dtype=np.intp)
    lengths = np.empty(n_paths)
    for j in range(n_paths):
        path = _trace(cost, pred)
        lengths[j] = cost[-1][path[-1]]
        indices[:, j] = path
        _remove(path, weights, cost, pred)
    return indices, lengths


def _first_pass(weights: list[Floats], r_first: int) -> tuple[list[Floats], list[Ints]]:
    cost: list[Floats] = [np.zeros(r_first)]
    pred: list[Ints] = []
    for w in weights:
        through = w + cost[-1]
        best = through.argmin(axis=1)
        pred.append(best)
        cost.append(through[np.arange(len(best)), best])
    return cost, pred


def _trace(cost: list[Floats], pred: list[Ints]) -> Ints:
    path = [int(cost[-1].argmin())]
    for best in reversed(pred):
        path.append(int(best[path[-1]]))
    return np.array(path[::-1], dtype=np.intp)


def _remove(path: Ints, weights: list[Floats], cost: list[Floats], pred: list[Ints]) -> None:
    """Take the path's nodes out of the graph (cost infinity) and repair ``cost`` and ``pred`` downstream."""
    dearer = np.zeros(len(cost[0]), dtype=bool)
    dearer[path[0]] = True
    cost[0][path[0]] = np.inf
    for w, c, c_next, best, node in zip(weights, cost, cost[1:], pred, path[1:], strict=False):
        stale = np.flatnonzero(dearer[best] & np.isfinite(c_next))
        through = w[stale] + c
        best[stale] = through.argmin(axis=1)
        repaired = through[np.arange(len(stale)), best[stale]]
        dearer = np.zeros(len(c_next), dtype=bool)
        dearer[stale[repaired > c_next[stale]]] = True
        c_next[stale] = repaired
        c_next[node] = np.inf
        dearer[node] = True


def _average(dictionaries: Sequence[Floats], indices: Ints) -> tuple[Floats, Floats]:
    reference = dictionaries[0][:, indices[0]]
    signs = np.ones(indices.shape, dtype=reference.dtype)
    total = np.zeros_like(reference)
    for i, (dictionary, chosen) in enumerate(zip(dictionaries, indices, strict=True)):
        atoms = dictionary[:, chosen]
        signs[i, (atoms * reference).sum(axis=0) < 0] = -1  # zero counts as aligned: an atom is never dropped
        total += atoms * signs[i]
    return signs, total / len(dictionaries)


def _check(dictionaries: Sequence[Floats], n_global: int, names: Sequence[str] | None) -> None:
    if not dictionaries:
        raise MatchingError("matching needs at least one client's dictionary")
    if n_global < 0:
        raise MatchingError(f"n_global is {n_global}; it must be 0 or more")
    who = names or [f"client {i}" for i in range(len(dictionaries))]
    d = dictionaries[0].shape[0]
    for name, dictionary in zip(who, dictionaries, strict=True):
        if dictionary.shape[0] != d:
            raise MatchingError(
                f"{name} has {dictionary.shape[0]} features, {who[0]} has {d}: all clients' samples must have the same "
                "features in the same order",
                name,
            )
        if dictionary.shape[1] < n_global:
            raise MatchingError(
                f"{name} has {dictionary.shape[1]} usable atoms, fewer than n_global = {n_global}: lower n_global, "
                "lower min_usage, or give this client more samples",
                name,
            )
