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

from common.protocol import Payload, ProtocolError, answer_keys, payload_bytes, unpack


class GoneError(ProtocolError):
    """Flower reported that the node has gone.

    Parameters
    ----------
    text : str
        What is wrong.
    """


@dataclass
class Question:
    """A question to every member, and the valid answers.

    Parameters
    ----------
    kind : str
        Flower's type of the message.
    when : str
        The phase in words, for messages.
    check : callable (Payload, str) -> object
        Raises ProtocolError if the answer of the named client is not valid.
    arrays : dict of str to array
        Arrays that every member is sent.
    scalars : dict of str to int or str
        Scalars that every member is sent.
    asked : callable (object) -> bool
        Which members are asked; by default all.
    own : callable (object) -> dict of str to array
        Arrays that only one member is sent.
    quorum : int, optional
        How many answers are enough, and no more are waited for. By default all present members are waited for, and the
        run's quorum is enough.
    answers : dict of str to Payload
        Valid answers, by client.
    """

    kind: str
    when: str
    check: Callable[[Payload, str], object]
    arrays: dict[str, NDArray[Any]]
    scalars: dict[str, int | str] = field(default_factory=dict)
    asked: Callable[[Any], bool] = lambda member: True
    own: Callable[[Any], dict[str, NDArray[Any]]] = lambda member: {}
    quorum: int | None = None
    answers: dict[str, Payload] = field(default_factory=dict)

    @property
    def phase(self) -> str:
        """Phase under which its bytes are counted."""
        return self.kind.partition(".")[2]


class Exchange:
    """One run's messages over a Flower grid. Flower's ``send_and_receive`` would sleep three seconds each time.

    Parameters
    ----------
    grid : Grid
        Flower's connection to the nodes.
    stopped : callable
        Returns whether the run is to end.
    before : mapping, optional
        ``bytes`` from before the run was resumed.

    Attributes
    ----------
    bytes : dict
        Bytes of messages' contents, by phase, then ``"to_clients"`` and ``"to_server"``.
    open : dict
        Unanswered questions, as id and phase, by recipient.
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
        """Send messages, and return the id of each; the id is empty if the node has gone.

        Parameters
        ----------
        phase : str
            Phase under which the bytes are counted.
        messages : sequence of Message
            Messages, sent in one request.
        """
        self.bytes[phase]["to_clients"] += sum(payload_bytes(message.content) for message in messages)
        return list(self.grid.push_messages(messages)) if messages else []

    def ask(self, phase: str, questions: Mapping[Any, Message]) -> None:
        """Send messages that need an answer. A new question replaces the recipient's former one.

        Parameters
        ----------
        phase : str
            Phase under which the bytes are counted.
        questions : mapping of recipient to Message
            Message for each recipient. A recipient whose node has gone is not entered in ``open``.
        """
        for recipient, i in zip(questions, self.send(phase, [*questions.values()]), strict=True):
            self.open.pop(recipient, None)
            if i:
                self.open[recipient] = i, phase

    def receive(self) -> list[tuple[Any, Message]]:
        """Return the answers that have arrived, each with its sender.

        The sender is found by the message that is answered: if a node has gone, Flower answers in its place.
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


def content_of(reply: Message, kind: str) -> Payload:
    """Return the content of an answer.

    Parameters
    ----------
    reply : Message
        Answer of a client, or of Flower in its place.
    kind : str
        Kind of the message that it answers.

    Raises
    ------
    GoneError
        If Flower reports that the node has gone.
    ProtocolError
        If the client failed (with its own words), or the answer violates the protocol.
    """
    if reply.has_error():
        if reply.error.code == ErrorCode.NODE_UNAVAILABLE:
            raise GoneError("its node has gone")
        if reply.error.code == ErrorCode.MESSAGE_UNAVAILABLE:
            raise ProtocolError("its answer was announced and did not come")
        raise ProtocolError(reply.error.reason or f"Flower's error {reply.error.code}")
    return unpack(reply.content, answer_keys(kind))
