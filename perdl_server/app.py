"""The ServerApp: settings from Flower's run configuration, PerMA, results on disk."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from common.settings import settings_from_flat
from common.threads import one_blas_thread
from perdl_server.results import RunFolder
from perdl_server.strategy import PerMA

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run PerMA as ``context.run_config`` says."""
    settings = settings_from_flat(context.run_config)
    folder = RunFolder(Path(settings.output))
    with one_blas_thread():
        PerMA(settings, folder).start(grid)
