"""What the guard costs the paper's synthetic experiment: how often all is recovered exactly, without and with it.

    python benchmarks/guard_cost.py

Ten clients without noise, 12 seeds; exact is 1e-6 for D^g and every client's own atoms. In both columns an atom is
offered if five samples use it.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

import perdl

SAMPLES, SEEDS = (200, 100, 60, 40), 12


def recovered(n_samples: int, mode: str, seed: int) -> tuple[bool, int]:
    """Return whether all atoms were found, and after how many rounds."""
    told = {
        "data.n_samples": n_samples,
        "rounds": 100,
        "tolerance": 1e-9,
        "seed": seed,
        "privacy": mode,
        "min_samples": 5,
        "synthetic.noise": 0.0,
        "evaluation.held_out": 0,
    }
    with tempfile.TemporaryDirectory() as folder:
        summary = perdl.simulate("synthetic", told, output=Path(folder) / "run").summary
    final = summary["final"]
    return max(final["global_distance"], final["local_distance_max"]) < 1e-6, summary["rounds"]


def main() -> None:
    seeds = range(2 if "--quick" in sys.argv else SEEDS)
    warnings.simplefilter("ignore")
    print("| samples a client (users of an atom) | no guard | guard |")
    print("|---|---|---|")
    for n in SAMPLES:
        cells = []
        for mode in ("none", "guarded"):
            runs = [recovered(n, mode, seed) for seed in seeds]
            exact, rounds = sum(found for found, _ in runs), np.median([count for _, count in runs])
            cells.append(f"{exact} of {len(runs)}, {rounds:g} rounds")
        print(f"| {n} ({n // 5}) | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
