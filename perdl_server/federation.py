"""The clients of a run: who they are, what they are asked, which answers count, and how they are let go."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Message
from flwr.common.constant import ErrorCode
from numpy.typing import NDArray

from common.errors import FederationError, PerdlError
from common.protocol import FINISH, INITIALISE, Payload, ProtocolError, check_name, natural_key, pack, unpack
from common.settings import Settings
from perdl_server.exchange import Exchange

Floats = NDArray[np.floating]
_log = logging.getLogger("perdl.server")

_ABSURD = 1e6
"""Atoms are near norm one; sums of anything up to this are harmless."""

_LAST_WORD = 10.0
"""Seconds that clients have to answer when a run ends before its time."""


@dataclass
class Member:
    """A client of the run, as the server knows it."""

    node: int
    name: str
    facts: dict[str, Any]
    dictionary: Floats
    usage: Floats
    match: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Its own indices and signs, sent with each message until it has answered one."""
    gone: bool = False
    """Whether Flower has said that its node is not there any more."""


class _GoneError(ProtocolError):
    """Flower answered in a node's place."""


class Federation:
    """The members of a run in the order of their names, whatever the order of arrival.

    Parameters
    ----------
    settings : Settings
    exchange : Exchange
    """

    def __init__(self, settings: Settings, exchange: Exchange) -> None:
        self.settings = settings
        self.exchange = exchange
        self.members: list[Member] = []
        self._nodes: set[int] = set()
        self._blame: dict[int, str] = {}

    @property
    def quorum(self) -> int:
        """How many clients must answer."""
        return self.settings.quorum or self.settings.n_clients

    def join(self) -> None:
        """Wait for nodes, ask each for D_i^(0) and its name, and keep those that fit together.

        A node is asked as soon as it appears, so that one that died after joining holds up nobody.

        Raises
        ------
        FederationError
            If fewer than the quorum join, can start and fit, or two have the same name.
        """
        s = self.settings
        text = s.model_dump_json(exclude_none=True)
        began, asked_at = time.monotonic(), time.monotonic()
        waiting: dict[str, int] = {}
        members: list[Member] = []

        def look() -> bool:
            nonlocal asked_at
            new = sorted(set(self.exchange.grid.get_node_ids()) - self._nodes)
            if new and time.monotonic() - began <= s.join_timeout:
                self._nodes.update(new)
                messages = [Message(pack(settings=text), dst_node_id=node, message_type=INITIALISE) for node in new]
                waiting.update(self.exchange.send("initialise", messages))
                asked_at = time.monotonic()
            for node, reply in self.exchange.receive("initialise", waiting).items() if waiting else ():
                try:
                    members.append(self._member(node, reply))
                except _GoneError:
                    self._nodes.discard(node)
                except PerdlError as error:
                    self._blame[node] = str(error)
            if len(members) >= s.n_clients:
                return True
            late = time.monotonic() - began > s.join_timeout
            return (not waiting and (late or len(self._nodes) >= s.n_clients)) or (
                late and time.monotonic() - asked_at > s.round_timeout
            )

        self.exchange.wait(look, s.join_timeout + s.round_timeout)
        if len(self._nodes) < self.quorum:
            raise FederationError(
                f"{len(self._nodes)} of {s.n_clients} clients joined within {s.join_timeout:g} s (quorum "
                f"{self.quorum}): start the others, or lower n_clients or quorum"
            )
        members.sort(key=lambda member: natural_key(member.name))
        self.members = members[: s.n_clients]
        for member in members[s.n_clients :]:
            self._blame[member.node] = f"the run has its {s.n_clients} clients already"
        self._refuse_namesakes()
        self._leave_out_misfits()

    def _refuse_namesakes(self) -> None:
        names = [member.name for member in self.members]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            text = f"two clients are called {', '.join(sorted(twice, key=natural_key))}: give each its own --name"
            self._blame |= {member.node: text for member in self.members if member.name in twice}
            raise FederationError(text)

    def _leave_out_misfits(self) -> None:
        """Leave out clients of another number of features than most, or of too few usable atoms."""
        if self.members:
            sizes = [len(member.dictionary) for member in self.members]
            d = max(sizes, key=sizes.count)
            typical = self.members[sizes.index(d)].name
        wanted = self.settings.n_global if isinstance(self.settings.n_global, int) else 0
        fitting = []
        for member in self.members:
            have, usable = member.dictionary.shape
            if have != d:
                self._blame[member.node] = (
                    f"{member.name} has {have} features, {typical} has {d}: all clients' samples must have the same "
                    "features in the same order"
                )
            elif usable < wanted:
                self._blame[member.node] = f"{member.name} has {usable} usable atoms, fewer than n_global = {wanted}"
            else:
                fitting.append(member)
        self.members = fitting
        refused = sorted(set(self._blame.values()))
        if len(fitting) < self.quorum:
            why = f": {'; '.join(refused)}" if refused else f" within {self.settings.round_timeout:g} s"
            raise FederationError(
                f"{len(fitting)} of {len(self._nodes)} clients could start (quorum {self.quorum}){why}"
            )
        for text in refused:
            _log.warning("left out: %s", text)

    def messages(self, kind: str, arrays: dict[str, NDArray[Any]], **scalars: int) -> list[Message]:
        """Return one message for each member, with its own match until it has answered one."""
        return [
            Message(pack({**arrays, **member.match}, **scalars), dst_node_id=member.node, message_type=kind)
            for member in self.members
            if not member.gone
        ]

    def accept(
        self, replies: Mapping[int, Message], when: str, check: Callable[[Payload], object]
    ) -> list[tuple[Member, Payload]]:
        """Return the valid answers in the order of the members.

        Raises
        ------
        FederationError
            If they are fewer than the quorum; names who is missing and why.
        """
        accepted, missing = [], []
        for member in self.members:
            try:
                if member.gone:
                    raise _GoneError("has gone")
                if member.node not in replies:
                    raise ProtocolError(f"no answer within {self.settings.round_timeout:g} s")
                payload = _payload(replies[member.node])
                if payload.scalar("client", str) != member.name:
                    raise ProtocolError("answered under another client's name")
                check(payload)
            except PerdlError as error:
                member.gone = member.gone or isinstance(error, _GoneError)
                missing.append(f"{member.name}: {error}")
                self._blame[member.node] = str(error)
                continue
            member.match = {}
            self._blame.pop(member.node, None)
            accepted.append((member, payload))
        for text in missing:
            _log.warning("%s: left out: %s", when, text)
        if len(accepted) < self.quorum:
            raise FederationError(
                f"{when}: {len(accepted)} of {len(self.members)} clients answered (quorum {self.quorum}): "
                f"{'; '.join(missing)}"
            )
        return accepted

    def blame(self, name: str, text: str) -> None:
        """Remember that this client is why the run fails; it alone is told so."""
        self._blame |= {member.node: text for member in self.members if member.name == name}

    def finish(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Send the final D^g; each client writes its own model and answers with scalars."""
        replies = self.exchange.ask("finish", self.messages(FINISH, arrays), self.settings.round_timeout)
        answers = self.accept(replies, "the end", lambda payload: payload.scalar("error", float))
        self._note_final(answers)

    def dismiss(self, arrays: dict[str, NDArray[Any]], why: str) -> None:
        """Let all clients go before the time, with the present D^g where there is one, and for a short while only.

        A client is told why in its own case; of the others it hears nothing.
        """
        match = {member.node: member.match for member in self.members} if arrays else {}
        messages = [
            Message(
                pack({**arrays, **match[node]} if node in match else {}, reason=self._blame.get(node, why)),
                dst_node_id=node,
                message_type=FINISH,
            )
            for node in sorted(self._nodes)
        ]
        replies = self.exchange.ask("finish", messages, _LAST_WORD, last=True)
        for member in self.members:
            with suppress(KeyError, PerdlError):
                self._note_final([(member, _payload(replies[member.node]))])

    def _member(self, node: int, reply: Message) -> Member:
        payload = _payload(reply)
        name = check_name(payload.scalar("client", str))
        dtype = self.settings.dtype
        with np.errstate(over="ignore"):
            dictionary = payload.array("dictionary", (-1, -1)).astype(dtype, copy=False)
            usage = payload.array("usage", (dictionary.shape[1],)).astype(dtype, copy=False)
            norms = np.linalg.norm(dictionary, axis=0)
        if not ((norms > 1 / _ABSURD) & (norms < _ABSURD) & (usage >= 0) & np.isfinite(usage)).all():
            raise ProtocolError(f"{name} sent atoms or energies out of all proportion")
        facts = {
            "n_features": payload.scalar("n_features", int),
            "n_samples": payload.scalar("n_samples", int),
            "n_atoms": payload.scalar("n_atoms", int),
            **{key: payload.scalar(key, float) for key in ("start_error", "nonzeros", "mean_share")},
        }
        return Member(node, name, facts, dictionary, usage)

    def _note_final(self, answers: Iterable[tuple[Member, Payload]]) -> None:
        for member, payload in answers:
            known = [key for key in ("error", "local_distance") if key in payload.scalars]
            member.facts |= {f"final_{key}": payload.scalar(key, float) for key in known}


def _payload(reply: Message) -> Payload:
    if reply.has_error():
        if reply.error.code == ErrorCode.NODE_UNAVAILABLE:
            raise _GoneError("its node has gone")
        raise ProtocolError(reply.error.reason or f"Flower's error {reply.error.code}")
    return unpack(reply.content)
