"""One BLAS thread: the same sums in the same order on every engine, and no client that slows another."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager

from threadpoolctl import ThreadpoolController


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context in which the linear algebra of this process uses one thread."""
    context: AbstractContextManager[object] = _controller().limit(limits=1)
    return context
