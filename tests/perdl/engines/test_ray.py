"""Clients in Ray actors: same bits as in one process, whatever dies, on this machine and on a cluster."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from common.errors import PerdlError
from common.settings import load_settings, override_settings
from perdl.engines.ray import _LONGEST, _reach, _told
from perdl_client.identity import NAMES
from perdl_server.results import STOP

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def simulate(tmp_path):
    """Start `perdl simulate` in a folder; what still runs at the end is killed."""
    started = []

    def start(engine, output, *settings, folder=tmp_path, **environment):
        command = [sys.executable, "-m", "perdl", "simulate", "synthetic", "-q", "--engine", engine, "--output", output]
        command += [word for one in settings for word in ("-c", one)]
        known = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        known |= {"PYTHONPATH": str(ROOT), "RAY_worker_niceness": "0", **environment}
        with (tmp_path / f"{output}.log").open("w") as log:
            process = psutil.Popen(command, cwd=folder, env=known, stdout=log, stderr=log)
        started.append(process)
        return process

    yield start
    for process in started:
        with suppress(psutil.Error):
            for one in (*process.children(recursive=True), process):
                with suppress(psutil.Error):
                    one.kill()


def same(folder, a, b):
    with np.load(folder / a / "global_dictionary.npz") as x, np.load(folder / b / "global_dictionary.npz") as y:
        return x.files == y.files and all(np.array_equal(x[name], y[name]) for name in x.files)


def test_an_actor_that_dies_changes_no_bit_and_nothing_is_left(simulate, tmp_path):
    pytest.importorskip("ray")  # extra: simulation
    settings = ("n_clients=3", "rounds=40", "tolerance=0", "synthetic.noise=0.1")
    run, rounds, killed, folders = simulate("ray", "ray", *settings), tmp_path / "ray" / "rounds.jsonl", 0, set()
    while run.poll() is None:
        if not killed and rounds.exists() and rounds.read_text().count("\n") >= 2:
            for one in run.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    folders |= set(re.findall("/tmp/ray-[^/ ]+", " ".join(one.cmdline())))
                    if one.name().startswith("ray::Client") and not killed:
                        one.kill()
                        killed += 1
        time.sleep(0.05)
    assert run.returncode == 0, (tmp_path / "ray.log").read_text()
    assert simulate("in-process", "plain", *settings).wait(120) == 0
    assert same(tmp_path, "ray", "plain")
    assert json.loads((tmp_path / "ray" / "summary.json").read_text())["warnings"] == []
    assert all((tmp_path / "ray" / "clients" / f"client-{i}" / "dictionary.npz").exists() for i in (1, 2, 3))
    assert "Traceback" not in (tmp_path / "ray.log").read_text()
    assert killed
    assert len(folders) == 1
    assert not any(map(os.path.exists, folders))


@pytest.mark.parametrize(
    "by", ["signal", "signal as actors start", "signal while clients compute", "two signals", "stop file"]
)
def test_an_interrupt_ends_the_run_and_all_of_ray(simulate, tmp_path, by):
    pytest.importorskip("ray")
    run = simulate("ray", "ray", "n_clients=3", "rounds=3000", "tolerance=0")
    while not (rounds := tmp_path / "ray" / "rounds.jsonl").exists() or (
        "start" not in by and not rounds.read_text().count("\n")
    ):
        assert run.poll() is None, (tmp_path / "ray.log").read_text()
        time.sleep(0.1)
    children = run.children(recursive=True)
    if by in ("signal while clients compute", "two signals"):  # for longer than anybody waits
        actors = [child for child in children if child.name().startswith("ray::Client")]
        assert actors
        for actor in actors:
            actor.suspend()
    if "signal" in by:
        run.send_signal(signal.SIGINT)
    if by == "two signals":
        time.sleep(0.5)
        run.send_signal(signal.SIGINT)
    else:
        (tmp_path / "ray" / STOP).touch()
    assert run.wait(120) == 130, (tmp_path / "ray.log").read_text()
    _, alive = psutil.wait_procs(children, 30)
    assert alive == []
    assert "Traceback" not in (tmp_path / "ray.log").read_text()


def test_a_cluster_of_two_nodes_that_runs_already(simulate, tmp_path):
    pytest.importorskip("ray")
    program = """if True:
        from ray.cluster_utils import Cluster
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        cluster.add_node(num_cpus=1)
        print(cluster.address, flush=True)
        input()
        cluster.shutdown()
    """
    settings = ("n_clients=4", "rounds=3", "tolerance=0")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    known = {**os.environ, "RAY_worker_niceness": "0", "RAY_TMPDIR": "/tmp"}
    cluster = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=elsewhere,
        env=known,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        address = next(line for line in cluster.stdout if ":" in line).split()[-1]
        run = simulate("ray", "ray", *settings, RAY_ADDRESS=address)
        assert run.wait(240) == 0, (tmp_path / "ray.log").read_text()
    finally:
        with suppress(subprocess.TimeoutExpired):
            cluster.communicate("\n", timeout=60)
        cluster.kill()
    assert simulate("in-process", "plain", *settings).wait(120) == 0
    assert same(tmp_path, "ray", "plain")
    assert not any(elsewhere.iterdir())


def test_an_address_without_a_cluster_is_named_at_once():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(PerdlError, match=rf"Ray at {address} \(RAY_ADDRESS\) was not reached: .*; start it"):
            _reach(address)
    with pytest.raises(PerdlError, match="RAY_ADDRESS = ray://head: must be HOST:PORT"):
        _reach("ray://head")


def test_actors_are_told_names_only_if_they_need_them(tmp_path):
    synthetic = override_settings(load_settings(), {"n_clients": 100_000})
    assert NAMES not in _told(synthetic)
    for i in range(3):
        np.save(tmp_path / f"{'x' * 60}{i}.npy", np.ones((4, 2)))
    own = {"data.source": "files", "data.path": str(tmp_path / "*.npy"), "n_clients": 3}
    assert len(json.loads(_told(override_settings(load_settings(), own))[NAMES])) == 3
    assert _LONGEST < 2**17
