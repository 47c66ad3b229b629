"""Masked runs: the server matches and averages atoms that it cannot read, and finds the same."""

from __future__ import annotations

import json

import numpy as np
import pytest

import perdl
from common.aggregations import AGGREGATIONS
from common.errors import FederationError, SettingsError
from common.mask import simulated_mask
from common.protocol import unpack
from common.settings import load_settings
from common.synthetic import true_global_dictionary
from perdl.deploy.certs import make_secret
from perdl.engines.in_process import run_in_process
from perdl.report.page import render_report
from perdl.results.atoms_table import write_atoms
from perdl_client.app import app as client_app
from perdl_server.app import app as server_app

SMALL = ["n_clients=4", "rounds=6", "tolerance=0", "synthetic.noise=0.05", "synthetic.n_features=12", "n_atoms=6"]


def federate(folder, *overrides, **keywords):
    settings = load_settings(None, [f"output={folder}", *SMALL, *overrides])
    run_in_process(server_app, client_app, settings, **keywords)
    with np.load(folder / "global_dictionary.npz") as file:
        return json.loads((folder / "summary.json").read_text()), file["dictionary"]


def models(folder):
    files = sorted((folder / "clients").glob("*/dictionary.npz"))
    assert len(files) == 4
    return [np.load(file)[key] for file in files for key in ("global", "local")]


@pytest.mark.parametrize("matching", ["chain", "star"])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_finds_what_an_open_run_finds(tmp_path, aggregation, matching):
    same = [f"aggregation={aggregation}", f"matching={matching}"]
    known, open_ = federate(tmp_path / "open", *same)
    told, masked = federate(tmp_path / "masked", *same, "privacy=masked")
    np.testing.assert_allclose(masked, open_, atol=1e-10)
    for one, other in zip(models(tmp_path / "masked"), models(tmp_path / "open"), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)
    assert told["final"]["global_distance"] == pytest.approx(known["final"]["global_distance"], abs=1e-10)
    np.testing.assert_allclose(told["path_lengths"], known["path_lengths"], atol=1e-10)


@pytest.mark.parametrize(
    "overrides",
    [
        ("sharing=some", "n_global=auto"),
        ("n_global=auto",),
        ("learner=gradient", "local_restarts=0"),
        ("synthetic.weak_clients=2", "synthetic.weak_samples=20", "seed=1"),  # the guard sends atoms back
    ],
)
def test_finds_what_an_open_run_finds_with_other_settings(tmp_path, overrides):
    _, open_ = federate(tmp_path / "open", *overrides)
    _, masked = federate(tmp_path / "masked", *overrides, "privacy=masked")
    assert open_.size
    np.testing.assert_allclose(masked, open_, atol=1e-10)


@pytest.mark.parametrize("aggregation", ["mean", "energy", "procrustes"])
def test_what_travels_is_as_near_to_atoms_and_samples_as_chance(tmp_path, aggregation):
    """In both directions and all phases. The secret of a simulation shows that the search would find them."""
    d, sent = 200, []
    more = [f"synthetic.n_features={d}", f"aggregation={aggregation}", "n_restarts=1", "data.n_samples=400"]
    federate(tmp_path, *more, "privacy=masked", record=sent.append)
    private = np.hstack([*models(tmp_path), true_global_dictionary(0, d, 3)])
    mask, seen = simulated_mask(0, d), 0
    for message in sent:
        payload = unpack(message.content)
        for name in {"dictionary", "contribution", "global_dictionary"} & set(payload.arrays):
            atoms = payload.arrays[name]
            assert nearest(atoms, private) < 6 / np.sqrt(d)  # six standard deviations of chance
            assert nearest(mask.show(atoms), private) > 0.9
            seen += 1
        others = {key for key, array in payload.arrays.items() if array.ndim == 2}
        assert others <= {"dictionary", "contribution", "global_dictionary"}
    assert seen > 4 * 6


def nearest(A, B):
    """Largest absolute cosine of a column of A and a column of B."""
    A, B = (M[:, np.linalg.norm(M, axis=0) > 0] for M in (A, B))
    return float(np.abs((A / np.linalg.norm(A, axis=0)).T @ (B / np.linalg.norm(B, axis=0))).max())


class TestDeployed:
    """Clients with secrets of their own, whose server has none."""

    @pytest.fixture(autouse=True)
    def _deployed(self, monkeypatch, tmp_path):
        from contextlib import nullcontext

        monkeypatch.setattr("perdl.engines.in_process.simulation", nullcontext)
        monkeypatch.delenv("PERDL_SIMULATION", raising=False)
        for name in ("one", "two"):
            make_secret(tmp_path / name, tmp_path / "server")

    def clients(self, tmp_path, *secrets):
        return [
            {"name": f"client-{i + 1}", "partition-id": i, "folder": str(tmp_path / f"own-{i + 1}")}
            | ({"secret": str(tmp_path / secret)} if secret else {})
            for i, secret in enumerate(secrets)
        ]

    def test_the_server_keeps_what_it_cannot_read_and_clients_have_the_atoms(self, tmp_path):
        configs = self.clients(tmp_path, *["one"] * 4)
        told, D_g = federate(tmp_path / "run", "privacy=masked", node_configs=configs)
        _, open_ = federate(tmp_path / "open", node_configs=self.clients(tmp_path / "other", *[""] * 4))
        assert told["masked"]
        assert "global_distance" not in told["final"]
        found = np.load(tmp_path / "own-1" / "dictionary.npz")["global"]
        np.testing.assert_allclose(found, open_, atol=1e-10)
        assert np.abs(D_g - open_).max() > 0.1
        np.testing.assert_allclose(D_g.T @ D_g, open_.T @ open_, atol=1e-10)  # angles stay visible
        assert "other coordinates" in render_report(tmp_path / "run")
        write_atoms(perdl.read_run(tmp_path / "run"), tmp_path / "atoms.csv")
        assert "shared" not in (tmp_path / "atoms.csv").read_text()

    def test_who_has_another_secret_is_left_out_by_name_before_the_first_round(self, tmp_path):
        configs = self.clients(tmp_path, "one", "one", "two", "one")
        told, _ = federate(tmp_path / "run", "privacy=masked", "quorum=3", "join_timeout=5", node_configs=configs)
        assert sorted(told["clients"]) == ["client-1", "client-2", "client-4"]
        with pytest.raises(FederationError, match=r"client-3 has another secret than client-1: start all clients with"):
            federate(tmp_path / "again", "privacy=masked", "join_timeout=5", node_configs=configs)
        assert not (tmp_path / "again" / "rounds.jsonl").read_text()

    def test_no_client_is_unmasked_without_its_will(self, tmp_path):
        configs = self.clients(tmp_path, *["one"] * 4)
        for mode in ("none", "aggregated"):
            with pytest.raises(FederationError, match="was started with --secret, and the run has privacy"):
                federate(tmp_path / "run", f"privacy={mode}", "join_timeout=5", node_configs=configs)

    def test_a_missing_secret_is_said_with_its_cure(self, tmp_path):
        configs = self.clients(tmp_path, "one", "", "one", "one")
        with pytest.raises(FederationError, match=r"client-2 has no secret.*--secret"):
            federate(tmp_path / "run", "privacy=masked", "join_timeout=5", node_configs=configs)


def test_spreads_of_features_are_not_told_in_a_masked_run():
    with pytest.raises(SettingsError, match="spread of each feature"):
        load_settings(None, ["privacy=masked", "data.site_scale=agree"])


def test_partial_fit_goes_on_in_the_same_coordinates(tmp_path):
    rng = np.random.default_rng(0)
    atoms = np.linalg.qr(rng.standard_normal((8, 8))).Q
    data = [(rng.standard_normal((60, 8)) * (rng.random((60, 8)) < 0.3)) @ atoms.T for _ in range(3)]
    (tmp_path / "masked.toml").write_text('n_global = 2\nprivacy = "masked"\ntolerance = 0.0\n')
    options = {"preset": str(tmp_path / "masked.toml")}
    whole = perdl.PerDL(rounds=6, **options).fit(data)
    part = perdl.PerDL(rounds=3, **options).fit(data).partial_fit(data, rounds=3)
    np.testing.assert_allclose(part.global_components_, whole.global_components_, atol=1e-10)
