"""Clients in worker processes: same bits, and a death of one is told."""

import os
import signal
import threading
import time

import numpy as np
import psutil
import pytest

from common.errors import PerdlError
from common.settings import load_settings
from perdl.engines.in_process import run_in_process
from perdl_client.app import app as client_app
from perdl_server.app import app as server_app

MANY = ["rounds=2", "n_clients=40", "data.n_samples=60", "aggregation=trimmed"]


def workers():
    return [p for p in psutil.Process().children() if "perdl.engines.worker" in p.cmdline()]


def run(folder, *overrides, **keywords):
    settings = load_settings(None, [f"output={folder}", *MANY, *overrides])
    run_in_process(server_app, client_app, settings, **keywords)
    found = {}
    for path in sorted(folder.rglob("*.npz")):
        with np.load(path) as arrays:
            found |= {(path.relative_to(folder), key): arrays[key] for key in arrays if arrays[key].dtype.kind == "f"}
    return found


@pytest.mark.parametrize("mode", ["guarded", "aggregated"])
def test_processes_give_the_same_bits_however_many_there_are(tmp_path, mode):
    few = [] if mode == "guarded" else ["n_clients=6", "aggregation=mean"]
    runs = [run(tmp_path / f"{n}", f"privacy.mode={mode}", *few, processes=n > 0, workers=n or 1) for n in (0, 1, 3)]
    assert len(runs[0]) > 5
    for other in runs[1:]:
        assert other.keys() == runs[0].keys()
        for key, array in runs[0].items():
            np.testing.assert_array_equal(other[key], array, err_msg=str(key))
    assert not workers()


def test_starts_are_counted_and_messages_recorded(tmp_path):
    counts, kinds = [], []
    run(
        tmp_path / "run",
        processes=True,
        workers=2,
        record=lambda message: kinds.append(message.metadata.message_type),
        on_start=lambda done, total: counts.append((done, total)),
    )
    assert sorted(counts) == [(i, 40) for i in range(41)]
    assert kinds.count("train.update") == 2 * 2 * 40


def test_the_death_of_a_process_ends_the_run_with_a_line_and_leaves_no_other(tmp_path):
    def kill_one():
        while not (tmp_path / "run" / "rounds.jsonl").exists() and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(workers()[0].pid, signal.SIGKILL)

    until = time.monotonic() + 60
    killer = threading.Thread(target=kill_one)
    killer.start()
    with pytest.raises(PerdlError, match="a process that holds simulated clients died"):
        run(tmp_path / "run", "rounds=100000", "tolerance=0.0", processes=True, workers=2)
    killer.join()
    assert not workers()
    assert (tmp_path / "run" / "summary.json").exists()
