r"""Separate the atoms that all clients share from those of single clients.

Layer ``i`` of a graph holds the atoms of client ``i``. Matching takes, greedily, the ``n_global`` shortest
vertex-disjoint paths through all layers. An edge costs

.. math:: d_2(a, b) = \min(\lVert a - b \rVert_2, \lVert a + b \rVert_2).

Source: Liang, Shi, Al Kontar, Fattahi, "Personalized Dictionary Learning for Heterogeneous Datasets", 2023,
algorithm 2 and theorem 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.dictionaries import ABSENT
from common.errors import SettingsError
from perdl_server.algorithm.chain import shortest_paths
from perdl_server.algorithm.null import path_null
from perdl_server.algorithm.star import pair_atoms, star_paths

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]

JUMP = 0.5
"""Ratio of the last shared path to the next, above which there is no jump."""
NEAR = 0.2
"""Share of the distance of unrelated atoms below which a path is as good as a shared one. Also the ratio of the last
path to the next at a clear cliff."""

_AT_ONCE = 64
"""Clients whose atoms are averaged in one array."""


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
    next_length : float, optional
        Length of the next path; None if some client has no atom left.
    """

    indices: Ints
    signs: Floats
    path_lengths: Floats
    global_dictionary: Floats
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
    Greedy removal is the paper's algorithm. It need not reach the optimum of the paper's objective, which sums spectral
    norms.
    """
    check_dictionaries(dictionaries, n_global, names)
    indices, lengths, reference = METHODS[method](dictionaries, n_global)
    signs, global_dictionary = _average(dictionaries, indices, reference)
    next_length = float(lengths[n_global]) if n_global < min(D.shape[1] for D in dictionaries) else None
    return Matching(indices, signs, lengths[:n_global], global_dictionary, next_length)


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


def _along_chain(dictionaries: Sequence[Floats], n_paths: int) -> tuple[Ints, Floats, int]:
    return (*shortest_paths(dictionaries, n_paths), 0)


def _average(dictionaries: Sequence[Floats], indices: Ints, reference: int) -> tuple[Floats, Floats]:
    first = dictionaries[reference][:, indices[reference]]
    signs, total = np.empty(indices.shape, dtype=first.dtype), np.zeros_like(first)
    towards_first = _signs(dictionaries[0][None, :, indices[0]], first)
    for start in range(0, len(dictionaries), _AT_ONCE):
        block = slice(start, start + _AT_ONCE)
        A = np.array([D[:, chosen] for D, chosen in zip(dictionaries[block], indices[block], strict=True)])
        signs[block] = _signs(A, first) * towards_first
        A *= signs[block, None]
        for atoms in A:
            total += atoms
    return signs, total / len(dictionaries)


def _signs(A: Floats, first: Floats) -> Ints:
    """Return the sign of each atom's inner product; zero counts as aligned, so that no atom is dropped."""
    return np.where((A * first).sum(axis=1) < 0, -1, 1)


METHODS: dict[str, Callable[[Sequence[Floats], int], tuple[Ints, Floats, int]]] = {
    "chain": _along_chain,
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
