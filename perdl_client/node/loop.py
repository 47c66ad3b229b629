"""A Flower node in one long-lived process. It runs its local ClientApp, never code that the server sends.

Flower's SuperNode starts a new Python process for every message, sleeps seconds between polls, and runs the server's
application bundle. This runner speaks the same Fleet API: it pulls a message, calls the local app, pushes the reply,
and keeps ``Context.state`` in memory. It never asks for the bundle.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.constant import ErrorCode

from common.errors import FederationError, PerdlError
from perdl_client.node.connection import FORBIDDEN, UNAUTHORIZED, Keys, Link, RefusedError, StoppedError

Scalar = str | int | float | bool
App = Callable[[Message, Context], Message]

logger = logging.getLogger("perdl.client")

IDLE_POLL = 0.5  # seconds: each poll costs the server about 10 ms
EARLY = 0.7  # the first poll after an answer comes after so much of the shortest time that a message took lately
RUN_CHECK = 5.0  # seconds without a message after which to ask whether the run has ended
LAST_WORD = 5.0  # seconds to deliver the last reply, and to wait until it is read; the work is done either way
SLOW = 5.0  # seconds of work after which several messages may wait


def run_node(
    server: str,
    app: App,
    node_config: dict[str, Scalar],
    *,
    poll: float = 0.05,
    stop: threading.Event | None = None,
    is_last: Callable[[Message], bool] = lambda message: False,
    max_wait: float | None = 60.0,
    root_certificates: bytes | None = None,
    authentication_keys: Keys | None = None,
    on_event: Callable[[str], None] | None = None,
    on_beat: Callable[[], None] = lambda: None,
    memory: Path | None = None,
) -> None:
    """Join a server and answer its messages with ``app``, until the last one or until ``stop`` is set.

    Parameters
    ----------
    server : str
        ``HOST:PORT`` of the Fleet API.
    app : callable (Message, Context) -> Message
        The local ClientApp. An exception becomes an error reply with its class alone. For a `PerdlError` the text
        is sent too: it is made for people and holds no data.
    node_config : dict
        Becomes ``Context.node_config`` and stays on this machine. ``Context.run_config`` is empty.
    poll : float
        Shortest pause between two polls, in seconds. It grows to `IDLE_POLL` while no message comes. After an answer
        the pause is `EARLY` times what messages took to come lately, within these limits.
    stop : threading.Event, optional
        Set it to leave the federation; it is checked between messages.
    is_last : callable (Message) -> bool
        Whether the node is done after replying to a message.
    max_wait : float, optional
        Seconds to retry if the server cannot be reached or its run has ended; None means forever.
    root_certificates : bytes, optional
        PEM of the certificate authority. With it the connection uses TLS, else plain HTTP.
    authentication_keys : pair of elliptic curve keys, optional
        This client's identity, if the server knows its clients by key; default new keys for the session.
    on_event : callable (str) -> None, optional
        Called with a text when the node waits, joins, or loses its server.
    on_beat : callable () -> None, optional
        Called about every ten seconds, from different threads, also while the app computes or the server is away.
    memory : Path, optional
        File that keeps this node's number while it is joined. The server takes a killed process for alive for up to
        a minute; the next process with the same key needs this number to sign it off.

    Raises
    ------
    FederationError
        If the server cannot be reached for ``max_wait`` seconds, refuses this client, or ends its run early.
    """
    link = Link(
        server, stop or threading.Event(), on_event or logger.debug, on_beat, max_wait, root_certificates, memory
    )
    contexts: dict[int, Context] = {}
    with suppress(StoppedError):
        while True:
            with link.joined(authentication_keys):
                if _serve(link, app, node_config, contexts, poll, is_last):
                    return
            link.tell(f"{server} does not know this client any more; joining again")
            link.pause(1.0)
    link.tell(f"left {server}")


def _serve(
    link: Link,
    app: App,
    node_config: dict[str, Scalar],
    contexts: dict[int, Context],
    poll: float,
    is_last: Callable[[Message], bool],
) -> bool:
    """Answer messages. Return True after the last one, False if the server has forgotten this node."""
    pause, run_id, heard, over_since, slow = poll, None, time.monotonic(), None, False
    answered: float | None = None
    took: deque[float] = deque(maxlen=5)
    while True:
        try:
            now = time.monotonic()
            message = link.receive(newest=slow)
            if message is not None:
                run_id, over_since = message.metadata.run_id, None
                if answered is not None:
                    took.append(now - answered)
                # The next message will take about as long as the last ones: until then a poll would only delay it.
                pause = min(max(poll, EARLY * min(took, default=0.0)), IDLE_POLL)
                context = contexts.setdefault(run_id, Context(run_id, 0, {**node_config}, RecordDict(), {}))
                context.node_id = link.node.node_id  # a node that joined again has a new number
                last = is_last(message)
                _answer(link, app, message, context, last)
                if last:
                    return True
                answered = heard = time.monotonic()
                slow = answered - now > SLOW
                link.pause(pause)
                pause = poll
                continue
            if run_id is not None and now - heard >= RUN_CHECK:
                heard = now
                over_since = (over_since or now) if link.run_is_over(run_id) else None
                if over_since is not None and now - over_since >= link.max_wait:
                    raise FederationError(
                        f"the run on {link.server} ended before this client was told that it was done, and no other "
                        f"began within {link.max_wait:g} s; see the server's log, then start both again"
                    )
        except RefusedError as refusal:
            if refusal.status == UNAUTHORIZED:
                return False
            if refusal.status != FORBIDDEN:
                raise FederationError(f"{link.server} refused this client's request ({refusal})") from refusal
            logger.warning("a message was dropped: %s", refusal)
        link.pause(pause)
        pause = min(1.5 * pause, IDLE_POLL)


def _answer(link: Link, app: App, message: Message, context: Context, last: bool) -> None:
    began = time.perf_counter()
    try:
        reply = app(message, context)
        if not isinstance(reply, Message):
            raise TypeError(f"the app returned {type(reply).__name__}, not a Message")
    except Exception as error:
        logger.exception("the app failed; the server is told the kind of failure, no more")
        text = f"{type(error).__name__}: {error}" if isinstance(error, PerdlError) else type(error).__name__
        reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, text), reply_to=message)
    seconds = time.perf_counter() - began
    if not last:
        link.send(reply, seconds)
        return
    link.max_wait = min(link.max_wait, LAST_WORD)
    try:
        link.send(reply, seconds)
    except (FederationError, RefusedError) as error:
        logger.warning("the last reply could not be delivered: %s", error)
    # When a node leaves, the SuperLink discards its unread replies. So leave only after the run is over.
    link.max_wait, until = 0.0, time.monotonic() + LAST_WORD
    with suppress(FederationError, RefusedError):
        while time.monotonic() < until and not link.run_is_over(message.metadata.run_id):
            link.pause(0.2)
