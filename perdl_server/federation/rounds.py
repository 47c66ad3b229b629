"""Wait for clients, ask them, collect their answers, and let them leave."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from flwr.app import Message
from numpy.typing import NDArray

from common.errors import FederationError, PerdlError
from common.evaluation import evaluation_of
from common.protocol import FINISH, UPDATE, Payload, ProtocolError, natural_key, pack
from common.settings import Settings
from perdl_server.algorithm.server import PermaServer
from perdl_server.federation.admission import Admission, Node
from perdl_server.federation.members import Member, Members, State
from perdl_server.federation.messages import Exchange, GoneError, Question, content_of
from perdl_server.federation.reasons import by_reason, merge_similar
from perdl_server.federation.site_scale import ask_for_scale
from perdl_server.federation.validation import LARGEST, check_holds_only, number

_log = logging.getLogger("perdl.server")

LAST_WORD = 10.0
"""Seconds to wait for answers if a run ends early, or for clients to come back if all rounds are done."""

_FINAL = {
    "error": (0, LARGEST),
    "shared": (-(LARGEST**2), 1 + 1e-6),
    "own": (-(LARGEST**2), LARGEST**2),
    "local_distance": (0, LARGEST),
}
"""Measures that clients tell in the end, and their ranges."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.2
"""Seconds between two polls for answers; the pause doubles from the first to the longest."""


class Federation:
    """Asks the members of a run, and waits a limited time for their answers.

    Parameters
    ----------
    settings : Settings
        Settings of the run. It uses ``n_clients``, ``quorum`` and the two timeouts.
    exchange : Exchange
        Connection to the nodes.
    run : str
        The run's id.
    server : PermaServer
        Owner of D^g.
    members : iterable of Member
        Members of a run that is resumed.

    Attributes
    ----------
    patience : float, optional
        If set, seconds to wait instead of both timeouts, and no quorum is needed.
    """

    def __init__(
        self, settings: Settings, exchange: Exchange, run: str, server: PermaServer, members: Iterable[Member] = ()
    ) -> None:
        self.settings = settings
        self.exchange = exchange
        self.run = run
        self.server = server
        self.members = Members(settings, server, members)
        self.admission = Admission(settings, run, exchange)
        self.patience: float | None = None

    def agree_on_scale(self, known: list[float] | None = None) -> list[float]:
        """Find the constants that all clients divide features by, and send them with the settings from now on.

        Parameters
        ----------
        known : list of float, optional
            Constants of a run that is resumed.

        Returns
        -------
        list of float
            Empty if the settings do not ask for it, or no client could tell.
        """
        if self.settings.data.site_scale != "agree":
            return []
        wait = self._wait(self.settings.join_timeout)
        constants = ask_for_scale(self.settings, self.run, self.exchange, wait) if known is None else known
        self.admission.settings = self.settings.with_agreed_scale(constants)
        return constants

    def join(self) -> None:
        """Wait for nodes, ask each for its name and D_i^(0), and keep those that fit together.

        A node is asked as soon as it appears, so a client that dies after joining delays nobody.

        Raises
        ------
        FederationError
            If fewer clients than the quorum join, can start and fit together.
        """
        s, members, admission = self.settings, self.members, self.admission
        began = time.monotonic()
        for took in self._wait(s.join_timeout + s.round_timeout):
            late = took > s.join_timeout
            self._handle_events(invite=not late)
            all_asked = late or len(admission.candidates) >= s.n_clients
            too_slow = late and time.monotonic() - admission.asked_at > s.round_timeout
            if len(members) >= s.n_clients or (all_asked and not admission.awaited) or too_slow:
                break
        joined, quorum = len(admission.candidates), members.quorum
        if joined < quorum:
            why = "; ".join(merge_similar(admission.refusals.values()))
            raise FederationError(
                f"{joined} of {s.n_clients} clients joined within {s.join_timeout:g} s (quorum {quorum}): start the "
                "others, or lower n_clients or quorum" + (f"; left out: {why}" if why else "")
            )
        for node, why in members.remove_mismatches().items():
            admission.refuse(node, why, tell=False)
        if len(members) < quorum:
            why = "; ".join(merge_similar(admission.refusals.values()))
            raise FederationError(
                f"{len(members)} of {joined} clients could start (quorum {quorum})"
                + (f": {why}" if why else f" within {s.round_timeout:g} s")
            )
        for node, why in sorted(admission.refusals.items(), key=lambda refusal: refusal[1]):
            admission.refuse(node, why)
        if len(members) < s.n_clients:
            text = "%d of %d clients came within %.0f s, quorum %d: going on without the others"
            _log.warning(text, len(members), s.n_clients, time.monotonic() - began, quorum)

    def rejoin(self) -> None:
        """Wait up to ``join_timeout`` seconds for the members of a resumed run to come back.

        Raises
        ------
        FederationError
            If fewer than the quorum come.
        """
        for _ in self._wait(self.settings.join_timeout if self.patience is None else self.patience):
            self._handle_events()
            if not self.members.away:
                break
        away, quorum, n = ", ".join(self.members.away), self.members.quorum, len(self.members)
        back = n - len(self.members.away)
        if away:
            _log.warning("did not come back: %s", away)
        if self.patience is None and back < quorum:
            raise FederationError(
                f"{back} of {n} clients came back within {self.settings.join_timeout:g} s (quorum {quorum}), without "
                f"{away}: start them again with their own folders, then resume once more"
            )

    def ask(self, question: Question) -> list[tuple[Member, Payload]]:
        """Ask every present member, and members that come back meanwhile; return the valid answers.

        The server waits for all present members, for ``round_timeout`` seconds at most. If members are away and the
        quorum is not reached, it waits for them to come back, for ``join_timeout`` seconds in all.

        Parameters
        ----------
        question : Question
            The question; its ``answers`` are filled in.

        Returns
        -------
        list of (Member, Payload)
            In the order of the members.

        Raises
        ------
        FederationError
            If there are fewer answers than the quorum. It names the missing clients and why.
        """
        s, when = self.settings, question.when
        quorum = question.quorum or self.members.quorum
        timeout, limit = (s.round_timeout, s.join_timeout) if self.patience is None else (self.patience, self.patience)
        known = {member.name: member.fault for member in self.members}
        announced: list[str] = []
        for member in self.members:
            if not question.asked(member):
                self._leave_out(member)
        self._send(question, (member for member in self.members if member.state is not State.AWAY))
        for took in self._wait(max(timeout, limit)):
            self._handle_events(question)
            if question.quorum and len(question.answers) >= quorum:
                break
            if took <= timeout and self._some_may_answer():
                continue
            away = [member.name for member in self._asked(question) if member.state is State.AWAY]
            if len(question.answers) >= quorum or not away or took > limit:
                break
            if away != announced:
                announced = away
                _log.warning("%s: waiting for %s to come back, for %.0f s", when, ", ".join(away), limit - took)
        asked = self._asked(question)
        if not (question.quorum and len(question.answers) >= quorum):
            missing = self._note_missing(question, f"no answer within {timeout:g} s")
            for text in by_reason({name: why for name, why in missing.items() if known.get(name) != why}):
                _log.warning("%s: left out: %s", when, text)
            if len(asked) - len(missing) < quorum and self.patience is None:
                raise FederationError(
                    f"{when}: {len(asked) - len(missing)} of {len(asked)} clients answered (quorum {quorum}): "
                    f"{'; '.join(by_reason(missing))}"
                )
        return [(member, question.answers[member.name]) for member in asked if member.state is State.ANSWERED]

    def _asked(self, question: Question) -> list[Member]:
        return [member for member in self.members if question.asked(member)]

    def _leave_out(self, member: Member) -> None:
        """Wait no longer for a member's answer to an earlier question; it has no question now."""
        self.exchange.open.pop(member, None)
        if member.state is not State.AWAY:
            member.state = State.PRESENT

    def finish(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Send the final D^g. Each client writes its own model and answers with scalars.

        Parameters
        ----------
        arrays : dict
            Holds D^g.
        """
        question = Question(FINISH, "the end", lambda payload, name: _final_facts(payload), arrays)
        for member, payload in self.ask(question):
            _learn_final_facts(member, payload)

    def dismiss(self, arrays: dict[str, NDArray[Any]], why: str) -> None:
        """Let all clients leave before the run's end, and wait ``LAST_WORD`` seconds for their answers.

        Parameters
        ----------
        arrays : dict
            Holds the present D^g; empty before there is one.
        why : str
            Reason for clients without a fault. Others are told their own fault; nobody is told another client's.
        """
        members, questions = {member.node: member for member in self.members}, {}
        for node in self.admission.candidates:
            member = members.get(node.id)
            content = {**arrays, **self._own_arrays(member)} if member and arrays else {}
            reason = (member.fault if member else "") or node.refusal or why
            questions[member or node] = Message(pack(content, run=self.run, reason=reason), node.id, FINISH)
        self.let_go(questions)

    def let_go(self, questions: Mapping[Any, Message]) -> None:
        """Send last messages, and wait ``LAST_WORD`` seconds for the answers.

        Parameters
        ----------
        questions : mapping of recipient to Message
            Message for each member or node.
        """
        self.exchange.open.clear()
        self.exchange.ask("finish", questions)
        for _ in self._wait(LAST_WORD, heed_stop=False):
            for sender, reply in self.exchange.receive():
                if isinstance(sender, Member):
                    with suppress(PerdlError):
                        _learn_final_facts(sender, content_of(reply, FINISH))
            if not self.exchange.open:
                break

    def _wait(self, timeout: float, *, heed_stop: bool = True) -> Iterator[float]:
        """Yield the seconds so far, with growing pauses. The server waits only in this loop."""
        began, pause = time.monotonic(), _FIRST_PAUSE
        while True:
            if heed_stop and self.exchange.stopped():
                raise KeyboardInterrupt
            yield time.monotonic() - began
            left = began + timeout - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _handle_events(self, question: Question | None = None, *, invite: bool = True) -> None:
        """Ask new processes for their names (if ``invite``), and update members by the answers that have arrived."""
        if invite:
            self.admission.invite()
        matched, failed = self.server.matched, False
        arrivals: list[Member] = []
        for sender, reply in self.exchange.receive():
            if isinstance(sender, Node):
                arrivals += self.admission.hear(sender, reply, tell=matched)
            elif question:
                self._take_answer(question, sender, reply)
                failed |= sender.state is State.FAILED
        if failed:  # a new process may have received its predecessor's question
            self.admission.invite(now=True)
        back = []
        for new in sorted(arrivals, key=lambda new: natural_key(new.name)):
            if why := self.members.objection(new, self.admission.online):
                self.admission.refuse(new.node, why, tell=matched or not new.step)
            elif (member := self.members.admit(new)).state is not State.ANSWERED:
                back.append(member)
        if question and back:
            self._send(question, back)

    def _send(self, question: Question, members: Iterable[Member]) -> None:
        messages = {}
        for member in filter(question.asked, members):
            own = {**self._own_arrays(member), **question.own(member)}
            content = pack({**question.arrays, **own}, run=self.run, **question.scalars)
            messages[member] = Message(content, member.node, question.kind)
        self.exchange.ask(question.phase, messages)
        for member in messages:
            member.state = State.ASKED if member in self.exchange.open else State.AWAY

    def _own_arrays(self, member: Member) -> dict[str, NDArray[Any]]:
        """Return the arrays that only this member is sent: its matched atoms, and which atoms it shares."""
        members = self.server.members(member.name)
        own: dict[str, NDArray[Any]] = {} if member.indices is None else {"indices": member.indices}
        return own if members is None else {**own, "members": members}

    def _take_answer(self, question: Question, member: Member, reply: Message) -> None:
        try:
            payload = content_of(reply, question.kind)
            if payload.scalar("client", str) != member.name:
                raise ProtocolError("answered under another client's name")
            question.check(payload, member.name)
        except GoneError:
            member.state = State.AWAY
        except PerdlError as error:
            member.state, member.fault = State.FAILED, str(error)
        else:
            member.state, member.fault, member.indices = State.ANSWERED, "", None
            question.answers[member.name] = payload

    def _some_may_answer(self) -> bool:
        """Return whether an answer may still come, perhaps from a new process in place of one that failed."""
        failed = {member.node for member in self.members if member.state is State.FAILED}
        return any(member.state is State.ASKED for member in self.members) or bool(failed & self.admission.awaited)

    def _note_missing(self, question: Question, late: str) -> dict[str, str]:
        """Record and return why members did not answer."""
        missing = [member for member in self._asked(question) if member.state is not State.ANSWERED]
        for member in missing:
            if question.kind == UPDATE:
                member.facts["missed"] = member.facts.get("missed", 0) + 1
            if member.state is not State.FAILED:
                member.fault = "gone" if member.state is State.AWAY else late
        return {member.name: member.fault for member in missing}


def _final_facts(payload: Payload) -> dict[str, Any]:
    """Return a client's final facts. In a private run it tells no measures."""
    facts: dict[str, Any] = {
        f"final_{key}": number(payload, key, float, *_FINAL[key]) for key in _FINAL if key in payload.scalars
    }
    try:
        evaluation = evaluation_of(payload.scalars)
    except ValueError as error:
        raise ProtocolError(f"its evaluation cannot be: {error}") from None
    check_holds_only(payload, {*_FINAL, *(evaluation.scalars() if evaluation else ())})
    return facts | ({} if evaluation is None else {"held_out": evaluation.facts()})


def _learn_final_facts(member: Member, payload: Payload) -> None:
    """Enter what a client tells in the end. What it told before the run was resumed counts no more."""
    facts = _final_facts(payload)
    member.facts.pop("held_out", None)
    member.facts |= facts
