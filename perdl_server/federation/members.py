"""Who takes part: places, and who is let in before matching, comes back, or comes after it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import FederationError
from common.logs import about
from common.protocol import natural_key
from common.settings import Settings
from perdl_server.algorithm.server import PermaServer
from perdl_server.federation.admission import Arrival, Door, misfits, other_names
from perdl_server.federation.messages import Exchange
from perdl_server.federation.reasons import alike_once

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]
_log = logging.getLogger("perdl.server")


@dataclass
class Member:
    """A client of the run, as the server knows it."""

    name: str
    facts: dict[str, Any]
    node: int = 0
    gone: bool = False
    """Whether nobody is there: Flower said so, or the server was resumed and the client has not come back."""
    indices: Ints | None = None
    """Which of the atoms that it sent are global; sent with each message until it has answered one."""
    dictionary: Floats = field(default_factory=lambda: np.empty((0, 0)))
    usage: Floats = field(default_factory=lambda: np.empty(0))


class Roster:
    """The members of a run in the order of their names, whatever the order of arrival.

    Parameters
    ----------
    settings : Settings
    exchange : Exchange
    run : str
        The run's id.
    server : PermaServer
        Aligns who comes after matching to the present D^g.
    members : iterable of Member
        Those of a run that is resumed.

    Attributes
    ----------
    members : list of Member
    reasons : dict of int to str
        By node: what its client is told if the run ends before its time, in its own case.
    """

    def __init__(
        self, settings: Settings, exchange: Exchange, run: str, server: PermaServer, members: Iterable[Member] = ()
    ) -> None:
        self.settings = settings
        self.exchange = exchange
        self.run = run
        self.members = list(members)
        self.server = server
        self.reasons: dict[int, str] = {}
        self.door = Door(settings, run, exchange)

    @property
    def quorum(self) -> int:
        """How many clients must answer."""
        return self.settings.quorum or self.settings.n_clients

    @property
    def away(self) -> list[str]:
        """Members that are not there."""
        return [member.name for member in self.members if member.gone]

    def enter(self, arrival: Arrival) -> None:
        """Take in who comes before matching."""
        if arrival.step:  # nobody has answered a round yet
            self.door.refused[arrival.node] = f"this run knows no {arrival.name}"
            return
        member = next((member for member in self.members if member.name == arrival.name), None)
        if member is not None and not arrival.returning and member.node in self.door.online - {arrival.node}:
            self.door.turn_away(arrival.node, f"two clients are called {arrival.name}: give each its own --name")
            return
        if member is None:
            member = self._seat(arrival)
        if member is not None:
            member.node, member.facts = arrival.node, arrival.facts
            member.dictionary, member.usage = arrival.dictionary, arrival.usage

    def admit(self) -> list[Member]:
        """Take in who comes back, or comes after matching; return them."""
        back = []
        arrivals = self.door.look()
        for node in self.door.refused.keys() & set(self.door.nodes):
            self.door.turn_away(node, self.door.refused[node])
        for arrival in arrivals:
            member = next((member for member in self.members if member.name == arrival.name), None)
            taken = member is not None and not member.gone and member.node in self.door.online - {arrival.node}
            if taken and not arrival.returning:  # its former process may not have been missed yet
                self.door.turn_away(
                    arrival.node,
                    f"{arrival.name} takes part already; if that process was killed, start this one again in a "
                    "minute, or with the folder of that one",
                )
                continue
            if arrival.step and member is None:
                self.door.turn_away(arrival.node, f"this run knows no {arrival.name}")
                continue
            if not self._fits(arrival, member):
                continue
            member = member or self._seat(arrival)
            if member is not None:
                with about(client=arrival.name):
                    _log.info("%s", "is back" if arrival.returning else "joins the run")
                if not arrival.step and not (member.indices is not None and arrival.returning):  # not split yet
                    member.indices = self.server.align(arrival.dictionary)
                member.node, member.gone = arrival.node, False
                member.facts = arrival.facts | member.facts
                member.facts["returns"] = member.facts.get("returns", 0) + 1
                back.append(member)
        return back

    def _fits(self, arrival: Arrival, member: Member | None) -> bool:
        """Whether the atoms of somebody late fit the present D^g; who does not is turned away."""
        if arrival.step or (member is not None and member.indices is not None and arrival.returning):
            return True
        marks = {other.name: other.facts.get("names", "") for other in self.members if other is not member}
        wrong = other_names({**marks, arrival.name: arrival.facts.get("names", "")})
        d, r_g = self.server.global_dictionary.shape
        wrong = {name: why for name, why in wrong.items() if name == arrival.name}
        wrong |= misfits({arrival.name: arrival.dictionary}, r_g, d)
        if wrong:
            self.door.turn_away(arrival.node, wrong[arrival.name])
        return not wrong

    def _seat(self, arrival: Arrival) -> Member | None:
        """A place for a client that was not there before, if one is left."""
        if len(self.members) >= self.settings.n_clients:
            self.door.turn_away(
                arrival.node,
                f"{arrival.name} is one too many: the run has its {self.settings.n_clients} clients; a server with a "
                "larger n_clients and a quorum lets in more",
            )
            return None
        member = Member(arrival.name, arrival.facts, arrival.node)
        with about(client=arrival.name):
            used = f"{arrival.dictionary.shape[1]} of its {arrival.facts['n_atoms']} atoms in use"
            _log.info("takes part: %d samples, %s", arrival.facts["n_samples"], used)
        self.members = sorted([*self.members, member], key=lambda member: natural_key(member.name))
        return member

    def leave_out_misfits(self) -> None:
        """Leave out clients of another number of features than most, of other names, or of too few usable atoms."""
        wanted = self.settings.n_global if isinstance(self.settings.n_global, int) else 0
        wrong = other_names({member.name: member.facts.get("names", "") for member in self.members})
        wrong |= misfits({member.name: member.dictionary for member in self.members}, wanted)
        nodes = {member.name: member.node for member in self.members}
        self.members = [member for member in self.members if member.name not in wrong]
        refused = self.door.refused | {nodes[name]: why for name, why in wrong.items()}
        self.reasons |= refused
        if len(self.members) < self.quorum:
            reasons = alike_once(refused.values())
            why = f": {'; '.join(reasons)}" if reasons else f" within {self.settings.round_timeout:g} s"
            raise FederationError(
                f"{len(self.members)} of {len(self.door.nodes)} clients could start (quorum {self.quorum}){why}"
            )
        for node, text in sorted(refused.items(), key=lambda item: item[1]):
            self.door.turn_away(node, text)

    def blame(self, name: str, text: str) -> None:
        """Remember that this client is why the run fails; it alone is told so."""
        self.reasons |= {member.node: text for member in self.members if member.name == name}
