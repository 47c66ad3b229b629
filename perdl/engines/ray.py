"""Flower's own simulation runtime: clients in Ray actors."""

from __future__ import annotations

import importlib.util
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from common.errors import PerdlError
from common.logs import logged_to
from common.settings import Settings
from perdl.engines.in_process import simulation
from perdl_client.data.sources import client_names
from perdl_client.identity import NAMES
from perdl_server.app import run
from perdl_server.results import stop_run_in


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
        If Ray is not installed, or the run fails.
    """
    if importlib.util.find_spec("ray") is None:
        cure = 'pip install "flwr[simulation]~=1.42.0", or take the engine in-process'
        raise PerdlError(f"the ray engine needs Ray: {cure}")
    with _alone(Path(settings.output)), simulation(), logged_to(log), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.environ[NAMES] = json.dumps(client_names(settings))
        try:
            _run(settings)
        except KeyboardInterrupt:
            # The ServerApp is in another thread, which the interrupt does not reach.
            stop_run_in(Path(settings.output))
            raise


def _run(settings: Settings) -> None:
    from flwr.simulation import run_simulation

    from perdl_client.app import app as client_app

    server_app = ServerApp()

    # run_simulation passes no run configuration, so the function holds the settings.
    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        run(settings, grid)

    backend: dict[str, Any] = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"address": "local"}}
    run_simulation(server_app, client_app, settings.n_clients, backend_config=backend)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Make Ray start on this machine, whatever cluster the environment names. Flower's files go to ``folder``."""
    before = dict(os.environ)
    os.environ.pop("RAY_ADDRESS", None)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("FLWR_HOME", str(folder.resolve() / "flower"))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
