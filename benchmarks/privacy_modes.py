"""What each mode of privacy costs: bytes, CPU seconds and error, on made-up data, on MNIST and on sensors of a watch.

    python benchmarks/privacy_modes.py [--seeds 3] [--only synthetic|mnist|watch]

All modes have the same settings; `private` has epsilon 10. Bytes are those of the recorded messages of the rounds, for
each client and round; all clients and the server run in one thread, in turn, so CPU seconds are those of all together.
Synthetic: ten clients of 1,000 samples, distance of D^g from the truth. The others: relative error of each site's
held-out samples with five atoms of [D^g D^l_i], median over the sites. MNIST (14 x 14 pixels) is read from the folder
`PERDL_DATA`/mnist, default ../shared/data; the watch comes with the package seglearn (extra: benchmark).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from flwr.app import Message
from numpy.typing import NDArray

from common.privacy_settings import MODES
from common.protocol import OPEN, UPDATE, natural_key, payload_bytes, unpack
from common.settings import load_settings
from perdl.engines.in_process import run_in_process
from perdl.experiments.real_data import load, missing
from perdl.experiments.real_methods import Centred, errors
from perdl_client.app import app as client_app
from perdl_server.app import app as server_app

Floats = NDArray[np.floating]
EPSILON, ATOMS_A_SAMPLE = 10.0, 5
SYNTHETIC = ["data.n_samples=1000", "rounds=10", "tolerance=0", "warmup_steps=10", "matching=star"]
REAL = ["data.source=files", "n_global=20", "n_atoms=40", "rounds=10", "tolerance=0", "start=svd", "warmup_steps=0"]
REAL += [f"n_nonzero={ATOMS_A_SAMPLE}", "coder=top-k", "aggregation=procrustes", "matching=star", "n_restarts=1"]


@dataclass
class Cost:
    """What one run cost, for each round.

    Parameters
    ----------
    down, up : float
        Bytes to and from a client.
    seconds : float
        CPU seconds of all clients and the server.
    error : float
        How far the result is off.
    """

    down: float
    up: float
    seconds: float
    error: float


def told_of(mode: str, clip: float) -> list[str]:
    """Return the settings of a mode."""
    private = [f"privacy.epsilon={EPSILON}", f"privacy.clip={clip}"] if mode == "private" else []
    return [f"privacy.mode={mode}", *private]


def costs(overrides: list[str], folder: Path) -> Cost:
    """Run a federation; return what it cost, with an error that is not known yet."""
    began: dict[int, float] = {}
    sizes: Counter[bool] = Counter()

    def record(message: Message) -> None:
        if message.metadata.message_type not in (UPDATE, OPEN):
            return
        is_answer = bool(message.metadata.reply_to_message_id)
        sizes[is_answer] += payload_bytes(message.content)
        if not is_answer:
            began.setdefault(int(unpack(message.content).scalars["round"]), time.process_time())

    settings = load_settings(None, [f"output={folder}", *overrides])
    run_in_process(server_app, client_app, settings, record=record, workers=1)
    seconds = np.diff([began[t] for t in sorted(began)])[1:]  # in the first round clients learn each other's keys
    share = settings.n_clients * len(began)
    return Cost(sizes[False] / share, sizes[True] / share, median(seconds.tolist()), float("nan"))


def synthetic(mode: str, seed: int, folder: Path) -> Cost:
    """Return the cost of a run on the paper's made-up data, with the distance of D^g from the truth."""
    cost = costs([*SYNTHETIC, *told_of(mode, 2.0), f"seed={seed}"], folder)
    cost.error = json.loads((folder / "summary.json").read_text())["final"]["global_distance"]
    return cost


def real(name: str, mode: str, seed: int, folder: Path) -> Cost:
    """Return the cost of a run on real data, with the error of held-out samples."""
    data = Centred.of(load(name, seed))
    files = folder / "files"
    files.mkdir(parents=True)
    for site, Y in data.train.items():
        np.save(files / f"{site}.npy", Y.T)
    clip = float(np.median(np.concatenate([np.linalg.norm(Y, axis=0) for Y in data.train.values()])))
    told = [f"n_clients={len(data.train)}", f"data.path={files}/*.npy", *told_of(mode, clip), f"seed={seed}"]
    cost = costs([*REAL, *told], folder / "out")
    dictionaries = {site: model(folder / "out" / "clients" / site) for site in sorted(data.train, key=natural_key)}
    cost.error = median(errors(data, dictionaries, ATOMS_A_SAMPLE).values())
    return cost


def model(folder: Path) -> Floats:
    """Return all atoms of a client, of norm one."""
    with np.load(folder / "dictionary.npz") as file:
        D = np.hstack([file["global"], file["local"]])
    norms = np.linalg.norm(D, axis=0)
    return np.asarray(D[:, norms > 0] / norms[norms > 0])


def row(name: str, mode: str, seeds: int) -> str:
    """Return a row of the table: medians over the seeds."""
    found = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            found.append(synthetic(mode, seed, folder) if name == "synthetic" else real(name, mode, seed, folder))
    down, up, seconds, error = (
        median(getattr(one, key) for one in found) for key in ("down", "up", "seconds", "error")
    )
    return f"| {name} | `{mode}` | {down / 1e3:.2f} | {up / 1e3:.2f} | {seconds:.3f} | {error:.3g} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", choices=("synthetic", "mnist", "watch"))
    args = parser.parse_args()
    print("| data | `privacy` | kB to a client | kB from a client | CPU s a round | error |")
    print("|---|---|---|---|---|---|")
    for name in ("synthetic", "mnist", "watch"):
        if args.only not in (None, name):
            continue
        if name != "synthetic" and (reason := missing(name)):
            print(f"{name} left out: {reason}")
            continue
        for mode in MODES:
            print(row(name, mode, args.seeds), flush=True)


if __name__ == "__main__":
    main()
