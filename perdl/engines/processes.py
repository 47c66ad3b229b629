"""Many small clients on all cores: worker processes hold them, since threads of one process wait for each other."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.task_identity import TaskIdentity

from common.errors import PerdlError
from perdl.engines.in_process import InProcessGrid
from perdl_client.data.memory import Memory

_AT_ONCE = 50
"""Messages that a worker answers before it sends the answers."""


class ProcessesGrid(InProcessGrid):
    """A Flower grid whose clients are in worker processes. They keep their samples and states there.

    Parameters
    ----------
    client_app : ClientApp
        What every client runs. Workers take ``perdl_client.app``.
    node_configs : sequence of dict
        Node configuration of each client.
    record : callable (Message) -> object, optional
        Gets every message, in both directions.
    workers : int
        Number of processes. Results do not depend on it.
    on_start : callable (int, int) -> object
        Called with the number of clients that have learnt their first dictionary, and with that of all.
    """

    def __init__(
        self,
        client_app: ClientApp,
        node_configs: Sequence[dict[str, Any]],
        record: Callable[[Message], object] | None = None,
        workers: int = 1,
        on_start: Callable[[int, int], object] = lambda done, total: None,
    ) -> None:
        super().__init__(client_app, node_configs, record, on_start=on_start)
        nodes = list(self._nodes)
        self._place = {node: i % workers for i, node in enumerate(nodes)}
        self._workers = [
            Worker(self.run_id, {node: self._nodes[node] for node in nodes[i::workers]}) for i in range(workers)
        ]
        self._threads = ThreadPoolExecutor(workers)

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.close()
        self._threads.shutdown()

    def _held(self, states: Sequence[RecordDict] | None, memories: Sequence[Memory]) -> dict[int, Context]:
        return {}

    def _answers_to(self, questions: Sequence[Message]) -> list[Message]:
        shares: list[list[Message]] = [[] for _ in self._workers]
        for question in questions:
            shares[self._place[question.metadata.dst_node_id]].append(question)

        def ask(worker: Worker, share: list[Message]) -> list[Message]:
            found = []
            for question, answer in zip(share, worker.answers(share), strict=True):
                self._count(question)
                found.append(answer)
            return found

        answers = [iter(found) for found in self._threads.map(ask, self._workers, shares)]
        return [next(answers[self._place[question.metadata.dst_node_id]]) for question in questions]


class Worker:
    """A process that holds clients and answers messages to them.

    Parameters
    ----------
    run_id : int
        Flower's id of the run.
    configs : mapping of int to dict
        Node configuration of each of its clients, by node.
    """

    def __init__(self, run_id: int, configs: Mapping[int, dict[str, Any]]) -> None:
        command = [sys.executable, "-P", "-m", "perdl.engines.worker"]
        known = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **_ONE_THREAD}
        # In a session of its own, an interrupt at the keyboard reaches the parent alone, which ends it.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=known, start_new_session=True
        )
        self._taken = threading.Lock()
        self._send((run_id, TaskIdentity.node_id, configs))

    def answers(self, questions: Sequence[Message]) -> Iterator[Message]:
        """Yield the answer to each message.

        Parameters
        ----------
        questions : sequence of Message
            Messages to clients of this worker.

        Raises
        ------
        PerdlError
            If the process has died.
        """
        with self._taken:
            for i in range(0, len(questions), _AT_ONCE):
                self._send(questions[i : i + _AT_ONCE])
                yield from self._receive()

    def close(self) -> None:
        """End the process. What it is computing is lost."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                if pipe:
                    pipe.close()

    def _send(self, value: object) -> None:
        assert self._process.stdin is not None
        try:
            pickle.dump(value, self._process.stdin, pickle.HIGHEST_PROTOCOL)
            self._process.stdin.flush()
        except OSError:
            raise self._death() from None

    def _receive(self) -> list[Message]:
        assert self._process.stdout is not None
        try:
            found: list[Message] = pickle.load(self._process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            raise self._death() from None
        return found

    def _death(self) -> PerdlError:
        return PerdlError(
            "a process that holds simulated clients died, perhaps for lack of memory: take fewer clients or less data, "
            "or --engine in-process"
        )


_ONE_THREAD = {f"{name}_THREADS": "1" for name in ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "VECLIB_MAXIMUM")}
