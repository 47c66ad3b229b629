"""Whole runs with the online learner, whose clients have enough samples for many blocks."""

import json

import numpy as np
import pytest

import perdl
from common.aggregations import AGGREGATIONS
from common.dictionaries import match_atoms

TOLD = {
    "learner": "online",
    "coder": "ols",
    "n_nonzero": 2,
    "n_clients": 3,
    "rounds": 4,
    "n_restarts": 2,
    "warmup_steps": 4,
    "local_restarts": 0,
    "data.n_samples": 1500,
    "synthetic.n_features": 12,
    "n_atoms": 6,
    "synthetic.noise": 0.02,
}
FITTING = [name for name, kind in AGGREGATIONS.items() if kind.contribution != "procrustes"]


def simulate(folder, **changes):
    perdl.simulate("synthetic", {**TOLD, **changes}, output=folder)
    with np.load(folder / "global_dictionary.npz") as file:
        return file["dictionary"], json.loads((folder / "summary.json").read_text())


@pytest.mark.parametrize("aggregation", FITTING)
def test_finds_the_shared_atoms_with_each_aggregation(tmp_path, aggregation):
    _, told = simulate(tmp_path / "run", aggregation=aggregation)
    assert told["final"]["global_distance"] < 0.05


@pytest.mark.parametrize("mode", ["none", "aggregated", "masked"])
def test_runs_in_each_mode_of_privacy_and_is_the_same_each_time(tmp_path, mode):
    one, told = simulate(tmp_path / "one", privacy=mode)
    other, _ = simulate(tmp_path / "other", privacy=mode)
    np.testing.assert_array_equal(one, other)
    assert told["final"]["global_distance"] < 0.05


def test_starts_from_samples_where_nothing_is_to_be_hidden(tmp_path):
    _, told = simulate(tmp_path / "run", privacy="none", start="samples", warmup_steps=10)
    assert told["final"]["global_distance"] < 0.05


def test_a_private_run_is_one_of_the_coordinate_learner(tmp_path):
    private = {"privacy": {"mode": "private", "epsilon": 1000.0, "clip": 3.0}, "rounds": 2, "warmup_steps": 1}
    one, _ = simulate(tmp_path / "one", **private)
    other, _ = simulate(tmp_path / "other", **private, learner="coordinate")
    np.testing.assert_array_equal(one, other)


def sites(seed=0, d=10, shared=8, own=6, k=2, n=1500):
    """Three sites of more atoms than features, none of them orthogonal."""
    rng = np.random.default_rng(seed)
    draw = lambda r: (D := rng.standard_normal((d, r))) / np.linalg.norm(D, axis=0)  # noqa: E731
    D_g, data = draw(shared), {}
    for name in ("ada", "bob", "cy"):
        D, X = np.hstack([D_g, draw(own)]), np.zeros((shared + own, n))
        for x in X.T:
            x[rng.choice(shared + own, k, replace=False)] = rng.choice([-1, 1], k) * rng.uniform(0.5, 1.5, k)
        data[name] = (D @ X).T
    return D_g, data


@pytest.mark.parametrize("holes", [0.0, 0.02])
def test_more_atoms_than_features_are_found_also_with_missing_entries(holes):
    D_g, data = sites()
    rng = np.random.default_rng(1)
    data = {name: np.where(rng.random(Y.shape) < holes, np.nan, Y) for name, Y in data.items()}
    model = perdl.PerDL(
        n_global=8,
        n_atoms=14,
        learner="online",
        coder="omp",
        n_nonzero=2,
        n_restarts=3,
        warmup_steps=20,
        local_restarts=0,
        rounds=8,
        aggregation="normalized",
        matching="star",
        missing="mask",
    ).fit(data)
    found = match_atoms(model.global_components_.T, D_g).errors
    assert np.median(found) < 0.1
