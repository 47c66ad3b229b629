"""Flower's own simulation runtime: clients in Ray actors."""

from __future__ import annotations

import importlib.util
import os
import warnings
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from common.errors import PerdlError
from common.settings import Settings
from perdl.in_process import simulation
from perdl_server.app import run
from perdl_server.results import stop_run_in


def run_in_ray(settings: Settings) -> None:
    """Run a federation of simulated clients in Ray actors, one core each.

    Parameters
    ----------
    settings : Settings

    Raises
    ------
    PerdlError
        If Ray is not installed, or the run fails.
    """
    if importlib.util.find_spec("ray") is None:
        raise PerdlError('the ray engine needs Ray: pip install "perdl[simulation]", or take the engine in-process')
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    from flwr.simulation import run_simulation

    from perdl_client.app import app as client_app

    server_app = ServerApp()

    # run_simulation passes no run configuration, so the settings come with the function.
    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        run(settings, grid)

    resources = {"num_cpus": 1, "num_gpus": 0.0}
    with simulation(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run_simulation(
                server_app, client_app, settings.n_clients, backend_config={"client_resources": dict(resources)}
            )
        except KeyboardInterrupt:
            # The ServerApp is in a thread of its own.
            stop_run_in(Path(settings.output))
            raise
