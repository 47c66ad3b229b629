"""First dictionaries of large problems: worse starts given up on the way, and `l4`, against ten to the end.

    python benchmarks/starts.py [seeds]

Prints CPU seconds with one BLAS thread, and objectives, by problem. MNIST is read from PERDL_DATA.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.learners import LEARNERS
from common.settings import load_settings
from common.statistics import rms
from common.synthetic import generate
from common.threads import one_blas_thread
from perdl_client.data.mnist import load_mnist
from perdl_client.learning import initialization
from perdl_client.learning.l4_start import l4_start

Floats = NDArray[np.floating]


def planted(seed: int, d: int, r_g: int, n: int, noise: float) -> Floats:
    """Return samples of a planted dictionary of d atoms, as `perdl simulate synthetic` draws them."""
    s = load_settings().synthetic
    return generate(
        seed,
        "client-1",
        n_features=d,
        n_global=r_g,
        n_local=d - r_g,
        n_samples=n,
        sparsity=s.sparsity,
        amplitude=s.amplitude,
        noise=noise,
        absence=0.0,
    ).data


def problems(seed: int) -> Iterator[tuple[str, Floats, int, list[str]]]:
    """Yield name, samples, number of atoms and settings."""
    yield "planted, 50 x 2,000, r 50", planted(seed, 50, 10, 2000, 0.02), 50, []
    yield "planted, 50 x 2,000, r 50, no noise", planted(seed, 50, 10, 2000, 0.0), 50, []
    folder = Path(os.environ.get("PERDL_DATA", "../shared/data")) / "mnist"
    if not folder.exists():
        print(f"no MNIST in {folder}", file=sys.stderr)
        return
    pixels = load_mnist(str(folder), "train")[0]
    chosen = np.random.default_rng(seed).choice(len(pixels), 500, replace=False)
    Y = np.ascontiguousarray(pixels[chosen].reshape(500, -1).T) / 255.0
    yield (
        "MNIST, 784 x 500, r 100, 20 nonzeros",
        Y,
        100,
        ["coder=top-k", "n_nonzero=20", "n_atoms=100", "synthetic.n_features=784"],
    )


def start(Y: Floats, r: int, options: list[str], seed: int, cuts: tuple[float, ...] | None) -> tuple[float, float]:
    """Return CPU seconds and objective of the best of ten starts, the worse half given up after each of ``cuts``.

    Of the start ``l4`` without cuts.
    """
    s = load_settings(None, options)
    learner, coder, size = LEARNERS[s.learner], s.make_coder(rms(Y)), rms(Y)
    rng, schedule = np.random.default_rng(seed), initialization.schedule(s, size)
    began = time.process_time()
    if cuts is None:
        D = l4_start(Y, initialization.random_dictionary(rng, len(Y), r, Y.dtype), schedule["n_steps"])
        D = initialization.warm_up(Y, D, learner, coder, **schedule)
    else:
        initialization._CUTS = cuts
        D = initialization.best_warm_up(Y, r, learner, coder, rng, n_restarts=10, **schedule)
    return time.process_time() - began, initialization.objective(Y, D, coder)


def main() -> None:
    """Print the table."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    found: dict[str, list[list[tuple[float, float]]]] = {}
    with one_blas_thread():
        for seed in range(seeds):
            for name, Y, r, options in problems(seed):
                found.setdefault(name, []).append([start(Y, r, options, seed, cuts) for cuts in ((), CUTS, None)])
    print("| problem | ten to the end, s | with cuts: time | objective (mean / worst) | l4: time | objective |")
    print("|---|---|---|---|---|---|")
    for name, runs in found.items():
        whole, *others = np.array(runs).transpose(1, 2, 0)
        columns = [f"{np.median(whole[0]):.2f}"]
        for one in others:
            ratio = one[1] / whole[1]
            columns += [f"{np.median(one[0] / whole[0]):.2f}", f"{ratio.mean():.4f} / {ratio.max():.4f}"]
        print(f"| {name} | {' | '.join(columns)} |")


CUTS = initialization._CUTS

if __name__ == "__main__":
    main()
