"""One BLAS thread per process, and a lock.

With one thread every engine sums in the same order, and no client slows another.
"""

from __future__ import annotations

import functools
import threading
from contextlib import AbstractContextManager

from threadpoolctl import ThreadpoolController

READING_NPY = threading.RLock()
"""Hold this lock while reading the header of a ``.npy`` file. NumPy parses it with Python's ``ast``. Before Python
3.11.8 and 3.12.2 this raises a SystemError if two threads do so and one collects garbage (CPython issue 106905)."""


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context in which this process's linear algebra uses one thread."""
    context: AbstractContextManager[object] = _controller().limit(limits=1)
    return context
