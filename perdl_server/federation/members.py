"""Members: the clients of a run, and the state of each."""

from __future__ import annotations

import logging
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from common.logs import about
from common.protocol import natural_key
from common.settings import Settings
from perdl_server.algorithm.server import PermaServer

Floats = NDArray[np.floating]
T = TypeVar("T")
_log = logging.getLogger("perdl.server")


class State(Enum):  # numpydoc ignore=PR01
    """State of a member. Each event leads to one state."""

    AWAY = "away"  # Flower reported that its node has gone, or the server was resumed
    PRESENT = "present"  # it gave its name, and has no question
    ASKED = "asked"  # the server sent it a question, perhaps after it came back
    ANSWERED = "answered"  # a valid answer came
    FAILED = "failed"  # an error or an invalid answer came


@dataclass(eq=False)
class Member:
    """A client of the run, or one that wants to take part.

    Parameters
    ----------
    name : str
        Stable client id.
    facts : dict
        What the summary says of it.
    node : int
        Its present or last node.
    state : State
        Where it stands with the present question.
    fault : str
        Why it missed the last question. Only this member is told, if the run ends early.
    step : int
        The last round that it had answered when it joined; 0 if it sent its first dictionary.
    returning : bool
        Whether it had a state of this run when it joined.
    dictionary : (d, m) array
        Its used atoms, until matching.
    usage : (m,) array
        Energies of these atoms.
    indices : (r_g,) int array, optional
        Which of these atoms are global, -1 where it has none. They are sent until it has answered a message.
    card : str
        With secure sums what it said of its key; the server only passes it on.
    exponent : int
        With secure sums e, where its numbers are at most 2^e.
    roster : str
        Digest of the clients' keys with which it answered last; it is sent them until then.
    """

    name: str
    facts: dict[str, Any]
    node: int = 0
    state: State = State.PRESENT
    fault: str = ""
    step: int = 0
    returning: bool = False
    dictionary: Floats = field(default_factory=lambda: np.empty((0, 0)))
    usage: Floats = field(default_factory=lambda: np.empty(0))
    indices: NDArray[np.intp] | None = None
    card: str = ""
    exponent: int = 0
    roster: str = ""


class Members(list[Member]):
    """The members of a run, ordered by name.

    Parameters
    ----------
    settings : Settings
        Settings of the run. It uses ``n_clients`` and ``quorum``.
    server : PermaServer
        Owner of D^g; late clients are aligned to it.
    members : iterable of Member
        Members of a run that is resumed.
    """

    def __init__(self, settings: Settings, server: PermaServer, members: Iterable[Member] = ()) -> None:
        super().__init__(members)
        self._by_name = {member.name: member for member in self}
        self.quorum = settings.quorum or settings.n_clients
        self._settings = settings
        self._server = server

    @property
    def away(self) -> list[str]:
        """Names of the members that are away."""
        return [member.name for member in self if member.state is State.AWAY]

    def _find(self, name: str) -> Member | None:
        return self._by_name.get(name)

    def objection(self, new: Member, online: Set[int]) -> str:
        """Return why a client may not take part; empty if it may.

        Parameters
        ----------
        new : Member
            The client, as it introduced itself.
        online : set of int
            Nodes that are connected now.
        """
        member, matched, n_clients = self._find(new.name), self._server.matched, self._settings.n_clients
        if new.step and (member is None or not matched):  # no client can have answered a round before matching
            return f"this run knows no {new.name}"
        taken = member is not None and member.state is not State.AWAY and member.node in online - {new.node}
        if taken and not new.returning:
            if not matched:
                return f"two clients are called {new.name}: give each its own --name"
            # The former process may be dead without Flower knowing it yet.
            return (
                f"{new.name} takes part already; if that process was killed, start this one again in a minute, or with "
                "the folder of that one"
            )
        if matched and _needs_match(new, member or new):
            others, d = [other for other in self if other is not member], len(self._server.global_dictionary)
            if why := find_mismatches([*others, new], d).get(new.name):
                return why
        if member is None and len(self) >= n_clients:
            return (
                f"{new.name} is one too many: the run has its {n_clients} clients; a server with a larger n_clients "
                "and a quorum lets in more"
            )
        return ""

    def admit(self, new: Member) -> Member:
        """Let a new client or a returning member take part, and return the member.

        Parameters
        ----------
        new : Member
            The client, as it introduced itself. It must have no objection.
        """
        member = self._find(new.name)
        if member is None:
            with about(client=new.name):
                used = f"{new.dictionary.shape[1]} of its {new.facts['n_atoms']} atoms in use"
                _log.info("takes part: %d samples, %s", new.facts["n_samples"], used)
            member = new
            insort(self, member, key=lambda member: natural_key(member.name))
            self._by_name[member.name] = member
        member.node, member.card, member.exponent, member.roster = new.node, new.card, new.exponent, ""
        if not self._server.matched:
            member.facts, member.dictionary, member.usage = new.facts, new.dictionary, new.usage
            return member
        with about(client=new.name):
            _log.info("%s", "is back" if new.returning else "joins the run")
        if _needs_match(new, member):
            member.indices = self._server.admit(new.name, new.dictionary)
        member.dictionary = np.empty((0, 0))  # the server keeps no client's atoms
        member.facts = new.facts | member.facts
        member.facts["returns"] = member.facts.get("returns", 0) + 1
        if member.state is not State.ANSWERED:
            member.state = State.PRESENT
        return member

    def remove_mismatches(self) -> dict[int, str]:
        """Remove the members that do not fit the others, and return why, by node."""
        wrong = find_mismatches(self)
        removed = {member.node: wrong[member.name] for member in self if member.name in wrong}
        self[:] = [member for member in self if member.name not in wrong]
        self._by_name = {member.name: member for member in self}
        return removed


def _needs_match(new: Member, member: Member) -> bool:
    """Return whether the server must choose a client's global atoms: it has no split, and no earlier choice."""
    return not new.step and not (member.indices is not None and new.returning)


def find_mismatches(clients: Sequence[Member], n_features: int | None = None) -> dict[str, str]:
    """Return the clients that do not fit the others, by name, and why.

    Parameters
    ----------
    clients : sequence of Member
        Clients with their first dictionaries. Their ``facts`` hold the hash of the features' names, and the
        fingerprint of the secret of a masked run.
    n_features : int, optional
        d; default the number that most clients have.
    """
    found = {}
    marks = {client.name: client.facts.get("names", "") for client in clients}
    given = [mark for mark in marks.values() if mark]
    usual = _most_common(given, "")
    typical = next((name for name, mark in marks.items() if mark == usual), "")
    for name, mark in marks.items():
        if mark not in ("", usual):
            found[name] = (
                f"{name}'s features have other names or another order than {typical}'s: give both files the same "
                "columns in the same order, or take the line of names out of one if only the spelling differs"
            )
    secrets = [client.facts.get("secret", "") for client in clients]
    common = _most_common(secrets, "")
    typical = next((client.name for client in clients if client.facts.get("secret", "") == common), "")
    for client, secret in zip(clients, secrets, strict=True):
        if secret != common:
            found[client.name] = (
                f"{client.name} has another secret than {typical}: start all clients with the same file as --secret"
            )
    sizes = [len(client.dictionary) for client in clients]
    d = n_features or _most_common(sizes, 0)
    typical = "the run" if n_features else next((client.name for client in clients if len(client.dictionary) == d), "")
    for name, size in ((client.name, len(client.dictionary)) for client in clients):
        if size != d:
            found[name] = (
                f"{name} has {size} features, {typical} has {d}: all clients' samples must have the same features in "
                "the same order (a client leaves columns out with --drop COLUMN; samples that are in columns are read "
                "with --samples-in columns)"
            )
    return found


def _most_common(values: Sequence[T], default: T) -> T:
    """Return the value that occurs most often, of several the first."""
    return Counter(values).most_common(1)[0][0] if values else default
