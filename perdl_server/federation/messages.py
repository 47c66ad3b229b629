"""Messages: questions to clients, and their answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from numpy.typing import NDArray

from common.protocol import Payload, ProtocolError, payload_bytes, unpack


class GoneError(ProtocolError):
    """Flower answered in place of a node that is not there."""


@dataclass
class Question:
    """What every member is asked, and the valid answers."""

    kind: str  # Flower's type of the message
    when: str  # the phase, for people
    check: Callable[[Payload], object]  # raises ProtocolError where an answer is not what was asked for
    arrays: dict[str, NDArray[Any]]
    scalars: dict[str, int] = field(default_factory=dict)
    answers: dict[str, Payload] = field(default_factory=dict)  # by client

    @property
    def phase(self) -> str:
        """Under what its bytes are counted."""
        return self.kind.partition(".")[2]


class Exchange:
    """One run's traffic over a Flower grid, without the three seconds that Flower's ``send_and_receive`` sleeps.

    Parameters
    ----------
    grid : Grid
        Flower's connection to the nodes.
    stopped : callable
        Returns whether somebody asked the run to end.
    before : mapping, optional
        ``bytes`` of the time before the run was resumed.

    Attributes
    ----------
    bytes : dict
        Of messages' contents, by phase, then ``"to_clients"`` and ``"to_server"``.
    open : dict
        By recipient: id and phase of the question that it has not answered yet.
    """

    def __init__(
        self, grid: Grid, stopped: Callable[[], bool], before: Mapping[str, Mapping[str, int]] | None = None
    ) -> None:
        self.grid = grid
        self.stopped = stopped
        self.bytes: dict[str, dict[str, int]] = defaultdict(lambda: {"to_clients": 0, "to_server": 0})
        self.bytes |= {phase: dict(counts) for phase, counts in (before or {}).items()}
        self.open: dict[Any, tuple[str, str]] = {}

    def send(self, phase: str, messages: Sequence[Message]) -> list[str]:
        """Send messages; return the id of each, empty where its node is not there any more.

        Parameters
        ----------
        phase : str
            Under what the bytes are counted.
        messages : sequence of Message
            Sent in one request.
        """
        self.bytes[phase]["to_clients"] += sum(payload_bytes(message.content) for message in messages)
        return list(self.grid.push_messages(messages)) if messages else []

    def ask(self, phase: str, questions: Mapping[Any, Message]) -> None:
        """Send messages whose answers count; a new question replaces the recipient's former one.

        Parameters
        ----------
        phase : str
            Under what the bytes are counted.
        questions : mapping of recipient to Message
            A recipient whose node is not there any more does not come into ``open``.
        """
        for recipient, i in zip(questions, self.send(phase, [*questions.values()]), strict=True):
            self.open.pop(recipient, None)
            if i:
                self.open[recipient] = i, phase

    def receive(self) -> list[tuple[Any, Message]]:
        """Return the answers that have come, each with its sender.

        An answer belongs to the message that it answers: where a node has gone, Flower answers in its place.
        """
        senders = {i: recipient for recipient, (i, _) in self.open.items()}
        answers = []
        for answer in self.grid.pull_messages(list(senders)) if senders else ():
            if sender := senders.pop(answer.metadata.reply_to_message_id, None):
                _, phase = self.open.pop(sender)
                answers.append((sender, answer))
                if answer.has_content():
                    self.bytes[phase]["to_server"] += payload_bytes(answer.content)
        return answers


def content_of(reply: Message) -> Payload:
    """Return the content of an answer.

    Parameters
    ----------
    reply : Message
        A client's, or Flower's in its place.

    Raises
    ------
    GoneError
        If Flower says that the node is not there.
    ProtocolError
        If the client failed (with its own words), or the answer is not the protocol's.
    """
    if reply.has_error():
        if reply.error.code == ErrorCode.NODE_UNAVAILABLE:
            raise GoneError("its node has gone")
        if reply.error.code == ErrorCode.MESSAGE_UNAVAILABLE:
            raise ProtocolError("its answer was announced and did not come")
        raise ProtocolError(reply.error.reason or f"Flower's error {reply.error.code}")
    return unpack(reply.content)
