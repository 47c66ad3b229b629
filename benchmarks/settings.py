"""Which settings write held-out samples best on real data: a grid for the preset ``files``.

    pip install "perdl[benchmark]"
    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/settings.py coders learners coordinate aggregations atoms

Each set has four sites at most, of 300 samples at most; 15 rounds, two random starts. Samples are centred at each site.
Federated is the better of a quarter and half of the atoms shared. A row is one choice: the median and the worst, over
sets, of its error over the best row's in that set, at k = 3 and 5 atoms a sample. Results go to ``settings.json`` as
they come, and are not computed again. About 40 minutes of one core in all; ``--sets digits,wine`` for some.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from common.errors import PerdlError
from common.settings import changed, load_settings
from perdl.check.suggest import spectrum, suggest
from perdl.experiments.real_data import SETS, Sites, load, missing
from perdl.experiments.real_methods import Centred, errors, federated, first_dictionaries

PRESET = Path(__file__).resolve().parent.parent / "configs" / "files.toml"
SKIPPED = {"mnist", "wine-shift", "diabetes-shift"}  # MNIST is slow, the others are like their sets without shift
SHORT = {"rounds": 15, "start": "warm-up", "n_restarts": 2, "local_restarts": 0}
KS = (3, 5)
COLUMNS = [f"{strategy} {k}" for strategy in ("alone", "federated") for k in KS]

Choice = dict[str, object]


def threshold(value: float) -> Choice:
    return {"coder": "hard-threshold", "threshold": value, "warmup_threshold": 4 * value}


def count(coder: str, k: int) -> Choice:
    return {"coder": coder, "n_nonzero": k}


CODERS: dict[str, Choice] = {
    "hard-threshold 0.3": threshold(0.3),
    "hard-threshold 0.5": threshold(0.5),
    "hard-threshold 1": threshold(1.0),
    "hard-threshold, check's": {"coder": "hard-threshold"},
    "top-k 3": count("top-k", 3),
    "top-k 5": count("top-k", 5),
    "top-k 10": count("top-k", 10),
}
OMPS: dict[str, Choice] = {f"omp {k}": count("omp", k) for k in (3, 5, 10)}
GRADIENT: Choice = {"learner": "gradient"}
SVD: Choice = {"start": "svd"}
BEST: dict[str, Choice] = {"hard-threshold 1": threshold(1.0), "gradient, omp 3": GRADIENT | count("omp", 3)}


def learners() -> dict[str, Choice]:
    rows = {f"orthogonal, svd, {name}": SVD | one for name, one in CODERS.items()}
    thresholds = {key: CODERS[key] for key in ("hard-threshold 0.5", "hard-threshold, check's")}
    for name, one in (thresholds | OMPS).items():
        rows[f"gradient, warm-up, {name}"] = GRADIENT | one
        rows[f"gradient, svd, {name}"] = GRADIENT | SVD | one
    return rows


COORDINATE: Choice = {"learner": "coordinate"} | count("omp", 3)


def coordinates() -> dict[str, Choice]:
    changes: dict[str, Choice] = {
        "warm-up, omp 3": {},
        "warm-up, omp 5": count("omp", 5),
        "svd, omp 3": SVD,
        "warm-up, omp 3, normalized": {"aggregation": "normalized"},
        "warm-up, omp 3, n_atoms = d": {"n_atoms": None},
    }
    return {f"coordinate, {name}": COORDINATE | change for name, change in changes.items()}


def with_each(key: str, values: dict[str, object]) -> dict[str, Choice]:
    return {f"{name}, {label}": one | {key: value} for name, one in BEST.items() for label, value in values.items()}


GROUPS: dict[str, dict[str, Choice]] = {
    "coders": {f"orthogonal, warm-up, {name}": one for name, one in CODERS.items()},
    "learners": learners(),
    "coordinate": coordinates(),
    "aggregations": with_each(
        "aggregation", {one: one for one in ("mean", "normalized", "polar", "energy", "procrustes")}
    ),
    "atoms": with_each("n_atoms", {"check's n_atoms": "check", "n_atoms = d": None}),
}


def small(name: str) -> Centred:
    sites = load(name)
    keep = list(sites.train)[:: max(1, len(sites.train) // 4)][:4]
    train = {site: sites.train[site][:, :300] for site in keep}
    return Centred.of(Sites(name, "", train, {site: sites.test[site] for site in keep}))


def measure(data: Centred, choice: Choice) -> dict[str, float]:
    """Mean errors over sites by strategy and k, and seconds."""
    began = time.process_time()
    fitting = suggest([spectrum(Y) for Y in data.train.values()])
    if choice.get("n_atoms", "check") is None:
        fitting.pop("n_atoms")
    wanted = {key: value for key, value in choice.items() if key != "n_atoms"}
    values = fitting | SHORT | wanted
    d = len(next(iter(data.train.values())))
    r = int(values.get("n_atoms", d))
    values["n_nonzero"] = min(int(values.get("n_nonzero", 5)), r)
    settings = changed(load_settings(PRESET), **values)
    firsts = first_dictionaries(data, settings)
    found = {}
    for strategy, rungs in (("alone", (0,)), ("federated", (r // 4, r // 2))):
        kept = [one for one in (federated(data, settings, firsts, n) for n in rungs if n or strategy == "alone") if one]
        for k in KS:
            each = [float(np.mean(list(errors(data, one, k).values()))) for one in kept]
            found[f"{strategy} {k}"] = min(each, default=float("nan"))
    return found | {"seconds": time.process_time() - began}


def errors_of(row: str, results: dict[str, dict[str, float]], names: list[str]) -> np.ndarray:
    """Sets in rows, strategies and k in columns; NaN where a run ended with an error, or was not made."""
    return np.array([[results.get(f"{row}: {name}", {}).get(one, np.nan) for one in COLUMNS] for name in names])


def table(rows: dict[str, Choice], results: dict[str, dict[str, float]], names: list[str]) -> str:
    lines = [f"| settings | {' | '.join(COLUMNS)} | worst | ended | CPU s |", f"|{'---|' * (len(COLUMNS) + 4)}"]
    best = np.nanmin(np.stack([errors_of(row, results, names) for group in GROUPS.values() for row in group]), axis=0)
    ratios = [errors_of(row, results, names) / best for row in rows]
    for row, ratio in zip(rows, ratios, strict=True):
        cells = [f"{value:.3f}" for value in np.nanmedian(ratio, axis=0)]
        seconds = sum(results[f"{row}: {name}"].get("seconds", 0.0) for name in names)
        lines.append(
            f"| {row} | {' | '.join(cells)} | {np.nanmax(ratio):.2f} | {int(np.isnan(ratio).any(axis=1).sum())} "
            f"| {seconds:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", default=list(GROUPS))
    parser.add_argument("--sets", default=",".join(name for name in SETS if name not in SKIPPED))
    parser.add_argument("--results", type=Path, default=Path("settings.json"))
    told = parser.parse_args()
    names = [name for name in told.sets.split(",") if not missing(name)]
    results = json.loads(told.results.read_text()) if told.results.exists() else {}
    for name in names:
        data = small(name)
        for group in told.groups:
            for row, choice in GROUPS[group].items():
                if f"{row}: {name}" in results:
                    continue
                try:
                    results[f"{row}: {name}"] = measure(data, choice)
                except PerdlError as error:
                    results[f"{row}: {name}"] = {"error": str(error)}
                told.results.write_text(json.dumps(results, indent=1))
    for group in told.groups:
        print(f"\n{group}: {len(names)} sets\n\n{table(GROUPS[group], results, names)}")


if __name__ == "__main__":
    main()
