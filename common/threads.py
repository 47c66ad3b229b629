"""One BLAS thread per process, and a lock.

With one thread every engine sums in the same order, and no client slows another.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from threadpoolctl import ThreadpoolController

READING_NPY = threading.RLock()
"""Hold this lock while reading the header of a ``.npy`` file. NumPy parses it with Python's ``ast``. Before Python
3.11.8 and 3.12.2 this raises a SystemError if two threads do so and one collects garbage (CPython issue 106905)."""

_lock = threading.Lock()
_limit = ExitStack()
_inside = 0


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Provide a context in which this process's linear algebra uses one thread.

    The first of its threads that is inside sets the limit, the last one that leaves lifts it. To ask the libraries at
    each message would cost a twentieth of a small client's round.
    """
    global _inside
    with _lock:
        if _inside == 0:
            _limit.enter_context(_controller().limit(limits=1))
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limit.close()
