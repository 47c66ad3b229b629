"""The ServerApp: settings from Flower's run configuration, PerMA, results on disk."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.inflatable.inflatable_utils import pull_objects

from common.logs import start_log
from common.settings import Settings, settings_from_flat
from common.threads import one_blas_thread
from perdl_server.checkpoint import Checkpoint
from perdl_server.results import SERVED, RunFolder
from perdl_server.strategy import PerMA

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run PerMA with the settings in ``context.run_config``.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Flower's connection to the nodes.
    context : flwr.app.Context
        Holds the run's configuration.
    """
    run(begin(context.run_config), grid)


def begin(config: Mapping[str, Any]) -> Settings:
    """Prepare this process for a run over a grid, and return the run's settings.

    Parameters
    ----------
    config : mapping
        Settings by dotted name.
    """
    if os.environ.get(SERVED):
        threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
        start_log(logging.INFO)
    settings = settings_from_flat(config)
    _bound_pulls(settings)
    return settings


def _bound_pulls(settings: Settings) -> None:
    """Limit how long Flower waits for the content of an announced answer.

    By default it polls ever more rarely, for hours, one answer after the other. A client that is cut off then, or is
    hostile, would stop the run. All clients together get the time of one round.
    """
    limits = pull_objects.__kwdefaults__
    if limits is not None:
        seconds = min(30.0, max(2.0, settings.round_timeout / settings.n_clients))
        limits |= {"initial_backoff": 0.02, "backoff_cap": 0.5, "max_time": seconds, "max_tries_per_object": None}


def _end_with_parent(parent: int) -> None:
    """End this process with its parent. Flower leaves a ServerApp asleep forever if its parent is killed."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def resuming(checkpoint: Checkpoint) -> ServerApp:
    """Return a ServerApp that continues from a checkpoint which is not in the run's folder.

    Parameters
    ----------
    checkpoint : Checkpoint
        Where to continue.
    """
    resumed = ServerApp()

    @resumed.main()
    def main(grid: Grid, context: Context) -> None:
        run(settings_from_flat(context.run_config), grid, checkpoint)

    return resumed


def run(settings: Settings, grid: Grid, checkpoint: Checkpoint | None = None) -> None:
    """Run PerMA over a grid, from the start or from a checkpoint.

    Parameters
    ----------
    settings : Settings
        The run's settings; results go to ``output``.
    grid : flwr.serverapp.Grid
        Flower's connection to the nodes.
    checkpoint : Checkpoint, optional
        Where to continue.
    """
    folder = RunFolder(Path(settings.output), checkpoint)
    with one_blas_thread():
        PerMA(settings, folder).start(grid)
