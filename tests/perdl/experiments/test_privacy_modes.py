"""``benchmarks/privacy_modes.py``: it counts the bytes that the server counts, and its errors are those of the runs."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from common.privacy_settings import MODES
from perdl.experiments import real_data
from perdl.experiments.real_data import Sites

ROOT = Path(__file__).resolve().parents[3]
SMALL = ["n_clients=3", "rounds=4", "tolerance=0", "n_restarts=1", "data.n_samples=100"]


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("privacy_modes", ROOT / "benchmarks" / "privacy_modes.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["privacy_modes"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("mode", MODES)
def test_bytes_are_those_that_the_server_counts(tmp_path, benchmark, mode):
    cost = benchmark.costs([*SMALL, *benchmark.told_of(mode, 2.0)], tmp_path)
    phases = json.loads((tmp_path / "summary.json").read_text())["bytes"]
    for way, one in (("to_clients", cost.down), ("to_server", cost.up)):
        assert sum(phases.get(phase, {}).get(way, 0) for phase in ("update", "open")) == pytest.approx(one * 3 * 4)
    assert cost.seconds > 0
    assert np.isnan(cost.error)


def test_the_error_is_small_without_noise_and_larger_with(tmp_path, benchmark):
    plain, private = (benchmark.synthetic(mode, 0, tmp_path / mode).error for mode in ("guarded", "private"))
    assert plain < 1e-6 < private < 1


def test_held_out_samples_of_sites_are_measured_in_every_mode(tmp_path, benchmark, monkeypatch):
    rng = np.random.default_rng(0)
    D = np.linalg.qr(rng.standard_normal((30, 30))).Q
    Y = {site: D @ (rng.standard_normal((30, 200)) * (rng.random((30, 200)) < 0.1)) for site in ("a", "b", "c")}
    sites = Sites(
        "made", "made up", {s: one[:, :150] for s, one in Y.items()}, {s: one[:, 150:] for s, one in Y.items()}
    )
    monkeypatch.setattr(benchmark, "load", lambda name, seed: sites)
    monkeypatch.setattr(benchmark, "REAL", [*benchmark.REAL, "n_atoms=25", "n_global=10", "rounds=3"])
    errors = {mode: benchmark.real("made", mode, 0, tmp_path / mode).error for mode in MODES}
    assert all(0 < error < 1 for error in errors.values())
    assert errors["aggregated"] == pytest.approx(errors["guarded"], abs=1e-6)
    assert errors["masked"] == pytest.approx(errors["guarded"], abs=1e-6)
    assert errors["private"] > errors["none"]


def test_sets_that_are_not_here_are_left_out_with_the_reason(benchmark, monkeypatch, capsys):
    monkeypatch.setenv("PERDL_DATA", "/nowhere")
    monkeypatch.setattr(real_data, "find_spec", lambda package: None)
    monkeypatch.setattr(sys, "argv", ["privacy_modes.py", "--seeds", "1"])
    monkeypatch.setattr(benchmark, "row", lambda name, mode, seeds: f"| {name} | {mode} |")
    benchmark.main()
    said = capsys.readouterr().out
    assert "mnist left out: there is no folder /nowhere/mnist; set PERDL_DATA" in said
    assert "watch left out: the package seglearn is missing" in said
    assert said.count("| synthetic |") == len(MODES)
