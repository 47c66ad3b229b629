"""What ``perdl check`` suggests, against the best of a grid: distance of D^g to the truth on synthetic data.

    python benchmarks/suggested.py

Six shapes of data, three levels of noise, four seeds; four clients each. About five minutes of one core.
"""

from __future__ import annotations

import tempfile
from itertools import product

import numpy as np

from common.data_settings import SyntheticSettings
from common.errors import PerdlError
from common.settings import load_settings
from common.synthetic import generate
from perdl.check.suggest import spectrum, suggest
from perdl.engines.run import simulate

SHAPES = [  # features, global and local atoms, samples, sparsity
    (6, 3, 3, 200, 0.2),
    (20, 3, 3, 300, 0.2),
    (20, 2, 4, 300, 0.2),
    (20, 8, 12, 600, 0.15),
    (64, 8, 8, 400, 0.1),
    (6, 3, 3, 60, 0.2),
]
N_CLIENTS = 4


def main() -> None:
    """Print a row for each run, then the ratios."""
    suggested, preset, exact = [], [], []
    print("| d | r^g + r^l | n | noise | seed | suggested | best of the grid | threshold 0.5 |\n" + "|---" * 8 + "|")
    for shape, noise, seed in product(SHAPES, (0.0, 0.05, 0.1), range(5, 9)):
        d, n_global, n_local, n, sparsity = shape
        synthetic = SyntheticSettings(
            n_features=d, n_global=n_global, n_local=n_local, sparsity=sparsity, noise=noise
        ).model_dump(include={"n_features", "n_global", "n_local", "sparsity", "noise"})
        spectra = [spectrum(generate(seed, f"client-{i + 1}", n_samples=n, **synthetic).data) for i in range(N_CLIENTS)]
        common = {f"synthetic.{key}": value for key, value in synthetic.items()}
        common |= {"n_global": n_global, "data.n_samples": n, "seed": seed}
        r = n_global + n_local
        grid = {
            (atoms, threshold): distance(common | {"n_atoms": atoms} | thresholds(threshold))
            for atoms, threshold in product({r, min(d, 2 * r)}, (0.25, 0.5, 1.0, 2.0))
        }
        mine, best, usual = distance(common | suggest(spectra)), min(grid.values()), grid[min(d, 2 * r), 0.5]
        print(
            f"| {d} | {n_global} + {n_local} | {n} | {noise} | {seed} | {mine:.1e} | {best:.1e} | {usual:.1e} |",
            flush=True,
        )
        if noise:
            suggested.append(mine / best)
            preset.append(usual / best)
        else:
            exact.append(mine)
    for name, ratios in (("suggested", suggested), ("threshold 0.5", preset)):
        print(f"{name}, over the best: median {np.median(ratios):.2f}, largest {max(ratios):.2f}")
    print(f"without noise: at most {max(exact):.1e}")


def thresholds(threshold: float) -> dict[str, float]:
    return {"threshold": threshold, "warmup_threshold": 4 * threshold}


def distance(values: dict[str, object]) -> float:
    """Return d_{1,2} of D^g to the truth; infinite where there are too few usable atoms."""
    with tempfile.TemporaryDirectory() as folder:
        fixed = {"n_clients": N_CLIENTS, "rounds": 30, "threshold_unit": "rms", "output": f"{folder}/run"}
        settings = load_settings(None, [f"{key}={value}" for key, value in (values | fixed).items()])
        try:
            return float(simulate(settings)["final"]["global_distance"])
        except PerdlError:
            return float("inf")


if __name__ == "__main__":
    main()
