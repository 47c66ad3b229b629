"""The synthetic set-up by Flower's ``run_simulation`` with nothing but its defaults, for ``benchmarks/clients.py``.

    python benchmarks/flower_default.py FOLDER NAME=VALUE ...

perdl's own ServerApp and ClientApp; no backend configuration: Ray as ``ray.init()`` finds or starts it (so no other
may run on this machine), actors of as many cores as Flower takes by default.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from common.settings import load_settings, override_settings
from common.simulation import SIMULATION
from perdl.cli.command import find_config
from perdl_client.app import app as client_app
from perdl_server.app import run


def main() -> None:
    told = dict(word.split("=", 1) for word in sys.argv[2:])
    values = {name: float(value) if "." in value else int(value) for name, value in told.items()}
    settings = override_settings(load_settings(find_config("synthetic")), {**values, "output": sys.argv[1]})
    os.environ[SIMULATION] = "1"
    Path(settings.output).mkdir(parents=True)
    server_app = ServerApp()

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        run(settings, grid)

    run_simulation(server_app, client_app, settings.n_clients)


if __name__ == "__main__":
    main()
