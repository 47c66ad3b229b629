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
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from perdl_client.mnist import label_partition, load_mnist

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Processes:
    """Starts perdl commands in a folder, in plain text where no certificates are given; ends what still runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: dict[str, subprocess.Popen] = {}

    def start(self, label: str, *arguments) -> subprocess.Popen:
        log = (self.folder / f"{label}.log").open("w")
        command = [sys.executable, "-m", "perdl.cli", *map(str, arguments)]
        if command[3] in ("server", "client") and not {"--certs", "--insecure"} & set(command):
            command.append("--insecure")
        self.started[label] = subprocess.Popen(command, cwd=self.folder, env=ENVIRONMENT, stdout=log, stderr=log)
        return self.started[label]

    def run(self, *arguments) -> None:
        command = [sys.executable, "-m", "perdl.cli", *map(str, arguments)]
        subprocess.run(command, cwd=self.folder, env=ENVIRONMENT, check=True, timeout=240, capture_output=True)

    def wait(self, label: str, seconds: float = 240) -> int:
        try:
            return self.started[label].wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{label} did not end:\n{self.log(label)}")

    def log(self, label: str) -> str:
        return (self.folder / f"{label}.log").read_text()

    def end(self) -> None:
        for process in self.started.values():
            if process.poll() is None:
                process.terminate()
        for process in self.started.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture
def processes(tmp_path):
    started = Processes(tmp_path)
    yield started
    started.end()


def dictionary(folder: Path):
    with np.load(folder / "global_dictionary.npz") as file:
        return file["dictionary"]


def wait_for(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


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
    address = f"127.0.0.1:{free_port()}"
    processes.start("server", "server", "processes", "--address", address, "--output", "served", *MNIST_RUN)
    for i in (3, 1, 4, 2):  # in another order than their names
        file = four_files / f"client-{i}.npy"
        processes.start(f"client-{i}", "client", "--server", address, "--name", f"client-{i}", "--data", file)
    assert processes.wait("server") == 0, processes.log("server")
    for i in range(1, 5):
        assert processes.wait(f"client-{i}", 30) == 0, processes.log(f"client-{i}")
    processes.run("simulate", "processes", "--output", "simulated", "-c", f"data.path={four_files}", *MNIST_RUN)
    folder = processes.folder
    np.testing.assert_array_equal(dictionary(folder / "served"), dictionary(folder / "simulated"))
    for i in range(1, 5):
        own = folder / "perdl-clients" / f"client-{i}" / "dictionary.npz"
        twin = folder / "simulated" / "clients" / f"client-{i}" / "dictionary.npz"
        for key in ("global", "local"):
            np.testing.assert_array_equal(np.load(own)[key], np.load(twin)[key])
    assert not (folder / "served" / "clients").exists()
    summary = json.loads((folder / "served" / "summary.json").read_text())
    assert summary["rounds"] == 4
    assert list(summary["clients"]) == [f"client-{i}" for i in range(1, 5)]
    assert "4 clients, 50 global atoms" in processes.log("server")


SYNTHETIC = ["-c", "n_clients=2", "-c", "n_global=3", "-c", "tolerance=0"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_interrupting_the_server_saves_what_was_done_and_frees_everything(processes, number):
    address = f"127.0.0.1:{free_port()}"
    arguments = ["server", "synthetic", *SYNTHETIC, "-c", "rounds=100000", "-c", "synthetic.noise=0.1"]
    server = processes.start("server", *arguments, "--address", address, "--output", "served")
    for i in (1, 2):
        processes.start(f"client-{i}", "client", "--server", address, "--name", f"client-{i}", "--wait", "5")
    rounds = processes.folder / "served" / "rounds.jsonl"
    wait_for(lambda: rounds.exists() and rounds.read_text().count("\n") >= 3)
    server.send_signal(number)
    assert processes.wait("server", 30) == 130, processes.log("server")
    assert "Traceback" not in processes.log("server")
    summary = json.loads((processes.folder / "served" / "summary.json").read_text())
    assert summary["stop_reason"] == "interrupted"
    assert summary["rounds"] >= 3
    assert dictionary(processes.folder / "served").shape == (6, 3)
    with socket.socket() as s:
        assert s.connect_ex(("127.0.0.1", int(address.rpartition(":")[2]))) != 0
    for i in (1, 2):
        assert processes.wait(f"client-{i}", 60) == 4
        assert "the run ended before its time: it was interrupted at the server" in processes.log(f"client-{i}")
        assert (processes.folder / "perdl-clients" / f"client-{i}" / "dictionary.npz").exists()


def test_killing_the_server_leaves_no_process_and_ends_the_clients(processes):
    port = free_port()
    arguments = ["server", "synthetic", *SYNTHETIC, "-c", "rounds=100000", "--address", f"127.0.0.1:{port}"]
    server = processes.start("server", *arguments, "--output", "served")
    for i in (1, 2):
        processes.start(
            f"client-{i}", "client", "--server", f"127.0.0.1:{port}", "--name", f"client-{i}", "--wait", "2"
        )
    rounds = processes.folder / "served" / "rounds.jsonl"
    wait_for(lambda: rounds.exists() and rounds.read_text().count("\n") >= 3)
    server.kill()
    for i in (1, 2):
        assert processes.wait(f"client-{i}", 60) == 4
        assert "Traceback" not in processes.log(f"client-{i}")
    wait_for(lambda: not processes_of(processes.folder / "served" / "flower"), 30)
    assert (processes.folder / "served" / "global_dictionary.npz").exists()


def processes_of(home: Path) -> list[str]:
    """Numbers of the processes whose Flower home this is."""
    mine = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"FLWR_HOME={home}".encode() in (process / "environ").read_bytes().split(b"\0"):
                mine.append(process.name)
        except OSError:
            continue
    return mine


def test_a_client_that_died_after_joining_holds_up_nobody(processes):
    address = f"127.0.0.1:{free_port()}"
    processes.start("server", "server", "synthetic", *SYNTHETIC, "-c", "rounds=2", "--address", address)
    dead = processes.start("dead", "client", "--server", address, "--name", "client-1", "--folder", "own")
    wait_for(lambda: "joined" in processes.log("dead"))
    dead.kill()
    for i in (1, 2):
        processes.start(f"client-{i}", "client", "--server", address, "--name", f"client-{i}", "--folder", f"own{i}")
    assert processes.wait("server", 120) == 0, processes.log("server")


def test_interrupting_a_client_ends_it_cleanly(processes):
    client = processes.start("client", "client", "--server", f"127.0.0.1:{free_port()}", "--name", "a")
    wait_for(lambda: "waiting" in processes.log("client"))
    client.send_signal(signal.SIGINT)
    assert processes.wait("client", 10) == 130
    assert "Traceback" not in processes.log("client")


def test_server_says_which_clients_did_not_come(processes):
    arguments = ["server", "synthetic", "-c", "n_clients=2", "-c", "join_timeout=3"]
    address = f"127.0.0.1:{free_port()}"
    processes.start("server", *arguments, "--address", address)
    processes.start("client-1", "client", "--server", address, "--name", "client-1", "--wait", "5")
    assert processes.wait("server", 60) == 4
    assert "1 of 2 clients joined within 3 s" in processes.log("server")
    assert "Traceback" not in processes.log("server")


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (extra: simulation)")
def test_ray_gives_the_same_bits(processes):
    run = ["synthetic", "-c", "n_clients=3", "-c", "rounds=5", "-c", "tolerance=0", "-c", "synthetic.noise=0.1"]
    processes.run("simulate", *run, "--output", "ray", "--engine", "ray")
    processes.run("simulate", *run, "--output", "plain")
    np.testing.assert_array_equal(dictionary(processes.folder / "ray"), dictionary(processes.folder / "plain"))
    for i in (1, 2, 3):
        assert (processes.folder / "ray" / "clients" / f"client-{i}" / "dictionary.npz").exists()


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (extra: simulation)")
def test_flwr_run_takes_the_same_keys(processes):
    """Flower's own command on this repository, with a SuperLink of its own that ends with the test."""
    home = processes.folder / "flower"
    home.mkdir()
    port, control = str(free_port()), str(free_port())
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
        wait_for(lambda: is_healthy(port) or processes.started["superlink"].poll() is not None)
        federation = "num-supernodes=2 client-resources-num-cpus=1"
        command = [flwr, "run", str(ROOT), "--stream", "-c", config, "--federation-config", federation]
        done = subprocess.run(command, cwd=home, env=environment, timeout=180, capture_output=True, text=True)
        assert summary.exists(), done.stdout + done.stderr + processes.log("superlink")
    finally:
        for number in processes_of(home):
            os.kill(int(number), signal.SIGTERM)
    assert json.loads(summary.read_text())["rounds"] == 3
    processes.run("simulate", "-c", "n_clients=2", "-c", "rounds=3", "-c", "tolerance=0", "--output", "plain")
    np.testing.assert_array_equal(dictionary(processes.folder / "out"), dictionary(processes.folder / "plain"))
