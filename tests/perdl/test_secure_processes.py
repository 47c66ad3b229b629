"""Secure sums over real processes with certificates: clients killed at every moment, and what the end is then."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np

from perdl.deploy.certs import make_certs

HERE = Path(__file__).parent
RUN = ["-c", "tolerance=0", "-c", "synthetic.noise=0.1", "-c", "privacy=aggregated", "-c", "join_timeout=100"]


class Site:
    """A server and clients with keys and certificates."""

    def __init__(self, processes, n):
        self.processes, self.names = processes, [f"client-{i}" for i in range(1, n + 1)]
        make_certs(processes.folder / "certs", [], self.names)
        (processes.folder / "certs" / "ca.key").rename(processes.folder / "ca.key")  # not at the server

    def server(self, *told):
        where = ["--certs", "certs", "--address", self.processes.address]
        output = [] if "--resume" in told else ["synthetic", "--output", "served"]
        return self.processes.start("server", "server", *output, *where, *told)

    def arguments(self, name):
        where = ["--server", self.processes.address, "--certs", f"certs/clients/{name}", "--folder", name]
        return ["client", "--name", name, *where]

    def client(self, name):
        return self.processes.start(name, *self.arguments(name))

    def dying(self, name, moment, t):
        script = [sys.executable, HERE / "dying_client.py", moment, t, f"{name} {moment} {t}"]
        return self.processes.command(name, *script, *self.arguments(name))

    def killed(self, name):
        assert self.processes.wait(name, 120) == -9, self.processes.log(name)


def test_clients_killed_at_every_moment_and_restarted_cost_no_bit(processes):
    site = Site(processes, 3)
    told = ["-c", "n_clients=3", "-c", "rounds=8", *RUN]
    server = site.server(*told)
    site.client("client-3")
    site.dying("client-1", "start", 0)
    site.killed("client-1")
    site.dying("client-1", "before", 2)
    site.dying("client-2", "after", 3)
    site.killed("client-1")
    site.dying("client-1", "open", 4)
    site.killed("client-2")
    site.client("client-2")
    site.killed("client-1")
    site.client("client-1")
    processes.wait_for_round(5)
    server.kill()
    server.wait()
    site.server("--resume", "served")
    assert processes.wait("server") == 0, processes.log("server")
    for name in site.names:
        assert processes.wait(name, 60) == 0, processes.log(name)
        assert "keys are not signed" not in processes.log(name)
        path = processes.folder / name / "state" / "secure.json"
        assert path.stat().st_mode & 0o777 == 0o600
    assert {row["clients"] for row in processes.rounds()} == {3}
    assert [row["round"] for row in processes.rounds()] == list(range(1, 9))
    processes.run("simulate", "synthetic", *told, "--output", "simulated")
    np.testing.assert_array_equal(processes.dictionary(), processes.dictionary("simulated"))
    processes.run("simulate", "synthetic", *told, "-c", "privacy=guarded", "--output", "plain")
    np.testing.assert_allclose(processes.dictionary(), processes.dictionary("plain"), atol=1e-9)


def test_a_client_back_without_its_state_has_another_key_and_one_round_is_void(processes):
    site = Site(processes, 3)
    site.server("-c", "n_clients=3", "-c", "rounds=4", *RUN)
    for name in site.names[:2]:
        site.client(name)
    site.dying("client-3", "open", 2)
    site.killed("client-3")  # three of three are needed, so the sum waits for it
    shutil.rmtree(processes.folder / "client-3" / "state")
    site.client("client-3")
    assert processes.wait("server") == 0, processes.log("server")
    for name in site.names:
        assert processes.wait(name, 60) == 0, processes.log(name)
        assert "Traceback" not in processes.log(name)
    assert processes.summary()["secure_sums"]["void_rounds"] == [2]
    assert [(row["round"], row["clients"]) for row in processes.rounds()] == [(1, 3), (3, 3), (4, 3)]


def test_with_a_quorum_a_client_gone_for_good_is_not_missed(processes):
    site = Site(processes, 5)
    site.server("-c", "n_clients=5", "-c", "quorum=4", "-c", "rounds=3", "-c", "round_timeout=8", *RUN)
    for name in site.names[:4]:
        site.client(name)
    site.dying("client-5", "after", 2)
    site.killed("client-5")
    assert processes.wait("server") == 0, processes.log("server")
    for name in site.names[:4]:
        assert processes.wait(name, 60) == 0, processes.log(name)
    assert [row["clients"] for row in processes.rounds()] == [5, 4, 4]
    lines = (processes.folder / "served" / "metrics.jsonl").read_text().splitlines()
    assert {key for line in lines for key in json.loads(line)} == {"round", "client"}
