"""The default engine: ServerApp, strategy and ClientApp in this process. Its Flower grid is a dictionary."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from common.logs import logged_to
from common.protocol import INITIALISE
from common.settings import Settings
from common.simulation import SIMULATION
from common.threads import one_blas_thread
from perdl_client.data.memory import Memory, share_memory
from perdl_client.data.sources import client_names

SERVER_NODE = 1
_FIRST_CLIENT = 1000
_ONE_RUN = threading.Lock()


class InProcessGrid(Grid):
    """A Flower grid that answers each message by calling the ClientApp at once.

    Parameters
    ----------
    client_app : ClientApp
        What every client runs.
    node_configs : sequence of dict
        Node configuration of each client.
    record : callable (Message) -> object, optional
        Gets every message, in both directions.
    workers : int
        Number of clients that compute at the same time. Results do not depend on it.
    states : sequence of RecordDict, optional
        State of each client of a run that is resumed.
    memories : sequence of Memory
        Samples of each client that were already read; empty if clients read their files.
    on_start : callable (int, int) -> object
        Called with the number of clients that have learnt their first dictionary, and with that of all.
    """

    def __init__(
        self,
        client_app: ClientApp,
        node_configs: Sequence[dict[str, Any]],
        record: Callable[[Message], object] | None = None,
        workers: int = 1,
        states: Sequence[RecordDict] | None = None,
        memories: Sequence[Memory] = (),
        on_start: Callable[[int, int], object] = lambda done, total: None,
    ) -> None:
        self._on_start, self._started, self._counting = on_start, 0, threading.Lock()
        self._app, self._number = client_app, count()
        self._record = record or (lambda message: None)
        self._answers: dict[str, Message] = {}
        self._pool = ThreadPoolExecutor(workers) if workers > 1 else None
        self.run_id = secrets.randbits(62)
        self._nodes = dict(enumerate(node_configs, _FIRST_CLIENT))
        self._contexts = self._held(states, memories)
        # Flower's Message reads the sender from here.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = self.run_id, SERVER_NODE, 1

    def _held(self, states: Sequence[RecordDict] | None, memories: Sequence[Memory]) -> dict[int, Context]:
        """Return the contexts of the clients that are in this process."""
        contexts = contexts_of(self.run_id, self._nodes, states)
        for context, memory in zip(contexts.values(), memories, strict=False):
            share_memory(context, memory)
        return contexts

    @property
    def states(self) -> list[RecordDict]:
        """State of each client that is in this process."""
        return [context.state for context in self._contexts.values()]

    def get_node_ids(self) -> Iterable[int]:
        """Return the node ids of the clients."""
        return list(self._nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Answer every message; return ids under which the answers can be pulled.

        Parameters
        ----------
        messages : iterable of Message
            Messages to clients.
        """
        questions = list(messages)
        for question in questions:
            question.metadata.__dict__["_message_id"] = f"{self.run_id}.{next(self._number)}"
        if any(question.metadata.message_type == INITIALISE for question in questions):
            self._on_start(0, len(self._nodes))
        answers = self._answers_to(questions)
        ids = []
        for question, answer in zip(questions, answers, strict=True):
            self._record(question)
            self._record(answer)
            ids.append(question.metadata.message_id)
            self._answers[question.metadata.message_id] = answer
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the answers to messages. Each answer is returned once.

        Parameters
        ----------
        message_ids : iterable of str
            Ids that `push_messages` returned.
        """
        return [self._answers.pop(i) for i in list(message_ids) if i in self._answers]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and return their answers.

        Parameters
        ----------
        messages : iterable of Message
            Messages to clients.
        timeout : float, optional
            Ignored: every client answers.
        """
        return self.pull_messages(self.push_messages(messages))

    def close(self) -> None:
        """End the threads."""
        if self._pool:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _answers_to(self, questions: Sequence[Message]) -> list[Message]:
        run = self._pool.map if self._pool else map
        return list(run(self._answer, questions))

    def _answer(self, message: Message) -> Message:
        answer = answer_of(self._app, message, self._contexts)
        self._count(message)
        return answer

    def _count(self, question: Message) -> None:
        """Tell of a client that has answered, if it was its first dictionary that it learnt."""
        if question.metadata.message_type == INITIALISE:
            with self._counting:
                self._started += 1
                self._on_start(self._started, len(self._nodes))

    def set_run(self, run: Run) -> None:
        """Do nothing: there is one run.

        Parameters
        ----------
        run : Run
            Ignored.
        """

    @property
    def run(self) -> Run:
        """Return the run."""
        return Run.create_empty(self.run_id)

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Return a new message.

        Parameters
        ----------
        content : RecordDict
            Content of the message.
        message_type : str
            Its type, which selects the client's handler.
        dst_node_id : int
            Node id of the client.
        group_id : str
            Group of messages to which it belongs.
        ttl : float, optional
            Seconds for which it is valid.
        """
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)


def contexts_of(
    run_id: int, node_configs: Mapping[int, dict[str, Any]], states: Sequence[RecordDict] | None = None
) -> dict[int, Context]:
    """Return a context for each node.

    Parameters
    ----------
    run_id : int
        Flower's id of the run.
    node_configs : mapping of int to dict
        Node configuration of each client, by node.
    states : sequence of RecordDict, optional
        State of each client of a run that is resumed.
    """
    kept = states or [RecordDict() for _ in node_configs]
    return {
        node: Context(run_id=run_id, node_id=node, node_config=config, state=state, run_config={})
        for (node, config), state in zip(node_configs.items(), kept, strict=True)
    }


def answer_of(app: ClientApp, message: Message, contexts: Mapping[int, Context]) -> Message:
    """Return a node's answer to a message.

    Parameters
    ----------
    app : ClientApp
        What every client runs.
    message : Message
        A message from the server.
    contexts : mapping of int to Context
        Contexts by node.
    """
    try:
        answer = app(message, contexts[message.metadata.dst_node_id])
    except Exception as error:  # a SuperNode would report the same
        reason = f"{type(error).__name__}: {error}"
        answer = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
    answer.metadata.__dict__["_message_id"] = f"{message.metadata.message_id}.answer"
    return answer


def run_in_process(
    server_app: ServerApp,
    client_app: ClientApp,
    settings: Settings,
    *,
    record: Callable[[Message], object] | None = None,
    workers: int | None = None,
    node_configs: Sequence[dict[str, Any]] | None = None,
    states: Sequence[RecordDict] | None = None,
    memories: Sequence[Memory] = (),
    log: Path | None = None,
    on_start: Callable[[int, int], object] = lambda done, total: None,
    processes: bool = False,
) -> list[RecordDict]:
    """Run a federation in this process, or with its clients in worker processes.

    Parameters
    ----------
    server_app : ServerApp
        What the server runs, strategy included.
    client_app : ClientApp
        What every client runs.
    settings : Settings
        Settings of the run.
    record : callable (Message) -> object, optional
        Gets every message, in both directions.
    workers : int, optional
        Number of clients that compute at the same time; default one per core this process may use.
    node_configs : sequence of dict, optional
        Node configuration of each client; default ``n_clients`` numbered clients.
    states : sequence of RecordDict, optional
        State of each client of a run that is resumed.
    memories : sequence of Memory
        Samples of each client that were already read; empty if clients read their files.
    log : Path, optional
        File to which the log is appended as JSON lines.
    on_start : callable (int, int) -> object
        Called with the number of clients that have learnt their first dictionary, and with that of all.
    processes : bool
        Whether worker processes hold the clients, see :mod:`perdl.engines.processes`. They start without states, and
        read their files themselves.

    Returns
    -------
    list of RecordDict
        State of each client after the run; none if they were in other processes.

    Notes
    -----
    Flower keeps the sender in a global variable, so runs of several threads take turns.
    """
    n = settings.n_clients
    configs = node_configs or [
        {"partition-id": i, "num-partitions": n, "name": name} for i, name in enumerate(client_names(settings))
    ]
    with _ONE_RUN, simulation(), logged_to(log) if log else nullcontext(), one_blas_thread():
        workers = min(workers or cores(), n)
        if processes:
            from perdl.engines.processes import ProcessesGrid

            grid: InProcessGrid = ProcessesGrid(client_app, configs, record, workers, on_start)
        else:
            grid = InProcessGrid(client_app, configs, record, workers, states, memories, on_start)
        context = Context(
            run_id=grid.run_id, node_id=SERVER_NODE, node_config={}, state=RecordDict(), run_config=settings.flat()
        )
        with closing(grid):
            server_app(grid, context)
        return grid.states


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def simulation() -> Iterator[None]:
    """Tell clients in this process and its children that server and clients belong to one user."""
    before = os.environ.get(SIMULATION)
    os.environ[SIMULATION] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SIMULATION]
        else:
            os.environ[SIMULATION] = before
