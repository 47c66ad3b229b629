"""The ServerApp: settings from Flower's run configuration, PerMA, results on disk."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.inflatable.inflatable_utils import pull_objects

from common.settings import Settings, settings_from_flat
from common.threads import one_blas_thread
from perdl_server.results import RunFolder
from perdl_server.strategy import PerMA

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run PerMA as ``context.run_config`` says."""
    # An answer is announced before its content is there; Flower then looks again after a whole second.
    (pull_objects.__kwdefaults__ or {})["initial_backoff"] = 0.02
    run(settings_from_flat(context.run_config), grid)


def run(settings: Settings, grid: Grid) -> None:
    """Run PerMA over a grid, with results in ``settings.output``."""
    folder = RunFolder(Path(settings.output))
    with one_blas_thread():
        PerMA(settings, folder).start(grid)
