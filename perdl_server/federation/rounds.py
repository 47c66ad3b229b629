"""Waiting for clients, asking them, which answers count, and how they are let go."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from flwr.app import Message
from numpy.typing import NDArray

from common.errors import FederationError, PerdlError
from common.protocol import FINISH, UPDATE, Payload, ProtocolError, natural_key, pack
from perdl_server.federation.admission import GoneError, content_of
from perdl_server.federation.members import Member, Roster
from perdl_server.federation.reasons import alike_once, by_reason

_log = logging.getLogger("perdl.server")

LAST_WORD = 10.0
"""Seconds that clients have to answer when a run ends before its time, or to come back when all rounds are done."""


class Federation:
    """Asks the members of a run, for bounded times.

    Parameters
    ----------
    roster : Roster
    """

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self.settings = roster.settings
        self.exchange = roster.exchange
        self._missing: dict[str, str] = {}

    @property
    def members(self) -> list[Member]:
        """The members in the order of their names."""
        return self.roster.members

    def join(self) -> None:
        """Wait for nodes, ask each for D_i^(0) and its name, and keep those that fit together.

        A node is asked as soon as it appears, so that one that died after joining holds up nobody.

        Raises
        ------
        FederationError
            If fewer than the quorum join, can start and fit, or two have the same name.
        """
        s, door = self.settings, self.roster.door
        began = time.monotonic()

        def look() -> bool:
            late = time.monotonic() - began > s.join_timeout
            for arrival in sorted(door.look(invite=not late), key=lambda arrival: natural_key(arrival.name)):
                self.roster.enter(arrival)
            if len(self.members) >= s.n_clients:
                return True
            return (not door.waiting and (late or len(door.nodes) >= s.n_clients)) or (
                late and time.monotonic() - door.asked_at > s.round_timeout
            )

        self.exchange.wait(look, s.join_timeout + s.round_timeout)
        if len(door.nodes) < self.roster.quorum:
            why = f"; left out: {'; '.join(alike_once(door.refused.values()))}" if door.refused else ""
            raise FederationError(
                f"{len(door.nodes)} of {s.n_clients} clients joined within {s.join_timeout:g} s (quorum "
                f"{self.roster.quorum}): start the others, or lower n_clients or quorum{why}"
            )
        self.roster.leave_out_misfits()
        if len(self.members) < s.n_clients:
            _log.warning(
                "%d of %d clients came within %.0f s, quorum %d: going on without the others",
                len(self.members),
                s.n_clients,
                time.monotonic() - began,
                self.roster.quorum,
            )

    def rejoin(self, patience: float | None = None) -> None:
        """Wait for the members of a resumed run to come back, for ``patience`` (default ``join_timeout``) seconds.

        Raises
        ------
        FederationError
            If fewer than the quorum come. With ``patience`` none is raised.
        """

        def look() -> bool:
            self.roster.admit()
            return not self.roster.away

        self.exchange.wait(look, self.settings.join_timeout if patience is None else patience)
        away, quorum = self.roster.away, self.roster.quorum
        if away:
            _log.warning("did not come back: %s", ", ".join(away))
        if patience is None and len(self.members) - len(away) < quorum:
            raise FederationError(
                f"{len(self.members) - len(away)} of {len(self.members)} clients came back within "
                f"{self.settings.join_timeout:g} s (quorum {quorum}), without {', '.join(away)}: start them "
                "again with their own folders, then resume once more"
            )

    def ask(
        self,
        kind: str,
        arrays: dict[str, NDArray[Any]],
        when: str,
        check: Callable[[Payload], object],
        *,
        patience: float | None = None,
        **scalars: int,
    ) -> list[tuple[Member, Payload]]:
        """Ask every member that is there, and those that come back meanwhile; return the valid answers.

        It waits for all members that are there, ``round_timeout`` (or ``patience``) seconds at most. If the quorum
        fails because clients have gone, it waits for them to come back, up to ``join_timeout`` seconds in all.

        Parameters
        ----------
        kind : str
            Of message.
        arrays : dict
        when : str
            For people.
        check : callable
            Raises ProtocolError where an answer is not what was asked for.
        patience : float, optional
        **scalars : int

        Returns
        -------
        list of (Member, Payload)
            In the order of the members.

        Raises
        ------
        FederationError
            If they are fewer than the quorum; names who is missing and why.
        """
        phase, began = kind.partition(".")[2], time.monotonic()
        timeout = self.settings.round_timeout if patience is None else patience
        waiting: dict[str, Member] = {}
        newest: dict[str, str] = {}
        answers: dict[str, Payload] = {}
        faults: dict[str, str] = {}
        awaited: list[str] = []
        door = self.roster.door

        def send(members: list[Member]) -> None:
            messages = self.messages(kind, arrays, members, **scalars)
            for i, member in zip(self.exchange.send(phase, messages), members, strict=True):
                if i:
                    waiting[i], newest[member.name] = member, i
                else:
                    member.gone = True

        def look() -> bool:
            for i, member, reply in self.exchange.receive(phase, waiting):
                try:
                    answers[member.name] = self.read(member, reply, check)
                except PerdlError as error:
                    if newest[member.name] != i:
                        continue  # of a process in whose place another has been asked since
                    if isinstance(error, GoneError):
                        member.gone = True
                    else:
                        faults[member.name] = str(error)
                        door.look_at_once()  # it may be a new process, to which the question is strange
            back = [member for member in self.roster.admit() if member.name not in answers]
            for member in back:
                faults.pop(member.name, None)
            send(back)
            there = [member for member in self.members if not member.gone]
            took = time.monotonic() - began
            unsettled = [m for m in there if m.name not in answers and (m.name not in faults or door.awaits(m.node))]
            if unsettled and took <= timeout:
                return False
            limit = self.settings.join_timeout if patience is None else patience
            if len(answers) >= self.roster.quorum or len(there) == len(self.members) or took > limit:
                return True
            if awaited != (away := self.roster.away):
                awaited[:] = away
                _log.warning("%s: waiting for %s to come back, for %.0f s", when, ", ".join(away), limit - took)
            return False

        send([member for member in self.members if not member.gone])
        self.exchange.wait(look, max(timeout, self.settings.join_timeout) if patience is None else patience)
        accepted = [(member, answers[member.name]) for member in self.members if member.name in answers]
        missing = {}
        for member in self.members:
            member.indices = None if member.name in answers else member.indices
            if member.name in answers:
                self.roster.reasons.pop(member.node, None)
                continue
            if kind == UPDATE:
                member.facts["missed"] = member.facts.get("missed", 0) + 1
            late = "gone" if member.gone else f"no answer within {timeout:g} s"
            self.roster.reasons[member.node] = faults.get(member.name, late)
            missing[member.name] = self.roster.reasons[member.node]
        for text in by_reason({name: why for name, why in missing.items() if self._missing.get(name) != why}):
            _log.warning("%s: left out: %s", when, text)
        self._missing = missing  # said once, until it is otherwise
        if len(accepted) < self.roster.quorum and patience is None:
            raise FederationError(
                f"{when}: {len(accepted)} of {len(self.members)} clients answered (quorum {self.roster.quorum}): "
                f"{'; '.join(by_reason(missing))}"
            )
        return accepted

    def messages(
        self, kind: str, arrays: dict[str, NDArray[Any]], members: Iterable[Member], **scalars: int
    ) -> list[Message]:
        """Return one message for each member, with its own match until it has answered one."""
        return [
            Message(pack({**arrays, **_match(member)}, run=self.roster.run, **scalars), member.node, kind)
            for member in members
        ]

    def read(self, member: Member, reply: Message, check: Callable[[Payload], object]) -> Payload:
        """Return an answer that has passed all checks.

        Raises
        ------
        GoneError, ProtocolError
        """
        payload = content_of(reply)
        if payload.scalar("client", str) != member.name:
            raise ProtocolError("answered under another client's name")
        check(payload)
        return payload

    def finish(self, arrays: dict[str, NDArray[Any]], patience: float | None = None) -> None:
        """Send the final D^g; each client writes its own model and answers with scalars."""
        answers = self.ask(FINISH, arrays, "the end", lambda p: p.scalar("error", float), patience=patience)
        self._note_final(answers)

    def dismiss(self, arrays: dict[str, NDArray[Any]], why: str) -> None:
        """Let all clients go before the time, with the present D^g where there is one, and for a short while only.

        A client is told why in its own case; of the others it hears nothing.
        """
        by_node = {member.node: member for member in self.members}
        match = {member.node: _match(member) for member in self.members} if arrays else {}
        reasons = self.roster.door.refused | self.roster.reasons
        nodes = self.roster.door.nodes
        messages = [
            Message(
                pack(
                    {**arrays, **match[node]} if node in match else {},
                    run=self.roster.run,
                    reason=reasons.get(node, why),
                ),
                dst_node_id=node,
                message_type=FINISH,
            )
            for node in nodes
        ]
        waiting = {i: node for i, node in zip(self.exchange.send("finish", messages), nodes, strict=True) if i}

        def look() -> bool:
            for _, node, reply in self.exchange.receive("finish", waiting):
                with suppress(KeyError, PerdlError):
                    self._note_final([(by_node[node], content_of(reply))])
            return not waiting

        self.exchange.wait(look, LAST_WORD, heed_stop=False)

    def _note_final(self, answers: Iterable[tuple[Member, Payload]]) -> None:
        for member, payload in answers:
            known = [key for key in ("error", "shared", "own", "local_distance") if key in payload.scalars]
            member.facts |= {f"final_{key}": payload.scalar(key, float) for key in known}


def _match(member: Member) -> dict[str, NDArray[Any]]:
    return {} if member.indices is None else {"indices": member.indices}
