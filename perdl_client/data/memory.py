"""What a node keeps in memory between the messages of a run: its samples, so that it reads its file once."""

from __future__ import annotations

import secrets
import threading

from flwr.app import Context

from perdl_client.data.load import ClientData

_NAME = "perdl_memory"
_left_here = threading.local()
"""Memories of nodes whose contexts went to another process: a Ray actor answers for many nodes, in one thread."""


class Memory:
    """The samples of one node; no two nodes share one, so no thread walks through what another changes.

    It hangs on the node's context. The samples themselves leave no process: a pickled memory is a key, by which the
    process that holds the samples finds them again when the context comes back.

    Parameters
    ----------
    key : str, optional
        Of a memory that is somewhere else.
    """

    def __init__(self, key: str = "") -> None:
        self._key = key or secrets.token_hex(8)
        self._run = ""
        self._data: ClientData | None = None

    def recall(self, run: str) -> ClientData | None:
        """Return the samples that the node read in this run, if it has."""
        return self._data if self._run == run else None

    def keep(self, run: str, data: ClientData) -> ClientData:
        """Keep the samples of this run, in place of a former run's that broke off; return them."""
        self._run, self._data = run, data
        return data

    def clear(self) -> None:
        """Forget the samples."""
        self._run, self._data = "", None
        vars(_left_here).pop(self._key, None)

    def __reduce__(self) -> tuple[object, ...]:
        if self._data is not None:
            vars(_left_here)[self._key] = self
        return _found, (self._key,)


def _found(key: str) -> Memory:
    memory: Memory | None = vars(_left_here).get(key)
    return memory or Memory(key)


def memory_of(context: Context) -> Memory:
    """Return the memory of the node to which a context belongs; a new one if it has none."""
    memory: Memory = vars(context).setdefault(_NAME, Memory())
    return memory


def share_memory(context: Context, memory: Memory) -> None:
    """Give a context a memory: a node that is in several of Flower's runs, as where a server resumes, has one."""
    vars(context)[_NAME] = memory
