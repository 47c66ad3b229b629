r"""Separate the atoms that all clients share from those of single clients.

Layer ``i`` of a graph holds the atoms of client ``i``. Matching takes, greedily, the ``n_global`` shortest
vertex-disjoint paths through all layers. An edge costs

.. math:: d_2(a, b) = \min(\lVert a - b \rVert_2, \lVert a + b \rVert_2).

Source: Liang, Shi, Al Kontar, Fattahi, "Personalized Dictionary Learning for Heterogeneous Datasets", 2023,
algorithm 2 and theorem 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.dictionaries import ABSENT, atom_distances
from common.errors import SettingsError
from perdl_server.algorithm.null import path_null
from perdl_server.algorithm.star import pair_atoms, star_paths

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]

JUMP = 0.5
"""Ratio of the last shared path to the next, above which there is no jump."""
NEAR = 0.2
"""Share of the distance of unrelated atoms below which a path is as good as a shared one. Also the ratio of the last
path to the next at a clear cliff."""


class MatchingError(SettingsError, ValueError):
    """Dictionaries that cannot be matched.

    Parameters
    ----------
    text : str
        What is wrong.
    client : str
        Name of the client that causes it; empty if there is none.
    """

    def __init__(self, text: str, client: str = "") -> None:
        super().__init__(text)
        self.client = client


@dataclass(frozen=True)
class Matching:
    """Result of matching.

    Parameters
    ----------
    indices : (N, n_global) int
        ``indices[i, j]`` is the atom of client ``i`` on path ``j``.
    signs : (N, n_global) float, +1 or -1
        Signs that align these atoms with the first client's. ``star`` aligns with the centre first, so that a
        hostile first client cannot flip single clients.
    path_lengths : (n_global,) float
        Sum of the ``N - 1`` edges of each path, in the order found. A jump shows where shared atoms end.
    global_dictionary : (d, n_global) float
        Mean of the aligned atoms of each path. Its atoms are shorter than one if clients disagree.
    local_dictionaries : list of (d, r_i - n_global) float
        The other atoms of each client, in its own order.
    next_length : float, optional
        Length of the next path; None if some client has no atom left.
    """

    indices: Ints
    signs: Floats
    path_lengths: Floats
    global_dictionary: Floats
    local_dictionaries: list[Floats]
    next_length: float | None


def global_matching(
    dictionaries: Sequence[Floats], n_global: int, names: Sequence[str] | None = None, method: str = "chain"
) -> Matching:
    """Match ``n_global`` atoms across clients by successive shortest paths.

    Parameters
    ----------
    dictionaries : sequence of (d, r_i) arrays
        Initial dictionaries in the order of the chain. The ``r_i`` may differ.
    n_global : int
        Number of shared atoms, ``0 <= n_global <= min(r_i)``.
    names : sequence of str, optional
        Names of the clients in errors; default "client 0", "client 1", ...
    method : {"chain", "star"}
        ``chain`` is the paper's. ``star`` pairs the atoms of all clients with those of one client, see
        :mod:`perdl_server.algorithm.star`; it suffers less from clients with a wrong start.

    Returns
    -------
    Matching

    Raises
    ------
    MatchingError
        If feature counts differ or some client has fewer than ``n_global`` atoms; the message names the client.

    Notes
    -----
    Edge weights cost ``N - 1`` matrix products. After a path is removed, only nodes whose best predecessor became
    more expensive are recomputed, which gives the same paths as a full pass. Greedy removal is the paper's algorithm.
    It need not reach the optimum of the paper's objective, which sums spectral norms.
    """
    check_dictionaries(dictionaries, n_global, names)
    indices, lengths, reference = METHODS[method](dictionaries, n_global)
    signs, global_dictionary = _average(dictionaries, indices, reference)
    local = [D[:, np.setdiff1d(np.arange(D.shape[1]), chosen)] for D, chosen in zip(dictionaries, indices, strict=True)]
    next_length = float(lengths[n_global]) if n_global < min(D.shape[1] for D in dictionaries) else None
    return Matching(indices, signs, lengths[:n_global], global_dictionary, local, next_length)


def align(global_dictionary: Floats, dictionary: Floats) -> Ints:
    """Pair every global atom with an atom of a client that was not matched, at the least sum of squared distances.

    Parameters
    ----------
    global_dictionary : (d, r_g) array
        D^g.
    dictionary : (d, m) array
        Dictionary of the client.

    Returns
    -------
    indices : (r_g,) int
        An atom of ``dictionary`` for each global atom, all different; -1 for the ``r_g - m`` that are left over if the
        client has fewer atoms.
    """
    r_g, m = global_dictionary.shape[1], dictionary.shape[1]
    if m >= r_g:
        return pair_atoms(global_dictionary, dictionary)[0]
    indices = np.full(r_g, ABSENT, dtype=np.intp)
    indices[pair_atoms(dictionary, global_dictionary)[0]] = np.arange(m)
    return indices


def suggest_n_global(
    dictionaries: Sequence[Floats], names: Sequence[str] | None = None, method: str = "chain"
) -> tuple[int, Floats]:
    r"""Estimate the number of shared atoms from the lengths of all paths.

    The mean edge :math:`\ell_j` of path j is compared with that of the best path through unrelated atoms
    (:func:`~perdl_server.algorithm.null.path_null`), of mean :math:`u_j` and lower bound :math:`q_j`. Paths are shared

    1. as long as they are nearer than chance, :math:`\ell_j < q_j`;
    2. but up to a cliff, the largest jump in :math:`0, \min(\ell_1 / u_1, 1), \dots, \min(\ell_r / u_r, 1), 1`, if it
       comes later and is by a factor of 2 at least, or comes earlier, or after no path that is nearer than chance, and
       is by a factor of 5. Two clients in few dimensions may be near by chance; what they share then shows by the
       others being far. And what is merely alike is nearer than chance, but far from what is the same.

    Parameters
    ----------
    dictionaries : sequence of (d, r_i) arrays
        Initial dictionaries, by client.
    names : sequence of str, optional
        Names of the clients in errors.
    method : {"chain", "star"}
        Method of matching.

    Returns
    -------
    n_global : int
        Between 0 and ``min(r_i)``. For a single client all atoms count as shared.
    path_lengths : (min(r_i),) array
        All path lengths.

    Notes
    -----
    If ``d - 1`` of ``d`` orthonormal atoms are shared, the last is shared too: only one direction is left. A path that
    is nearer than chance need not be one atom: clients may have similar atoms that are best left apart. Only samples
    that were held out can tell.
    """
    check_dictionaries(dictionaries, 0, names)
    sizes = [D.shape[1] for D in dictionaries]
    lengths = METHODS[method](dictionaries, min(sizes))[1][: min(sizes)]
    if len(sizes) == 1 or min(sizes) == 0:
        return min(sizes), lengths
    null, edges = path_null(len(dictionaries[0]), tuple(sizes), method), lengths / (len(sizes) - 1)
    room = null.mean > 0  # where atoms cannot differ, a path goes with the one before
    near = _leading(~room | (edges < null.bound))
    relative = null.nearness(edges)
    for j in np.flatnonzero(~room):
        relative[j] = relative[j - 1] if j else 0.0
    cliff = int(np.diff(relative, prepend=0.0, append=1.0).argmax())
    if cliff in (0, near):
        return near, lengths
    # Without one path that is nearer than chance, or with more of them, the cliff must leave no doubt.
    clear = JUMP if 0 < near < cliff else NEAR
    return (cliff if relative[cliff - 1] <= clear * [*relative, 1.0][cliff] else near), lengths


def _leading(true: NDArray[np.bool_]) -> int:
    return len(true) if true.all() else int(true.argmin())


def _shortest_paths(dictionaries: Sequence[Floats], n_paths: int) -> tuple[Ints, Floats, int]:
    n_found = min(n_paths + 1, *(D.shape[1] for D in dictionaries))
    if n_found == 0:  # some client may have no atom at all
        return np.empty((len(dictionaries), 0), dtype=np.intp), np.empty(0), 0
    # Rows are the later layer: the search for the best predecessor then reads memory in order.
    weights = [atom_distances(b, a) for a, b in itertools.pairwise(dictionaries)]
    cost, pred = _first_pass(weights, dictionaries[0].shape[1])
    indices = np.empty((len(dictionaries), n_found), dtype=np.intp)
    lengths = np.empty(n_found)
    for j in range(n_found):
        path = _trace(cost, pred)
        lengths[j] = cost[-1][path[-1]]
        indices[:, j] = path
        _remove(path, weights, cost, pred)
    return indices[:, :n_paths], lengths, 0


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
    """Remove the path's nodes from the graph (cost infinity), and update ``cost`` and ``pred`` after them."""
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


def _average(dictionaries: Sequence[Floats], indices: Ints, reference: int) -> tuple[Floats, Floats]:
    A = [D[:, chosen] for D, chosen in zip(dictionaries, indices, strict=True)]
    # An inner product of zero counts as aligned, so that no atom is dropped.
    signs = np.array([np.where((atoms * A[reference]).sum(axis=0) < 0, -1, 1) for atoms in A], dtype=A[0].dtype)
    signs *= signs[0]
    total = np.zeros_like(A[0])
    for atoms, sign in zip(A, signs, strict=True):
        total += atoms * sign
    return signs, total / len(A)


METHODS: dict[str, Callable[[Sequence[Floats], int], tuple[Ints, Floats, int]]] = {
    "chain": _shortest_paths,
    "star": star_paths,
}
"""Methods by name. They take dictionaries and a number of paths. They return ``indices`` (N, n_paths), ``lengths``, and
the client whose signs are the reference. If every client has an atom left, ``lengths`` includes the next path.
"""


def check_dictionaries(dictionaries: Sequence[Floats], n_global: int, names: Sequence[str] | None) -> None:
    """Raise MatchingError if there are none, their features differ, or one has too few atoms.

    Parameters
    ----------
    dictionaries : sequence of (d, r_i) arrays
        Dictionaries, by client.
    n_global : int
        Fewest atoms that each needs.
    names : sequence of str, optional
        Names of the clients in errors.
    """
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
                "lower min_usage or min_samples, or give this client more samples",
                name,
            )
