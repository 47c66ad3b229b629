"""Dictionary learning of one client's samples, beside SPAMS, scikit-learn and dictlearn: time to a given error.

    pip install pillow scikit-learn spams-bin dictlearn
    python benchmarks/dictionary_learning.py [--runs 5] [--quick] [--only A|B]

A: 500 images of MNIST (784 features), the first 450 of digit 8 and the first 50 of others in the training set, 100
atoms, 20 nonzeros. B: 10,000 patches of 8 x 8 grey pixels (64 features) at random places of the frames of the video
vtest, each less its mean and scaled to norm 1, 128 atoms, 8 nonzeros. Both are read from the folder `PERDL_DATA`,
default ../shared/data.

Each method runs with several settings, and as long as a budget allows. All dictionaries are measured in the same way,
by ||Y - DX||^2 / ||Y||^2 with X of our coder `ols`, which finds the same codes as SPAMS' own. Time is CPU time with one
BLAS thread, without this measurement; starts count. It is the median of some runs, in turns, so that all methods
suffer alike from what else the machine does. A peer that is not there is left out, and said to be.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from threadpoolctl import threadpool_limits

from common.coders import OLS, OMP, ols
from common.learners import LEARNERS
from perdl_client.data.mnist import load_mnist
from perdl_client.learning.samples_start import samples_start
from perdl_client.learning.warm_up import random_dictionary

Floats = NDArray[np.floating]
Point = tuple[str, float, Floats]
DATA = Path(os.environ.get("PERDL_DATA", "../shared/data"))


@dataclass(frozen=True)
class Problem:
    """Samples (d, n), how many atoms, nonzeros a sample, and the errors to reach."""

    name: str
    Y: Floats
    r: int
    k: int
    targets: tuple[float, ...]

    def error(self, D: Floats) -> float:
        X = ols(self.Y, D.astype(self.Y.dtype), self.k)
        return float(np.linalg.norm(self.Y - D @ X) ** 2 / np.linalg.norm(self.Y) ** 2)


def images() -> Problem:
    pixels, digits = load_mnist(str(DATA / "mnist"), "train")
    chosen = np.concatenate([np.flatnonzero(digits == 8)[:450], np.flatnonzero(digits != 8)[:50]])
    return Problem("A", pixels[chosen].T / 255.0, 100, 20, (0.065, 0.060, 0.0575, 0.055, 0.0525))


def patches() -> Problem:
    files = sorted((DATA / "video-vtest" / "frames").glob("*.jpg"))
    frames = np.stack([np.asarray(Image.open(file).convert("L"), float) for file in files])
    rng, n = np.random.default_rng(0), 10_000
    where = [rng.integers(0, size - edge, n) for size, edge in zip(frames.shape, (0, 7, 7), strict=True)]
    Y = np.stack([frames[f, y : y + 8, x : x + 8].ravel() for f, y, x in zip(*where, strict=True)], axis=1)
    Y -= Y.mean(axis=0)
    sizes = np.linalg.norm(Y, axis=0)
    return Problem("B", Y / np.where(sizes > 0, sizes, 1), 128, 8, (0.085, 0.080, 0.0775, 0.075, 0.072))


# Methods: each yields what it was told, CPU seconds so far, and the dictionary (d, r).


def stepped(learner: str, coder: type[OMP], start: str, dtype: type) -> Callable[[Problem, int], Iterator[Point]]:
    def run(p: Problem, seed: int) -> Iterator[Point]:
        Y, rng = p.Y.astype(dtype), np.random.default_rng(seed)
        began, measured = time.process_time(), 0.0
        D = samples_start(Y, p.r, rng) if start == "samples" else random_dictionary(rng, len(Y), p.r, Y.dtype)
        for t in range(1, 31 if p.name == "A" else 7):
            D = LEARNERS[learner].take(Y, D, coder(p.k), 0.5).dictionary
            pause = time.process_time()
            yield f"{t} steps", pause - began - measured, D
            measured += time.process_time() - pause

    return run


def timed(train: Callable[[], Floats]) -> tuple[float, Floats]:
    began = time.process_time()
    D = train()
    return time.process_time() - began, D


def spams(dtype: type) -> Callable[[Problem, int], Iterator[Point]]:
    def run(p: Problem, seed: int) -> Iterator[Point]:
        train = importlib.import_module("spams").trainDL
        Y = np.asfortranarray(p.Y.astype(dtype))
        for size in (64, 128, 256, 512):
            for steps in (5, 10, 20, 40, 80, 160):
                if size * steps <= (21_000 if p.name == "A" else 82_000):
                    told = {"K": p.r, "lambda1": p.k, "mode": 3, "iter": steps, "batchsize": size}
                    found = timed(lambda told=told: train(Y, **told, numThreads=1, verbose=False))
                    yield f"{steps} blocks of {size}", *found

    return run


def scikit_learn(method: str) -> Callable[[Problem, int], Iterator[Point]]:
    def run(p: Problem, seed: int) -> Iterator[Point]:
        kind = importlib.import_module("sklearn.decomposition").MiniBatchDictionaryLearning
        Y = np.ascontiguousarray(p.Y.T)
        for alpha in (0.1, 0.3):
            for epochs in ((10, 40) if p.name == "A" else (1, 3)) if method == "cd" else (2,):
                told = {"alpha": alpha, "max_iter": epochs, "batch_size": 256, "fit_algorithm": method}
                model = kind(p.r, **told, tol=0, max_no_improvement=None, random_state=seed)
                seconds, _ = timed(lambda model=model: model.fit(Y))
                yield f"alpha {alpha}, {epochs} epochs", seconds, model.components_.T

    return run


def dictlearn(p: Problem, seed: int) -> Iterator[Point]:
    peer = importlib.import_module("dictlearn")
    Y = np.ascontiguousarray(p.Y.T)
    many = (3, 10) if p.name == "A" else (2, 5)
    fits = [(peer.DictionaryLearning, {"fit_algorithm": "aksvd"}, "aksvd", many)]
    fits += [(peer.MiniBatchDictionaryLearning, {"batch_size": 256}, "online", many)]
    for kind, told, name, steps in fits:
        for count in steps:
            start = samples_start(p.Y, p.r, np.random.default_rng(seed)).T
            told = {**told, "n_nonzero_coefs": p.k, "max_iter": count, "transform_algorithm": "batch_omp"}
            model = kind(p.r, **told, dict_init=start, random_state=seed)
            seconds, _ = timed(lambda model=model: model.fit(Y))
            yield f"{name}, {count} epochs", seconds, model.components_.T


METHODS: dict[str, tuple[str, Callable[[Problem, int], Iterator[Point]]]] = {
    "perdl online, ols, samples": ("", stepped("online", OLS, "samples", np.float64)),
    "perdl online, ols, samples, float32": ("", stepped("online", OLS, "samples", np.float32)),
    "perdl online, ols, random": ("", stepped("online", OLS, "random", np.float64)),
    "perdl online, omp, samples": ("", stepped("online", OMP, "samples", np.float64)),
    "perdl coordinate, ols, samples": ("", stepped("coordinate", OLS, "samples", np.float64)),
    "SPAMS": ("spams", spams(np.float64)),
    "SPAMS, float32": ("spams", spams(np.float32)),
    "scikit-learn mini-batch, cd": ("sklearn", scikit_learn("cd")),
    "scikit-learn mini-batch, lars": ("sklearn", scikit_learn("lars")),
    "dictlearn": ("dictlearn", dictlearn),
}
SLOW = ("scikit-learn", "dictlearn")
"""These run once."""


def missing(module: str) -> str:
    """Why a method cannot run; empty if it can."""
    try:
        if module:
            importlib.import_module(module)
    except ImportError as error:
        return f"{module} is not installed ({error})"
    return ""


def measure(p: Problem, runs: int, *, quick: bool) -> None:
    points: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for run in range(runs):
        for name, (module, method) in METHODS.items():
            if missing(module) or (name.startswith(SLOW) and (quick or run > 0)):
                continue
            for label, seconds, D in method(p, run):
                points.setdefault(name, {}).setdefault(label, []).append((seconds, p.error(D)))
    print(f"\n**Problem {p.name}**: {p.Y.shape[0]} x {p.Y.shape[1]}, {p.r} atoms, {p.k} nonzeros\n")
    print("| method | " + " | ".join(f"{target:g}" for target in p.targets) + " | least error, at s |")
    print("|---" * (len(p.targets) + 2) + "|")
    for name, (module, _) in METHODS.items():
        if why := missing(module):
            print(f"| {name} | left out: {why} |")
            continue
        if name not in points:
            continue
        found = []
        for label, pairs in points[name].items():
            seconds, errors = np.array(pairs).T
            found.append((float(np.median(seconds)), seconds.min(), seconds.max(), float(np.median(errors)), label))
        cells = []
        for target in p.targets:
            reached = [one for one in found if one[3] <= target]
            best = min(reached, default=None)
            cells.append("-" if best is None else f"{best[0]:.3f} ({best[1]:.3f}-{best[2]:.3f}; {best[4]})")
        least = min(found, key=lambda one: one[3])
        print(f"| {name} | " + " | ".join(cells) + f" | {least[3]:.4f}, {least[0]:.2f} |", flush=True)


def machine() -> None:
    names = ("numpy", "scipy", "scikit-learn", "spams-bin", "dictlearn")
    found = []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except ImportError:
            continue
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(
        f"{model}, {os.cpu_count()} cores, load {load}; Python {platform.python_version()}, {', '.join(found)}; "
        "one BLAS thread; CPU s: median (least-largest; settings)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="without scikit-learn and dictlearn, which are slow")
    parser.add_argument("--only", choices=("A", "B"))
    told = parser.parse_args()
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        machine()
        for name, make in (("A", images), ("B", patches)):
            if told.only in (None, name):
                measure(make(), told.runs, quick=told.quick)


if __name__ == "__main__":
    main()
