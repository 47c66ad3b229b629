"""``perdl benchmark real``: on real data dealt to sites, who writes a site's own held-out samples best, and why."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import DataError, SettingsError
from common.files import write_json, write_text
from common.settings import Settings, changed
from perdl.check.suggest import spectrum, suggest
from perdl.engines.claim import held
from perdl.experiments import real_methods as methods
from perdl.experiments.real_data import SETS, Sites, load, missing
from perdl.experiments.real_page import (
    KS,
    MAIN_K,
    PERDL,
    WHICH,
    any_angle,
    render_page,
    tables,
    which_settings,
    why,
)
from perdl_server.summary import describe

LADDER = (1 / 8, 1 / 4, 1 / 2)
"""Shares of the atoms that are shared."""

ANY_ANGLE: dict[str, Any] = {
    "learner": "coordinate",
    "coder": "omp",
    "n_nonzero": MAIN_K,
    "aggregation": "normalized",
}
"""Settings of atoms that need not be orthogonal, tried beside those that are given."""

QUICK: dict[str, Any] = {"rounds": 5, "n_restarts": 2, "local_restarts": 0}


def run_real(
    settings: Settings,
    names: Sequence[str] = (),
    *,
    seeds: int = 1,
    suggested: bool = True,
    quick: bool = False,
    progress: Callable[[str], object] = lambda text: None,
) -> dict[str, Any]:
    """Run the benchmark; write ``results.json`` and ``tables.md`` into ``settings.output``.

    Parameters
    ----------
    settings : Settings
        How sites learn.
    names : sequence of str
        Sets of :data:`perdl.experiments.real_data.SETS`; default: all that are here.
    seeds : int
        Number of times that the sets are dealt.
    suggested : bool
        Whether what `perdl check` suggests for each set replaces these settings.
    quick : bool
        Whether to take one small set and few steps.
    progress : callable (str) -> object
        Gets a line for each set.

    Returns
    -------
    dict
        ``sets`` (facts of each set), ``skipped`` (reasons by name), and what `perdl.experiments.run.run_experiment`
        returns.

    Raises
    ------
    SettingsError, DataError
        If there is no such set, or its package is missing.
    """
    if unknown := [name for name in names if name not in SETS]:
        raise SettingsError(f"there is no set {unknown[0]}; sets are {', '.join(SETS)}")
    if names and (reason := next(filter(None, map(missing, names)), "")):
        raise DataError(reason)
    skipped = {} if names else {name: reason for name in SETS if (reason := missing(name))}
    chosen = list(names or [name for name in SETS if name not in skipped])
    if quick:
        chosen, settings = chosen[:1], changed(settings, **QUICK)
    folder, began = Path(settings.output), time.monotonic()
    found: list[dict[str, Any]] = []
    head = {"experiment": "real", "preset": "files", "quick": quick, **describe(settings), "seeds": seeds}
    head |= {"suggested": suggested, "skipped": skipped}

    def write(finished: bool) -> dict[str, Any]:
        results = {
            **head,
            "finished": finished,
            "sets": found,
            "tables": tables(found),
            "explained": {WHICH: which_settings(found)},
            "sentences": [why(one) for one in found]
            + [f"{name} is left out: {reason}." for name, reason in skipped.items()],
            "seconds": time.monotonic() - began,
        }
        write_json(folder / "results.json", results)
        write_text(folder / "tables.md", render_page(results))
        return results

    with held(folder):
        for i, name in enumerate(chosen):
            progress(f"{name}, {i + 1} of {len(chosen)}")
            found.append(facts_of(name, settings, seeds, suggested))
            write(finished=False)
        return write(finished=True)


def facts_of(name: str, settings: Settings, seeds: int = 1, suggested: bool = True) -> dict[str, Any]:
    """Return what the benchmark finds on one set.

    Parameters
    ----------
    name : str
        Name of the set.
    settings : Settings
        How sites learn.
    seeds : int
        Number of times that it is dealt.
    suggested : bool
        Whether `perdl check`'s settings replace these.
    """
    runs = [measure(load(name, seed), settings, suggested) for seed in range(seeds)]
    by_site = {  # by method and k: a number for each site and seed
        method: {k: np.concatenate([run["errors"][method][k] for run in runs]) for k in KS}
        for method in runs[0]["errors"]
    }
    alone, best = by_site["alone"][MAIN_K], by_site["best"][MAIN_K]
    gains = 1 - best / alone
    first = {key: value for key, value in runs[0].items() if key != "errors"}
    return {
        "name": name,
        "kind": SETS[name].kind,
        "about": SETS[name].about,
        **first,
        "nearest": float(np.mean([run["nearest"] for run in runs])),
        "errors": {method: {k: float(np.mean(each)) for k, each in ks.items()} for method, ks in by_site.items()},
        "gain": float(np.mean(gains)),
        "gain_error": float(np.std(gains, ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else float("nan"),
        "gained": int((gains > 0).sum()),
        "of": len(gains),
    }


def measure(sites: Sites, settings: Settings, suggested: bool = True) -> dict[str, Any]:
    """Return the errors of all methods on one dealing of a set, and the facts by which they are explained.

    Parameters
    ----------
    sites : Sites
        The samples.
    settings : Settings
        How sites learn.
    suggested : bool
        Whether `perdl check`'s settings replace these.
    """
    data = methods.Centred.of(sites)
    if suggested:
        settings = changed(settings, **suggest([spectrum(Y) for Y in data.train.values()]))
    r = settings.n_atoms or sites.n_features
    ours, facts = _perdl(data, settings, r)
    other, other_facts = _perdl(data, changed(settings, **ANY_ANGLE), r)
    n_shared, shared = _least(data, {n: methods.shared_pca(data, r, n, settings.rounds) for n in facts["ladder"]})
    joint, n_joint = methods.by_ajive(data, r)
    found = {
        **ours,
        "pooled": methods.pooled(data, settings),
        "PCA": methods.pca(data, r),
        "pers. PCA": shared,
        "AJIVE": joint,
        "sklearn": methods.sparse_dictionaries(data, r, MAIN_K),
        **{any_angle(name): one for name, one in other.items()},
    }
    return {
        "n_sites": len(data.train),
        "n_features": sites.n_features,
        "n_train": [Y.shape[1] for Y in data.train.values()],
        "n_test": [Y.shape[1] for Y in data.test.values()],
        "n_atoms": r,
        **facts,
        "any_angle": other_facts,
        "n_shared_components": n_shared,
        "n_joint": n_joint,
        "errors": {method: {k: _errors(data, one, k) for k in KS} for method, one in found.items()},
    }


def _perdl(
    data: methods.Centred, settings: Settings, r: int
) -> tuple[dict[str, methods.Dictionaries | None], dict[str, Any]]:
    """The dictionaries of perdl alone, with ``auto`` and with the best of a ladder, and the numbers of shared atoms."""
    firsts = methods.first_dictionaries(data, settings)
    n_auto, nearest = methods.nearest_path(data, settings, firsts)
    alone = methods.federated(data, settings, firsts, 0)
    auto = alone if n_auto == 0 else methods.federated(data, settings, firsts, n_auto)
    ladder = sorted({max(1, round(share * r)) for share in LADDER} | ({n_auto} - {0}))
    rungs = {n: auto if n == n_auto else methods.federated(data, settings, firsts, n) for n in ladder}
    n_best, best = _least(data, {n: one for n, one in rungs.items() if one is not None})
    facts = {
        "n_auto": n_auto,
        "n_best": n_best,
        "ladder": ladder,
        "ended": [n for n, one in rungs.items() if one is None],
        "nearest": nearest,
    }
    return dict(zip(PERDL, (alone, auto, best), strict=True)), facts


def _errors(data: methods.Centred, dictionaries: Mapping[str, methods.Floats] | None, k: int) -> methods.Floats:
    """Errors of all sites; NaN if the method ended without a result."""
    if dictionaries is None:
        return np.full(len(data.test), np.nan)
    return np.array(list(methods.errors(data, dictionaries, k).values()))


def _least(
    data: methods.Centred, rungs: Mapping[int, methods.Dictionaries]
) -> tuple[int | None, methods.Dictionaries | None]:
    """The number of shared atoms that has the least mean error, and its dictionaries; None if there is no rung."""
    if not rungs:
        return None, None
    best = min(rungs, key=lambda n: float(_errors(data, rungs[n], MAIN_K).mean()))
    return best, rungs[best]
