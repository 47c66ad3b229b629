"""Clients that lie, and clients that come and go: what reaches a server instead of what an honest client would send.

Hostile clients know what all others send, and who the others are. They keep to the protocol: shapes, types and the
number of their atoms are right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from common.dictionaries import atom_distances
from common.rng import stream
from perdl.perma import Channel

Floats = NDArray[np.floating]
Liar = Callable[["Lies", Floats, Floats], Floats]
"""From a hostile client's own atoms (d, r) and those of the honest clients (n, d, r) to what it sends instead."""


@dataclass(frozen=True)
class Lies:
    """What a liar draws from.

    Attributes
    ----------
    fresh, agreed : numpy.random.Generator
        Of this client and round; the same for all hostile clients and rounds.
    first : (d, r) array
        What this client was first to send in its place: of the rounds, its contribution to the first.
    """

    fresh: np.random.Generator
    agreed: np.random.Generator
    first: Floats


def _size(honest: Floats) -> Floats:
    """Typical norms of honest clients' atoms, (r,): a stretched atom is not of norm one."""
    out: Floats = np.median(np.linalg.norm(honest, axis=1), axis=0)
    return out


def _orthonormal(rng: np.random.Generator, like: Floats) -> Floats:
    d, r = like.shape
    G = rng.standard_normal((d, r))
    return np.asarray(np.linalg.qr(G).Q if r <= d else G / np.linalg.norm(G, axis=0))


def _random(lies: Lies, own: Floats, honest: Floats) -> Floats:
    return _orthonormal(lies.fresh, own) * _size(honest)


def _colluding(lies: Lies, own: Floats, honest: Floats) -> Floats:
    return _orthonormal(lies.agreed, own) * _size(honest)


def _little(lies: Lies, own: Floats, honest: Floats) -> Floats:
    """A little is enough (Baruch et al. 2019): the honest mean, moved by one standard deviation."""
    return np.asarray(honest.mean(axis=0) - honest.std(axis=0))


def _copy(lies: Lies, own: Floats, honest: Floats) -> Floats:
    """Another client's atoms, each in its neighbour's place."""
    return np.roll(honest[0], 1, axis=1)


def _most_shared_first(honest: Floats) -> Floats:
    """Return the atoms of the first honest client, by how near the others have them."""
    distance = np.sum([atom_distances(honest[0], D).min(axis=1) for D in honest], axis=0)
    return np.asarray(honest[0][:, np.argsort(distance, kind="stable")])


def _duplicates(lies: Lies, own: Floats, honest: Floats) -> Floats:
    return np.repeat(_most_shared_first(honest)[:, :1], own.shape[1], axis=1)


def _turned(lies: Lies, own: Floats, honest: Floats) -> Floats:
    """Two atoms each turned by 45 degrees in their plane: as near to the one as to the other."""
    D = _most_shared_first(honest)
    r = D.shape[1] // 2 * 2
    a, b = D[:, 0:r:2], D[:, 1:r:2]
    out = D.copy()
    out[:, 0:r:2], out[:, 1:r:2] = (a + b) / np.sqrt(2), (a - b) / np.sqrt(2)
    return out


ATTACKS: dict[str, Liar] = {
    "random": _random,
    "sign-flip": lambda lies, own, honest: -own,
    "scaled x 10": lambda lies, own, honest: 10 * own,
    "scaled x 100": lambda lies, own, honest: 100 * own,
    "scaled x 0.01": lambda lies, own, honest: 0.01 * own,
    "colluding": _colluding,
    "colluding x 100": lambda lies, own, honest: 100 * _colluding(lies, own, honest),
    "a little is enough": _little,
    "stuck": lambda lies, own, honest: lies.first,
    "copy, permuted": _copy,
    "one atom many times": _duplicates,
    "turned by 45 degrees": _turned,
}
"""What each hostile client sends, in its first dictionary and in every round."""


@dataclass
class Hostile(Channel):
    """Some clients lie, from the first dictionary on.

    Parameters
    ----------
    attack : str
        Of :data:`ATTACKS`; with ``x 100`` energies are 10,000 times what they should be.
    clients : sequence of int
        Who is hostile.
    seed : int
    """

    attack: str
    clients: Sequence[int]
    seed: int
    _first: dict[int, Floats] = field(default_factory=dict)

    def starts(self, dictionaries: list[Floats], energies: list[Floats]) -> tuple[list[Floats], list[Floats]]:
        """Lie about first dictionaries, with as many atoms as there are of its own and at some honest client."""
        dictionaries, energies = list(dictionaries), list(energies)
        others = [D for i, D in enumerate(dictionaries) if i not in self.clients]
        for i in self.clients:
            r = min(dictionaries[i].shape[1], max(D.shape[1] for D in others))
            own, like = dictionaries[i][:, :r], [D[:, :r] for D in others if D.shape[1] >= r]
            # Atoms of first dictionaries are in no common order: of their mean, little is left.
            honest = np.stack(like[:1] if self.attack == "a little is enough" else like)
            dictionaries[i] = ATTACKS[self.attack](self._lies(0, i, own), own, honest).astype(own.dtype)
            energies[i] = self._weight(energies[i][:r])
        return dictionaries, energies

    def updates(self, t: int, who: Sequence[int], A: Floats, w: Floats) -> tuple[Floats, Floats]:
        """Lie about contributions."""
        A, w, honest = A.copy(), w.copy(), A[[i not in self.clients for i in who]]
        for place, i in enumerate(who):
            if i in self.clients:
                self._first.setdefault(i, A[place].copy())
                A[place] = ATTACKS[self.attack](self._lies(t, i, self._first[i]), A[place], honest)
                w[place] = self._weight(w[place])
        return A, w

    def _lies(self, t: int, i: int, first: Floats) -> Lies:
        return Lies(stream(self.seed, f"liar {i}", f"round {t}"), stream(self.seed, "", "liars"), first)

    def _weight(self, energies: Floats) -> Floats:
        return energies * 1e4 if self.attack.endswith("x 100") else energies


@dataclass(frozen=True)
class Absent(Channel):
    """A share of the clients, drawn anew each round, takes no part in it."""

    share: float
    seed: int

    def present(self, t: int, n: int) -> Sequence[int]:
        """Draw who takes part."""
        absent = stream(self.seed, "", f"absent {t}").choice(n, round(self.share * n), replace=False)
        return [i for i in range(n) if i not in absent]
