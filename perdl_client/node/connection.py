"""The connection of a node to one server: calls of Flower's Fleet API with retries, membership, messages.

It uses Flower's internals; ``tests/perdl_client/node/test_node.py`` holds the contract. It uses the Fleet *client*, not
``flwr.supernode.fleet_http_connection.http_request_response``: that helper ends the process if it cannot connect, sends
SIGINT to itself if it is refused, cannot be stopped while it retries, and swallows exceptions.
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
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL
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

from common.errors import FederationError, PerdlError
from common.files import write_text
from common.protocol import one_line
from perdl_client.node.proxy import Proxy, proxy_for
from perdl_client.node.tls import trust_problem

Keys = tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

logger = logging.getLogger("perdl.client")

RETRY_FIRST, RETRY_MOST = 0.1, 2.0  # seconds between attempts to reach a server
ADMISSION = 10.0  # seconds to keep asking a server that does not admit this client
BUSY = {429, 502, 503, 504}  # retried: a gateway answers these while its server restarts
TIMEOUT = httpx.Timeout(30.0, connect=5.0)
UNAUTHORIZED, FORBIDDEN = 401, 403


class RefusedError(Exception):
    """The server answered and refused the request.

    Parameters
    ----------
    status : int
        HTTP status.
    detail : str
        Reason that the server gave.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"HTTP {status}: {detail}")
        self.status = status


class StoppedError(Exception):
    """The caller's stop event was set."""


class _Client(FleetHttpClient):
    """Flower's client, with the given proxy and nothing else from the environment."""

    def __init__(
        self, url: str, interceptor: NodeAuthHttpInterceptor, verify: ssl.SSLContext | bool, proxy: Proxy | None
    ) -> None:
        self._base_url, self._interceptors, self._retry_invoker = url, (interceptor,), None
        self._client = httpx.Client(
            verify=verify, timeout=TIMEOUT, trust_env=False, proxy=proxy.url if proxy is not None else None
        )


class Link:
    """The connection to one server: calls with retries, membership, and messages.

    Parameters
    ----------
    server : str
        ``HOST:PORT``.
    stop : threading.Event
        Set by the caller to leave.
    tell : callable (str) -> None
        Called with news in words.
    beat : callable () -> None
        Called at each sign of life.
    max_wait : float, optional
        Seconds to retry while the server cannot be reached; None means forever.
    root_certificates : bytes, optional
        PEM of the certificate authority; plain HTTP without it.
    memory : Path, optional
        File that keeps this node's number while it is joined.
    """

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
        self.proxy = proxy_for(server, tls=root_certificates is not None)
        self.server, self.stop, self.tell, self.beat, self.memory = server, stop, tell, beat, memory
        self.max_wait = float("inf") if max_wait is None else max_wait
        try:
            self.verify = ssl.create_default_context(cadata=root_certificates.decode()) if root_certificates else None
        except (ValueError, ssl.SSLError) as error:
            raise FederationError(f"the root certificates cannot be read as PEM ({error})") from error
        self.client: FleetHttpClient
        self.node: Node

    def pause(self, seconds: float) -> None:
        """Sleep; raise StoppedError if the stop event is set.

        Parameters
        ----------
        seconds : float
            Time to sleep.
        """
        if self.stop.wait(seconds):
            raise StoppedError

    def call(self, function: Callable[[RequestT], ResponseT], request: RequestT) -> ResponseT:
        """Call the server. Retry while it cannot be reached, for ``max_wait`` seconds or until the stop event is set.

        Parameters
        ----------
        function : callable
            Method of the Fleet client.
        request : object
            Its request.
        """
        give_up, wait = None, RETRY_FIRST
        while True:
            try:
                response = function(request)
            except httpx.HTTPError as error:
                if problem := trust_problem(error, self.server, tls=self.verify is not None):
                    raise FederationError(problem) from error
                cause = self._cause(error)
                if isinstance(error, httpx.HTTPStatusError):
                    status = error.response.status_code
                    if status not in BUSY:
                        raise RefusedError(status, _detail(error.response)) from error
                    cause = f"HTTP {status}"
            except ValueError as error:  # from Flower's client, where an answer cannot be read
                raise FederationError(
                    f"{self.server} answers what no perdl server says ({error}); check the address"
                ) from error
            else:
                if give_up is not None:
                    self.tell(f"{self.server} answers")
                return response
            now = time.monotonic()
            if give_up is None:
                give_up = now + self.max_wait
                logger.info("no answer from %s (%s)", self.server, cause)
                if self.max_wait > 0:  # at the end it is only asked whether the server is still there
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

    def _cause(self, error: httpx.HTTPError) -> str:
        """Describe an error. Name the proxy if the error is the proxy's."""
        cause = str(error) or type(error).__name__
        if self.proxy is None or not isinstance(error, httpx.ProxyError | httpx.ConnectError | httpx.ConnectTimeout):
            return cause
        who = f"the proxy {self.proxy.shown}, named by {self.proxy.variable},"
        if cause.startswith(("403", "407")):
            host = self.server.rpartition(":")[0]
            raise FederationError(
                f"{who} refuses to connect to {self.server} ({cause}); add {host} to NO_PROXY if there is a way "
                "without it, or ask whoever runs it"
            ) from error
        return f"{who} answers: {cause}" if isinstance(error, httpx.ProxyError) else f"{who} cannot be reached: {cause}"

    @contextmanager
    def joined(self, keys: Keys | None) -> Iterator[None]:
        """Be a member inside the block: register, send heartbeats, leave at the end.

        Parameters
        ----------
        keys : pair of elliptic curve keys, optional
            This client's identity; default new keys.
        """
        private, public = keys or generate_key_pairs()
        key = public_key_to_bytes(public)
        scheme = "https" if self.verify else "http"
        signed = NodeAuthHttpInterceptor(private, public)
        self.client = _Client(f"{scheme}://{self.server}", signed, self.verify or True, self.proxy)
        quit_heartbeat = threading.Event()
        with self.client:
            try:
                if keys is None:
                    self.call(self.client.RegisterNode, RegisterNodeFleetRequest(public_key=key))
                self.node = Node(node_id=self._activate(key))
            except RefusedError as refusal:
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
                with suppress(httpx.HTTPError, ValueError):
                    self.client.DeactivateNode(DeactivateNodeRequest(node_id=self.node.node_id))
                    if keys is None:
                        self.client.UnregisterNode(UnregisterNodeFleetRequest(node_id=self.node.node_id))
                    if self.memory:
                        self.memory.unlink(missing_ok=True)

    def _activate(self, key: bytes) -> int:
        """Activate this node. It retries, because a server that just started may not know its clients' keys yet."""
        request = ActivateNodeRequest(public_key=key, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL)
        until = time.monotonic() + ADMISSION
        while True:
            try:
                node = self.call(self.client.ActivateNode, request).node_id
            except RefusedError:
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
        """Send three heartbeats per interval, so that one may get lost. Failures show up in the main loop."""
        request = SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL)
        self.beat()
        while not quit_heartbeat.wait(HEARTBEAT_DEFAULT_INTERVAL / 3):
            self.beat()
            with suppress(httpx.HTTPError, RuntimeError, ValueError):
                self.client.SendNodeHeartbeat(request)

    def receive(self, *, newest: bool = False) -> Message | None:
        """Pull one message; None if there is none.

        Parameters
        ----------
        newest : bool
            Whether to skip to the newest message, if several wait.
        """
        message = self._receive()
        while newest and message is not None and (later := self._receive()) is not None:
            logger.info("skipped a message that a later one has overtaken")
            message = later
        return message

    def _receive(self) -> Message | None:
        """Pull and confirm one message with all its objects."""
        try:
            return self._pull_message()
        except (PerdlError, RefusedError, StoppedError):
            raise
        except Exception as error:  # Flower's readers raise many kinds
            raise FederationError(
                f"{self.server} sent something that is not a message ({type(error).__name__}); check its version of "
                "Flower"
            ) from error

    def _pull_message(self) -> Message | None:
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
            raise TypeError("another kind of object")
        message.metadata.__dict__["_message_id"] = message_id  # the id is not sent with the content
        return message

    def _pull(self, run_id: int, part: ObjectTree) -> bytes:
        request = PullObjectRequest(node=self.node, run_id=run_id, object_id=part.object_id)
        while True:
            response = self.call(self.client.PullObject, request)
            if response.object_available:
                return response.object_content
            if not response.object_found:
                raise RefusedError(FORBIDDEN, "the message was withdrawn")
            self.pause(0.05)  # the ServerApp is still uploading it; if its run ends, the next call is refused

    def send(self, reply: Message, seconds: float) -> None:
        """Push a reply and all its objects.

        Parameters
        ----------
        reply : flwr.app.Message
            The reply.
        seconds : float
            How long the app took.
        """
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
        """Ask the server whether a run has ended.

        Parameters
        ----------
        run_id : int
            Flower's id of the run.
        """
        try:
            self.call(self.client.GetRun, GetRunRequest(node=self.node, run_id=run_id))
        except RefusedError as refusal:
            if refusal.status == UNAUTHORIZED:
                raise
            return True
        return False


def _detail(response: httpx.Response) -> str:
    """Return Flower's reason for a refusal, or HTTP's if it cannot be read."""
    try:
        known = FlowerError.from_json(response.text)
    except (ValueError, TypeError, KeyError, AttributeError, LookupError, RecursionError):
        known = None
    return one_line(known.message if known else response.reason_phrase)
