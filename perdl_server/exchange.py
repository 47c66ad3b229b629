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

    def ask(self, phase: str, messages: Sequence[Message], timeout: float) -> list[Message]:
        """Send messages and return the answers that came in time, in order of arrival.

        Parameters
        ----------
        phase : str
            Under what the bytes are counted.
        messages : sequence of Message
            At most one for each node.
        timeout : float
            Seconds.
        """
        count = self.bytes[phase]
        count["to_clients"] += sum(payload_bytes(message.content) for message in messages)
        waiting = {message_id for message_id in self.grid.push_messages(messages) if message_id}
        answers: list[Message] = []

        def look() -> bool:
            for answer in self.grid.pull_messages(waiting):
                waiting.discard(answer.metadata.reply_to_message_id)
                answers.append(answer)
            return not waiting

        self._wait(look, timeout)
        count["to_server"] += sum(payload_bytes(answer.content) for answer in answers if answer.has_content())
        return answers

    def nodes(self, wanted: int, timeout: float) -> list[int]:
        """Wait until ``wanted`` nodes have joined; return those there are when it is so or the time is over."""
        found: list[int] = []

        def look() -> bool:
            found[:] = sorted(self.grid.get_node_ids())
            return len(found) >= wanted

        self._wait(look, timeout)
        return found

    def _wait(self, look: Callable[[], bool], timeout: float) -> None:
        """Call ``look`` until it is true, with growing pauses, for at most ``timeout`` seconds."""
        end, pause = time.monotonic() + timeout, _FIRST_PAUSE
        while True:
            if self._stopped():
                raise KeyboardInterrupt
            if look():
                return
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
