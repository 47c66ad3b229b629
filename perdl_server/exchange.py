"""Send messages to clients and wait for their answers, for a bounded time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from flwr.app import Message
from flwr.serverapp import Grid

from common.protocol import payload_bytes

_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.2


class Exchange:
    """One run's traffic over a Flower grid.

    Flower's own ``send_and_receive`` sleeps three seconds between looks in deployment; here the pause starts at 5 ms
    and doubles to 0.2 s.

    Parameters
    ----------
    grid : Grid
    stopped : callable
        Whether somebody asked the run to end; asking and waiting then end with KeyboardInterrupt.

    Attributes
    ----------
    bytes : dict
        By phase, then ``"to_clients"`` and ``"to_server"``: bytes of messages' contents.
    """

    def __init__(self, grid: Grid, stopped: Callable[[], bool]) -> None:
        self.grid = grid
        self._stopped = stopped
        self.bytes: dict[str, dict[str, int]] = defaultdict(lambda: {"to_clients": 0, "to_server": 0})

    def send(self, phase: str, messages: Sequence[Message]) -> dict[str, int]:
        """Send messages; return the node that each message's id was sent to.

        Parameters
        ----------
        phase : str
            Under what the bytes are counted.
        messages : sequence of Message
            At most one for each node.
        """
        self.bytes[phase]["to_clients"] += sum(payload_bytes(message.content) for message in messages)
        ids = self.grid.push_messages(messages)
        return {i: message.metadata.dst_node_id for i, message in zip(ids, messages, strict=True) if i}

    def receive(self, phase: str, waiting: dict[str, int]) -> dict[int, Message]:
        """Return the answers that are there, by node, and take them off ``waiting``.

        An answer belongs to the message that it answers: where a node has gone, Flower answers in its place.
        """
        answers = {}
        for answer in self.grid.pull_messages(list(waiting)):
            node = waiting.pop(answer.metadata.reply_to_message_id, None)
            if node is not None:
                answers[node] = answer
                if answer.has_content():
                    self.bytes[phase]["to_server"] += payload_bytes(answer.content)
        return answers

    def ask(self, phase: str, messages: Sequence[Message], timeout: float, *, last: bool = False) -> dict[int, Message]:
        """Send messages and return the answers that came within ``timeout`` seconds, by node.

        Parameters
        ----------
        phase, messages
            See :meth:`send`.
        timeout : float
            Seconds.
        last : bool
            Whether this is said to clients of a run that is ending already.
        """
        waiting = self.send(phase, messages)
        answers: dict[int, Message] = {}

        def look() -> bool:
            if waiting:
                answers.update(self.receive(phase, waiting))
            return not waiting

        self.wait(look, timeout, heed_stop=not last)
        return answers

    def wait(self, look: Callable[[], bool], timeout: float, *, heed_stop: bool = True) -> None:
        """Call ``look`` until it is true, with growing pauses, for at most ``timeout`` seconds."""
        end, pause = time.monotonic() + timeout, _FIRST_PAUSE
        while True:
            if heed_stop and self._stopped():
                raise KeyboardInterrupt
            if look():
                return
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
