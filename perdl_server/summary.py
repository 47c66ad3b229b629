"""What a run's summary says beside the numbers of its rounds: how it was set up, how it ended, what is doubtful."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from platform import python_version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.dictionaries import dictionary_distance
from common.protocol import PROTOCOL
from common.settings import Settings
from common.synthetic import true_global_dictionary

Floats = NDArray[np.floating]


def describe(settings: Settings) -> dict[str, Any]:
    """Return what a summary says of a run before it began: ``settings`` and ``versions``."""
    packages = ("perdl", "flwr", "numpy", "scipy")
    versions: dict[str, Any] = {name: _version(name) for name in packages}
    return {
        "settings": settings.model_dump(exclude_none=True),
        "versions": {**versions, "python": python_version(), "protocol": PROTOCOL},
    }


def final_metrics(clients: Mapping[str, Mapping[str, Any]], D: Floats | None, settings: Settings) -> dict[str, Any]:
    """Return the metrics of a run's end.

    Parameters
    ----------
    clients : mapping
        By name: the facts known of each.
    D : (d, r_g) array, optional
        D^g if there is one.
    settings : Settings

    Returns
    -------
    dict
        ``error`` over the clients; where the truth is known ``local_distance_max`` and ``global_distance``.
    """
    final: dict[str, Any] = {
        "error": spread([facts["final_error"] for facts in clients.values() if "final_error" in facts])
    }
    distances = [facts["final_local_distance"] for facts in clients.values() if "final_local_distance" in facts]
    if distances:
        final["local_distance_max"] = max(distances)
    s = settings.synthetic
    if D is not None and settings.data.source == "synthetic" and D.shape == (s.n_features, s.n_global):
        truth = true_global_dictionary(settings.seed, s.n_features, s.n_global)
        final["global_distance"] = dictionary_distance(D, truth)
    return final


def warnings(report: Mapping[str, Any], clients: Mapping[str, Mapping[str, Any]], settings: Settings) -> list[str]:
    """Return, in words for people, what makes a run's result doubtful though nothing failed."""
    found = []
    if len(clients) == 1 and report["n_global"] and settings.n_clients > 1:
        found.append("one client alone took part: nothing is known to be shared")
    edges = np.asarray(report["path_lengths"][: report["n_global"]]) / max(len(clients) - 1, 1)
    unrelated = np.asarray(report["unrelated_edges"])
    far = int(np.count_nonzero(edges > 0.8 * unrelated[: len(edges)])) if len(clients) > 1 else 0
    if far:
        found.append(
            f"{far} of {len(edges)} global atoms were no nearer across clients at the start than unrelated atoms would "
            f"be (mean distance {edges.max():.2f}, unrelated {unrelated[0]:.2f}): clients came to agree on "
            "them by averaging; lower n_global if you look for what is shared from the start"
        )
    strange = report.get("misfits", [])
    if strange:
        robust = settings.matching_method == "star" and settings.aggregation in ("trimmed", "geometric-median")
        found.append(
            f"the matched atoms of {', '.join(strange)} were no nearer to the other clients' than unrelated atoms: "
            f"look at their data, or leave them out{'' if robust else '; aggregation = trimmed bears a minority'}"
        )
    if settings.n_global == "auto" and report["n_global"] == 0:
        lengths = np.asarray(report["path_lengths"]) / max(len(clients) - 1, 1)
        near = f"{lengths[0]:.2f}" if len(lengths) else "-"
        found.append(
            f"n_global = auto found no shared atom (nearest path: mean distance {near}, unrelated atoms "
            f"{unrelated.max(initial=0):.2f}); look at the scale of the data and the threshold, or set n_global"
        )
    dense = [
        name for name, facts in clients.items() if facts["n_atoms"] > 1 and facts["nonzeros"] > 0.7 * facts["n_atoms"]
    ]
    if dense:
        facts = clients[dense[0]]
        found.append(
            f"codes are not sparse ({facts['nonzeros']:.1f} of {facts['n_atoms']} atoms a sample at {dense[0]}"
            f"{' and others' if len(dense) > 1 else ''}): raise threshold or set threshold_unit = rms"
        )
    uncentred = [name for name, facts in clients.items() if facts["mean_share"] > 0.9]
    if uncentred and not settings.data.center:
        found.append(
            f"the mean carries {clients[uncentred[0]]['mean_share']:.1%} of the energy of {uncentred[0]}'s data: the "
            "first shared atom will be that mean; set data.center = true"
        )
    return found


def spread(values: list[float]) -> dict[str, float]:
    """Return ``min``, ``median`` and ``max``; empty for no values."""
    if not values:
        return {}
    return {"min": min(values), "median": float(np.median(values)), "max": max(values)}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
