from __future__ import annotations

import multiprocessing
import os
import signal

import pytest

from perdl.experiments.workers import deaf, each


@pytest.fixture(autouse=True)
def _interrupts(monkeypatch):
    """SIGTERM interrupts, as at the command line."""

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_workers_start_is_heard_when_they_have_started(number):
    reached = []

    def interrupted():
        with deaf():
            os.kill(os.getpid(), number)
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert reached
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)  # and the next one at once


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_workers_start_leaves_none_behind(monkeypatch, number):
    context = multiprocessing.get_context("spawn")
    pools = []

    class Context:
        @staticmethod
        def Pool(*args):
            pools.append(context.Pool(*args))
            os.kill(os.getpid(), number)
            return pools[0]

    monkeypatch.setattr(multiprocessing, "get_context", lambda kind: Context)
    with pytest.raises(KeyboardInterrupt):
        each(abs, [1, 2], workers=2)
    assert all(not worker.is_alive() for worker in pools[0]._pool)


def test_workers_do_not_hear_ctrl_c():
    blocked = each(_blocked, [0, 1], workers=2)
    assert all(signal.SIGINT in mask and signal.SIGTERM not in mask for mask in blocked)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())


def _blocked(_):
    return signal.pthread_sigmask(signal.SIG_BLOCK, set())
