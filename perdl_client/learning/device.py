"""Where a client computes what costs time: with numpy, or with torch on a device such as a graphics card.

On a device are the sweep over samples, steps of starts, and decompositions of large matrices: the same functions as
with numpy, on torch's arrays. Samples go there once. Dictionaries go there and sums come back in every round. The rest
stays with numpy, as what travels, states, random numbers, and the guard where samples must count less.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.arrays import host, namespace
from common.blocks import Columns, Stream
from common.coders import CODERS, SELECTING
from common.errors import SettingsError
from common.learners import LEARNERS
from common.learning_settings import LearningSettings

Floats = NDArray[np.floating]

_LARGE = 2**16
"""Numbers from which a matrix is decomposed on the device: a smaller one is done sooner than it has gone there."""


class Device:
    """A place to compute, and the samples that are there.

    Parameters
    ----------
    name : str
        As in the setting ``device``.
    dtype : {"float64", "float32"}
        Float type of the run, which not every device has.
    client : str
        The client's name, for errors.

    Attributes
    ----------
    is_host : bool
        Whether it is numpy. Nothing is moved then.

    Raises
    ------
    SettingsError
        If the device, or what is needed for it, is not there.
    """

    def __init__(self, name: str = "cpu", dtype: str = "float64", client: str = "") -> None:
        self.name, self.dtype, self.is_host = name, dtype, name == "cpu"
        self._empty: Any = None if self.is_host else _empty(name, dtype, client)
        self._held: tuple[weakref.ref[Floats], Any] | None = None

    def put(self, A: Any) -> Any:
        """Return an array on the device; what is there already as it is.

        Parameters
        ----------
        A : array
            Of numpy, or on the device.
        """
        if self.is_host or not isinstance(A, np.ndarray):
            return A
        if not A.flags.writeable or min(A.strides, default=0) < 0:
            A = A.copy()  # torch takes no others
        return namespace(self._empty).asarray(A, device=self._empty.device)

    def samples(self, Y: Columns) -> Any:
        """Return samples on the device. They are kept there for the next call. A stream goes there block by block.

        Parameters
        ----------
        Y : (d, n) array or Stream
            Samples in columns.
        """
        if self.is_host or isinstance(Y, Stream):
            return Y
        if self._held is None or self._held[0]() is not Y:
            self._held = None  # free the former ones first
            self._held = weakref.ref(Y), self.put(Y)
        return self._held[1]

    def run(self, function: Callable[..., Floats], *arguments: Any) -> Floats:
        """Return the array that a function returns, computed on the device if one of its arguments is large.

        Parameters
        ----------
        function : callable
            Takes arrays of any library.
        *arguments : array or anything
            Its arguments.
        """
        if self.is_host or max(np.size(one) for one in arguments) < _LARGE:
            return function(*arguments)
        return host(function(*map(self.put, arguments)))


CPU = Device()
"""numpy."""


def why_on_host(learning: LearningSettings, private: bool) -> str:
    """Say why a client computes with numpy all the same; empty if it need not.

    Parameters
    ----------
    learning : LearningSettings
        How it learns.
    private : bool
        Whether sums over its samples are made noisy.
    """
    if private:
        return 'privacy = "private"'
    if LEARNERS[learning.learner].of_sums is None:
        return f'learner = "{learning.learner}"'
    if type(CODERS[learning.coder].make(1)) not in SELECTING:
        return f'coder = "{learning.coder}"'
    return "" if learning.outliers == "keep" else f'outliers = "{learning.outliers}"'


def _empty(name: str, dtype: str, client: str) -> Any:
    """Return an empty array on a device, to which others are made alike."""
    asked = f'{client}: device = "{name}"' if client else f'device = "{name}"'
    cure = "set device, or the client's own --device, to"
    try:
        import array_api_compat  # noqa: F401
        import torch
    except ImportError as error:
        raise SettingsError(
            f'{asked}: needs {error.name or "torch"}, which is not installed: pip install "perdl[gpu]", or {cure} cpu'
        ) from None
    if name == "mps" and dtype == "float64":
        raise SettingsError(f'{asked}: has no double precision: set dtype = "float32" for the run, or {cure} cpu')
    try:
        return torch.empty(0, dtype=getattr(torch, dtype), device="cpu" if name == "torch" else name)
    except (RuntimeError, AssertionError):  # what torch raises for a device that it was not built for, or lacks
        there = " or ".join(["cpu", *_accelerators(torch)])
        raise SettingsError(f"{asked}: is not there, by torch {torch.__version__}: {cure} {there}") from None


def _accelerators(torch: Any) -> list[str]:
    if not torch.accelerator.is_available():
        return []
    kind = torch.accelerator.current_accelerator().type
    return [f"{kind}:{i}" for i in range(torch.accelerator.device_count())]
