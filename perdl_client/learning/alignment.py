"""How a client's dictionary follows D^g: its global atoms are found again, its own atoms are moved off the new ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.arrays import namespace
from common.dictionaries import atom_distances
from common.polar import polar_factor

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]


class NewShared(NamedTuple):
    """The client's new versions of the global atoms.

    Parameters
    ----------
    kept : (r_g,) int array
        The atoms of its dictionary that go on as global ones.
    rest : (r_l,) int array
        The others.
    sent : (r_g,) bool array
        Which global atoms the guard lets move.
    atoms : (d, r_g) array
        D^g_i, with order and signs of D^g; D^g's own columns where they may not move.
    procrustes : (d, r_g) array
        D^g_i P^gg_i, zero where they may not move.
    reassigned : int
        As in :func:`align`.
    """

    kept: Ints
    rest: Ints
    sent: Bools
    atoms: Floats
    procrustes: Floats
    reassigned: int


def new_shared(D_g: Floats, D: Floats, moment: Floats, moves: Bools | None) -> NewShared:
    """Find the global atoms in a client's dictionary after a step.

    Parameters
    ----------
    D_g : (d, r_g) array
        D^g as received.
    D : (d, r) array
        The dictionary after the step; before it, the first r_g atoms were those of D^g.
    moment : (d, r) array
        Y X' of what the step was taken from.
    moves : (r,) bool array, optional
        The atoms that the guard lets move. Without a guard, the nearest atoms go on as global ones.

    Returns
    -------
    NewShared
    """
    r_g = D_g.shape[1]
    if moves is None:
        kept, signs, reassigned = align(D_g, D)
        sent = np.ones(r_g, dtype=bool)
    else:  # what goes back for an atom is what this atom became: an own one is not guarded all the time
        kept, sent, reassigned = np.arange(r_g), moves[:r_g], 0
        signs = np.where((D_g * D[:, :r_g]).sum(axis=0) < 0, -1, 1).astype(D.dtype)
    shared = np.where(sent, D[:, kept] * signs, D_g)
    stretch = shared.T @ (moment[:, kept] * signs)
    stretch = np.where(sent & sent[:, None], (stretch + stretch.T) / 2, stretch.dtype.type(0))
    rest = np.delete(np.arange(D.shape[1]), kept)
    return NewShared(kept, rest, sent, shared, shared @ stretch if r_g else shared, reassigned)


def align(reference: Floats, D: Floats) -> tuple[Ints, Floats, int]:
    """Find the atoms of ``D`` that continue those of ``reference``.

    Parameters
    ----------
    reference : (d, r_g) array
        Atoms in the wanted order, with the wanted signs.
    D : (d, r) array
        Dictionary with ``r >= r_g``.

    Returns
    -------
    indices : (r_g,) int
        One atom of ``D`` for each of ``reference``, all different.
    signs : (r_g,) array, +1 or -1
        ``D[:, indices] * signs`` points the same way as ``reference``; sign(0) is +1.
    reassigned : int
        How many indices differ from the arg min of the distance.
    """
    distances = atom_distances(reference, D).astype(np.float64)
    nearest = distances.argmin(axis=1) if distances.size else np.empty(0, dtype=np.intp)
    indices = nearest
    if len(np.unique(nearest)) < len(nearest):  # else no other assignment is nearer
        from scipy.optimize import linear_sum_assignment  # takes a third of a client's imports

        _, indices = linear_sum_assignment(distances**2)
    inner = (reference * D[:, indices]).sum(axis=0)
    signs = np.where(inner < 0, -1, 1).astype(D.dtype)
    reassigned = int(np.count_nonzero(nearest != indices))
    return indices, signs, reassigned


def retract(global_dictionary: Floats, local_dictionary: Floats) -> Floats:
    r"""Move the local block off a new D^g.

    .. math:: D^l \leftarrow \mathrm{Polar}((I - P_{D^g}) D^l)

    After averaging, ``[D^g D^l]`` is no longer orthonormal. This makes D^l orthonormal and orthogonal to D^g, which
    stays as it is.

    Parameters
    ----------
    global_dictionary : (d, r_g) array
        D^g with any atoms; only their span matters.
    local_dictionary : (d, r_l) array
        The local block, ``r_g + r_l <= d``.

    Returns
    -------
    (d, r_l) array with orthonormal columns, orthogonal to D^g
    """
    if 0 in (global_dictionary.shape[1], local_dictionary.shape[1]):
        return local_dictionary
    xp, r_g = namespace(global_dictionary), global_dictionary.shape[1]
    Q, _ = xp.linalg.qr(global_dictionary)
    M = local_dictionary
    for _ in range(2):  # once is not accurate if atoms lie near the span; twice is
        M = M - Q @ (Q.T @ M)
    U, s, Vt = xp.linalg.svd(M, full_matrices=False)
    if s[-1] > 0.1:
        rotated: Floats = U @ Vt
        return rotated
    # In the complement's coordinates, an atom inside the span of D^g is completed off it too.
    complement: Floats = xp.linalg.qr(global_dictionary, mode="complete")[0][:, r_g:]
    return complement @ polar_factor(complement.T @ local_dictionary)
