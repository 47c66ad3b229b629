"""Many small computations on all cores, one BLAS thread each; the same results from any number of workers."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from threadpoolctl import threadpool_limits

A = TypeVar("A")
B = TypeVar("B")


def each(function: Callable[[A], B], arguments: Iterable[A], workers: int | None = None) -> list[B]:
    """Return ``[function(a) for a in arguments]``.

    Parameters
    ----------
    function : callable
        Of a module's top level, so that another process can import it.
    arguments : iterable
    workers : int, optional
        Processes; default one per core. With one, no process is started.
    """
    todo = list(arguments)
    workers = min(workers or os.cpu_count() or 1, len(todo))
    if workers <= 1:
        with threadpool_limits(1):
            return [function(a) for a in todo]
    # A forked child would inherit the locks of threads that it does not have.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=threadpool_limits, initargs=(1,)) as pool:
        try:
            return list(pool.map(function, todo))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
