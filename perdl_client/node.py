"""A Flower node in one warm process that runs the ClientApp it was given, never code that the server sends.

Flower's own SuperNode starts a fresh Python process for every message, sleeps seconds between polls, and runs the
server's application bundle. This runner speaks the same Fleet API: it pulls a message, calls the local app, pushes
the reply, and keeps ``Context.state`` in memory. It never asks for the bundle.

It stands on Flower internals (see ``tests/perdl_client/test_node.py`` for the contract) and uses the Fleet *client*
rather than ``flwr.supernode.fleet_http_connection.http_request_response``: that helper ends the process when it
cannot connect, sends SIGINT to itself when refused, retries without listening to anyone, and swallows exceptions.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Context, Error, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, ErrorCode
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
    UnregisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.run_pb2 import GetRunRequest
from flwr.supercore.error import FlowerError
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from common.errors import FederationError, PerdlError, SettingsError
from common.files import write_text
from perdl_client.trust import trust_problem

Keys = tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]
Scalar = str | int | float | bool
App = Callable[[Message, Context], Message]
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

logger = logging.getLogger("perdl.client")

IDLE_POLL = 0.5  # seconds: each poll costs the server about 10 ms
RETRY_FIRST, RETRY_MOST = 0.1, 2.0  # seconds between attempts to reach a server
RUN_CHECK = 5.0  # seconds of silence after which to ask whether the run still goes on
LAST_WORD = 5.0  # seconds to spend on delivering the last reply, and on its being read: the work is done either way
ADMISSION = 10.0  # seconds to go on asking a server that does not admit this client
SLOW = 5.0  # seconds of work after which messages may have piled up
BUSY = {429, 502, 503, 504}  # worth another try; a gateway answers so while its server restarts
TIMEOUT = httpx.Timeout(30.0, connect=5.0)
UNAUTHORIZED, FORBIDDEN = 401, 403


class _RefusedError(Exception):
    """The server answered, and the answer is no."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"HTTP {status}: {detail}")
        self.status = status


class _StoppedError(Exception):
    """The caller's stop event was set."""


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
    """Join a server and answer its messages with ``app`` until the last one, or until ``stop`` is set.

    Parameters
    ----------
    server : str
        ``HOST:PORT`` of the Fleet API.
    app : callable (Message, Context) -> Message
        The local ClientApp. What it raises becomes an error reply that names the exception's class alone, or for a
        `PerdlError` its text too, which is made for people and holds no data.
    node_config : dict
        Becomes ``Context.node_config``; stays on this machine. ``Context.run_config`` is empty.
    poll : float
        Shortest pause in seconds between two looks for a message; it grows to `IDLE_POLL` while none comes.
    stop : threading.Event, optional
        Set it to leave the federation; looked at between messages.
    is_last : callable (Message) -> bool
        True for the message after whose reply the node is done.
    max_wait : float, optional
        Seconds to go on trying when the server cannot be reached or its run has ended; None for ever.
    root_certificates : bytes, optional
        PEM of the certificate authority. With it the connection is TLS, without it plain HTTP.
    authentication_keys : pair of elliptic curve keys, optional
        This client's identity where the server knows its clients; otherwise a key is made for the session.
    on_event : callable (str) -> None, optional
        Told in words when the node waits, joins, loses its server, and is done.
    on_beat : callable () -> None, optional
        Called about every ten seconds, from one thread or another, also while the app computes or no server answers.
    memory : Path, optional
        File that keeps this node's number while it is joined: a process that was killed is taken for alive for up to a
        minute, and lets the next one with the same key in only if that can say which it was.

    Raises
    ------
    FederationError
        If the server cannot be reached for ``max_wait`` seconds, refuses this client, or ends its run early.
    """
    link = _Link(
        server, stop or threading.Event(), on_event or logger.debug, on_beat, max_wait, root_certificates, memory
    )
    contexts: dict[int, Context] = {}
    with suppress(_StoppedError):
        while True:
            with link.joined(authentication_keys):
                if _serve(link, app, node_config, contexts, poll, is_last):
                    link.tell("done: the last message is answered")
                    return
            link.tell(f"{server} does not know this client any more; joining again")
            link.pause(1.0)
    link.tell(f"left {server}")


def _serve(
    link: _Link,
    app: App,
    node_config: dict[str, Scalar],
    contexts: dict[int, Context],
    poll: float,
    is_last: Callable[[Message], bool],
) -> bool:
    """Answer messages. True after the last one, False if the server has forgotten this node."""
    pause, run_id, heard, over_since, slow = poll, None, time.monotonic(), None, False
    while True:
        try:
            now = time.monotonic()
            message = link.receive(newest=slow)
            if message is not None:
                run_id, over_since, pause = message.metadata.run_id, None, poll
                context = contexts.setdefault(run_id, Context(run_id, 0, {**node_config}, RecordDict(), {}))
                context.node_id = link.node.node_id  # a node that joined again has a new number
                last = is_last(message)
                _answer(link, app, message, context, last)
                if last:
                    return True
                slow, heard = time.monotonic() - now > SLOW, time.monotonic()
                continue
            if run_id is not None and now - heard >= RUN_CHECK:
                heard = now
                over_since = (over_since or now) if link.run_is_over(run_id) else None
                if over_since is not None and now - over_since >= link.max_wait:
                    raise FederationError(
                        f"the run on {link.server} ended before this client was told that it was done, and no other "
                        f"began within {link.max_wait:g} s; see the server's log, then start both again"
                    )
        except _RefusedError as refusal:
            if refusal.status == UNAUTHORIZED:
                return False
            if refusal.status != FORBIDDEN:
                raise FederationError(f"{link.server} refused this client's request ({refusal})") from refusal
            logger.warning("a message was dropped: %s", refusal)
        link.pause(pause)
        pause = min(1.5 * pause, IDLE_POLL)


def _answer(link: _Link, app: App, message: Message, context: Context, last: bool) -> None:
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
    except (FederationError, _RefusedError) as error:
        logger.warning("the last reply could not be delivered: %s", error)
    # The SuperLink throws away what a node has sent, unread, when the node leaves; so leave after the run is over.
    link.max_wait, until = 0.0, time.monotonic() + LAST_WORD
    with suppress(FederationError, _RefusedError):
        while time.monotonic() < until and not link.run_is_over(message.metadata.run_id):
            link.pause(0.2)


class _Link:
    """The connection to one server: patient calls, membership, and messages in and out."""

    def __init__(
        self,
        server: str,
        stop: threading.Event,
        tell: Callable[[str], None],
        beat: Callable[[], None],
        max_wait: float | None,
        root_certificates: bytes | None,
        memory: Path | None,
    ) -> None:
        host, _, port = server.rpartition(":")
        if not host or not port.isdecimal() or "/" in server:
            raise SettingsError(f"the server's address is {server!r}; write it as HOST:PORT, as in 127.0.0.1:8000")
        self.server, self.stop, self.tell, self.beat, self.memory = server, stop, tell, beat, memory
        self.max_wait = float("inf") if max_wait is None else max_wait
        try:
            self.verify = ssl.create_default_context(cadata=root_certificates.decode()) if root_certificates else None
        except (ValueError, ssl.SSLError) as error:
            raise FederationError(f"the root certificates cannot be read as PEM ({error})") from error
        self.client: FleetHttpClient
        self.node: Node

    def pause(self, seconds: float) -> None:
        if self.stop.wait(seconds):
            raise _StoppedError

    def call(self, function: Callable[[RequestT], ResponseT], request: RequestT) -> ResponseT:
        """Call the server; while it cannot be reached, try again until patience ends or the caller says stop."""
        give_up, wait = None, RETRY_FIRST
        while True:
            try:
                response = function(request)
            except httpx.HTTPError as error:
                if problem := trust_problem(error, self.server, tls=self.verify is not None):
                    raise FederationError(problem) from error
                cause = str(error) or type(error).__name__
                if isinstance(error, httpx.HTTPStatusError):
                    status = error.response.status_code
                    if status not in BUSY:
                        known = FlowerError.from_json(error.response.text)
                        raise _RefusedError(status, known.message if known else error.response.reason_phrase) from error
                    cause = f"HTTP {status}"
            else:
                if give_up is not None:
                    self.tell(f"{self.server} answers")
                return response
            now = time.monotonic()
            if give_up is None:
                give_up = now + self.max_wait
                logger.info("no answer from %s (%s)", self.server, cause)
                self.tell(f"waiting for {self.server}")
            if now >= give_up:
                raise FederationError(
                    f"no server at {self.server} for {self.max_wait:g} s ({cause}); check the address, that "
                    "`perdl server` runs there, that both sides or neither use TLS, and that no firewall stands "
                    "between, then start this client again"
                )
            self.beat()
            self.pause(min(wait, give_up - now))
            wait = min(2 * wait, RETRY_MOST)

    @contextmanager
    def joined(self, keys: Keys | None) -> Iterator[None]:
        """Be a member for the length of the block: register, stay alive by heartbeats, leave."""
        private, public = keys or generate_key_pairs()
        key = public_key_to_bytes(public)
        self.client = FleetHttpClient(
            f"{'https' if self.verify else 'http'}://{self.server}",
            interceptors=[NodeAuthHttpInterceptor(private, public)],
            verify=self.verify or True,
            timeout=TIMEOUT,  # type: ignore[arg-type]  # handed to httpx as it is; a short limit on connecting alone
        )
        quit_heartbeat = threading.Event()
        with self.client:
            try:
                if keys is None:
                    self.call(self.client.RegisterNode, RegisterNodeFleetRequest(public_key=key))
                self.node = Node(node_id=self._activate(key))
            except _RefusedError as refusal:
                raise FederationError(
                    f"{self.server} does not admit this client ({refusal}); check that this is a perdl server's "
                    "address"
                    + (
                        ", that its operator has this client's key.pub in the folder of those who may join, and that "
                        "no other client uses the same key"
                        if keys
                        else " and, if it knows its clients by key, start this client with --certs"
                    )
                ) from refusal
            self.tell(f"joined {self.server} as node {self.node.node_id}")
            heartbeat = threading.Thread(target=self._heartbeat, args=(quit_heartbeat,), daemon=True)
            heartbeat.start()
            try:
                yield
            finally:
                quit_heartbeat.set()
                with suppress(httpx.HTTPError):
                    self.client.DeactivateNode(DeactivateNodeRequest(node_id=self.node.node_id))
                    if keys is None:
                        self.client.UnregisterNode(UnregisterNodeFleetRequest(node_id=self.node.node_id))
                    if self.memory:
                        self.memory.unlink(missing_ok=True)

    def _activate(self, key: bytes) -> int:
        """Become active. A server that was just started may not know its clients' keys at once, so there is time."""
        request = ActivateNodeRequest(public_key=key, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL)
        until = time.monotonic() + ADMISSION
        while True:
            try:
                node = self.call(self.client.ActivateNode, request).node_id
            except _RefusedError:
                if time.monotonic() >= until:
                    raise
                self._let_former_go()
                self.pause(1.0)
            else:
                if self.memory:
                    write_text(self.memory, str(node))
                return node

    def _let_former_go(self) -> None:
        with suppress(OSError, ValueError, AttributeError, httpx.HTTPError):
            former = int(self.memory.read_text())  # type: ignore[union-attr]
            self.client.DeactivateNode(DeactivateNodeRequest(node_id=former))

    def _heartbeat(self, quit_heartbeat: threading.Event) -> None:
        """Three signs of life per interval, so that a lost one costs nothing. Failures show in the main loop."""
        request = SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL)
        self.beat()
        while not quit_heartbeat.wait(HEARTBEAT_DEFAULT_INTERVAL / 3):
            self.beat()
            with suppress(httpx.HTTPError, RuntimeError):
                self.client.SendNodeHeartbeat(request)

    def receive(self, *, newest: bool = False) -> Message | None:
        """Pull one message, or the newest of those that have piled up; None if there is none."""
        message = self._receive()
        while newest and message is not None and (later := self._receive()) is not None:
            logger.info("skipped a message that a later one has overtaken")
            message = later
        return message

    def _receive(self) -> Message | None:
        """Pull one message with all its objects, and confirm it."""
        response = self.call(self.client.PullMessages, PullMessagesRequest(node=self.node))
        if not response.messages_list:
            return None
        header, tree = message_from_proto(response.messages_list[0]), response.message_object_trees[0]
        run_id, message_id = header.metadata.run_id, header.metadata.message_id
        contents = {part.object_id: self._pull(run_id, part) for part in iterate_object_tree(tree)}
        confirmation = ConfirmMessageReceivedRequest(node=self.node, run_id=run_id, message_object_id=message_id)
        self.call(self.client.ConfirmMessageReceived, confirmation)
        message = inflate_object_from_contents(message_id, contents)
        if not isinstance(message, Message):
            raise FederationError(f"{self.server} sent something that is not a message; check its version of Flower")
        message.metadata.__dict__["_message_id"] = message_id  # not part of the content that travels
        return message

    def _pull(self, run_id: int, part: ObjectTree) -> bytes:
        request = PullObjectRequest(node=self.node, run_id=run_id, object_id=part.object_id)
        while True:
            response = self.call(self.client.PullObject, request)
            if response.object_available:
                return response.object_content
            if not response.object_found:
                raise _RefusedError(FORBIDDEN, "the message was withdrawn")
            self.pause(0.05)  # the ServerApp is still uploading it; should its run end, the next call is refused

    def send(self, reply: Message, seconds: float) -> None:
        """Push a reply and all its objects; ``seconds`` is what the app took."""
        reply.metadata.__dict__["_message_id"] = reply.object_id
        with no_object_id_recompute():
            header = remove_content_from_message(reply) if reply.has_content() else reply
            request = PushMessagesRequest(
                node=self.node,
                messages_list=[message_to_proto(header)],
                message_object_trees=[get_object_tree(reply)],
                clientapp_runtime_list=[seconds],
            )
            response = self.call(self.client.PushMessages, request)
            for object_id, part in get_all_nested_objects(reply).items():
                if object_id in response.objects_to_push:
                    content = PushObjectRequest(
                        node=self.node,
                        run_id=reply.metadata.run_id,
                        object_id=object_id,
                        object_content=part.deflate(),
                        session_id=response.session_id,
                    )
                    self.call(self.client.PushObject, content)

    def run_is_over(self, run_id: int) -> bool:
        try:
            self.call(self.client.GetRun, GetRunRequest(node=self.node, run_id=run_id))
        except _RefusedError as refusal:
            if refusal.status == UNAUTHORIZED:
                raise
            return True
        return False
