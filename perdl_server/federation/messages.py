"""Send messages to clients and receive their answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flwr.app import Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from common.protocol import Payload, ProtocolError, payload_bytes, unpack


class GoneError(ProtocolError):
    """Flower answered in place of a node that is not there."""


class Exchange:
    """One run's traffic over a Flower grid.

    Flower's own ``send_and_receive`` sleeps three seconds between two pulls in deployment. So the server pushes and
    pulls itself.

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
        By phase, then ``"to_clients"`` and ``"to_server"``: bytes of messages' contents.
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
        senders = {i: (recipient, phase) for recipient, (i, phase) in self.open.items()}
        answers = []
        for answer in self.grid.pull_messages(list(senders)) if senders else ():
            if found := senders.pop(answer.metadata.reply_to_message_id, None):
                sender, phase = found
                del self.open[sender]
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
