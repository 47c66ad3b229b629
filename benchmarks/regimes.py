"""Settings on made-up data that are hard: atoms that are not orthogonal, and sites of few samples.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/regimes.py

Ten sites, d = 20, 5 shared and 5 own atoms, noise 0.05, the preset ``files`` with r^g known, each row on four seeds:
distance of D^g (atoms of norm 1) to the truth, median and largest, beside least squares that know the codes. About five
minutes of one core.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from common.dictionaries import dictionary_distance
from common.errors import PerdlError
from common.rng import stream
from common.settings import changed, load_settings
from common.synthetic import ClientTruth, generate
from perdl.check.suggest import spectrum, suggest
from perdl.experiments.oracle import oracle_global_dictionary
from perdl.perma import perma
from perdl_client.learning.client import ClientLearner

PRESET = Path(__file__).resolve().parent.parent / "configs" / "files.toml"
D, R_G, R_L, N, NOISE = 20, 5, 5, 10, 0.05

Choice = dict[str, object]
GRADIENT: Choice = {
    "learner": "gradient",
    "n_atoms": R_G + R_L,
    "n_restarts": 4,
    "local_restarts": 0,
}  # restarts are slow
TEN: Choice = {"n_atoms": R_G + R_L}

ROWS: dict[str, Choice] = {
    "preset": {},
    "check's": {"suggested": True},
    "check's, star": {"suggested": True, "matching": "star"},
    "check's, star, procrustes": {"suggested": True, "matching": "star", "aggregation": "procrustes"},
    "n_atoms 10, hard-threshold 0.5": TEN,
    "n_atoms 10, hard-threshold 1": TEN | {"threshold": 1.0, "warmup_threshold": 4.0},
    "n_atoms 10, hard-threshold 1, procrustes": TEN
    | {"threshold": 1.0, "warmup_threshold": 4.0, "aggregation": "procrustes"},
    "n_atoms 10, top-k 3": TEN | {"coder": "top-k", "n_nonzero": 3},
    "gradient, n_atoms 10, hard-threshold 1": GRADIENT | {"threshold": 1.0, "warmup_threshold": 4.0},
    "gradient, n_atoms 10, omp 2": GRADIENT | {"coder": "omp", "n_nonzero": 2},
    "gradient, n_atoms 10, omp 3": GRADIENT | {"coder": "omp", "n_nonzero": 3},
    "gradient, n_atoms 10, omp 3, normalized": GRADIENT | {"coder": "omp", "n_nonzero": 3, "aggregation": "normalized"},
    "gradient, n_atoms 10, omp 3, svd": GRADIENT | {"coder": "omp", "n_nonzero": 3, "start": "svd"},
}

ROWS |= {
    f"coordinate, n_atoms 10, omp {k}": GRADIENT | {"learner": "coordinate", "coder": "omp", "n_nonzero": k}
    for k in (2, 3)
} | {
    "coordinate, n_atoms 10, omp-threshold 0.5": GRADIENT
    | {"learner": "coordinate", "coder": "omp-threshold", "threshold": 0.5, "warmup_threshold": 2.0}
}


def orthogonal(seed: int, n: int) -> dict[str, ClientTruth]:
    names = [f"site-{i:02d}" for i in range(N)]
    facts = {"n_features": D, "n_global": R_G, "n_local": R_L, "noise": NOISE}
    return {name: generate(seed, name, n_samples=n, **facts) for name in names}


def oblique(seed: int, n: int) -> dict[str, ClientTruth]:
    """The same codes and noise with random unit atoms."""
    shared = unit(stream(seed, "", "oblique").standard_normal((D, R_G)))
    made = {}
    for name, truth in orthogonal(seed, n).items():
        own = unit(stream(seed, name, "oblique").standard_normal((D, R_L)))
        noise = truth.data - np.hstack([truth.global_dictionary, truth.local_dictionary]) @ truth.codes
        Y = np.hstack([shared, own]) @ truth.codes + noise
        made[name] = replace(truth, data=Y, global_dictionary=shared, local_dictionary=own)
    return made


def unit(G: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(G, axis=0)
    return G / np.where(norms > 0, norms, 1)


REGIMES = {
    "atoms not orthogonal, 400 samples a site": lambda seed: oblique(seed, 400),
    "orthogonal atoms, 40 samples a site": lambda seed: orthogonal(seed, 40),
    "orthogonal atoms, 400 samples a site": lambda seed: orthogonal(seed, 400),
}


def distance(truths: dict[str, ClientTruth], choice: Choice, seed: int, rounds: int) -> float:
    """Distance of D^g to the truth; NaN if the run ended with an error."""
    data = {name: truth.data - truth.data.mean(axis=1, keepdims=True) for name, truth in truths.items()}
    values = {key: value for key, value in choice.items() if key != "suggested"}
    if choice.get("suggested"):
        values |= suggest([spectrum(Y) for Y in data.values()])
    settings = changed(load_settings(PRESET), seed=seed, n_global=R_G, rounds=rounds, **values)
    try:
        found = perma([ClientLearner(Y, settings, seed, name) for name, Y in data.items()], settings)
    except PerdlError:
        return float("nan")
    return dictionary_distance(unit(found), next(iter(truths.values())).global_dictionary)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=50)
    told = parser.parse_args()
    for title, make in REGIMES.items():
        problems = [make(seed) for seed in range(told.seeds)]
        oracle = [
            dictionary_distance(
                oracle_global_dictionary(list(one.values())), next(iter(one.values())).global_dictionary
            )
            for one in problems
        ]
        print(f"\n{title}: least squares with codes known {np.median(oracle):.3f}\n")
        print("| settings | median | largest | within 1.5 of it |\n|---|---|---|---|", flush=True)
        for name, choice in ROWS.items():
            off = np.array([distance(one, choice, seed, told.rounds) for seed, one in enumerate(problems)])
            near = int((off <= 1.5 * np.array(oracle)).sum())
            print(f"| {name} | {np.nanmedian(off):.3f} | {off.max():.3f} | {near} of {len(off)} |", flush=True)


if __name__ == "__main__":
    main()
