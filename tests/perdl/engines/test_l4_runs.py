"""Federated runs whose clients start from fourth powers."""

import pytest

import perdl

TOLD = {
    "n_clients": 4,
    "rounds": 15,
    "tolerance": 0.0,
    "local_restarts": 0,
    "n_atoms": 40,
    "n_global": 5,
    "data.n_samples": 1500,
    "synthetic.n_features": 40,
    "synthetic.n_global": 5,
    "synthetic.n_local": 35,
}


@pytest.mark.parametrize("seed", [0, 1])
def test_forty_atoms_are_recovered_to_the_last_digits_where_random_starts_leave_clients_stuck(tmp_path, seed):
    ends = {
        start: perdl.simulate("synthetic", {**TOLD, "start": start, "seed": seed}, output=tmp_path / start).summary[
            "final"
        ]
        for start in ("l4", "warm-up")
    }
    assert ends["l4"]["global_distance"] < 1e-12
    assert ends["l4"]["local_distance_max"] < 1e-10
    assert ends["warm-up"]["local_distance_max"] > 0.1


def test_another_learner_and_the_guard_find_the_truth_from_there(tmp_path):
    told = {"start": "l4", "rounds": 20, "n_clients": 3, "learner": "coordinate", "local_restarts": 0}
    end = perdl.simulate("synthetic", told, output=tmp_path / "run").summary["final"]
    assert end["global_distance"] < 0.05
