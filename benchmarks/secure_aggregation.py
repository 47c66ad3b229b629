"""What secure sums cost: CPU seconds and bytes a round, against plain rounds.

    python benchmarks/secure_aggregation.py [N ...]

All clients and the server run in one thread of this process, in turn, so the seconds are those of all of them together.
Sites have 784 features and 20 atoms, 10 of them shared; rounds are cheap, so that what the mode adds is seen.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
from flwr.app import Message

from common.protocol import UPDATE, unpack
from common.settings import load_settings
from perdl.engines.in_process import run_in_process
from perdl_client.app import app as client_app
from perdl_server.app import app as server_app

SITES = ["synthetic.n_features=784", "synthetic.n_global=10", "synthetic.n_local=10", "n_global=10", "n_atoms=20"]
SITES += ["data.n_samples=100", "warmup_steps=2", "n_restarts=1", "local_restarts=0", "rounds=8", "tolerance=0"]


def measure(n: int, mode: str, aggregation: str, folder: Path) -> tuple[float, int, int, np.ndarray]:
    """Return CPU seconds of a round, bytes of a round to the clients and to the server, and D^g."""
    began: dict[int, float] = {}

    def record(message: Message) -> None:
        if message.metadata.message_type == UPDATE:
            began.setdefault(int(unpack(message.content).scalars["round"]), time.process_time())

    told = [f"output={folder}", f"n_clients={n}", f"privacy={mode}", f"aggregation={aggregation}", *SITES]
    run_in_process(server_app, client_app, load_settings(None, told), record=record, workers=1)
    seconds = np.diff([began[t] for t in sorted(began)])[1:]  # in the first round clients learn each other's keys
    phases = json.loads((folder / "summary.json").read_text())["bytes"]
    down, up = (sum(phases.get(p, {}).get(way, 0) for p in ("update", "open")) for way in ("to_clients", "to_server"))
    with np.load(folder / "global_dictionary.npz") as file:
        return median(seconds), down // 8, up // 8, file["dictionary"]


def main(sizes: list[int]) -> None:
    print("clients  aggregation  mode        CPU s a round  kB to a client  kB from a client  D^g differs by")
    for n in sizes:
        for aggregation in ("mean", "procrustes"):
            plain = None
            for mode in ("none", "aggregated"):
                with tempfile.TemporaryDirectory() as folder:
                    seconds, down, up, D = measure(n, mode, aggregation, Path(folder))
                plain = D if plain is None else plain
                sizes_ = f"{down / n / 1e3:15.1f}  {up / n / 1e3:16.1f}"
                print(
                    f"{n:7d}  {aggregation:11}  {mode:10}  {seconds:13.3f}  {sizes_}  {np.abs(D - plain).max():14.1e}"
                )


if __name__ == "__main__":
    main([int(n) for n in sys.argv[1:]] or [3, 10, 50])
