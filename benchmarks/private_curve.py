"""What differential privacy costs: error over epsilon and samples per client, on made-up data and on MNIST.

    python benchmarks/private_curve.py [--seeds 5] [--only synthetic|mnist]

Synthetic: the paper's ten clients, distance of D^g from the truth. MNIST: ten clients of mostly one digit each,
relative error of test images with five atoms of the shared dictionary alone; beside it a run without noise. MNIST is
read from the folder `PERDL_DATA`/mnist, default ../shared/data.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import perdl
from common.coders import omp
from perdl_client.data.mnist import load_mnist

Floats = NDArray[np.floating]
EPSILONS = (1.0, 3.0, 10.0, 30.0)
SAMPLES = (500, 2000, 5000)
MNIST = Path(os.environ.get("PERDL_DATA", "../shared/data")) / "mnist"


def run(preset: str, values: dict[str, Any], epsilon: float | None, clip: float) -> tuple[dict[str, Any], Floats]:
    """Return summary and D^g of one simulated run; without epsilon it has no noise."""
    private = {"mode": "private", "epsilon": epsilon, "clip": clip} if epsilon else {"mode": "none"}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = perdl.simulate(preset, settings={**values, "privacy": private}, output=f"{folder}/run")
        return result.summary, result.global_dictionary


def synthetic(n: int, epsilon: float | None, seeds: int) -> list[float]:
    """Distance of D^g from the truth, by seed."""
    values = {"rounds": 10, "warmup_steps": 10, "data.n_samples": n, "matching": "star"}
    return [run("synthetic", {**values, "seed": s}, epsilon, 2.0)[0]["final"]["global_distance"] for s in range(seeds)]


def mnist(n: int, epsilon: float | None, seeds: int) -> list[float]:
    """Relative error of 500 test images with five shared atoms, by seed."""
    pixels, _ = load_mnist(str(MNIST), "test")
    Z = np.ascontiguousarray(pixels[:500].T) / 255.0
    values = {
        "data.path": str(MNIST), "data.n_samples": n, "n_atoms": 60, "n_global": 40, "rounds": 4, "start": "svd",
        "warmup_steps": 0, "aggregation": "procrustes", "coder": "top-k", "n_nonzero": 5, "matching": "star",
    }  # fmt: skip
    found = []
    for seed in range(seeds):
        _, D = run("mnist-best", {**values, "seed": seed}, epsilon, 9.0)
        D = D / np.linalg.norm(D, axis=0)
        found.append(float(np.linalg.norm(Z - D @ omp(Z, D, 5)) / np.linalg.norm(Z)))
    return found


def main() -> None:
    """Print one table for each data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", choices=("synthetic", "mnist"))
    args = parser.parse_args()
    for name, measure in (("synthetic", synthetic), ("mnist", mnist)):
        if args.only not in (None, name):
            continue
        if name == "mnist" and not MNIST.exists():
            print(f"mnist left out: {MNIST} is not there (set PERDL_DATA)")
            continue
        print(f"\n{name}: median (worst) of {args.seeds} seeds")
        print("| samples a client | " + " | ".join(f"epsilon {e:g}" for e in EPSILONS) + " | no noise |")
        print("|---|" + "---|" * (len(EPSILONS) + 1))
        for n in SAMPLES:
            cells = []
            for epsilon in (*EPSILONS, None):
                d = measure(n, epsilon, args.seeds)
                cells.append(f"{np.median(d):.2g} ({max(d):.2g})")
            print(f"| {n} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
