"""Shortest vertex-disjoint paths through the atoms of a chain of clients, one after the other.

The distances of neighbours cost ``N - 1`` matrix products, and take ``r_i r_(i+1)`` numbers of memory for each two of
them: with r atoms at every client 8 r^2 bytes a client. Then each path costs a pass over the layers. In large layers
only nodes whose best predecessor became more expensive are looked at again, which gives the same paths.

Source: Liang, Shi, Al Kontar, Fattahi, "Personalized Dictionary Learning for Heterogeneous Datasets", 2023,
algorithm 2.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from common.dictionaries import atom_distances

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]

_SMALL = 64**2
"""Edges between two layers up to which all are looked at again: to find out which need it would take as long."""
_AT_ONCE = 2**15
"""Entries of an intermediate array, so that it stays in the cache."""


def shortest_paths(dictionaries: Sequence[Floats], n_paths: int) -> tuple[Ints, Floats]:
    """Take the shortest path through all layers, remove its nodes, and repeat.

    Parameters
    ----------
    dictionaries : sequence of (d, r_i) arrays
        Atoms of each layer, in the order of the chain.
    n_paths : int
        Number of paths, ``0 <= n_paths <= min(r_i)``.

    Returns
    -------
    indices : (N, n_paths) int
        The atom of each layer on each path. Of several predecessors that are equally good it is the first.
    lengths : (n_paths,) or (n_paths + 1,) array
        Sum of the ``N - 1`` edges of each path, and of the next one if every layer has a node left.
    """
    n_found = min(n_paths + 1, *(D.shape[1] for D in dictionaries))
    if n_found == 0:  # some client may have no atom at all
        return np.empty((len(dictionaries), 0), dtype=np.intp), np.empty(0)
    weights = edges(dictionaries)
    small = all(w.size <= _SMALL for w in weights)
    first = np.zeros(dictionaries[0].shape[1])
    indices, lengths = np.empty((len(dictionaries), n_found), dtype=np.intp), np.empty(n_found)
    for j in range(n_found):
        if j == 0 or small:
            cost, pred = _pass(weights, first)
        path = _trace(cost, pred)
        lengths[j] = cost[-1][path[-1]]
        indices[:, j] = path
        if small:
            first[path[0]] = np.inf
            for w, node in zip(weights, path[1:].tolist(), strict=True):
                w[node] = np.inf
        else:
            _remove(path, weights, cost, pred)
    return indices[:, :n_paths], lengths


def edges(dictionaries: Sequence[Floats]) -> list[Floats]:
    """Return the distances between the atoms of neighbours.

    Parameters
    ----------
    dictionaries : sequence of (d, r_i) arrays
        Atoms of each layer. If they all have the same few, many layers are one stack for NumPy.

    Returns
    -------
    list of N - 1 (r_(i+1), r_i) arrays
        Rows are the later layer: the search for the best predecessor then reads memory in order.
    """
    first = dictionaries[0]
    alike = all(D.shape == first.shape and D.dtype == first.dtype for D in dictionaries)
    at_once = _AT_ONCE // max(first.size, first.shape[1] ** 2, 1)
    if not alike or at_once < 2:
        return [atom_distances(b, a) for a, b in itertools.pairwise(dictionaries)]
    weights: list[Floats] = []
    for start in range(0, len(dictionaries) - 1, at_once):
        some = np.array(dictionaries[start : start + at_once + 1])
        weights.extend(atom_distances(some[1:], some[:-1]))
    return weights


def _pass(weights: list[Floats], first: Floats) -> tuple[list[Floats], list[Ints]]:
    """Return the cost of the best path to each node, by layer, and its best predecessor."""
    cost, pred, counted = [first.copy()], [], np.arange(len(first))
    for w in weights:
        if w.size > _AT_ONCE:
            best, least = _cheapest(w, cost[-1], np.arange(len(w)))
        else:
            counted = counted if len(counted) == len(w) else np.arange(len(w))
            through = w + cost[-1]
            best = through.argmin(axis=1)
            least = through[counted, best]
        pred.append(best)
        cost.append(least)
    return cost, pred


def _cheapest(w: Floats, cost: Floats, rows: Ints) -> tuple[Ints, Floats]:
    """Return the best predecessor of some nodes, and the cost of the path through it."""
    best, least = np.empty(len(rows), dtype=np.intp), np.empty(len(rows))
    at_once = max(1, _AT_ONCE // len(cost))
    for start in range(0, len(rows), at_once):
        block = slice(start, start + at_once)
        through = w[rows[block]]
        through += cost
        best[block] = found = through.argmin(axis=1)
        least[block] = through[np.arange(len(found)), found]
    return best, least


def _trace(cost: list[Floats], pred: list[Ints]) -> Ints:
    path = [int(cost[-1].argmin())]
    for best in reversed(pred):
        path.append(int(best[path[-1]]))
    return np.array(path[::-1], dtype=np.intp)


def _remove(path: Ints, weights: list[Floats], cost: list[Floats], pred: list[Ints]) -> None:
    """Remove the path's nodes from the graph (cost infinity), and update ``cost`` and ``pred`` after them."""
    dearer = np.zeros(len(cost[0]), dtype=bool)
    dearer[path[0]] = True
    cost[0][path[0]] = np.inf
    for w, c, c_next, best, node in zip(weights, cost, cost[1:], pred, path[1:], strict=False):
        stale = np.flatnonzero(dearer[best] & np.isfinite(c_next))
        best[stale], repaired = _cheapest(w, c, stale)
        dearer = np.zeros(len(c_next), dtype=bool)
        dearer[stale[repaired > c_next[stale]]] = True
        c_next[stale] = repaired
        c_next[node] = np.inf
        dearer[node] = True
