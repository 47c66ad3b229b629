"""Server and clients as processes of their own on loopback, and the other engines: the same numbers to the last bit."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from common.heartbeat import check_sign
from common.settings import load_settings, override_settings
from common.synthetic import generate
from perdl.check.tune import read_clients, tune
from perdl_client.data.mnist import label_partition, load_mnist

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def is_healthy(port: str) -> bool:
    try:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://127.0.0.1:{port}/health", timeout=1)
    except OSError:
        return False
    return True


MNIST_RUN = ["-c", "rounds=4", "-c", "warmup_steps=10"]


@pytest.fixture
def four_files(tmp_path, mnist):
    """One MNIST file for each of four clients, 90 % one digit, samples in rows."""
    pixels, labels = load_mnist(mnist, "train")
    folder = tmp_path / "files"
    folder.mkdir()
    for i in range(4):
        np.save(folder / f"client-{i + 1}.npy", pixels[label_partition(labels, i, 4, seed=0)] / 255.0)
    return folder


def test_server_and_four_mnist_clients_equal_the_simulation_bit_for_bit(processes, four_files):
    processes.server(*MNIST_RUN, config="processes")
    for i in (3, 1, 4, 2):  # in another order than their names
        processes.client(f"client-{i}", "--data", four_files / f"client-{i}.npy")
    assert processes.wait("server") == 0, processes.log("server")
    for i in range(1, 5):
        assert processes.wait(f"client-{i}", 30) == 0, processes.log(f"client-{i}")
    processes.run("simulate", "processes", "--output", "simulated", "-c", f"data.path={four_files}", *MNIST_RUN)
    np.testing.assert_array_equal(processes.dictionary(), processes.dictionary("simulated"))
    for i in range(1, 5):
        twin = processes.folder / "simulated" / "clients" / f"client-{i}" / "dictionary.npz"
        for key, value in processes.own(f"client-{i}").items():
            np.testing.assert_array_equal(value, np.load(twin)[key])
    assert not (processes.folder / "served" / "clients").exists()
    summary = processes.summary()
    assert summary["rounds"] == 4
    assert list(summary["clients"]) == [f"client-{i}" for i in range(1, 5)]
    assert "4 clients, 50 global atoms" in processes.log("server")


SYNTHETIC = ["-c", "n_clients=2", "-c", "n_global=3", "-c", "tolerance=0"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_interrupting_the_server_saves_what_was_done_and_frees_everything(processes, number):
    server = processes.server(*SYNTHETIC, "-c", "rounds=100000", "-c", "synthetic.noise=0.1")
    for i in (1, 2):
        processes.client(f"client-{i}", "--wait", "15")
    processes.wait_for_round(3)
    homes = [processes.folder / "served", *(processes.folder / "perdl-clients" / f"client-{i}" for i in (1, 2))]
    for home in homes:
        check_sign(home)
    server.send_signal(number)
    assert processes.wait("server", 30) == 130, processes.log("server")
    assert "Traceback" not in processes.log("server")
    summary = processes.summary()
    assert summary["stop_reason"] == "interrupted"
    assert summary["rounds"] >= 3
    assert processes.dictionary().shape == (6, 3)
    with socket.socket() as s:
        assert s.connect_ex(("127.0.0.1", processes.port)) != 0
    for i in (1, 2):
        assert processes.wait(f"client-{i}", 60) == 4
        assert "the run ended before its time: it was interrupted at the server" in processes.log(f"client-{i}")
        assert (homes[i] / "dictionary.npz").stat().st_mode & 0o077 == 0
        assert (homes[i] / "state").stat().st_mode & 0o077 == 0
    assert not any((home / "alive").exists() for home in homes)


def test_killing_the_server_leaves_no_process_and_ends_the_clients(processes):
    server = processes.server(*SYNTHETIC, "-c", "rounds=100000")
    processes.wait_for(lambda: "waiting for 2 clients" in processes.log("server"))
    for i in (1, 2):
        processes.client(f"client-{i}", "--wait", "5")
    processes.wait_for_round(3)
    server.kill()
    for i in (1, 2):
        assert processes.wait(f"client-{i}", 60) == 4
        assert "Traceback" not in processes.log(f"client-{i}")
    processes.wait_for(lambda: not processes.of(processes.folder / "served" / "flower"), 30)
    assert (processes.folder / "served" / "global_dictionary.npz").exists()


def test_a_client_that_died_after_joining_holds_up_nobody(processes):
    processes.server(*SYNTHETIC, "-c", "rounds=2")
    dead = processes.client("client-1", "--folder", "own", label="dead")
    processes.wait_for(lambda: "joined" in processes.log("dead"))
    dead.kill()
    for i in (1, 2):
        processes.client(f"client-{i}", "--folder", f"own{i}")
    assert processes.wait("server", 120) == 0, processes.log("server")


def test_held_out_samples_are_evaluated_to_the_same_bits_by_processes_and_a_simulation(processes):
    run = ["synthetic", "-c", "n_clients=3", "-c", "rounds=3", "-c", "tolerance=0", "-c", "synthetic.noise=0.1"]
    run += ["-c", "evaluation.held_out=0.2"]
    processes.server(*run[1:], "-c", "evaluation.pooled=true")
    for i in (2, 3, 1):
        processes.client(f"client-{i}")
    assert processes.wait("server") == 0, processes.log("server")
    processes.run("simulate", *run, "--output", "plain")
    served, plain = (
        {name: facts["held_out"] for name, facts in summary["clients"].items()}
        for summary in (processes.summary(), processes.summary("plain"))
    )
    assert served == plain
    assert all(told["n_samples"] == 40 for told in served.values())
    assert processes.wait("client-1", 30) == 0
    assert "client-1: on 40 held-out samples, with 3 atoms a sample, its error is " in processes.log("client-1")
    assert processes.summary()["held_out"]["sentence"] in processes.log("server")
    assert "note: evaluation.pooled is for simulations" in processes.log("server")


TUNE = ["-c", "n_clients=2", "-c", "n_restarts=2", "-c", "n_atoms=6", "-c", "aggregation=mean", "-c", "coder=top-k"]
TUNE += ["-c", "learner=orthogonal", "-c", "evaluation.n_nonzero=2", "--tune", "--tune-rounds", "2"]


@pytest.fixture
def two_files(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    for i in (1, 2):
        Y = generate(0, f"client-{i}", n_features=6, n_global=3, n_local=3, n_samples=100, noise=0.05).data
        np.savetxt(folder / f"{i}.csv", Y.T, delimiter=",")
    return folder


def test_server_and_clients_choose_settings_as_a_simulation_does(processes, two_files):
    processes.server(*TUNE, config="files")
    for i in (2, 1):
        processes.client(f"client-{i}", "--data", two_files / f"{i}.csv")
    assert processes.wait("server") == 0, processes.log("server")
    result = json.loads((processes.folder / "served" / "tuning.json").read_text())
    chosen = processes.folder / "served" / "tuned.toml"
    assert f"settings: {Path('served') / 'tuned.toml'}" in processes.log("server")
    for i in (1, 2):
        assert processes.wait(f"client-{i}", 60) == 0, processes.log(f"client-{i}")
        told = f"done: the server chose settings in {len(result['trials'])} short runs, which showed it "
        assert told + f"{result['first_dictionaries'][f'client-{i}']} first dictionaries" in processes.log(
            f"client-{i}"
        )
        assert not (processes.folder / "perdl-clients" / f"client-{i}" / "dictionary.npz").exists()
    files = sorted(two_files.glob("*.csv"))
    told = {key: value for key, _, value in (word.partition("=") for word in TUNE if "=" in word)}
    settings = load_settings(ROOT / "configs" / "files.toml", [*(f"{k}={v}" for k, v in told.items()), "rounds=2"])
    trials, best = tune(*read_clients(files, settings), settings, fixed=told.keys())
    assert [list(row["errors"].values()) for row in result["trials"]] == [one.errors.tolist() for one in trials]
    assert trials[result["chosen"]] is best
    assert load_settings(chosen).n_global == override_settings(settings, best.values).n_global
    processes.run("simulate", chosen, "-c", f"data.path={two_files}/*.csv", "-c", "rounds=2", "--output", "judged")


def test_an_interrupted_search_keeps_its_best_and_lets_clients_go(processes, two_files):
    server = processes.server(*TUNE, "--tune-rounds", "20", "-c", "tolerance=0", config="files")
    for i in (1, 2):
        processes.client(f"client-{i}", "--data", two_files / f"{i}.csv")
    rows = processes.folder / "served" / "trials.jsonl"
    processes.wait_for(lambda: rows.exists() and rows.read_text().count("\n") >= 1)
    server.send_signal(signal.SIGINT)
    assert processes.wait("server", 60) == 130, processes.log("server")
    assert "settings, the best of a search that was cut off: served/tuned.toml" in processes.log("server")
    assert "Traceback" not in processes.log("server")
    load_settings(processes.folder / "served" / "tuned.toml")
    for i in (1, 2):
        assert processes.wait(f"client-{i}", 60) == 4
        assert "the run ended before its time: it was interrupted at the server" in processes.log(f"client-{i}")
    processes.server(*TUNE, label="again", config="files")
    assert processes.wait("again", 60) == 2
    assert "served holds the results of a run: choose another --output, or add --overwrite" in processes.log("again")


def test_interrupting_a_client_ends_it_cleanly(processes):
    client = processes.client("a")
    processes.wait_for(lambda: "waiting" in processes.log("a"))
    client.send_signal(signal.SIGINT)
    assert processes.wait("a", 10) == 130
    assert "Traceback" not in processes.log("a")


def test_server_says_which_clients_did_not_come(processes):
    processes.server("-c", "n_clients=2", "-c", "join_timeout=10")
    processes.client("client-1", "--wait", "15")
    assert processes.wait("server", 60) == 4
    assert "1 of 2 clients joined within 10 s" in processes.log("server")
    assert "Traceback" not in processes.log("server")


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (extra: simulation)")
def test_flwr_run_takes_the_same_keys(processes):
    """Flower's own command on this repository, with a SuperLink of its own that ends with the test."""
    home = processes.folder / "flower"
    home.mkdir()
    port, control = str(processes.port), str(free_port())
    environment = {
        **ENVIRONMENT,
        "FLWR_HOME": str(home),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": port,
        "FLWR_LOCAL_CONTROL_API_PORT": control,
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    }
    # Flower starts its own commands by name, so they must be found though the virtual environment is not activated.
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    flwr, superlink = (shutil.which(name, path=environment["PATH"]) for name in ("flwr", "flower-superlink"))
    config = f"n_clients=2 rounds=3 tolerance=0 n_atoms=6 output='{processes.folder / 'out'}'"
    summary = processes.folder / "out" / "summary.json"
    try:
        # `flwr run` would start the local SuperLink itself, but gives it 15 s, which a busy machine may not keep.
        log = (processes.folder / "superlink.log").open("w")
        command = [superlink, "--insecure", "--simulation", "--isolation", "subprocess", "--host", "127.0.0.1"]
        command += ["--port", port, "--control-api-address", f"127.0.0.1:{control}"]
        processes.started["superlink"] = subprocess.Popen(command, cwd=home, env=environment, stdout=log, stderr=log)
        processes.wait_for(lambda: is_healthy(port) or processes.started["superlink"].poll() is not None)
        federation = "num-supernodes=2 client-resources-num-cpus=1"
        command = [flwr, "run", str(ROOT), "--stream", "-c", config, "--federation-config", federation]
        done = subprocess.run(command, cwd=home, env=environment, timeout=180, capture_output=True, text=True)
        assert summary.exists(), done.stdout + done.stderr + processes.log("superlink")
    finally:
        for number in processes.of(home):
            os.kill(number, signal.SIGTERM)
    assert json.loads(summary.read_text())["rounds"] == 3
    processes.run("simulate", "-c", "n_clients=2", "-c", "rounds=3", "-c", "tolerance=0", "--output", "plain")
    np.testing.assert_array_equal(processes.dictionary("out"), processes.dictionary("plain"))


def test_clients_with_empty_cells_agree_on_a_scale_as_in_a_simulation(processes, tmp_path):
    folder = tmp_path / "cells"
    folder.mkdir()
    for i in range(1, 4):
        truth = generate(0, f"client-{i}", n_features=6, n_global=2, n_local=2, n_samples=200, noise=0.02)
        X, rng = truth.data.T * [0.4, 15, 2, 1, 6, 3], np.random.default_rng(i)
        X[rng.random(X.shape) < 0.05] = np.nan
        rows = [",".join("" if np.isnan(x) else f"{x:.12g}" for x in row) for row in X]
        (folder / f"client-{i}.csv").write_text("\n".join(["a,b,c,d,e,f", *rows]) + "\n")
    options = ["n_clients=3", "n_global=2", "n_atoms=4", "rounds=6", "data.site_scale=agree"]
    run = [word for option in options for word in ("-c", option)]
    processes.server(*run, config="files")
    for i in (2, 3, 1):
        processes.client(f"client-{i}", "--data", folder / f"client-{i}.csv", "--missing", "mask")
    assert processes.wait("server") == 0, processes.log("server")
    for i in range(1, 4):
        assert processes.wait(f"client-{i}", 30) == 0, processes.log(f"client-{i}")
    processes.run(
        "simulate", "files", *run, "-c", f"data.path={folder}", "-c", "data.missing=mask", "--output", "alone"
    )
    served, alone = (json.loads((processes.folder / name / "summary.json").read_text()) for name in ("served", "alone"))
    assert served["agreed_scale"] == alone["agreed_scale"]
    with (
        np.load(processes.folder / "served/global_dictionary.npz") as one,
        np.load(processes.folder / "alone/global_dictionary.npz") as other,
    ):
        for key in other.files:
            np.testing.assert_array_equal(one[key], other[key])
