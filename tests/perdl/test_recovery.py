"""Processes killed in the middle of a run, on either side: it goes on where it was, to the same bits."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np

from perdl.deploy.certs import make_certs

RUN = ["-c", "n_clients=2", "-c", "rounds=40", "-c", "tolerance=0", "-c", "synthetic.noise=0.1"]


def superlink_of(processes) -> int:
    """The process that the server started."""
    parent = processes.started["server"].pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return int(children[0])


def test_killed_clients_servers_and_superlinks_cost_no_bit(processes):
    """One run; each side is killed in turn and started again, and the end is that of a run without a fault."""
    server = processes.server(*RUN)
    for name in ("client-1", "client-2"):
        processes.client(name)
    processes.wait_for_round(2)

    processes.started["client-2"].kill()  # nobody tells the server
    processes.started["client-2"].wait()
    processes.client("client-2")
    t = len(processes.rounds())
    processes.wait_for_round(t + 3)
    assert processes.log("client-2").count("joined") == 2

    server.kill()
    server.wait()
    t = len(processes.rounds())
    processes.server("--resume", "served")
    processes.wait_for_round(t + 3)

    os.kill(superlink_of(processes), signal.SIGKILL)
    assert processes.wait("server", 60) == 4
    assert "go on with `perdl server --resume" in processes.log("server")
    t = len(processes.rounds())
    server = processes.server("--resume", "served")
    processes.wait_for_round(t + 3)

    server.send_signal(signal.SIGTERM)
    assert processes.wait("server", 60) == 130
    assert processes.summary()["stop_reason"] == "interrupted"
    for name in ("client-1", "client-2"):
        assert processes.wait(name, 60) == 4
        processes.client(name)
    processes.server("--resume", "served")
    assert processes.wait("server") == 0, processes.log("server")
    for name in ("client-1", "client-2"):
        assert processes.wait(name, 60) == 0
        assert "Traceback" not in processes.log(name)
    assert "Traceback" not in processes.log("server")

    summary = processes.summary()
    assert summary["stop_reason"] == "rounds"
    assert summary["resumed"] == 3
    assert [row["round"] for row in processes.rounds()] == list(range(1, 41))
    assert {row["clients"] for row in processes.rounds()} == {2}
    processes.run("simulate", "synthetic", *RUN, "--output", "simulated")
    np.testing.assert_array_equal(processes.dictionary(), processes.dictionary("simulated"))
    for name in ("client-1", "client-2"):
        with np.load(processes.folder / "simulated" / "clients" / name / "dictionary.npz") as twin:
            for key, value in processes.own(name).items():
                np.testing.assert_array_equal(value, twin[key])
    assert not processes.of(processes.folder / "served" / "flower")


def test_with_keys_a_client_is_its_key_and_comes_back_at_once(processes):
    """Flower takes a killed process for alive for up to a minute, and lets nobody else in with its key."""
    make_certs(processes.folder / "certs", [], ["client-1", "client-2"])
    server = ["server", "synthetic", *RUN, "--certs", "certs", "--address", processes.address, "--output", "served"]
    processes.start("server", *server, "-c", "rounds=100000", "-c", "join_timeout=200")

    def client(name, key=None, label=None):
        where = ["--server", processes.address, "--certs", f"certs/clients/{key or name}", "--folder", label or name]
        return processes.start(label or name, "client", "--name", name, *where)

    client("client-2")
    client("client-2", key="client-1", label="impostor")
    processes.wait_for(lambda: "joined" in processes.log("impostor"))
    assert processes.wait("impostor", 60) == 4
    words = "its key is that of client-1, but it calls itself client-2: start it with its own name"
    assert words in processes.log("impostor")

    client("client-1")
    processes.wait_for_round(2)
    processes.started["client-2"].kill()
    processes.started["client-2"].wait()
    t = len(processes.rounds())
    client("client-2")
    processes.wait_for_round(t + 3, seconds=50)  # in less than Flower's patience
    assert {row["clients"] for row in processes.rounds()} == {2}
