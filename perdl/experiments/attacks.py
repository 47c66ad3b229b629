"""Hostile clients, which send lies, and absent clients, as channels for :func:`perdl.perma.perma`.

Hostile clients know what all others send, and who is honest. They keep to the protocol: their shapes, types and numbers
of atoms are right.
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
"""Called with a hostile client's true atoms (d, r) and the honest clients' atoms (n, d, r); returns what it sends."""


@dataclass(frozen=True)
class Lies:
    """What a lie may depend on besides the atoms.

    Parameters
    ----------
    fresh : numpy.random.Generator
        Random stream of this client and round.
    agreed : numpy.random.Generator
        Random stream that is the same for all hostile clients and rounds.
    first : (d, r) array
        The client's true first dictionary; in a round, its true contribution to its first round.
    """

    fresh: np.random.Generator
    agreed: np.random.Generator
    first: Floats


def _size(honest: Floats) -> Floats:
    """Typical norms (r,) of honest clients' atoms, which may differ from one."""
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
    """Return the honest mean moved by one standard deviation ("a little is enough", Baruch et al. 2019)."""
    return np.asarray(honest.mean(axis=0) - honest.std(axis=0))


def _copy(lies: Lies, own: Floats, honest: Floats) -> Floats:
    """Return an honest client's atoms, each moved to the next place."""
    return np.roll(honest[0], 1, axis=1)


def _most_shared_first(honest: Floats) -> Floats:
    """Return the atoms of the first honest client, those nearest to atoms of the others first."""
    distance = np.sum([atom_distances(honest[0], D).min(axis=1) for D in honest], axis=0)
    return np.asarray(honest[0][:, np.argsort(distance, kind="stable")])


def _duplicates(lies: Lies, own: Floats, honest: Floats) -> Floats:
    return np.repeat(_most_shared_first(honest)[:, :1], own.shape[1], axis=1)


def _turned(lies: Lies, own: Floats, honest: Floats) -> Floats:
    """Turn atoms in pairs by 45 degrees in their plane, so that each is as near to one as to the other."""
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
"""Attacks by name: what a hostile client sends, as its first dictionary and in every round."""


@dataclass
class Hostile(Channel):
    """Some clients lie, from the first dictionary on.

    Parameters
    ----------
    attack : str
        A key of :data:`ATTACKS`. If it ends with ``x 100``, energies are also 10,000 times too large.
    clients : sequence of int
        Indices of the hostile clients.
    seed : int
        Seed of the lies.
    _first : dict of int to (d, r) array
        First true contribution of each hostile client; filled during the run.
    """

    attack: str
    clients: Sequence[int]
    seed: int
    _first: dict[int, Floats] = field(default_factory=dict)

    def starts(self, dictionaries: list[Floats], energies: list[Floats]) -> tuple[list[Floats], list[Floats]]:
        """Replace the first dictionaries of hostile clients.

        A lie has at most as many atoms as the client's true dictionary, and as the largest honest one.

        Parameters
        ----------
        dictionaries : list of (d, m_i) arrays
            The used atoms of each client's first dictionary.
        energies : list of (m_i,) arrays
            Energies of these atoms.
        """
        dictionaries, energies = list(dictionaries), list(energies)
        others = [D for i, D in enumerate(dictionaries) if i not in self.clients]
        for i in self.clients:
            r = min(dictionaries[i].shape[1], max(D.shape[1] for D in others))
            own, like = dictionaries[i][:, :r], [D[:, :r] for D in others if D.shape[1] >= r]
            # Atoms of first dictionaries have no common order, so their mean would be near zero.
            honest = np.stack(like[:1] if self.attack == "a little is enough" else like)
            dictionaries[i] = ATTACKS[self.attack](self._lies(0, i, own), own, honest).astype(own.dtype)
            energies[i] = self._weight(energies[i][:r])
        return dictionaries, energies

    def updates(self, t: int, who: Sequence[int], A: Floats, w: Floats) -> tuple[Floats, Floats]:
        """Replace the contributions of hostile clients.

        Parameters
        ----------
        t : int
            The round, from 1.
        who : sequence of int
            The m clients that take part, ascending.
        A : (m, d, r_g) array
            Their contributions.
        w : (m, r_g) array
            Energies of the atoms.
        """
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
    """In each round, a random share of the clients is absent.

    Parameters
    ----------
    share : float
        Share of absent clients, from 0 to 1.
    seed : int
        Seed of the draws.
    """

    share: float
    seed: int

    def present(self, t: int, n: int) -> Sequence[int]:
        """Draw the clients that take part in a round.

        Parameters
        ----------
        t : int
            The round, from 1.
        n : int
            Number of clients.
        """
        absent = stream(self.seed, "", f"absent {t}").choice(n, round(self.share * n), replace=False)
        return [i for i in range(n) if i not in absent]
