r"""Find atoms that some clients share: groups of near atoms, at most one atom of each client in a group.

Let :math:`\tau` be a distance that unrelated atoms hardly reach. The groups are a partition of all atoms. Among
the partitions with at most one atom of each client in a group, the best one solves

.. math:: \min \sum_{\text{groups}}\ \sum_{a, b \text{ in one group}} \left(d_2(a, b)^2 - \tau^2\right),

so that a pair adds to a group if it is nearer than :math:`\tau` (correlation clustering, Bansal, Blum and Chawla 2004,
which is NP-hard). The greedy solution here merges along pairs of mutually nearest atoms, the nearest pair first, if the
means of the two groups are nearer than :math:`\tau` too. Where the groups are well apart it is the optimum, and the
tests compare it with brute force. A group of two or more atoms is a shared atom; its members are the clients in it.

**Distance of unrelated atoms.** The cosine c of two random directions in d dimensions has
:math:`c^2 \sim \mathrm{Beta}(1/2, (d - 1)/2)`. With M pairs of atoms of different clients, :math:`\tau` is the distance
at which each pair is by chance with probability :math:`\alpha / M`. Two clients that share k orthogonal atoms differ in
d - k dimensions only, so their other pairs are tested with d - k. This matters: in three dimensions unrelated atoms are
often near.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from common.dictionaries import ABSENT, atom_distances

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]

CHANCE = 0.05
"""Probability that any two unrelated atoms are nearer than the limit."""


@lru_cache(4096)
def chance_distance(d: int, n_pairs: int, chance: float = CHANCE) -> float:
    r"""Return the distance below which one of ``n_pairs`` pairs of random directions lies with probability ``chance``.

    .. math:: \tau = \sqrt{2 - 2c}, \qquad P(|\cos| > c) = \text{chance} / \text{n\_pairs}

    Parameters
    ----------
    d : int
        Number of dimensions. In fewer than two all directions are the same, and the distance is 0.
    n_pairs : int
        Number of pairs.
    chance : float
        Probability for all pairs together (Bonferroni).
    """
    from scipy.special import betainccinv

    if d < 2:
        return 0.0
    c = np.sqrt(betainccinv(0.5, (d - 1) / 2, min(chance / max(n_pairs, 1), 1.0)))
    return float(np.sqrt(2 - 2 * c))


def count_pairs(sizes: Sequence[int]) -> int:
    """Return the number of pairs of atoms of different clients.

    Parameters
    ----------
    sizes : sequence of int
        Number of atoms of each client.
    """
    return (sum(sizes) ** 2 - sum(size * size for size in sizes)) // 2


@dataclass(eq=False)
class _Group:
    """A group: the atom of each client in it, and the sum of these atoms with aligned signs."""

    atoms: dict[int, int]
    total: Floats

    @property
    def direction(self) -> Floats:
        return self.total / np.linalg.norm(self.total)


def shared_groups(dictionaries: Sequence[Floats], chance: float = CHANCE) -> Ints:
    """Return the groups of atoms that two or more clients share.

    Parameters
    ----------
    dictionaries : sequence of (d, r_i) arrays
        Dictionaries of the clients, atoms of any norm except zero.
    chance : float
        Probability that unrelated dictionaries have a pair that is near enough.

    Returns
    -------
    (N, r_g) int array
        For client i and group j: the atom, or ``ABSENT``. Large groups come first, then the order is that of the
        members' numbers.
    """
    sizes = [D.shape[1] for D in dictionaries]
    d, n_pairs, N = len(dictionaries[0]), count_pairs(sizes), len(sizes)
    units = [D / np.linalg.norm(D, axis=0) for D in dictionaries]
    common = np.zeros((N, N), dtype=int)  # groups that hold both clients
    group: dict[tuple[int, int], _Group] = {}
    for distance, a, b in _near_pairs(units, chance_distance(d, n_pairs, chance)):
        A, B = (group.setdefault(at, _Group({at[0]: at[1]}, units[at[0]][:, at[1]])) for at in (a, b))
        if A.atoms.keys() & B.atoms.keys():
            continue
        limit = chance_distance(d - int(common[a[0], b[0]]), n_pairs, chance)
        sign = -1 if A.direction @ B.direction < 0 else 1
        if max(distance, float(np.linalg.norm(A.direction - sign * B.direction))) >= limit:
            continue
        for p, q in itertools.product(A.atoms, B.atoms):
            common[p, q] += 1
            common[q, p] += 1
        A.atoms.update(B.atoms)
        A.total = A.total + sign * B.total
        group |= dict.fromkeys(B.atoms.items(), A)
    found = {id(one): sorted(one.atoms.items()) for one in group.values() if len(one.atoms) > 1}
    indices = np.full((N, len(found)), ABSENT, dtype=np.intp)
    for j, atoms in enumerate(sorted(found.values(), key=lambda atoms: (-len(atoms), atoms))):
        for i, atom in atoms:
            indices[i, j] = atom
    return indices


def _near_pairs(units: Sequence[Floats], limit: float) -> list[tuple[float, tuple[int, int], tuple[int, int]]]:
    """Return the pairs of mutually nearest atoms within the limit, as (client, atom), the nearest first."""
    pairs = []
    for (p, A), (q, B) in itertools.combinations(enumerate(units), 2):
        if not A.shape[1] or not B.shape[1]:
            continue
        distances = atom_distances(A, B)
        forth, back = distances.argmin(axis=1), distances.argmin(axis=0)
        for i in np.flatnonzero(back[forth] == np.arange(len(forth))):
            if distances[i, forth[i]] < limit:
                pairs.append((float(distances[i, forth[i]]), (p, int(i)), (q, int(forth[i]))))
    return sorted(pairs)
