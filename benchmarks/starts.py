"""First dictionaries of large problems: worse starts given up on the way, and `l4`, against ten to the end.

    python benchmarks/starts.py [seeds]
    python benchmarks/starts.py samples [seeds]
    python benchmarks/starts.py learners [seeds]

Prints CPU seconds with one BLAS thread, and objectives, by problem; with `samples`, the share of planted atoms that
starts of the preset `files` find of how many samples; with `learners`, what `l4` does for atoms of any angle, after the
start and after 30 steps more. MNIST is read from PERDL_DATA.
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
from common.learning_settings import LearningSettings
from common.settings import load_settings
from common.statistics import rms
from common.synthetic import generate
from common.threads import one_blas_thread
from perdl_client.data.mnist import load_mnist
from perdl_client.learning import warm_up
from perdl_client.learning.initialization import first_dictionary, schedule
from perdl_client.learning.l4_start import l4_start

Floats = NDArray[np.floating]


def planted(seed: int, d: int, r_g: int, r_l: int, n: int, noise: float) -> tuple[Floats, Floats]:
    """Return samples of a planted dictionary, as `perdl simulate synthetic` draws them, and its atoms."""
    s = load_settings().synthetic
    kind = {"sparsity": s.sparsity, "amplitude": s.amplitude, "noise": noise, "absence": 0.0}
    made = generate(seed, "client-1", n_features=d, n_global=r_g, n_local=r_l, n_samples=n, **kind)
    return made.data, np.hstack([made.global_dictionary, made.local_dictionary])


def problems(seed: int) -> Iterator[tuple[str, Floats, int, list[str]]]:
    """Yield name, samples, number of atoms and settings."""
    yield "planted, 50 x 2,000, r 50", planted(seed, 50, 10, 40, 2000, 0.02)[0], 50, []
    yield "planted, 50 x 2,000, r 50, no noise", planted(seed, 50, 10, 40, 2000, 0.0)[0], 50, []
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
    rng, how = np.random.default_rng(seed), schedule(s, size)
    began = time.process_time()
    if cuts is None:
        D = l4_start(Y, warm_up.random_dictionary(rng, len(Y), r, Y.dtype), how["n_steps"])
        D = warm_up.warm_up(Y, D, learner, coder, **how)
    else:
        warm_up._CUTS = cuts
        D = warm_up.best_warm_up(Y, r, learner, coder, rng, n_restarts=10, **how)
    return time.process_time() - began, warm_up.objective(Y, D, coder)


def share_found(truth: Floats, D: Floats) -> float:
    """Return the share of true atoms that an atom of D has a cosine of 0.99 to."""
    return float(np.mean(np.abs(truth.T @ D / np.linalg.norm(D, axis=0)).max(axis=1) > 0.99))


def by_samples(seeds: int) -> None:
    """Print how many planted atoms starts find of how many samples, and objectives of `l4` over those of ten starts."""
    print("| d | planted | n_atoms | samples | found by warm-up | by l4 | objective (median / worst) |")
    print("|---|---|---|---|---|---|---|")
    for d, half, r in ((12, 6, 12), (20, 5, 10), (20, 5, 20), (30, 15, 30), (40, 10, 20), (40, 10, 40)):
        for n in (2 * d, 3 * d, 5 * d, 20 * d):
            found, ratios = [], []
            for seed in range(seeds):
                Y, truth = planted(seed, d, half, half, n, 0.05)
                starts = [load_settings(FILES, [f"n_atoms={r}", f"start={one}"]) for one in ("warm-up", "l4")]
                ends = [first_dictionary(Y, s, seed, "client-1", min_samples=5) for s in starts]
                found.append([share_found(truth, D) for D in ends])
                coder = starts[0].make_coder(rms(Y))
                ratios.append(warm_up.objective(Y, ends[1], coder) / warm_up.objective(Y, ends[0], coder))
            shares = " | ".join(f"{share:.2f}" for share in np.mean(found, axis=0))
            print(f"| {d} | {2 * half} | {r} | {n} | {shares} | {np.median(ratios):.3f} / {max(ratios):.3f} |")


def of_any_angle(seed: int) -> Iterator[tuple[str, Floats, Floats | None, int, int]]:
    """Yield name, samples, planted atoms, number of atoms and nonzeros of a sample."""
    for d, r, n in ((30, 30, 1000), (30, 12, 150)):
        rng = np.random.default_rng(seed)
        D = rng.standard_normal((d, r)) + 0.3 * rng.standard_normal((d, 1))
        D /= np.linalg.norm(D, axis=0)
        X = rng.standard_normal((r, n)) * (rng.permuted(np.tile(np.arange(r) < 3, (n, 1)), axis=1).T)
        yield f"planted, {d} x {n:,}, r {r}", D @ X + 0.01 * rng.standard_normal((d, n)), D, r, 3
    for _, Y, _, options in problems(seed):
        if options:
            yield "MNIST, 784 x 500, r 30", Y, None, 30, 5


def by_learner(seeds: int) -> None:
    """Print how `l4` compares with ten random starts for learners whose atoms have any angle."""
    found: dict[tuple[str, str], list[list[float]]] = {}
    for seed in range(seeds):
        for name, Y, truth, r, k in of_any_angle(seed):
            for learner, coder in (("coordinate", "ols"), ("online", "ols"), ("gradient", "omp")):
                row = []
                for first in ("warm-up", "l4"):
                    told = LearningSettings(learner=learner, coder=coder, n_nonzero=k, n_atoms=r, start=first)
                    began = time.process_time()
                    D = first_dictionary(Y, told, seed, "client-1", min_samples=5)
                    row += [time.process_time() - began]
                    c = told.make_coder(rms(Y))
                    for steps in (0, 30):
                        for _ in range(steps):
                            D = LEARNERS[learner].take(Y, D, c, told.step_size).dictionary
                        row += [warm_up.objective(Y, D, c), np.nan if truth is None else share_found(truth, D)]
                found.setdefault((name, f"{learner}, {coder}"), []).append(row)
    print("| problem | learner | l4: time | objective, start | after 30 steps | atoms found, start | after 30 steps |")
    print("|---|---|---|---|---|---|---|")
    for (name, learner), rows in found.items():
        a, b = np.split(np.array(rows), 2, axis=1)
        shares = zip(a.mean(axis=0), b.mean(axis=0), strict=True)
        ratio = np.median(b[:, [0, 1, 3]] / a[:, [0, 1, 3]], axis=0)
        atoms = ["-" if np.isnan(x) else f"{x:.2f} -> {y:.2f}" for x, y in shares]
        print(f"| {name} | {learner} | {ratio[0]:.2f} | {ratio[1]:.2f} | {ratio[2]:.2f} | {atoms[2]} | {atoms[4]} |")


def by_problem(seeds: int) -> None:
    """Print time and objective of starts with cuts, and of `l4`, over those of ten starts to the end."""
    found: dict[str, list[list[tuple[float, float]]]] = {}
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


def main() -> None:
    """Print a table."""
    tables = {"samples": by_samples, "learners": by_learner}
    named = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] in tables else ""
    seeds = sys.argv[2 if named else 1 :]
    with one_blas_thread():
        tables.get(named, by_problem)(int(seeds[0]) if seeds else 5)


FILES = Path(__file__).resolve().parent.parent / "configs" / "files.toml"
CUTS = warm_up._CUTS

if __name__ == "__main__":
    main()
