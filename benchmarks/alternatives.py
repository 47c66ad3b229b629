"""What else one could do: PCA, dictionary learning and AJIVE, each at every site or on pooled samples, against perdl.

    pip install scikit-learn
    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/alternatives.py

One run, the same samples for all. A method learns from the sites' training samples. Then each site writes held-out
samples with k numbers each: its own, and those of the other sites.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.coders import omp
from common.synthetic import generate
from perdl import PerDL
from perdl.check.suggest import spectrum, suggest
from perdl.experiments.ajive import ajive
from perdl.experiments.real_methods import learnt_atoms

Floats = NDArray[np.floating]
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Problem:
    """Samples in rows, by site; k numbers for a sample, r atoms at most, r_g of them shared."""

    train: dict[str, Floats]
    test: dict[str, Floats]
    k: int
    r: int
    r_g: int
    learning: dict[str, object]

    @property
    def mean(self) -> Floats:
        return np.concatenate(list(self.train.values())).mean(axis=0)

    @property
    def d(self) -> int:
        return len(self.mean)


@dataclass(frozen=True)
class Basis:
    """What a site writes samples with: its mean, and atoms in rows."""

    mean: Floats
    atoms: Floats

    def write(self, X: Floats, k: int) -> Floats:
        Y = (X - self.mean).T
        return self.mean + (self.atoms.T @ omp(Y, self.atoms.T, min(k, len(self.atoms)))).T


Write = Callable[[str, Floats, int], Floats]
Found = tuple[Write, float]
"""A function of site, samples and k that returns the samples as written, and how many numbers left a site."""


# The methods.


def pca_basis(X: Floats, r: int) -> Basis:
    mean = X.mean(axis=0)
    return Basis(mean, np.linalg.svd(X - mean, full_matrices=False)[2][:r])


def learnt_basis(X: Floats, problem: Problem) -> Basis:
    """Of scikit-learn's dictionary learning, the penalty that writes the training samples best."""
    mean = X.mean(axis=0)
    return Basis(mean, learnt_atoms((X - mean).T, problem.r, problem.k).T)


def per_site(problem: Problem, learn: Callable[[Floats], Basis]) -> Found:
    bases = {name: learn(X) for name, X in problem.train.items()}
    return lambda site, X, k: bases[site].write(X, k), 0


def pooled(problem: Problem, learn: Callable[[Floats], Basis]) -> Found:
    basis = learn(np.concatenate(list(problem.train.values())))
    return lambda site, X, k: basis.write(X, k), np.mean([X.size for X in problem.train.values()])


def by_ajive(problem: Problem) -> Found:
    means = {name: X.mean(axis=0) for name, X in problem.train.items()}
    rank = min(problem.r, problem.d // 2)  # larger spaces meet by necessity
    joint, own = ajive({name: (X - means[name]).T for name, X in problem.train.items()}, rank)
    bases = {name: Basis(means[name], np.hstack([joint, own[name]]).T) for name in own}
    return lambda site, X, k: bases[site].write(X, k), rank * problem.d


def by_perdl(problem: Problem, **learning: object) -> Found:
    model = PerDL(center=True, **learning)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(problem.train)
    travelled = sum(phase["to_server"] for phase in model.summary_["bytes"].values())
    left = 0 if learning["n_global"] == 0 else travelled / 8 / len(problem.train)
    return lambda site, X, k: model.reconstruct(X, site, k), left


def suggested(problem: Problem) -> dict[str, object]:
    """What `perdl check` says of these samples."""
    return {"n_global": "auto", **suggest([spectrum(X.T) for X in problem.train.values()])}


METHODS: dict[str, Callable[[Problem], Found]] = {
    "PCA at each site, k components": lambda p: per_site(p, lambda X: pca_basis(X, p.k)),
    "PCA at each site, k of r for each sample": lambda p: per_site(p, lambda X: pca_basis(X, p.r)),
    "dictionary learning at each site": lambda p: per_site(p, lambda X: learnt_basis(X, p)),
    "perdl, each site alone": lambda p: by_perdl(p, n_global=0, **p.learning),
    "AJIVE": by_ajive,
    "perdl, set by hand": lambda p: by_perdl(p, n_global=p.r_g, **p.learning),
    "perdl, as `perdl check` suggests": lambda p: by_perdl(p, **suggested(p)),
    "*pooled:* PCA, k components": lambda p: pooled(p, lambda X: pca_basis(X, p.k)),
    "*pooled:* PCA, k of r for each sample": lambda p: pooled(p, lambda X: pca_basis(X, p.r)),
    "*pooled:* dictionary learning": lambda p: pooled(p, lambda X: learnt_basis(X, p)),
}


# The data.


def digits(seed: int) -> Problem:
    """Five sites of 122 scans of digits; nine of ten of a site's are of two kinds, others at each site."""
    from sklearn.datasets import load_digits

    data, rng = load_digits(), np.random.default_rng(seed)
    order = rng.permutation(len(data.data))
    heaps = [list(order[data.target[order] == digit]) for digit in range(10)]
    sites = [f"site-{i + 1}" for i in range(5)]

    def deal(many: int, few: int) -> dict[str, Floats]:
        held = [[heaps[c].pop() for c in range(10) for _ in range(many if c // 2 == i else few)] for i in range(5)]
        return {site: data.data[rows] / 16 for site, rows in zip(sites, held, strict=True)}

    learning = {"n_atoms": 40, "coder": "top-k", "n_nonzero": 10, "start": "svd", "warmup_steps": 0}
    learning |= {"local_restarts": 0, "min_usage": 0.0, "aggregation": "procrustes", "seed": seed}
    return Problem(deal(45, 4), deal(24, 2), 5, 40, 20, learning)


def planted(seed: int) -> Problem:
    """Six sites, three of them with 30 samples instead of 300: 6 shared atoms and 6 own ones of 24 features, noise."""
    train, test = {}, {}
    for i in range(6):
        n, name = (30 if i % 2 else 300), f"site-{i + 1}"
        X = generate(
            seed, name, n_features=24, n_global=6, n_local=6, n_samples=n + 200, sparsity=0.2, noise=0.1
        ).data.T
        train[name], test[name] = X[:n], X[n:]
    learning = {"n_atoms": 12, "threshold": 0.3, "warmup_threshold": 1.2, "aggregation": "energy", "seed": seed}
    return Problem(train, test, 3, 12, 6, learning)


def breast_cancer(seed: int) -> Problem:
    """Five sites of 80 patients, 30 measures divided by constants that all agree on; dealt by chance."""
    from sklearn.datasets import load_breast_cancer

    X = load_breast_cancer().data
    X = np.random.default_rng(seed).permutation((X - X.mean(axis=0)) / X.std(axis=0))
    parts = {f"site-{i + 1}": part for i, part in enumerate(np.array_split(X, 5))}
    learning = {"n_atoms": 20, "threshold": 0.5, "threshold_unit": "rms", "warmup_threshold": 2.0, "seed": seed}
    train, test = ({name: part[a:b] for name, part in parts.items()} for a, b in ((0, 80), (80, None)))
    return Problem(train, test, 5, 20, 10, learning)


DATA: dict[str, Callable[[int], Problem]] = {
    "Digits": digits,
    "Planted sparse atoms, three weak sites of six": planted,
    "Breast cancer": breast_cancer,
}


def errors(problem: Problem, write: Write) -> tuple[float, float]:
    """Relative errors of held-out samples, off the pooled mean: a site's own, and those of the others; sites' means."""
    own, others = [], []
    for site in problem.train:
        for into, names in ((own, [site]), (others, [name for name in problem.test if name != site])):
            X = np.concatenate([problem.test[name] for name in names])
            into.append(np.linalg.norm(X - write(site, X, problem.k)) / np.linalg.norm(X - problem.mean))
    return float(np.mean(own)), float(np.mean(others))


def measure(problem: Problem, method: Callable[[Problem], Found]) -> tuple[float, float, float, float]:
    """Errors on own and others' samples, numbers that left a site, CPU seconds of learning."""
    began = time.process_time()
    write, left = method(problem)
    took = time.process_time() - began
    return *errors(problem, write), left, took


def main() -> None:
    for name, make in DATA.items():
        problems = [make(seed) for seed in SEEDS]
        one = problems[0]
        print(f"\n{name}: d = {one.d}, {len(one.train)} sites, k = {one.k}, r = {one.r}; {make.__doc__}\n")
        print("| method | own samples | others' samples | numbers that leave a site | CPU s |\n|---|---|---|---|---|")
        for what, method in METHODS.items():
            own, others, left, took = np.mean([measure(problem, method) for problem in problems], axis=0)
            print(f"| {what} | {own:.3f} | {others:.3f} | {left:,.0f} | {took:.2f} |", flush=True)


if __name__ == "__main__":
    main()
