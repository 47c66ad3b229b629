"""Many small computations on all cores, one BLAS thread each. Results do not depend on the number of workers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from typing import TypeVar

from threadpoolctl import threadpool_limits

from common.errors import PerdlError

A = TypeVar("A")
B = TypeVar("B")


def each(function: Callable[[A], B], arguments: Iterable[A], workers: int | None = None) -> list[B]:
    """Return ``[function(a) for a in arguments]``.

    Parameters
    ----------
    function : callable
        Function at the top level of a module, so that other processes can import it.
    arguments : iterable
        Its arguments, one per call.
    workers : int, optional
        Number of processes; default one per core. With one, no process is started.

    Raises
    ------
    PerdlError
        If a worker dies.
    """
    todo = list(arguments)
    workers = min(workers or os.cpu_count() or 1, len(todo))
    if workers <= 1:
        with threadpool_limits(1):
            return [function(a) for a in todo]
    # A forked child would inherit locks, but not the threads that hold them.
    context = multiprocessing.get_context("spawn")
    before = multiprocessing.active_children()
    with ExitStack() as on_exit:  # a pool's processes are then ended at once
        with deaf():
            pool = on_exit.enter_context(context.Pool(workers, threadpool_limits, (1,)))
        children = [child for child in multiprocessing.active_children() if child not in before]
        found = pool.map_async(function, todo, chunksize=1)
        while not found.ready():
            found.wait(0.5)
            if not all(child.is_alive() for child in children):
                raise PerdlError("a worker process died, perhaps for lack of memory: run again, or with --quick")
        return found.get()


@contextmanager
def threads(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Provide a pool of threads. After an interrupt or a failure, do not wait for them.

    Parameters
    ----------
    workers : int
        Number of threads.
    """
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


@contextmanager
def deaf() -> Iterator[None]:
    """Make processes started inside ignore Ctrl-C, which reaches them too: the parent ends them.

    The parent hears an interrupt when it leaves: inside, it might leave processes behind.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    resource_tracker.ensure_running()  # its start would unblock SIGINT
    heard: list[int] = []
    before = {
        one: signal.signal(one, lambda number, frame: heard.append(number)) for one in (signal.SIGINT, signal.SIGTERM)
    }
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # new processes inherit the mask
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
    if heard:
        signal.raise_signal(heard[0])
