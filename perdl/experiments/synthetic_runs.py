"""Single runs of the synthetic experiment. Each depends only on its settings, so that any worker can do it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.blocks import in_memory
from common.dictionaries import dictionary_distance, match_atoms
from common.errors import PerdlError
from common.settings import Settings, changed
from common.synthetic import ClientTruth
from perdl.experiments.federation import (
    Client,
    Model,
    averaged,
    first_dictionaries,
    independent,
    perma,
    pooled,
)
from perdl.experiments.oracle import oracle_global_dictionary
from perdl.experiments.personalized_pca import personalized_pca
from perdl_client.data.load import load_data
from perdl_client.data.sources import truth
from perdl_client.identity import Identity
from perdl_client.learning.warm_up import objective
from perdl_server.algorithm.matching import suggest_n_global

Floats = NDArray[np.floating]

EXACT = 1e-10
"""A dictionary is exact if its distance to the truth is at most this."""

CURES: dict[str, dict[str, Any]] = {
    "none (algorithm 1)": {},
    "trimmed mean": {"aggregation": "trimmed"},
    "energy weights": {"aggregation": "energy"},
    "chain in order of quality": {"order": "quality"},
    "star around the medoid": {"matching": "star"},
    "restart": {"local_restarts": 10},
    "restart, trimmed mean": {"local_restarts": 10, "aggregation": "trimmed"},
    "restart, chain in order of quality": {"local_restarts": 10, "order": "quality"},
    "restart, star around the medoid": {"local_restarts": 10, "matching": "star"},
}
"""Cures for clients that start in a wrong basin; all are tried on the same starts."""


def draw(settings: Settings) -> tuple[list[ClientTruth], list[Client]]:
    """Return the truth and the clients that a simulation draws.

    Parameters
    ----------
    settings : Settings
        Settings of the run.
    """
    identities = [Identity.of({"partition-id": i}) for i in range(settings.n_clients)]
    known = [truth(identity, settings) for identity in identities]
    truths = [t for t in known if t is not None]
    return truths, [
        Client(who.name, in_memory(load_data(who, settings).Y), settings.for_client(who.name)) for who in identities
    ]


def errors(model: Model, truths: list[ClientTruth]) -> tuple[float, float]:
    """Return the error d_{1,2} of D^g, and the largest error of a local dictionary.

    Parameters
    ----------
    model : Model
        Result of a federation.
    truths : list of ClientTruth
        Truth of each client.
    """
    local = zip(model.local_dictionaries, truths, strict=True)
    return (
        dictionary_distance(model.global_dictionary, truths[0].global_dictionary),
        max(dictionary_distance(D, t.local_dictionary) for D, t in local),
    )


def run_perma(
    settings: Settings, truths: list[ClientTruth], clients: list[Client], starts: list[Floats], order: str = "name"
) -> dict[str, Any]:
    """Run PerMA; return its final errors and the error of D^g after every round.

    Parameters
    ----------
    settings : Settings
        Settings of the run.
    truths : list of ClientTruth
        Truth of each client.
    clients : list of Client
        Clients with their data, in the order of their names.
    starts : list of (d, r_i) arrays
        First dictionary of each client.
    order : {"name", "quality"}
        Order of the clients in the chain: by name, or with the best start first.
    """
    clients = [Client(c.name, c.data, settings.for_client(c.name)) for c in clients]
    places = list(range(len(clients)))
    if order == "quality":
        cost = [
            objective(c.data, D, c.learning.make_coder()) / c.data.shape[1]
            for c, D in zip(clients, starts, strict=True)
        ]
        places = list(np.argsort(cost, kind="stable"))
    curve: list[float] = []
    model = perma(
        [clients[i] for i in places],
        [starts[i] for i in places],
        settings,
        lambda t, m: curve.append(dictionary_distance(m.global_dictionary, truths[0].global_dictionary)),
    )
    at_global, at_local = errors(model, [truths[i] for i in places])
    return {"global": at_global, "local": at_local, "curve": curve}


def strategies(settings: Settings) -> dict[str, dict[str, Any]]:
    """Run every strategy on the same data and starts; return their errors.

    ``global`` is the error of D^g; for independent clients, that of the worst client. Independent clients, pooled data
    and averaging give whole dictionaries, of which the atoms nearest to the truth count.

    Parameters
    ----------
    settings : Settings
        Settings of the run.
    """
    # "auto" would choose by aggregation: keep one matching for all.
    settings = changed(settings, matching=settings.matching_method)
    truths, clients = draw(settings)
    starts = first_dictionaries(clients, settings.seed)
    shared, rounds = truths[0].global_dictionary, settings.rounds
    curves: dict[str, list[list[float]]] = {"independent clients": [], "pooled data": [], "federated averaging": []}

    def follow(name: str) -> Any:
        return lambda t, D: curves[name].append([dictionary_distance(one, shared) for one in D])

    independent(clients, starts, rounds, follow("independent clients"))
    pooled(clients, settings, follow("pooled data"))
    averaged(clients, starts, rounds, follow("federated averaging"))
    out: dict[str, dict[str, Any]] = {
        name: {"global": max(rows[-1]), "local": None, "curve": rows} for name, rows in curves.items()
    }
    components = personalized_pca(
        [c.data for c in clients], shared.shape[1], settings.synthetic.n_local, rounds, step_size=1.0
    )
    out["personalized PCA"] = {"global": dictionary_distance(components.global_components, shared), "local": None}
    for name in ("mean", "normalized", "polar", "energy", "procrustes", "trimmed", "geometric-median"):
        out[f"PerMA, {name}"] = run_perma(
            changed(settings, aggregation=name, local_restarts=0), truths, clients, starts
        )
    return out


def cures(settings: Settings) -> dict[str, dict[str, Any]]:
    """Run every cure on the same data and on the paper's own starts; return their errors.

    Parameters
    ----------
    settings : Settings
        Settings of the run.
    """
    settings = changed(settings, n_restarts=1, local_restarts=0, matching=settings.matching_method)
    truths, clients = draw(settings)
    starts = first_dictionaries(clients, settings.seed)
    rows: list[list[float]] = []
    shared = truths[0].global_dictionary
    independent(
        clients, starts, settings.rounds, lambda t, D: rows.append([dictionary_distance(one, shared) for one in D])
    )
    out: dict[str, dict[str, Any]] = {"independent clients": {"global": max(rows[-1]), "local": None, "curve": rows}}
    for name, cure in CURES.items():
        changes = {key: value for key, value in cure.items() if key != "order"}
        out[name] = run_perma(changed(settings, **changes), truths, clients, starts, cure.get("order", "name"))
    return out


def weak_clients(settings: Settings) -> dict[str, float]:
    """Return the error of D^g by strategy if some clients have few samples.

    ``weak clients alone`` is the median error of the weak clients without federation.

    Parameters
    ----------
    settings : Settings
        Settings of the run; ``synthetic`` says how many clients are weak.
    """
    truths, clients = draw(settings)
    starts = first_dictionaries(clients, settings.seed)
    shared, n_weak = truths[0].global_dictionary, settings.synthetic.weak_clients
    alone = independent(clients[:n_weak], starts[:n_weak], settings.rounds)
    out = {"weak clients alone": float(np.median([dictionary_distance(D, shared) for D in alone]))}
    plain = changed(settings, local_restarts=0)
    out["mean (algorithm 1)"] = run_perma(plain, truths, clients, starts)["global"]
    for name in ("mean", "energy", "procrustes", "trimmed"):
        run = run_perma(changed(settings, aggregation=name, matching="star"), truths, clients, starts)
        out[f"{name}, restart, star"] = run["global"]
    out["oracle"] = dictionary_distance(oracle_global_dictionary(truths), shared)
    return out


def crowd(settings: Settings) -> dict[str, float]:
    """Return errors of D^g among similar noisy clients: of one client alone (median), of PerMA and of the oracle.

    Parameters
    ----------
    settings : Settings
        Settings of the run.
    """
    truths, clients = draw(settings)
    starts = first_dictionaries(clients, settings.seed)
    shared = truths[0].global_dictionary
    alone = independent(clients[:10], starts[:10], settings.rounds)
    out = {"alone": float(np.median([dictionary_distance(D, shared) for D in alone]))}
    for name in ("mean", "procrustes"):
        out[name] = run_perma(changed(settings, aggregation=name), truths, clients, starts)["global"]
    out["oracle"] = dictionary_distance(oracle_global_dictionary(truths), shared)
    return out


def suggested(settings: Settings) -> int:
    """Return the number of shared atoms that ``n_global = "auto"`` finds.

    Parameters
    ----------
    settings : Settings
        Settings of the run.
    """
    _, clients = draw(settings)
    return suggest_n_global(first_dictionaries(clients, settings.seed))[0]


def large(settings: Settings) -> dict[str, float]:
    """Solve one large problem; return how many atoms of the starts are right, PerMA's errors, and both times.

    Parameters
    ----------
    settings : Settings
        Settings of the run.
    """
    truths, clients = draw(settings)
    began = time.perf_counter()
    starts = first_dictionaries(clients, settings.seed)
    between = time.perf_counter()
    right = [
        int((match_atoms(D, np.hstack([t.global_dictionary, t.local_dictionary])).errors < 0.1).sum())
        for D, t in zip(starts, truths, strict=True)
    ]
    run = run_perma(settings, truths, clients, starts)
    return {
        "right": min(right),
        "global": run["global"],
        "local": run["local"],
        "start seconds": between - began,
        "PerMA seconds": time.perf_counter() - between,
    }


def recovered(arguments: tuple[Settings, tuple[int, ...], float]) -> dict[int, float]:
    """Return the share of clients that recover D^g alone (key 1), and whether the first N do together (key N).

    A recovery has an error of at most the limit. Too few atoms to match are no recovery.

    Parameters
    ----------
    arguments : tuple of (Settings, tuple of int, float)
        Settings of the run, the numbers N of clients, and the limit.
    """
    settings, crowds, limit = arguments
    truths, clients = draw(settings)
    starts = first_dictionaries(clients, settings.seed)
    shared = truths[0].global_dictionary
    alone = independent(clients[:10], starts[:10], settings.rounds)
    out = {1: float(np.mean([dictionary_distance(D, shared) <= limit for D in alone]))}
    for n in crowds:
        try:
            model = perma(clients[:n], starts[:n], settings)
            out[n] = float(dictionary_distance(model.global_dictionary, shared) <= limit)
        except PerdlError:
            out[n] = 0.0
    return out
