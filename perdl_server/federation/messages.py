"""Send messages to clients and wait for their answers, for a bounded time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from flwr.app import Message
from flwr.serverapp import Grid

from common.protocol import payload_bytes

T = TypeVar("T")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.2


class Exchange:
    """One run's traffic over a Flower grid.

    Flower's own ``send_and_receive`` sleeps three seconds between looks in deployment; here the pause starts at 5 ms
    and doubles to 0.2 s.

    Parameters
    ----------
    grid : Grid
    stopped : callable
        Whether somebody asked the run to end; waiting then ends with KeyboardInterrupt.
    before : mapping, optional
        ``bytes`` of the time before the run was resumed.

    Attributes
    ----------
    bytes : dict
        By phase, then ``"to_clients"`` and ``"to_server"``: bytes of messages' contents.
    """

    def __init__(
        self, grid: Grid, stopped: Callable[[], bool], before: Mapping[str, Mapping[str, int]] | None = None
    ) -> None:
        self.grid = grid
        self._stopped = stopped
        self.bytes: dict[str, dict[str, int]] = defaultdict(lambda: {"to_clients": 0, "to_server": 0})
        self.bytes |= {phase: dict(counts) for phase, counts in (before or {}).items()}

    def send(self, phase: str, messages: Sequence[Message]) -> list[str]:
        """Send messages; return the id of each, empty where its node is not there any more.

        Parameters
        ----------
        phase : str
            Under what the bytes are counted.
        messages : sequence of Message
        """
        self.bytes[phase]["to_clients"] += sum(payload_bytes(message.content) for message in messages)
        return list(self.grid.push_messages(messages)) if messages else []

    def receive(self, phase: str, waiting: dict[str, T]) -> list[tuple[str, T, Message]]:
        """Return the answers that are there, and take them off ``waiting``.

        Parameters
        ----------
        phase : str
        waiting : dict of str to anything
            What each message's id stands for.

        Returns
        -------
        list of (id, what it stands for, answer)
            An answer belongs to the message that it answers: where a node has gone, Flower answers in its place.
        """
        answers = []
        for answer in self.grid.pull_messages(list(waiting)) if waiting else ():
            question = answer.metadata.reply_to_message_id
            if question in waiting:
                answers.append((question, waiting.pop(question), answer))
                if answer.has_content():
                    self.bytes[phase]["to_server"] += payload_bytes(answer.content)
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
