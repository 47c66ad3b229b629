"""The loop on arrays is the Flower run, to the last bit; the strategies beside it do what they say."""

from __future__ import annotations

import numpy as np
import pytest

from common.settings import settings_from_values
from common.synthetic import generate
from perdl.experiments.federation import Client, first_dictionaries, perma
from perdl.in_process import run_in_process
from perdl_client.app import app as client_app
from perdl_server.aggregation import AGGREGATIONS
from perdl_server.app import app as server_app

SYNTHETIC = {"n_features": 8, "n_global": 2, "n_local": 3, "noise": 0.02}


def clients_of(settings):
    s = settings.synthetic
    model = {"n_features": s.n_features, "n_global": s.n_global, "n_local": s.n_local, "noise": s.noise}
    names = [f"client-{i + 1}" for i in range(settings.n_clients)]
    return [
        Client(name, generate(settings.seed, name, n_samples=200, **model).data, settings.for_client(name))
        for name in names
    ]


@pytest.mark.parametrize("aggregation", sorted(AGGREGATIONS))
@pytest.mark.parametrize("n_global", [2, "auto"])
def test_equals_the_flower_run_bit_for_bit(tmp_path, aggregation, n_global):
    settings = settings_from_values(
        {
            "n_clients": 3,
            "n_global": n_global,
            "n_atoms": 5,
            "rounds": 6,
            "refine_steps": 1,
            "n_restarts": 2,
            "aggregation": aggregation,
            "output": str(tmp_path),
            "synthetic": SYNTHETIC,
            "clients": {"client-2": {"n_atoms": 6, "threshold": 0.2}},
        }
    )
    clients = clients_of(settings)
    model = perma(clients, first_dictionaries(clients, settings.seed), settings)
    run_in_process(server_app, client_app, settings)
    with np.load(tmp_path / "global_dictionary.npz") as file:
        np.testing.assert_array_equal(model.global_dictionary, file["dictionary"])
    for client, local in zip(clients, model.local_dictionaries, strict=True):
        with np.load(tmp_path / "clients" / client.name / "dictionary.npz") as file:
            np.testing.assert_array_equal(local, file["local"])
