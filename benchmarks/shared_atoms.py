"""How many atoms are shared: ``n_global = "auto"`` against the truth, against chance, and against held-out samples.

    python benchmarks/shared_atoms.py synthetic        # the paper's set-up, 100 seeds; 50 features
    python benchmarks/shared_atoms.py unrelated        # clients that have nothing in common: how often it is not 0
    python benchmarks/shared_atoms.py real [SET ...]   # held-out errors on real sets, by number of shared atoms

``real`` learns each site's first dictionary with what ``perdl check`` suggests, then runs the rounds for every number
of a ladder. Errors are those of the sites' own held-out samples, with 3 and with 5 atoms a sample (OMP), in percent
above the ladder's least. *ladder* is what could be done with held-out scalars: a fifth of the training samples is held
out, and the number with the least error after 5 rounds is taken. Sets whose package is missing are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from common.coders import CODERS
from common.errors import PerdlError
from common.settings import Settings, changed, load_settings, settings_from_values
from perdl.check.suggest import spectrum, suggest
from perdl.experiments.federation import first_dictionaries
from perdl.experiments.real_data import SETS, load, missing
from perdl.experiments.synthetic_runs import draw
from perdl_client.learning.client import ClientLearner, Start
from perdl_server.algorithm.matching import suggest_n_global
from perdl_server.algorithm.null import path_null
from perdl_server.algorithm.server import PermaServer

Floats = NDArray[np.floating]
LADDER = (0, 1, 2, 3, 5, 8, 12, 16, 20, 25, 30, 40, 50, 60)
CODES = (3, 5)
N_SEEDS = 100


def main() -> None:
    """Print the tables of one part."""
    parts = {"synthetic": synthetic, "unrelated": unrelated, "real": lambda: real(sys.argv[2:] or list(SETS))}
    if len(sys.argv) < 2 or sys.argv[1] not in parts:
        raise SystemExit(__doc__)
    parts[sys.argv[1]]()


def both(dictionaries: Sequence[Floats], method: str = "chain") -> tuple[int, int]:
    """Return what the largest jump alone says, as before, and what ``auto`` says."""
    n_global, lengths = suggest_n_global(dictionaries, method=method)
    null = path_null(len(dictionaries[0]), tuple(D.shape[1] for D in dictionaries), method)
    relative = null.nearness(lengths / (len(dictionaries) - 1))
    for j in np.flatnonzero(null.mean == 0):
        relative[j] = relative[j - 1] if j else 0.0
    return int(np.diff(relative, prepend=0.0, append=1.0).argmax()), n_global


def synthetic() -> None:
    """The share of seeds on which the number of shared atoms is right."""
    print("| d | n | noise | r^g | largest jump | auto |\n" + "|---" * 6 + "|")
    base = load_settings("configs/synthetic.toml")
    for noise in (0.0, 0.05):
        for r in range(6):
            truth = {"n_global": r, "n_local": 6 - r, "noise": noise}
            found = [_numbers(changed(base, seed=seed, n_global=r, synthetic=truth)) for seed in range(N_SEEDS)]
            right = np.mean(np.array(found) == (6 if r == 5 else r), axis=0)  # with five of six the last is shared too
            print(f"| 6 | 200 | {noise} | {r} | {right[0]:.2f} | {right[1]:.2f} |", flush=True)
    for atoms in (50, 15):
        values = {"n_features": 50, "n_global": 10, "n_local": 5, "sparsity": 0.1, "noise": 0.05}
        preset = {"threshold": 0.5, "threshold_unit": "rms", "warmup_threshold": 2.0, "n_atoms": atoms}
        given = {**preset, "n_clients": 10, "n_global": 10, "synthetic": values, "data": {"n_samples": 2000}}
        found = [_numbers(settings_from_values({**given, "seed": seed})) for seed in range(3)]
        print(
            f"| 50, {atoms} atoms a client | 2,000 | 0.05 | 10 | "
            + " | ".join(map(str, zip(*found, strict=True)))
            + " |"
        )


def _numbers(settings: Settings) -> tuple[int, int]:
    return both(first_dictionaries(draw(settings)[1], settings.seed))


def unrelated() -> None:
    """How many of 100 seeds are not 0: random dictionaries, then dictionaries learnt from independent data."""
    print("| d | r | N | matching | atoms | largest jump | auto |\n" + "|---" * 7 + "|")
    shapes = [(6, 6, 10), (6, 6, 2), (6, 3, 3), (20, 10, 10), (20, 20, 4), (20, 40, 5), (64, 28, 5), (50, 50, 10)]
    for d, r, n in [*shapes, (100, 10, 30), (10, 30, 3)]:
        for method in ("chain", "star"):
            for orthonormal in (True, False) if r <= d else (False,):
                rng = np.random.default_rng(7)
                found = [both([_random(rng, d, r, orthonormal) for _ in range(n)], method) for _ in range(N_SEEDS)]
                counts = np.count_nonzero(found, axis=0)
                kind = "orthonormal" if orthonormal else "independent"
                print(f"| {d} | {r} | {n} | {method} | {kind} | {counts[0]} | {counts[1]} |", flush=True)
    learn = {"threshold": 0.5, "threshold_unit": "rms", "warmup_threshold": 2.0, "data": {"source": "memory"}}
    for d, r, n, samples in ((6, 6, 5, 100), (20, 10, 5, 100), (20, 10, 2, 60)):
        for kind in ("sparse", "noise"):
            found = []
            for seed in range(N_SEEDS):
                rng = np.random.default_rng(seed)
                settings = settings_from_values({**learn, "n_clients": n, "n_atoms": r, "n_restarts": 2, "seed": seed})
                Ys = [rng.standard_normal((d, samples)) for _ in range(n)]
                if kind == "sparse":
                    codes = [rng.standard_normal((r, samples)) * (rng.random((r, samples)) < 0.2) for _ in range(n)]
                    Ys = [_random(rng, d, r, True) @ X + 0.05 * Y for X, Y in zip(codes, Ys, strict=True)]
                found.append(both([ClientLearner(Y, settings, seed, f"c{i}").start().atoms for i, Y in enumerate(Ys)]))
            counts = np.count_nonzero(found, axis=0)
            print(f"| {d} | {r} | {n} | chain | learnt from {kind} | {counts[0]} | {counts[1]} |", flush=True)


def _random(rng: np.random.Generator, d: int, r: int, orthonormal: bool) -> Floats:
    G = rng.standard_normal((d, r))
    return np.linalg.qr(G).Q if orthonormal else np.asarray(G / np.linalg.norm(G, axis=0))


def real(names: Sequence[str]) -> None:
    """Held-out errors by number of shared atoms."""
    print("| set | largest jump | auto | ladder | best | errors by number of shared atoms |\n" + "|---" * 6 + "|")
    for name in names:
        if missing(name):
            continue
        sites = load(name)
        means = {site: Y.mean(axis=1, keepdims=True) for site, Y in sites.train.items()}
        train = {site: Y - means[site] for site, Y in sites.train.items()}
        test = {site: Y - means[site] for site, Y in sites.test.items()}
        found = suggest([spectrum(Y) for Y in train.values()])
        settings = settings_from_values({**found, "n_global": 0, "n_clients": len(train), "data": {"source": "memory"}})
        starts = _starts(train, settings)
        jump, auto = both([start.atoms for _, start in starts.values()])
        most = min(start.atoms.shape[1] for _, start in starts.values())
        ladder = sorted({*(g for g in LADDER if g < most), most, jump, auto})
        errors = {g: held_out(train, test, settings, starts, g) for g in ladder}
        inner = _inner_choice(train, settings)
        if inner not in errors:
            errors[inner] = held_out(train, test, settings, starts, min(inner, most))
        table = np.array([errors[g] for g in sorted(errors)])
        above = dict(zip(sorted(errors), 100 * (table / table.min(axis=0) - 1), strict=True))
        best = sorted(errors)[int(np.log(table).sum(axis=1).argmin())]
        cells = [f"{g} ({_percent(above[g])})" for g in (jump, auto, inner, best)]
        row = ", ".join(f"{g}: {_percent(above[g])}" for g in above)
        print(f"| {name} | " + " | ".join(cells) + f" | {row} |", flush=True)


def _percent(above: Floats) -> str:
    return " / ".join(f"{value:.1f}" for value in above)


def _starts(train: dict[str, Floats], settings: Settings) -> dict[str, tuple[Floats, Start]]:
    learners = {site: ClientLearner(Y, settings, settings.seed, site) for site, Y in train.items()}
    return {site: (learner.dictionary, learner.start()) for site, learner in learners.items()}


def held_out(
    train: dict[str, Floats],
    test: dict[str, Floats],
    settings: Settings,
    starts: dict[str, tuple[Floats, Start]],
    n_global: int,
    rounds: int = 30,
) -> Floats:
    """Return the mean over sites of the relative error of held-out samples, one for each of :data:`CODES`."""
    server = PermaServer(changed(settings, n_global=n_global))
    match = server.match(
        {site: start.atoms for site, (_, start) in starts.items()}, [start.usage for _, start in starts.values()]
    )
    clients = {
        site: ClientLearner(Y, settings, settings.seed, site, dictionary=starts[site][0]) for site, Y in train.items()
    }
    for (site, client), indices in zip(clients.items(), match.indices, strict=True):
        client.split(starts[site][1].used[indices])
    for t in range(1, rounds + 1):
        updates = [client.update(server.global_dictionary, t) for client in clients.values()]
        contributions = np.stack([update.contribution(settings.aggregation) for update in updates])
        server.aggregate(contributions, np.stack([update.energies for update in updates]))
        if server.at_rest:
            break
    models = {
        site: np.hstack([server.global_dictionary, client.finish(server.global_dictionary)])
        for site, client in clients.items()
    }
    return np.array([np.mean([_error(test[site], D, k) for site, D in models.items()]) for k in CODES])


def _error(Y: Floats, D: Floats, k: int) -> float:
    D = D / np.maximum(np.linalg.norm(D, axis=0), 1e-12)  # a mean of atoms is shorter than one
    X = CODERS["omp"].make(min(k, D.shape[1]))(Y, D)
    return float(np.linalg.norm(Y - D @ X) / np.linalg.norm(Y))


def _inner_choice(train: dict[str, Floats], settings: Settings) -> int:
    """Choose by the error of a fifth of the training samples, after five rounds."""
    rng = np.random.default_rng(0)
    kept, held = {}, {}
    for site, Y in train.items():
        order, n = rng.permutation(Y.shape[1]), max(Y.shape[1] // 5, 2)
        held[site], kept[site] = Y[:, order[:n]], Y[:, np.sort(order[n:])]
    starts = _starts(kept, settings)
    most = min(start.atoms.shape[1] for _, start in starts.values())
    errors = {}
    for g in sorted({*(g for g in LADDER if g < most), most}):
        try:
            errors[g] = np.log(held_out(kept, held, settings, starts, g, rounds=5)).sum()
        except PerdlError:
            continue
    return min(errors, key=lambda g: errors[g])


if __name__ == "__main__":
    main()
