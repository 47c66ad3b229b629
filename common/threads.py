"""One BLAS thread: the same sums in the same order on every engine, and no client that slows another. And a lock."""

from __future__ import annotations

import functools
import threading
from contextlib import AbstractContextManager

from threadpoolctl import ThreadpoolController

READING_NPY = threading.RLock()
"""Held by who reads the head of a ``.npy`` in a thread of several. NumPy parses it by Python's ``ast``, which before
3.11.8 and 3.12.2 raises a SystemError where two threads are at it and one collects garbage (CPython issue 106905)."""


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context in which the linear algebra of this process uses one thread."""
    context: AbstractContextManager[object] = _controller().limit(limits=1)
    return context
