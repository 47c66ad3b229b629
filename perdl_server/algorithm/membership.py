r"""Which clients share which atom, round by round.

Client i is a member of shared atom j if its own data carry it. The server decides with three numbers for each atom and
client. They are distances, no atoms:

- :math:`\delta_{ij}`, the distance of a member's atom from the mean of the other members' (the server computes it);
- :math:`s_{ij}`, the standard error of the client's atom, which noise alone makes;
- :math:`n_{ij}`, the distance of a client that is no member: of D^g_j to the nearest of its own atoms.

Noise of s in each of d - 1 directions makes :math:`\delta^2 \sim s^2 \chi^2_{d-1} / (d - 1)`, where
:math:`s^2 = s_{ij}^2 + \sum_{k \ne i} s_{kj}^2 / (m - 1)^2` for m members.

**Leaving.** A member whose distance no longer falls, and that is larger than noise makes it, leaves: its data carry
another atom. Only the worst member of an atom leaves, and only if the others agree with each other twice as well. Of
two members both leave: nobody shares the atom any more. A client with a larger contradiction elsewhere is settled there
first, because a wrong membership disturbs its other atoms.

**Joining.** A client joins if one of its own atoms is as near to D^g_j as noise allows: one atom a round, because two
that are near each other may mean the same own atom.

An atom with one member left, as when a client comes back without it, is not shared, and its member leaves.

If all members are right, then in data without noise all distances vanish, and wrong members stay apart.

**Limit.** No new atom becomes shared in the rounds. If only two clients carry an atom, and one of them lacks it at its
start, it stays their own; so does an atom of two that parted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]

_UNLIKELY = 1e-5
"""Probability that noise alone moves an atom beyond the limit."""
_FALLS = 0.9
"""A distance below this share of the former one still falls: the atom is not settled."""
_SETTLED = 5
"""Rounds in a row in which a distance has not fallen."""
_CLEARER = 1.5
"""A contradiction waits for others that are larger by this factor at the same client."""
EXACT = 1e-6
"""Distance to D^g_j that is near enough in data without noise."""


@dataclass
class Membership:
    """Members of the shared atoms, and how long their distances have not fallen.

    Parameters
    ----------
    members : (N, r_g) bool array
        Whether client i is a member of atom j.
    reach : float
        Largest distance at which a client may join an atom.
    distance : (N, r_g) array
        Distances of the last round; infinite if there are none.
    settled : (N, r_g) int array
        Rounds in a row in which the distance has not fallen.
    """

    members: Bools
    reach: float
    distance: Floats = field(default_factory=lambda: np.empty((0, 0)))
    settled: NDArray[np.intp] = field(default_factory=lambda: np.empty((0, 0), dtype=np.intp))

    def __post_init__(self) -> None:
        if self.distance.shape != self.members.shape:
            self.distance = np.full(self.members.shape, np.inf)
            self.settled = np.zeros(self.members.shape, dtype=np.intp)

    @property
    def shared(self) -> Bools:
        """Which atoms two or more clients share, (r_g,)."""
        return np.asarray(self.members.sum(axis=0) > 1)

    def set_client(self, i: int, members: Bools) -> None:
        """Set what a client shares; the number after the last adds one.

        Parameters
        ----------
        i : int
            The client's number.
        members : (r_g,) bool array
            The atoms that it shares.
        """
        rest = slice(i + 1, None)
        self.members = np.vstack([self.members[:i], members, self.members[rest]])
        self.distance = np.vstack([self.distance[:i], np.full(len(members), np.inf), self.distance[rest]])
        self.settled = np.vstack([self.settled[:i], np.zeros(len(members), dtype=np.intp), self.settled[rest]])

    def update(self, who: Sequence[int], A: Floats, spread: Floats, nearest: Floats) -> bool:
        """Let clients leave and join after a round, and return whether any did.

        Parameters
        ----------
        who : sequence of int
            The n clients that answered.
        A : (n, d, r_g) array
            Their atoms; columns of others than members are not read.
        spread : (n, r_g) array
            Standard error of the client's atom; for others than members, of its own atom that is nearest to D^g_j.
        nearest : (n, r_g) array
            Distance of D^g_j to the nearest own atom in use, 2 if there is none; not read for members.

        Returns
        -------
        bool
        """
        rows = np.asarray(who, dtype=np.intp)
        members, before = self.members[rows], self.members.copy()
        distance, inner = leave_one_out(A, members)
        expected, of_atom = expected_distance(spread, members)
        limit = noise_factor(A.shape[1]) * expected + np.sqrt(np.finfo(A.dtype).eps)
        excess = np.where(np.isfinite(distance), distance / limit, 0.0)
        stays = distance >= _FALLS * self.distance[rows]
        self.settled[rows] = np.where(np.isfinite(distance) & stays, self.settled[rows] + 1, 0)
        self.distance[rows] = distance
        self._leave(rows, distance, inner, excess)
        limit = noise_factor(A.shape[1]) * np.sqrt(spread**2 + of_atom**2) + EXACT
        may = ~before[rows] & self.shared & (nearest <= np.minimum(limit, self.reach))
        first = np.where(may, nearest, np.inf).argmin(axis=1) if may.size else np.empty(0, dtype=np.intp)
        joins = np.flatnonzero(may.any(axis=1))
        self.members[rows[joins], first[joins]] = True
        self.members &= self.shared
        return not np.array_equal(before, self.members)

    def _leave(self, rows: NDArray[np.intp], distance: Floats, inner: Floats, excess: Floats) -> None:
        members = self.members[rows]
        ready = np.where(self.settled[rows] >= _SETTLED, excess, 0.0)
        worst = excess.max(axis=0, initial=0.0)
        touched = np.zeros(len(rows), dtype=bool)
        for j in np.argsort(-ready.max(axis=0, initial=0.0), kind="stable"):
            if ready[:, j].max(initial=0.0) <= 1:
                break
            those = np.flatnonzero(members[:, j])
            i, pair = those[np.argmax(distance[those, j])], len(those) == 2
            larger = excess[those].max() > _CLEARER * worst[j]
            unclear = self.members[:, j].sum() > 2 if pair else inner[i, j] > distance[i, j] / 2
            if touched[those].any() or larger or unclear:
                continue
            touched[those] = True
            leaving = rows[those] if pair else rows[[i]]
            # Without the wrong member D^g_j moves, and with it all atoms of the clients that share it.
            moving = self.members[rows[those]].any(axis=0)
            self.members[leaving, j] = False
            self.settled[:, moving] = 0
            self.distance[leaving, j] = np.inf


def among_all(part: Floats, members: Bools | None) -> Floats:
    """Return what a client sent for the atoms that it shares as columns among all atoms, the others zero.

    Parameters
    ----------
    part : (..., m) array
        One column for each atom that it shares.
    members : (r_g,) bool array, optional
        These atoms. Default: all.

    Returns
    -------
    (..., r_g) array
    """
    if members is None:
        return part
    whole = np.zeros((*part.shape[:-1], len(members)), dtype=part.dtype)
    whole[..., members] = part
    return whole


def leave_one_out(A: Floats, members: Bools) -> tuple[Floats, Floats]:
    """Return how far each member's atom is from the others'.

    Parameters
    ----------
    A : (n, d, r) array
        Atoms.
    members : (n, r) bool array
        Members of each atom.

    Returns
    -------
    distance : (n, r) array
        Distance from the mean of the other members' atoms; infinite for others, and for single members.
    inner : (n, r) array
        Largest distance among the other members from their own mean.
    """
    m = members.sum(axis=0)
    kept = np.where(members[:, None, :], A, 0).astype(np.float64)
    total = kept.sum(axis=0)
    distance = np.full(members.shape, np.inf)
    inner = np.zeros(members.shape)
    for j in np.flatnonzero(m > 1):
        those = np.flatnonzero(members[:, j])
        atoms = kept[those, :, j]
        means = (total[:, j] - atoms) / (m[j] - 1)
        distance[those, j] = np.linalg.norm(atoms - means, axis=1)
        worst = int(distance[those, j].argmax())
        others = np.delete(atoms, worst, axis=0)
        inner[those[worst], j] = np.linalg.norm(others - others.mean(axis=0), axis=1).max()
    return distance, inner


def expected_distance(spread: Floats, members: Bools) -> tuple[Floats, Floats]:
    """Return the standard error of each member's distance, and of each atom's mean.

    Parameters
    ----------
    spread : (n, r) array
        Standard errors of the clients' atoms.
    members : (n, r) bool array
        Members of each atom.

    Returns
    -------
    of_member : (n, r) array
        sqrt(s_i^2 + sum of the others' s^2 / (m - 1)^2).
    of_atom : (r,) array
        sqrt(sum s^2) / m.
    """
    squares = np.where(members, spread, 0) ** 2
    m, total = members.sum(axis=0), squares.sum(axis=0)
    of_member = np.sqrt(squares + (total - squares) / np.maximum(m - 1, 1) ** 2)
    return of_member, np.sqrt(total) / np.maximum(m, 1)


@lru_cache(256)
def noise_factor(d: int) -> float:
    """Return the factor on a standard error that noise exceeds with a probability of 1e-5.

    Parameters
    ----------
    d : int
        Number of features.
    """
    from scipy.special import chdtri

    return float(np.sqrt(chdtri(max(d - 1, 1), _UNLIKELY) / max(d - 1, 1)))
