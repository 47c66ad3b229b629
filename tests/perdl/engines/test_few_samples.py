"""Clients with so few samples that the guard lets few atoms pass, or none."""

from __future__ import annotations

import numpy as np
import pytest

import perdl
from perdl_server.algorithm.matching import MatchingError

WEAK = {"n_clients": 6, "synthetic.weak_clients": 2, "rounds": 30, "synthetic.noise": 0.0, "seed": 1}


@pytest.mark.parametrize("n_samples", [4, 2])
@pytest.mark.parametrize("mode", ["guarded", "masked", "aggregated"])
@pytest.mark.parametrize("aggregation", ["normalized", "procrustes"])
def test_a_client_none_of_whose_atoms_pass_gets_the_shared_ones(tmp_path, aggregation, mode, n_samples):
    told = {**WEAK, "privacy": mode, "aggregation": aggregation, "synthetic.weak_samples": n_samples}
    with pytest.warns(UserWarning, match=r"client-1 \(0 of its 6 atoms\), client-2 \(0 of its 6 atoms\) use fewer"):
        run = perdl.simulate("synthetic", told, output=tmp_path / "run")
    assert run.summary["final"]["global_distance"] < 1e-6
    with np.load(tmp_path / "run" / "clients" / "client-1" / "dictionary.npz") as model:
        np.testing.assert_array_equal(model["global"], run.global_dictionary)


def test_a_run_in_which_no_atom_passes_names_the_cure(tmp_path):
    told = {**WEAK, "synthetic.weak_clients": 6, "synthetic.weak_samples": 4}
    with pytest.raises(MatchingError, match=r"client-1 has 0 usable atoms, .*min_samples, or give this client more"):
        perdl.simulate("synthetic", told, output=tmp_path / "run")
