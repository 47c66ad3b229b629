"""Chain or star where sites have few samples: on how many seeds D^g is right, with what ``perdl check`` suggests.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/few_samples.py

Orthogonal atoms, noise 0.05, 20 seeds a row, n_global known and "auto". D^g is right if it has as many atoms as the
truth, and none is farther than 0.2 from it. About fifteen minutes of one core.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from common.dictionaries import dictionary_distance
from common.errors import PerdlError
from common.settings import Settings, changed, load_settings
from common.synthetic import generate
from perdl.check.suggest import spectrum, suggest
from perdl.perma import perma
from perdl_client.learning.client import ClientLearner

PRESET = Path(__file__).resolve().parent.parent / "configs" / "files.toml"
SHAPES = (  # sites, features, shared and own atoms, samples of a site
    (10, 8, 3, 3, 20),
    (30, 20, 5, 5, 40),
    (10, 20, 5, 5, 40),
    (3, 20, 5, 5, 40),
    (10, 40, 10, 10, 80),
    (10, 20, 5, 5, 60),
    (10, 8, 3, 3, 40),
    (10, 40, 10, 10, 160),
    (10, 20, 5, 5, 100),
    (10, 20, 5, 5, 200),
)


def is_right(data: dict[str, np.ndarray], firsts: dict[str, np.ndarray], settings: Settings, truth: np.ndarray) -> bool:
    try:
        seed = settings.seed
        learners = [ClientLearner(Y, settings, seed, name, dictionary=firsts[name]) for name, Y in data.items()]
        found = perma(learners, settings)
    except PerdlError:
        return False
    norms = np.linalg.norm(found, axis=0)
    return found.shape == truth.shape and dictionary_distance(found / np.where(norms > 0, norms, 1), truth) <= 0.2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=20)
    told = parser.parse_args()
    head = (
        "sites, features, shared + own, samples, n_atoms, samples an atom, chain, star, chain and auto, star and auto"
    )
    print(f"| {head.replace(', ', ' | ')} |\n{'|---' * 10}|", flush=True)
    for sites, d, n_global, n_local, n in SHAPES:
        right = {(known, star): 0 for known in (True, False) for star in ("chain", "star")}
        atoms = []
        for seed in range(told.seeds):
            facts = {"n_features": d, "n_global": n_global, "n_local": n_local, "noise": 0.05, "n_samples": n}
            truths = {f"site-{i:02d}": generate(seed, f"site-{i:02d}", **facts) for i in range(sites)}
            data = {name: one.data - one.data.mean(axis=1, keepdims=True) for name, one in truths.items()}
            values = suggest([spectrum(Y) for Y in data.values()]) | {"matching": "auto"}
            begin = changed(load_settings(PRESET), seed=seed, **values)
            firsts = {name: ClientLearner(Y, begin, seed, name).dictionary for name, Y in data.items()}
            atoms.append(values["n_atoms"])
            truth = next(iter(truths.values())).global_dictionary
            for known, matching in right:
                asked = values | {"matching": matching, "n_global": n_global if known else "auto"}
                settings = changed(begin, rounds=told.rounds, **asked)
                right[known, matching] += is_right(data, firsts, settings, truth)
        r = float(np.median(atoms))
        row = [sites, d, f"{n_global} + {n_local}", n, f"{r:g}", f"{n / r:.1f}", *right.values()]
        print(f"| {' | '.join(map(str, row))} |", flush=True)


if __name__ == "__main__":
    main()
