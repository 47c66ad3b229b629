"""What a node keeps in memory: the samples of its file, so that it is read once, a run's samples, and D_i^(0)."""

from __future__ import annotations

import secrets
import threading

import numpy as np
from flwr.app import Context
from numpy.typing import NDArray

from perdl_client.data.load import ClientData
from perdl_client.data.samples import Samples
from perdl_client.learning.device import CPU, Device

_NAME = "perdl_memory"
_left_here = threading.local()
"""Memories of nodes whose contexts were sent to another process. A Ray actor serves many nodes in one thread."""


class Memory:
    """The samples of one node. Nodes share no memory, so no thread changes what another one reads.

    It is attached to the node's context. The samples themselves never leave the process: a pickled memory is a key. The
    process that holds the samples finds them by this key when the context comes back.

    Parameters
    ----------
    key : str, optional
        Key of a memory that is in another process.

    Attributes
    ----------
    ways : set of str
        The ways in which this process learnt first dictionaries of this run: one, or several in a search of settings.
    """

    def __init__(self, key: str = "") -> None:
        self._key = key or secrets.token_hex(8)
        self._run = ""
        self._data: ClientData | None = None
        self._held: Samples | None = None
        self._first: NDArray[np.floating] | None = None
        self._learnt = ""
        self._device = CPU
        self.ways: set[str] = set()

    def hold(self, samples: Samples) -> None:
        """Hold the samples of the node's file until a run begins.

        Parameters
        ----------
        samples : Samples
            Owned by the memory from now on: a run may overwrite them.
        """
        self._held = samples

    def take(self, dtype: str) -> Samples | None:
        """Return the held samples, and forget them.

        Parameters
        ----------
        dtype : {"float64", "float32"}
            Float type of the run. If it is narrower than that of the samples, None is returned: whole numbers that are
            read as this type directly differ in the last bits.
        """
        samples, self._held = self._held, None
        return samples if samples is not None and np.can_cast(samples.data.dtype, dtype) else None

    def look(self, dtype: str) -> Samples | None:
        """Return the held samples as :meth:`take` does, and keep them.

        Parameters
        ----------
        dtype : {"float64", "float32"}
            Float type of the run.
        """
        held, found = self._held, self.take(dtype)
        self._held = held
        return found

    def recall(self, run: str) -> ClientData | None:
        """Return the samples that the node learns from in this run, None if there are none.

        Parameters
        ----------
        run : str
            The run's id; that of the search in a trial of a search of settings.
        """
        return self._data if self._run == run else None

    def keep(self, run: str, data: ClientData) -> ClientData:
        """Keep and return the samples of this run. Those of a former run are dropped.

        Parameters
        ----------
        run : str
            The run's id.
        data : ClientData
            Samples that the run learns from.
        """
        self._run, self._data, self._first, self.ways = run, data, None, set()
        return data

    def keep_first(self, dictionary: NDArray[np.floating], way: str) -> None:
        """Keep the first dictionary of this run, from which the client learns alone in the end, to compare.

        Parameters
        ----------
        dictionary : (d, r) array
            D_i^(0).
        way : str
            How it was learnt.
        """
        self._first, self._learnt = dictionary, way
        self.ways.add(way)

    def first(self, way: str) -> NDArray[np.floating] | None:
        """Return the first dictionary; None if it is to be learnt: at first, in another way, or in a new process.

        Parameters
        ----------
        way : str
            How it is to be learnt.
        """
        return self._first if self._learnt == way else None

    def device(self, name: str, dtype: str, client: str) -> Device:
        """Return where the node computes. It keeps the samples that are there.

        Parameters
        ----------
        name : str
            As in the setting ``device``.
        dtype : {"float64", "float32"}
            Float type of the run.
        client : str
            The client's name, for errors.

        Raises
        ------
        SettingsError
            If the device is not there.
        """
        if (self._device.name, self._device.dtype) != (name, dtype):
            self._device = CPU if name == CPU.name else Device(name, dtype, client)
        return self._device

    def clear(self) -> None:
        """Forget all samples."""
        self._device = CPU
        self._run, self._data, self._held, self._first, self._learnt = "", None, None, None, ""
        vars(_left_here).pop(self._key, None)

    def __reduce__(self) -> tuple[object, ...]:
        if self._data is not None:
            vars(_left_here)[self._key] = self
        return _found, (self._key,)


def _found(key: str) -> Memory:
    memory: Memory | None = vars(_left_here).get(key)
    return memory or Memory(key)


def memory_of(context: Context) -> Memory:
    """Return the memory of a context's node; a new one if it has none.

    Parameters
    ----------
    context : flwr.app.Context
        The node's context.
    """
    if _NAME not in vars(context):
        vars(context)[_NAME] = Memory()
    memory: Memory = vars(context)[_NAME]
    return memory


def share_memory(context: Context, memory: Memory) -> None:
    """Attach a memory to a context. A node has one memory for several of Flower's runs, as after a resume.

    Parameters
    ----------
    context : flwr.app.Context
        The node's context.
    memory : Memory
        The node's memory.
    """
    vars(context)[_NAME] = memory
