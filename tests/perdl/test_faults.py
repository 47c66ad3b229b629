"""Faults of real processes other than being killed: bad answers, bad data, late, absent, full disks, signals."""

from __future__ import annotations

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
import pytest

HERE = Path(__file__).parent

BAD_ANSWERS = {
    "wrong-shape": r"contribution has shape (6, 2), expected (6, 3)",
    "transposed": "contribution has shape (3, 6), expected (6, 3)",
    "integers": "contribution has type int64",
    "half-precision": "contribution has type float16",
    "nan": "contribution holds NaN or infinity",
    "infinity": "contribution holds NaN or infinity",
    "zeros": "atom 0 of its contribution is zero",
    "one-zero-atom": "atom 1 of its contribution is zero",
    "huge": "contribution is out of all proportion: an atom of norm 1e+09",
    "other-name": "answered under another client's name",
    "no-array": "the message holds no array contribution",
    "wrong-version": "the other side speaks protocol 99",
}


def test_answers_that_break_the_protocol_are_refused_and_named_and_the_others_go_on(processes):
    n = 2 + len(BAD_ANSWERS) + 1
    # The log of the server's processes goes to a file as JSON lines.
    processes.server("-c", f"n_clients={n}", "-c", "quorum=2", "-c", "rounds=3", "--log", "log.jsonl")
    for name in ("client-1", "client-2"):
        processes.client(name)
    script = HERE / "hostile_clients.py"
    processes.command("hostile", sys.executable, script, processes.address, *BAD_ANSWERS, "replay")
    assert processes.wait("server") == 0, processes.log("server")
    assert processes.wait("client-1", 60) == processes.wait("client-2", 60) == 0
    summary = processes.summary()
    # In round 1 the replay is the answer itself.
    assert [row["clients"] for row in processes.rounds()] == [3, 2, 2]
    assert summary["final"]["global_distance"] < 0.05
    lines = [json.loads(line) for line in (processes.folder / "log.jsonl").read_text().splitlines()]
    expected = [*((1, why) for why in BAD_ANSWERS.values()), (2, "answered round 1, was asked for round 2")]
    for number, (t, why) in enumerate(expected, start=3):
        # Clients with the same fault are told in one line.
        left_out = re.compile(rf"left out: (client-\d+, )*client-{number}(, client-\d+)*: {re.escape(why)}")
        said = [line for line in lines if left_out.search(line["text"])]
        assert [line["round"] for line in said] == [t], (number, why, lines)
        assert summary["clients"][f"client-{number}"]["missed"] == (2 if number == n else 3)
    assert len({line["run"] for line in lines if "round" in line}) == 1


def test_answers_that_are_announced_and_never_come_hold_up_nobody_for_long(processes):
    """As of a client that is cut off between the two; Flower itself would wait for hours."""
    processes.server("-c", "n_clients=3", "-c", "quorum=2", "-c", "rounds=3", "-c", "round_timeout=6")
    for name in ("client-1", "client-2"):
        processes.client(name)
    processes.command("hostile", sys.executable, HERE / "hostile_clients.py", processes.address, "never-delivered")
    assert processes.wait("server", 120) == 0, processes.log("server")
    assert {row["clients"] for row in processes.rounds()} == {2}
    assert "client-3: its answer was announced and did not come" in processes.log("server")


def test_a_straggler_is_dropped_and_welcome_again_and_who_comes_late_is_aligned(processes):
    for i in (1, 2):  # they come before the server, which waits in vain for the others
        processes.client(f"client-{i}")
        processes.wait_for(lambda i=i: "waiting" in processes.log(f"client-{i}"))
    n_clients = ["-c", "n_clients=4", "-c", "quorum=2", "-c", "join_timeout=15", "-c", "round_timeout=2"]
    processes.server(*n_clients, "-c", "rounds=100000", "-c", "tolerance=0")
    processes.wait_for_round(2)  # client-4 never comes
    assert [row["clients"] for row in processes.rounds()][:2] == [2, 2]

    processes.client("client-3")
    processes.wait_for(lambda: processes.rounds()[-1]["clients"] == 3)
    processes.started["client-2"].send_signal(signal.SIGSTOP)
    processes.wait_for(lambda: processes.rounds()[-1]["clients"] == 2)
    processes.started["client-2"].send_signal(signal.SIGCONT)
    processes.wait_for(lambda: processes.rounds()[-1]["clients"] == 3)
    processes.wait_for_round(len(processes.rounds()) + 15)
    processes.started["server"].terminate()
    assert processes.wait("server", 60) == 130, processes.log("server")
    summary = processes.summary()
    assert set(summary["clients"]) == {"client-1", "client-2", "client-3"}
    assert summary["clients"]["client-2"]["missed"] >= 1
    assert summary["final"]["global_distance"] < 1e-9
    assert summary["final"]["local_distance_max"] < 1e-9
    for i in (1, 2, 3):
        assert processes.wait(f"client-{i}", 60) == 4
        assert "it was interrupted at the server" in processes.log(f"client-{i}")


def test_data_that_do_not_fit_are_left_out_and_told_so_at_once(processes):
    rng = np.random.default_rng(0)
    shared, folder = np.linalg.qr(rng.standard_normal((6, 3))).Q, processes.folder

    def samples(n, d=6):
        own = np.linalg.qr(np.hstack([shared, rng.standard_normal((6, 3))])).Q[:, :d]
        return (own @ (rng.standard_normal((d, n)) * (rng.random((d, n)) < 0.3))).T

    np.save(folder / "a.npy", samples(200))
    np.save(folder / "b.npy", samples(200))
    np.save(folder / "wide.npy", np.hstack([samples(200), samples(200)[:, :1]]))
    np.save(folder / "few.npy", samples(6))
    spoiled = samples(200)
    spoiled[17, 4] = np.nan
    np.save(folder / "nan.npy", spoiled)
    files = ["-c", "data.source=files", "-c", "n_clients=4", "-c", "quorum=2", "-c", "rounds=500"]
    server = processes.server(*files, "-c", "tolerance=0", "-c", "join_timeout=60")
    for name in ("a", "b", "wide", "few", "nan"):
        processes.client(name, "--data", f"{name}.npy")
    assert processes.wait("nan", 60) == 3
    assert "nan.npy" in processes.log("nan")
    # These are told while the run goes on.
    assert processes.wait("wide", 120) == 4
    assert "wide has 7 features, a has 6" in processes.log("wide")
    assert server.poll() is None
    processes.wait_for_round(3)
    assert processes.rounds()[-1]["clients"] == 3  # the one that uses few atoms takes part


@pytest.fixture
def small_disks(tmp_path):
    """Two file systems of 400 kB, where we may mount any."""
    folders = [tmp_path / "disk one", tmp_path / "disk two"]
    for folder in folders:
        folder.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "perdl-test", folder], capture_output=True)
        if done.returncode:
            pytest.skip(f"no right to mount a small disk: {done.stderr.decode().strip()}")
    yield folders
    for folder in folders:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path) -> Path:
    path = folder / "ballast"
    with path.open("wb", buffering=0) as file:
        for size in (4096, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    return path


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", folder], check=True)


RUN = ["-c", "n_clients=2", "-c", "rounds=100000", "-c", "tolerance=0", "-c", "synthetic.noise=0.1"]


def test_full_and_read_only_disks_on_either_side_cost_rounds_not_results(processes, small_disks):
    """The server's disk and client-2's fill up and are emptied; then client-2's turns read-only for a while."""
    served, own = small_disks
    (served / "run").mkdir()
    (processes.folder / "served").symlink_to(served / "run")
    server = processes.server(*RUN, "-c", "quorum=1", "--log", "log.jsonl", "--overwrite")
    processes.client("client-1")
    processes.client("client-2", "--folder", own / "folder")
    log = processes.folder / "log.jsonl"

    def both_answer_again():
        processes.wait_for_round(len(processes.rounds()) + 2)
        processes.wait_for(lambda: processes.rounds()[-1]["clients"] == 2)

    processes.wait_for_round(2)
    ballast = [fill(disk) for disk in small_disks]
    processes.wait_for(lambda: "client-2: its own disk or folder fails it: No space left on device" in log.read_text())
    # What it replaces may leave just enough room for one of them, never for all.
    processes.wait_for(lambda: "global_dictionary.npz: No space left on device" in log.read_text())
    for path in ballast:
        path.unlink()
    both_answer_again()
    state = own / "folder" / "state"  # a whole disk is not remounted while a lock is open on it
    subprocess.run(["mount", "--bind", state, state], check=True)
    remount(state, "bind,ro")
    processes.wait_for(lambda: "Read-only file system" in log.read_text())
    subprocess.run(["umount", "-l", state], check=True)
    both_answer_again()
    server.send_signal(signal.SIGTERM)
    assert processes.wait("server", 60) == 130
    rounds = [row["round"] for row in processes.rounds()]
    assert rounds == list(range(1, len(rounds) + 1))
    assert processes.summary()["rounds"] == rounds[-1]
    assert "Traceback" not in processes.log("server") + processes.log("client-2")


def test_a_simulation_on_a_full_disk_shows_what_it_found_and_names_the_file(processes, small_disks):
    folder = small_disks[0] / "run"
    process = processes.start("run", "simulate", *RUN[:2], "-c", "rounds=1000", *RUN[4:], "--output", folder)
    processes.wait_for(lambda: (folder / "rounds.jsonl").exists())
    fill(small_disks[0])
    assert process.wait(60) == 1
    told = processes.log("run")
    assert re.search("client-2 .* 200 .* 6 ", told)
    assert "1000 rounds" in told
    assert f"perdl: cannot write {folder}/summary.json: No space left on device" in told
    assert told.count("No space left on device") <= 5, told
    assert "Traceback" not in told


def test_folders_that_cannot_be_written_are_named_before_anything_starts(processes, small_disks):
    small_disk = small_disks[0]
    remount(small_disk, "ro")
    arguments = ["server", "synthetic", "--insecure", "--address", processes.address, "--output", small_disk / "run"]
    processes.start("server", *arguments)
    processes.client("client-1", "--folder", small_disk / "own")
    assert processes.wait("server", 60) == 1
    assert f"{small_disk}/run" in processes.log("server")
    assert processes.wait("client-1", 60) == 1
    assert "Read-only file system; choose another --folder" in processes.log("client-1")


def test_a_second_server_or_client_is_refused_in_one_line(processes):
    processes.server(*RUN, "-c", "join_timeout=300")
    processes.client("client-1")
    processes.wait_for(lambda: "joined" in processes.log("client-1"))
    processes.start("same port", "server", "--insecure", "--address", processes.address, "--output", "other")
    processes.start("same folder", "server", "--insecure", "--address", "127.0.0.1:1", "--output", "served")
    processes.client("client-1", label="same client")
    assert processes.wait("same port", 60) == 4
    assert f"port {processes.port} of 127.0.0.1 cannot be had" in processes.log("same port")
    assert processes.wait("same client", 60) == 2
    assert "is in use by another client" in processes.log("same client")
    assert processes.wait("same folder", 60) in (2, 4)
    assert processes.started["server"].poll() is None
    assert processes.started["client-1"].poll() is None


DROPPED = "Exception ignored in: <function _get_module_lock"
"""Python drops an interrupt that comes while it starts and holds an import's lock, and says so. Whoever sees that
nothing happens sends a second one."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_signals_at_any_moment_end_a_process_at_once_and_without_a_traceback(processes, number):
    """From the first import to the wait for clients."""
    moments = (0.02, 0.1, 0.3, 0.8, 1.5, 3.0)
    began = time.monotonic()
    for moment in moments:
        arguments = ["synthetic", "--insecure", "--address", f"127.0.0.1:{free_port()}", "--output", f"run {moment}"]
        processes.start(f"server {moment}", "server", *arguments)
        processes.client("a", "--folder", f"own {moment}", label=f"client {moment}")
    started = dict(processes.started)
    for moment in moments:
        time.sleep(max(0.0, began + moment - time.monotonic()))
        for side in ("server", "client"):
            started[f"{side} {moment}"].send_signal(number)
    for label, process in started.items():
        again = False
        while process.poll() is None:
            assert time.monotonic() - began < 60, (label, again, processes.log(label))
            with suppress(subprocess.TimeoutExpired):
                process.wait(1)
            if process.poll() is None and not again and DROPPED in processes.log(label):
                process.send_signal(number)
                again = True
        code = process.returncode
        # Before Python itself is up, the signal ends it, with a traceback of Python's own modules.
        assert code in (130, -number, 1), (label, code, processes.log(label))
        ours = str(HERE.parents[1] / "perdl")
        assert ours not in re.sub(f"{ours}/__(init|main)__.py", "", processes.log(label)), processes.log(label)
        assert code != 1 or "frozen" in processes.log(label)
    for moment in moments:
        assert not processes.of(processes.folder / f"run {moment}" / "flower")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_clocks_may_differ_by_hours_in_plain_text(processes):
    """With keys a wrong clock is refused in words, see test_tls.py; without, nothing depends on it."""
    (processes.folder / "skew").mkdir()
    patch = "import time\n_time = time.time\ntime.time = lambda: _time() + float(__import__('os').environ['SKEW'])\n"
    (processes.folder / "skew" / "sitecustomize.py").write_text(patch)
    root = os.pathsep.join([str(processes.folder / "skew"), str(HERE.parents[1])])
    processes.server("-c", "n_clients=2", "-c", "rounds=2")
    processes.client("client-1", env={"SKEW": "-7200", "PYTHONPATH": root})
    processes.client("client-2", env={"SKEW": "7200", "PYTHONPATH": root})
    assert processes.wait("server", 120) == 0, processes.log("server")
    assert {row["clients"] for row in processes.rounds()} == {2}
