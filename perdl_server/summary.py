"""The parts of a run's summary beside its rounds: the set-up and the final metrics."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from platform import python_version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.dictionaries import dictionary_distance
from common.protocol import PROTOCOL
from common.settings import Settings
from common.synthetic import true_global_dictionary
from perdl_server.algorithm.server import PermaServer


def describe(settings: Settings) -> dict[str, Any]:
    """Return what is known before the run: ``settings``, ``started`` and ``versions``.

    Parameters
    ----------
    settings : Settings
        The run's settings.
    """
    packages = ("perdl", "flwr", "numpy", "scipy")
    versions: dict[str, Any] = {name: _version(name) for name in packages}
    return {
        "settings": settings.model_dump(exclude_none=True),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {**versions, "python": python_version(), "protocol": PROTOCOL},
    }


def privacy_facts(settings: Settings, asked: bool) -> dict[str, Any]:
    """Return the run's mode of privacy, and in a private run the budget that each client spent.

    Parameters
    ----------
    settings : Settings
        The run's settings.
    asked : bool
        Whether a client took part. It spends all of the run's budget with its first dictionary, as its ledger counts.

    Returns
    -------
    dict
        ``mode``; if it is ``private`` also ``epsilon_spent`` and ``delta_spent``, of each sample.
    """
    one = settings.privacy
    if one.mode != "private":
        return {"mode": one.mode}
    return {
        "mode": one.mode,
        "epsilon_spent": one.epsilon if asked else 0.0,
        "delta_spent": one.delta if asked else 0.0,
    }


def final_metrics(
    clients: Mapping[str, Mapping[str, Any]],
    server: PermaServer,
    settings: Settings,
    global_dictionary: NDArray[np.floating] | None = None,
) -> dict[str, Any]:
    """Return the final metrics of a run.

    Parameters
    ----------
    clients : mapping
        Facts of each client, by name.
    server : PermaServer
        Owner of D^g.
    settings : Settings
        The run's settings.
    global_dictionary : (d, r_g) array, optional
        D^g in the data's coordinates, if the server knows it.

    Returns
    -------
    dict
        ``error`` over the clients. If the truth is known, ``local_distance_max`` and ``global_distance``. After
        matching ``consensus``, after a round ``change``.
    """
    final: dict[str, Any] = {
        "error": spread([facts["final_error"] for facts in clients.values() if "final_error" in facts])
    }
    distances = [facts["final_local_distance"] for facts in clients.values() if "final_local_distance" in facts]
    if distances:
        final["local_distance_max"] = max(distances)
    if not server.matched:
        return final
    s, D = settings.synthetic, global_dictionary
    known = settings.data.source == "synthetic" and not settings.data.bends
    if D is not None and known and D.shape == (s.n_features, s.n_global):
        truth = true_global_dictionary(settings.seed, s.n_features, s.n_global)
        final["global_distance"] = dictionary_distance(D, truth)
    final["consensus"] = spread(server.shared_consensus.tolist())
    if server.change is not None:
        final["change"] = server.change
    return final


def spread(values: list[float]) -> dict[str, float]:
    """Return ``min``, ``median`` and ``max``; an empty dict if there are no values.

    Parameters
    ----------
    values : list of float
        Numbers to describe.
    """
    if not values:
        return {}
    return {"min": min(values), "median": float(np.median(values)), "max": max(values)}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
