r"""Match around one client instead of along a chain.

Every atom of a *centre* client is paired with one atom of each other client. Shared is what the majority has near:

.. math:: \ell_j(m) = \operatorname{median}_{i \ne m} \min_k d_2((D_m)_{(j)}, (D_i)_{(k)})

The centre is the client whose ``n_paths`` smallest :math:`\ell_j` have the least sum. A client whose start is wrong, or
that has no samples of an atom, spoils its own edges only, and up to half of the clients may. On a chain two paths that
pass through such a client may change places there, and every later client is then matched to the wrong atom.
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
        ``N - 1`` times the median edge of each, ascending; comparable with the sum of a chain's ``N - 1`` edges.

    Notes
    -----
    ``N (N - 1) / 2`` matrix products to find the centre, ``N - 1`` assignments to pair.
    """
    nearest = _nearest(dictionaries)
    typical: list[Floats] = [np.median(edges, axis=0) if len(edges) else np.zeros(edges.shape[1]) for edges in nearest]
    centre = int(np.argmin([np.sort(edges)[:n_paths].sum() for edges in typical]))
    chosen = np.argsort(typical[centre], kind="stable")[:n_paths]
    atoms = dictionaries[centre][:, chosen]
    indices = np.empty((len(dictionaries), n_paths), dtype=np.intp)
    for i, D in enumerate(dictionaries):
        distances = atom_distances(atoms, D).astype(np.float64)
        indices[i] = linear_sum_assignment(distances**2)[1] if i != centre else chosen
    return indices, (len(dictionaries) - 1) * typical[centre][chosen]


def _nearest(dictionaries: Sequence[Floats]) -> list[Floats]:
    """For each client (N - 1, r_i): distances of its atoms to the nearest atom of every other client."""
    rows: list[list[Floats]] = [[] for _ in dictionaries]
    for i, A in enumerate(dictionaries):
        for k, B in enumerate(dictionaries[:i]):
            distances = atom_distances(A, B).astype(np.float64)
            rows[i].append(distances.min(axis=1, initial=np.inf))
            rows[k].append(distances.min(axis=0, initial=np.inf))
    return [np.array(edges).reshape(len(edges), D.shape[1]) for edges, D in zip(rows, dictionaries, strict=True)]
