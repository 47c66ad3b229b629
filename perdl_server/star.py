r"""Match around one client instead of along a chain.

Every atom of a *centre* client is paired with one atom of each other client. The centre is the client whose atoms lie
nearest to all others' (a medoid):

.. math:: \min_m \sum_{j \le r^g} \ell_j(m), \qquad \ell_j(m) = \sum_i \min_k d_2((D_m)_{(j)}, (D_i)_{(k)})

with :math:`\ell_1(m) \le \ell_2(m) \le \dots`. A client whose start is wrong spoils its own edges only; on a chain two
paths that pass through it may change places there, and every later client is then matched to the wrong atom.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from common.dictionaries import atom_distances

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]


def star_paths(dictionaries: Sequence[Floats], n_paths: int) -> tuple[Ints, Floats]:
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
    lengths : (n_paths,) array
        Sum of the ``N - 1`` edges of each, ascending.

    Notes
    -----
    ``N (N - 1) / 2`` matrix products to find the centre, ``N - 1`` assignments to pair.
    """
    totals = _nearness(dictionaries)
    centre = int(np.argmin([np.sort(total)[:n_paths].sum() for total in totals]))
    chosen = np.argsort(totals[centre], kind="stable")[:n_paths]
    atoms = dictionaries[centre][:, chosen]
    indices = np.empty((len(dictionaries), n_paths), dtype=np.intp)
    lengths = np.zeros(n_paths)
    for i, D in enumerate(dictionaries):
        distances = atom_distances(atoms, D).astype(np.float64)
        indices[i] = linear_sum_assignment(distances**2)[1] if i != centre else chosen
        lengths += distances[np.arange(n_paths), indices[i]]
    order = np.argsort(lengths, kind="stable")
    return indices[:, order], lengths[order]


def _nearness(dictionaries: Sequence[Floats]) -> list[Floats]:
    """For each atom of each client, the sum of its distances to the nearest atom of every other client."""
    totals: list[Floats] = [np.zeros(D.shape[1]) for D in dictionaries]
    for i, A in enumerate(dictionaries):
        for k, B in enumerate(dictionaries[:i]):
            distances = atom_distances(A, B)
            totals[i] += distances.min(axis=1, initial=np.inf)
            totals[k] += distances.min(axis=0, initial=np.inf)
    return totals
