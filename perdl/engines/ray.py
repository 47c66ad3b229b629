"""Flower's own simulation runtime: clients in Ray actors, on this machine or on a cluster that runs already."""

from __future__ import annotations

import _thread
import importlib.util
import json
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from common.errors import PerdlError
from common.logs import LOG, logged_to
from common.settings import Settings, changed
from common.simulation import SIMULATION
from perdl.engines.in_process import simulation
from perdl_client.data.sources import client_names
from perdl_client.identity import NAMES
from perdl_server.app import run
from perdl_server.results import STOP

ADDRESS = "RAY_ADDRESS"
"""Ray's environment variable with the address of a cluster, such as ``127.0.0.1:6379``."""

_ACTORS = {"num_cpus": 1, "num_gpus": 0.0, "max_restarts": -1, "max_task_retries": 1}
"""What Flower hands to Ray for each actor. Without restarts an actor that died would fail all messages it is given."""

_PATIENCE = 5.0
"""Seconds that clients which still compute have after an interrupted run."""

_LONGEST = 120_000
"""Most bytes of clients' names: Linux takes 131,072 in a variable of the environment."""


def run_in_ray(settings: Settings, log: Path) -> None:
    """Run a federation of simulated clients in Ray actors, one core each.

    Parameters
    ----------
    settings : Settings
        Settings of the run.
    log : Path
        File to which the log is appended as JSON lines.

    Raises
    ------
    PerdlError
        If Ray is not installed, does not start or is not reached, or the run fails.
    """
    if importlib.util.find_spec("ray") is None:
        cure = 'pip install "flwr[simulation]~=1.42.0", or take the engine in-process'
        raise PerdlError(f"the ray engine needs Ray: {cure}")
    if os.environ.get(ADDRESS):  # its actors have another working folder
        settings = changed(settings, output=os.path.abspath(settings.output))
        if settings.data.path is not None:
            settings = changed(settings, data={"path": os.path.abspath(settings.data.path)})
    with _own_environment(Path(settings.output)), simulation(), logged_to(log), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with _ray(_told(settings)):
            _run(settings)


def _told(settings: Settings) -> dict[str, str]:
    """Return the environment of the actors. On a cluster they do not inherit that of this process."""
    names = client_names(settings)
    told = {name: os.environ[name] for name in (SIMULATION, LOG) if name in os.environ}
    told["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    if names != [f"client-{i + 1}" for i in range(len(names))]:
        told[NAMES] = json.dumps(names)
    if len(told.get(NAMES, "").encode()) > _LONGEST:
        raise PerdlError(f"the names of {len(names)} clients are too long for the ray engine: take --engine processes")
    return told


@contextmanager
def _ray(told: dict[str, str]) -> Iterator[None]:
    """Connect to the cluster that the environment names, or start Ray here and remove its files at the end."""
    import ray

    where: dict[str, Any] = {"address": os.environ.get(ADDRESS)}
    folder = None
    if where["address"]:
        _reach(where["address"])
    else:
        # Names of Ray's sockets are long, and Unix takes 107 bytes: no folder within folders.
        folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp" if os.name == "posix" else None)
        where = {"address": "local", "include_dashboard": False, "_temp_dir": folder}
    try:
        try:
            ray.init(**where, logging_level=logging.ERROR, log_to_driver=False, runtime_env={"env_vars": told})
        except Exception as error:  # of many types
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise PerdlError(f"Ray did not start: {reason}; or take --engine processes") from None
        yield
    finally:
        ray.shutdown()
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


def _reach(address: str) -> None:
    """Raise if nobody listens: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        raise PerdlError(f"{ADDRESS} = {address}: must be HOST:PORT of Ray's head, such as 127.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise PerdlError(
            f"Ray at {address} ({ADDRESS}) was not reached: {error.strerror or error}; start it (ray start --head), or "
            "leave the variable out for a Ray on this machine"
        ) from None


def _run(settings: Settings) -> None:
    from flwr.simulation import run_simulation
    from flwr.simulation.ray_transport.ray_actor import BasicActorPool

    from perdl_client.app import app as client_app

    server_app = ServerApp()
    flower, end_actors = logging.getLogger("flwr"), BasicActorPool.terminate_all_actors
    level = flower.level
    with _interrupts_in_order(Path(settings.output)) as interrupted:
        # run_simulation passes no run configuration, so the function holds the settings.
        @server_app.main()
        def main(grid: Grid, context: Context) -> None:
            try:
                interrupted.check()
                run(settings, grid)
            except KeyboardInterrupt:  # Flower hands on no such exception, and its thread would print this one
                interrupted.end()

        flower.setLevel(logging.ERROR)  # it says that this function will go
        # Flower asks actors to end themselves, which counts as a death to recover from. Ray ends them with the
        # connection. Flower's threads that are still waiting for one would tell of its end as of a fault.
        BasicActorPool.terminate_all_actors = (  # type: ignore[method-assign]
            lambda self: flower.setLevel(logging.CRITICAL + 1)
        )
        try:
            run_simulation(server_app, client_app, settings.n_clients, backend_config={"client_resources": {**_ACTORS}})
        finally:
            BasicActorPool.terminate_all_actors = end_actors  # type: ignore[method-assign]
            flower.setLevel(level)
        interrupted.check()


class _Interrupted:
    """Whether a run was asked to end, and whether it is time to wait no longer for clients."""

    def __init__(self, *, in_main_thread: bool) -> None:
        self.in_main_thread = in_main_thread
        self.asked = threading.Event()
        self.cut_off = threading.Timer(_PATIENCE, _interrupt_main)
        self.cut_off.daemon = True

    def check(self) -> None:
        """Raise KeyboardInterrupt if the run was asked to end."""
        if self.asked.is_set():
            raise KeyboardInterrupt

    def end(self) -> None:
        """Give clients that still compute a while: the run is over, but Flower's threads wait for them."""
        self.asked.set()
        if self.in_main_thread:
            self.cut_off.start()


def _interrupt_main() -> None:
    """Interrupt the main thread, also where it waits for another one: where there is such a thing, by a signal."""
    if sys.platform == "win32":
        _thread.interrupt_main()
    else:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@contextmanager
def _interrupts_in_order(folder: Path) -> Iterator[_Interrupted]:
    """Let a first interrupt end the run in order, by the file that the ServerApp heeds, and a second one at once.

    The ServerApp is in another thread, which an interrupt does not reach.
    """
    interrupted = _Interrupted(in_main_thread=threading.current_thread() is threading.main_thread())

    def ask(number: int, frame: FrameType | None) -> None:
        interrupted.check()
        interrupted.asked.set()
        with suppress(OSError):
            (folder / STOP).touch()

    before: dict[int, Any] = {}
    if interrupted.in_main_thread:
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        before = {number: handler for number, handler in before.items() if callable(handler)}
    try:
        for number in before:
            signal.signal(number, ask)
        yield interrupted
    finally:
        interrupted.cut_off.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _own_environment(folder: Path) -> Iterator[None]:
    """Keep Flower's files in ``folder``, and leave the environment as it was."""
    before = dict(os.environ)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("FLWR_HOME", str(folder.resolve() / "flower"))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
