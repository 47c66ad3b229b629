"""The ServerApp: settings from Flower's run configuration, PerMA, results on disk."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path

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
    """Run PerMA as ``context.run_config`` says."""
    if os.environ.get(SERVED):
        threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
        start_log(logging.INFO)
    settings = settings_from_flat(context.run_config)
    _bound_pulls(settings)
    run(settings, grid)


def _bound_pulls(settings: Settings) -> None:
    """An answer is announced before its content is there, and Flower waits for that, one answer after the other.

    It looks again after a whole second, then ever more seldom, and waits for up to hours: a client that is cut off just
    then, or means harm, would hold up the run. All clients together get a round's time for it.
    """
    limits = pull_objects.__kwdefaults__
    if limits is not None:
        seconds = min(30.0, max(2.0, settings.round_timeout / settings.n_clients))
        limits |= {"initial_backoff": 0.02, "backoff_cap": 0.5, "max_time": seconds, "max_tries_per_object": None}


def _end_with_parent(parent: int) -> None:
    """Flower leaves a ServerApp behind, asleep for ever, when what started it is killed."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def resuming(checkpoint: Checkpoint) -> ServerApp:
    """Return a ServerApp that goes on from a checkpoint, for who keeps it elsewhere than in the run's folder."""
    resumed = ServerApp()

    @resumed.main()
    def main(grid: Grid, context: Context) -> None:
        run(settings_from_flat(context.run_config), grid, checkpoint)

    return resumed


def run(settings: Settings, grid: Grid, checkpoint: Checkpoint | None = None) -> None:
    """Run PerMA over a grid, with results in ``settings.output``; from a checkpoint on, if there is one."""
    folder = RunFolder(Path(settings.output), checkpoint)
    with one_blas_thread():
        PerMA(settings, folder).start(grid)
