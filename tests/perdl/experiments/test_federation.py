"""The loop on arrays is the Flower run, to the last bit; the strategies beside it do what they say."""

from __future__ import annotations

import numpy as np
import pytest

from common.aggregations import AGGREGATIONS
from common.settings import settings_from_values
from common.synthetic import generate
from perdl.engines.in_process import run_in_process
from perdl.experiments.federation import Client, averaged, first_dictionaries, independent, perma, pooled
from perdl_client.app import app as client_app
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
@pytest.mark.parametrize("n_global", [0, 2, "auto"])
def test_equals_the_flower_run_bit_for_bit(tmp_path, aggregation, n_global):
    settings = settings_from_values(
        {
            "n_clients": 3,
            "privacy": "none",
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


def small():
    settings = settings_from_values({"n_clients": 3, "n_restarts": 2, "rounds": 8, "tolerance": 0.0, "privacy": "none"})
    clients = clients_of(settings)
    return settings, clients, first_dictionaries(clients, settings.seed)


def test_a_client_alone_is_perma_with_itself():
    settings, clients, starts = small()
    alone = independent(clients[:1], starts[:1], 8)[0]
    one = settings.model_copy(update={"n_global": 0})
    D_l = perma(clients[:1], starts[:1], one).local_dictionaries[0]
    np.testing.assert_allclose(D_l, alone, atol=1e-12)


def test_averaging_clients_that_are_the_same_is_one_of_them():
    _, clients, starts = small()
    twins, same = [clients[0]] * 3, [starts[0]] * 3
    np.testing.assert_allclose(averaged(twins, same, 8), independent(clients[:1], starts[:1], 8)[0], atol=1e-12)


def test_averaging_without_matching_cancels_what_differs_in_sign_only():
    _, clients, starts = small()
    D = averaged([clients[0]] * 2, [starts[0], -starts[0]], 0)
    assert np.abs(D).max() == 0


def test_pooled_data_of_all_global_clients_are_learned_as_one():
    settings, clients, _ = small()
    D = pooled(clients, settings)
    one = Client("pooled", np.hstack([c.data for c in clients]), settings.for_client("pooled"))
    np.testing.assert_array_equal(D, independent([one], first_dictionaries([one], settings.seed), 8)[0])


def test_every_round_is_reported_from_the_start_on():
    settings, clients, starts = small()
    seen = []
    independent(clients, starts, 8, lambda t, D: seen.append((t, len(D))))
    averaged(clients, starts, 8, lambda t, D: seen.append((t, len(D))))
    perma(clients, starts, settings, lambda t, m: seen.append((t, len(m.local_dictionaries))))
    assert seen == [(t, 3) for t in range(9)] + [(t, 1) for t in range(9)] + [(t, 3) for t in range(9)]
