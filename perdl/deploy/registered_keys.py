"""Clients that may join a SuperLink: those whose public keys are in a folder. The folder may change during the run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from flwr.proto.control_pb2 import ListNodesRequest, ListNodesResponse, RegisterNodeRequest, UnregisterNodeRequest
from flwr.proto.node_pb2 import NodeInfo

from common.errors import FederationError
from perdl.deploy.certs import read_keys

_GONE = "unregistered"  # Flower's list still holds these nodes


class Members:
    """Registers and unregisters clients at a SuperLink as a folder of public keys changes.

    Parameters
    ----------
    folder : Path
        Holds ``NAME.pub``; the name becomes that of the node (``NodeInfo.name``).
    call : callable (str, bytes) -> bytes
        Calls the SuperLink's Control API.
    tell : callable (str) -> object
        Gets a line for each client added or removed later, and for each file that cannot be used.
    """

    def __init__(self, folder: Path, call: Callable[[str, bytes], bytes], tell: Callable[[str], object]) -> None:
        self._folder, self._call, self._tell = folder, call, tell
        self._seen: set[tuple[str, int, int]] | None = None

    def update(self) -> None:
        """Register keys that are new in the folder, and unregister those that were removed."""
        if not self._folder.is_dir():  # perhaps its disk is away for a moment: unregister nobody
            return
        seen = set()
        for path in self._folder.glob("*.pub"):
            with suppress(OSError):  # removed just now
                stat = path.stat()
                seen.add((path.name, stat.st_mtime_ns, stat.st_size))
        if seen == self._seen:
            return
        first, self._seen = self._seen is None, seen
        wanted = read_keys(self._folder, lambda error: self._tell(str(error)))
        known = {node.public_key: node for node in self._nodes()}
        for key, node in known.items():
            if wanted.get(key) != node.name:
                self._unregister(node)
        for key, name in wanted.items():
            if key not in known or known[key].name != name:
                self._register(key, name, quiet=first)

    def _nodes(self) -> list[NodeInfo]:
        answer = ListNodesResponse.FromString(self._call("list-nodes", ListNodesRequest().SerializeToString()))
        return [node for node in answer.nodes_info if node.status != _GONE]

    def _register(self, key: bytes, name: str, quiet: bool) -> None:
        try:
            self._call("register-node", RegisterNodeRequest(public_key=key, name=name).SerializeToString())
        except FederationError as error:
            # Flower keeps the keys of unregistered nodes, and does not register them again.
            self._tell(f"{name} cannot join ({error}); a key that was removed is taken again after a restart only")
        else:
            if not quiet:
                self._tell(f"{name} may join")

    def _unregister(self, node: NodeInfo) -> None:
        try:
            self._call("unregister-node", UnregisterNodeRequest(node_id=node.node_id).SerializeToString())
        except FederationError:
            # Flower 1.42 fails for a node that never joined, but only after unregistering it.
            if node.node_id in {other.node_id for other in self._nodes()}:
                raise
        self._tell(f"{node.name} may not join any more")
