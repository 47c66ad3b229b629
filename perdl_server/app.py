"""The ServerApp: settings from Flower's run configuration, PerMA, results on disk."""

from __future__ import annotations

import threading
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from common.settings import Settings, settings_from_flat
from common.threads import one_blas_thread
from perdl_server.results import RunFolder
from perdl_server.strategy import PerMA

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run PerMA as ``context.run_config`` says."""
    run(settings_from_flat(context.run_config), grid)


def run(settings: Settings, grid: Grid, stop: threading.Event | None = None) -> None:
    """Run PerMA over a grid, with results in ``settings.output``; ``stop`` ends it with what was done saved."""
    folder = RunFolder(Path(settings.output))
    with one_blas_thread():
        PerMA(settings, folder, stop).start(grid)
