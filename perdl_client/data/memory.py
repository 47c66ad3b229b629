"""What a node keeps in memory: the samples of its file, which is read once, and what a run learns from."""

from __future__ import annotations

import secrets
import threading

import numpy as np
from flwr.app import Context

from perdl_client.data.load import ClientData
from perdl_client.data.samples import Samples

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
        self._held: Samples | None = None

    def hold(self, samples: Samples) -> None:
        """Hold the samples of the node's file until a run begins.

        Parameters
        ----------
        samples : Samples
            The memory's own: a run overwrites them.
        """
        self._held = samples

    def take(self, dtype: str) -> Samples | None:
        """Return the samples that are held, and forget them.

        Parameters
        ----------
        dtype : {"float64", "float32"}
            What the run computes in. If it is narrower than the samples, None is returned: whole numbers that are read
            as this type at once have other last bits.
        """
        samples, self._held = self._held, None
        return samples if samples is not None and np.can_cast(samples.data.dtype, dtype) else None

    def recall(self, run: str) -> ClientData | None:
        """Return the samples that the node learns from in this run, if it has any.

        Parameters
        ----------
        run : str
            The run's id.
        """
        return self._data if self._run == run else None

    def keep(self, run: str, data: ClientData) -> ClientData:
        """Keep the samples of this run, in place of a former run's that broke off; return them.

        Parameters
        ----------
        run : str
            The run's id.
        data : ClientData
            What the run learns from.
        """
        self._run, self._data = run, data
        return data

    def clear(self) -> None:
        """Forget the samples."""
        self._run, self._data, self._held = "", None, None
        vars(_left_here).pop(self._key, None)

    def __reduce__(self) -> tuple[object, ...]:
        if self._data is not None:
            vars(_left_here)[self._key] = self
        return _found, (self._key,)


def _found(key: str) -> Memory:
    memory: Memory | None = vars(_left_here).get(key)
    return memory or Memory(key)


def memory_of(context: Context) -> Memory:
    """Return the memory of the node to which a context belongs; a new one if it has none.

    Parameters
    ----------
    context : flwr.app.Context
        The node's context.
    """
    memory: Memory = vars(context).setdefault(_NAME, Memory())
    return memory


def share_memory(context: Context, memory: Memory) -> None:
    """Give a context a memory: a node that is in several of Flower's runs, as where a server resumes, has one.

    Parameters
    ----------
    context : flwr.app.Context
        The node's context.
    memory : Memory
        The node's memory.
    """
    vars(context)[_NAME] = memory
