"""Held-out samples from end to end: on real data, in every engine, and what of them travels."""

from __future__ import annotations

import json

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import perdl
from common.protocol import FINISH, unpack
from common.settings import load_settings, settings_from_values
from perdl import PerDL
from perdl.cli.app import app
from perdl.cli.console import print_summary
from perdl.engines.in_process import run_in_process, simulation
from perdl.report.page import render_report
from perdl.results.run_result import read_run
from perdl_client.app import app as client_app
from perdl_client.data.load import load_data
from perdl_client.identity import Identity
from perdl_client.learning.client import ClientLearner
from perdl_client.learning.evaluation import evaluate, learn_alone
from perdl_client.model import load_model
from perdl_server.app import app as server_app

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # few rounds: what is found is doubtful

FAST = {"n_atoms": 30, "coder": "top-k", "n_nonzero": 3, "n_restarts": 2, "rounds": 12, "local_restarts": 2}
TOLD = {**FAST, "n_global": 12, "evaluation.n_nonzero": 3}


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Scikit-learn's digits, dealt to five sites as CSV."""
    X = pytest.importorskip("sklearn.datasets").load_digits().data / 16
    order = np.random.default_rng(0).permutation(len(X))
    folder = tmp_path_factory.mktemp("digits")
    for i in range(5):
        np.savetxt(folder / f"site-{i + 1}.csv", X[order[i::5]], delimiter=",", fmt="%.4f")
    return folder


@pytest.fixture(scope="module")
def run(digits, tmp_path_factory):
    told = {**TOLD, "data.path": f"{digits}/*.csv", "evaluation.pooled": True}
    return perdl.simulate("files", told, output=tmp_path_factory.mktemp("runs") / "run")


def test_the_preset_for_files_says_whether_federating_helped(run):
    block = run.summary["held_out"]
    assert (block["n_clients"], block["evaluated"], block["not_evaluated"]) == (5, 5, [])
    assert block["sentence"].startswith("Federating lowered the error on held-out samples of ")
    assert len(block["gained"]) + len(block["better_alone"]) + len(block["undecided"]) == 5
    for name, facts in run.clients.items():
        told = facts["held_out"]
        assert told["n_samples"] + facts["n_samples"] in (359, 360), name
        assert told["n_samples"] == 72
        assert list(told["errors"]) == ["1", "3", "5", "10"]
        for row in told["errors"].values():
            assert 0 < min(row["alone"], row["federated"]) < 1
            assert row["federated"] <= row["shared"] + 0.02  # fewer atoms to choose from
        assert told["gain_low"] <= told["gain"] <= told["gain_high"]


def test_what_is_told_is_what_the_pieces_give_when_put_together_by_hand(run):
    settings = settings_from_values(run.summary["settings"])
    with simulation():
        data = load_data(Identity("site-2", 1, {}), settings)
    client = ClientLearner(data.Y, settings.for_client("site-2"), settings.seed, "site-2", guarded=True)
    client = ClientLearner(  # alone, nothing is guarded but the first dictionary
        data.Y, client.learning, settings.seed, "site-2", dictionary=client.dictionary
    )
    alone = learn_alone(client, run.summary["rounds"], settings.tolerance)
    model = load_model(run.folder / "clients" / "site-2")
    D = model.global_dictionary, model.local_dictionary
    found = evaluate(data.held_out, alone, *D, 3, np.random.default_rng(0))
    told = run.clients["site-2"]["held_out"]
    for k, row in found.errors.items():
        assert row == {key: told["errors"][str(k)][key] for key in row}


def test_pooled_samples_are_compared(run):
    block = run.summary["held_out"]
    assert "From all samples pooled, which nobody may have, it is " in block["sentence"]
    for facts in run.clients.values():
        told = facts["held_out"]
        assert all(0 < row["pooled"] < 1 for row in told["errors"].values())
        assert told["pooled_gain"] == pytest.approx(1 - told["errors"]["3"]["pooled"] / told["errors"]["3"]["alone"])
    assert block["median_pooled_gain"] > block["median_gain"] - 0.02


def test_it_is_shown_in_the_terminal_the_report_and_the_clients_own_report(run, capsys):
    console = Console(width=200, record=True)
    print_summary(console, run.summary, run.folder)
    text = console.export_text()
    assert run.summary["held_out"]["sentence"] in text
    assert "│ held out │  gain │" in text + capsys.readouterr().out.replace("┃", "│")
    page = render_report(run.folder)
    assert run.summary["held_out"]["sentence"].replace("'", "&#39;") in page
    assert "Did federating help?" in page
    assert "shared atoms only" in page
    assert (run.folder / "figures" / "gain.png").exists()
    own = render_report(run.folder / "clients" / "site-1")
    assert "On 72 held-out samples, with 3 atoms a sample, its error is " in own


def test_arrays_give_what_their_files_give(run, digits, tmp_path):
    data = {f"site-{i}": np.loadtxt(digits / f"site-{i}.csv", delimiter=",") for i in range(1, 6)}
    files = perdl.simulate(
        "files", {**TOLD, "data.path": f"{digits}/*.csv", "evaluation.n_nonzero": 5}, output=tmp_path / "a"
    )
    model = PerDL(preset="files", **{**FAST, "n_global": 12}).fit(data)
    assert model.held_out == 0.2
    np.testing.assert_array_equal(model.global_components_.T, files.global_dictionary)
    assert model.held_out_ == {name: facts["held_out"] for name, facts in files.clients.items()}
    for name, rows in data.items():
        one = load_model(files.folder / "clients" / name)
        np.testing.assert_array_equal(one.encode(rows.T), model.transform(rows, name).T)
    model.save(tmp_path / "m.npz")
    assert PerDL.load(tmp_path / "m.npz").held_out_ == model.held_out_


def test_a_late_client_is_evaluated_too(digits):
    data = {f"site-{i}": np.loadtxt(digits / f"site-{i}.csv", delimiter=",") for i in range(1, 5)}
    late = data.pop("site-4")
    model = PerDL(**{**FAST, "rounds": 4}, n_global=6, center=True, held_out=0.25).fit(data)
    assert set(model.held_out_) == set(data)
    model.add_client(late, "site-4")
    told = model.held_out_["site-4"]
    assert told["n_samples"] == round(0.25 * len(late))
    assert 0 < told["errors"]["5"]["federated"] < 1
    quiet = PerDL(**{**FAST, "rounds": 4}, n_global=6, center=True)
    assert quiet.fit(data).add_client(late, "site-4").held_out_ == {}


def test_only_numbers_travel_and_the_server_sees_no_held_out_sample(tmp_path):
    sent = []
    told = [f"output={tmp_path}", "rounds=3", "n_clients=3", "synthetic.noise=0.05", "evaluation.held_out=0.2"]
    run_in_process(server_app, client_app, load_settings(None, told), record=sent.append)
    names = {"alone", "federated", "shared"}
    errors = {f"{name}_{k}" for name in names for k in (1, 3, 5)}
    finished = [m for m in sent if m.metadata.message_type == FINISH and m.metadata.reply_to_message_id]
    assert len(finished) == 3
    for message in finished:
        payload = unpack(message.content)
        assert payload.arrays == {}
        told = {"held_out", "held_out_k", "gain_low", "gain_high", *errors}
        assert set(payload.scalars) == told | {"client", "protocol", "error", "shared", "own", "local_distance"}
        assert all(isinstance(payload.scalars[key], (int, float)) for key in told)
    asked = [m for m in sent if m not in finished]
    assert not any({"held_out", *errors} & set(unpack(m.content).scalars) for m in asked)


def test_clients_with_too_few_samples_take_part_and_are_named(tmp_path):
    told = [f"output={tmp_path}", "rounds=3", "n_clients=3", "synthetic.noise=0.05", "evaluation.held_out=0.2"]
    told += ["synthetic.weak_clients=1", "synthetic.weak_samples=14"]
    run_in_process(server_app, client_app, load_settings(None, told))
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["clients"]["client-1"]["n_samples"] == 14
    assert summary["clients"]["client-2"]["n_samples"] == 160
    assert "held_out" not in summary["clients"]["client-1"]
    assert summary["held_out"]["not_evaluated"] == ["client-1"]
    assert summary["held_out"]["sentence"].endswith(" Not evaluated: client-1.")
    assert render_report(tmp_path)


def test_a_run_that_holds_nothing_out_says_nothing(tmp_path):
    run_in_process(server_app, client_app, load_settings(None, [f"output={tmp_path}", "rounds=2", "n_clients=2"]))
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert "held_out" not in summary
    assert "set evaluation.held_out" in render_report(tmp_path)


@pytest.mark.parametrize("n_global", [0, 2])
def test_where_nothing_is_shared_alone_and_federated_are_one(tmp_path, n_global):
    told = [f"output={tmp_path}", "rounds=3", "n_clients=2", "synthetic.noise=0.05", "evaluation.held_out=0.2"]
    run_in_process(server_app, client_app, load_settings(None, [*told, f"n_global={n_global}"]))
    told = read_run(tmp_path).clients["client-1"]["held_out"]
    same = [row["alone"] == row["federated"] for row in told["errors"].values()]
    assert all(same) if n_global == 0 else not any(same)


def test_the_settings_are_checked():
    for value in ("1", "-0.1", "nan"):
        result = CliRunner().invoke(app, ["simulate", "-c", f"evaluation.held_out={value}"])
        assert result.exit_code == 2, value
        assert "held_out" in result.output
