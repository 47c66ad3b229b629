"""``perdl benchmark real``: what it measures is right, and what it says follows from that."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from common.settings import Settings, settings_from_values
from common.synthetic import generate
from perdl.cli.console import print_experiment
from perdl.experiments import real, real_methods
from perdl.experiments.real_data import SETS, Sites, missing
from perdl.experiments.real_page import COLUMNS, PERDL, WHICH, any_angle, render_page, why
from perdl.monitoring.output import Output

pytest.importorskip("sklearn")

METHODS = {*COLUMNS, *map(any_angle, PERDL)}

FILES = {"source": "files"}


def perdl(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perdl", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240)


def planted(n: int = 200) -> Sites:
    """Three sites whose samples are two shared and two own atoms in eight features, without noise."""
    train, test = {}, {}
    for site in ("a", "b", "c"):
        Y = generate(
            0, site, n_features=8, n_global=2, n_local=2, n_samples=n + 50, sparsity=0.3, amplitude=0.3, noise=0.0
        ).data
        train[site], test[site] = Y[:, :n] + 1, Y[:, n:] + 1
    return Sites("planted", "", train, test)


def learnt() -> Settings:
    return settings_from_values(
        {"n_atoms": 4, "threshold": 0.5, "threshold_unit": "rms", "warmup_threshold": 2.0, "rounds": 10, "data": FILES}
    )


def test_the_error_of_principal_components_is_what_they_leave_over():
    data = real_methods.Centred.of(planted())
    for k in (1, 3):
        found = real_methods.errors(data, real_methods.pca(data, k), k)
        for site, Y in data.test.items():
            U = np.linalg.svd(data.train[site]).U[:, :k]
            expected = np.linalg.norm(Y - U @ (U.T @ Y)) / np.linalg.norm(Y)
            assert found[site] == pytest.approx(expected, rel=1e-9)


def test_centring_uses_training_samples_only():
    sites = planted()
    data = real_methods.Centred.of(sites)
    for site, Y in sites.test.items():
        np.testing.assert_allclose(data.test[site], Y - sites.train[site].mean(axis=1, keepdims=True))


def test_on_planted_atoms_federating_and_pooling_are_judged_right():
    facts = real.measure(planted(), learnt(), suggested=False)
    error = {method: float(np.mean(by_k[3])) for method, by_k in facts["errors"].items()}
    assert facts["n_auto"] == facts["n_best"] == 2
    assert facts["nearest"] < 0.05
    assert error["best"] == error["auto"] <= error["alone"] + 0.01
    assert error["pooled"] > 2 * error["auto"]  # four atoms cannot hold the eight of all sites
    assert set(facts["errors"]) == METHODS


def test_a_ladder_above_what_sites_use_is_told(monkeypatch):
    monkeypatch.setattr(real, "load", lambda name, seed: planted(3))
    facts = real.facts_of(
        "wine", settings_from_values({"n_atoms": 8, "rounds": 2, "min_samples": 3, "data": FILES}), 1, False
    )
    assert facts["ended"]
    assert np.isnan(facts["gain"]) == (facts["n_best"] is None)


def facts(**changes):
    errors = {"alone": {3: 0.5}, "pooled": {3: 0.45}}
    plain = {"name": "set", "gain": 0.1, "gain_error": 0.01, "gained": 4, "of": 5, "errors": errors, "n_auto": 0}
    return {**plain, "n_train": [40, 60], "n_atoms": 20, "nearest": 0.8, **changes}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, r"federating helps. The error falls by 10.0% \(\+- 2.0%\), at 4 of 5 sites; .*auto finds no shared"),
        ({"n_auto": 3}, r"helps.*by -10.0%\.$"),
        (
            {"gain": 0.01},
            r"no clear difference.*pooled samples would help \(-10.0%\).*0.80 of chance, with 2.0 samples",
        ),
        ({"gain": 0.01, "nearest": 0.1}, r"some atoms meet: the nearest path is 0.10 of chance"),
        ({"gain": -0.1}, r"makes it worse. The error grows by 10.0%"),
        (
            {"gain": -0.1, "errors": {"alone": {3: 0.5}, "pooled": {3: 0.6}}},
            r"one dictionary for all does not help either \(pooled \+20.0%\)",
        ),
        ({"gain": float("nan")}, "none federates"),
    ],
)
def test_the_sentence_follows_from_the_figures(changes, words):
    assert re.search(words, why(facts(**changes)))


def test_the_quick_benchmark_writes_json_and_a_page_and_prints_them(tmp_path, capsys):
    command = ["benchmark", "real", "--quick", "--markdown"]
    done = perdl(*command, "--output", str(tmp_path / "run"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["finished"]
    (wine,) = results["sets"]
    assert wine["name"] == "wine"
    assert {method: set(by_k) for method, by_k in wine["errors"].items()} == {name: {"1", "3", "5"} for name in METHODS}
    for by_k in wine["errors"].values():
        assert 1 > by_k["1"] > by_k["3"] > by_k["5"] > 0
    page = render_page(results)
    assert page.startswith("# Real data\n")
    assert f"## {WHICH}" in page
    assert done.stdout.strip() == (tmp_path / "run" / "tables.md").read_text().strip() == page.strip()
    print_experiment(Output(), results, tmp_path / "run")
    assert "Error with 3 atoms a sample" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["made-up"], "perdl: there is no benchmark made-up; benchmarks are real\n"),
        (["real", "--sets", "wines"], "perdl: there is no set wines; sets are wine, "),
    ],
)
def test_mistakes_end_with_one_line(tmp_path, arguments, error):
    done = perdl("benchmark", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(error)
    assert done.stderr.count("\n") == 1


def test_a_set_whose_package_is_missing_is_left_out_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(real, "missing", lambda name: "" if name == "wine" else f"no {SETS[name].package}")
    settings = settings_from_values({"output": str(tmp_path / "run"), "data": FILES})
    results = real.run_real(settings, quick=True)
    assert results["skipped"]["speech"] == "no aeon"
    assert "speech is left out: no aeon." in results["sentences"]
    assert missing("wine") == ""
