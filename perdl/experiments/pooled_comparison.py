"""A comparison for a simulation: the held-out error of a dictionary that learnt from all clients' samples pooled.

Nobody may have it in practice. It has the learner, the settings, the number of atoms of one client and the steps of the
run, so it is no bound: where clients have many atoms of their own, it may be worse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common.blocks import in_memory
from common.evaluation import gain
from common.settings import Settings, changed
from common.threads import one_blas_thread
from perdl.engines.in_process import simulation
from perdl.experiments.federation import Client, pooled
from perdl_client.data.load import load_data
from perdl_client.data.sources import client_names
from perdl_client.identity import Identity
from perdl_client.learning.evaluation import error, residual_energies, sample_energies
from perdl_server.held_out import add_pooled_sentence


def add_pooled_comparison(summary: dict[str, Any], settings: Settings) -> None:
    """Add the errors of pooled data to the summary, if ``evaluation.pooled`` asks for it and a client held samples out.

    Parameters
    ----------
    summary : dict
        Content of ``summary.json``.
    settings : Settings
        Settings of the run.
    """
    if not settings.evaluation.pooled or not summary.get("held_out", {}).get("evaluated"):
        return
    names = [name for name in client_names(settings) if name in summary["clients"]]
    with simulation(), one_blas_thread():
        places = {name: i for i, name in enumerate(client_names(settings))}
        data = {name: load_data(Identity(name, places[name], {}), settings) for name in names}
        clients = [Client(name, in_memory(data[name].Y), settings.for_client(name)) for name in names]
        D = pooled(clients, changed(settings, rounds=summary["rounds"]))
        for name in names:
            told, held_out = summary["clients"][name].get("held_out"), data[name].held_out
            if told is not None and held_out is not None:
                energy = float(sample_energies(held_out.Z).sum())
                _add(
                    told,
                    {k: error(float(residual_energies(held_out.Z, D, int(k)).sum()), energy) for k in told["errors"]},
                )
    add_pooled_sentence(summary)


def _add(told: dict[str, Any], errors: Mapping[str, float]) -> None:
    for k, value in errors.items():
        told["errors"][k]["pooled"] = value
    k = str(told["atoms"])
    told["pooled_gain"] = gain(told["errors"][k]["alone"], errors[k])
