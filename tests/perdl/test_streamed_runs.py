"""Whole runs of samples that are read block by block: the bits of runs in memory, and little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import perdl
from common import blocks
from common.errors import SettingsError
from common.settings import load_settings
from perdl_client.data import room
from perdl_client.data.check import check_data
from perdl_client.data.memory import Memory
from perdl_client.data.sources import read_file
from perdl_client.formats.columns import Absent
from perdl_client.learning import subset

D, N = 8, 900
LEARN = {"n_global": 3, "n_atoms": 6, "rounds": 4, "n_restarts": 2, "local_restarts": 2, "threshold": 0.4}


def save(folder, writer=np.save, ending="npy", dtype="f8"):
    rng = np.random.default_rng(0)
    shared = np.linalg.qr(rng.standard_normal((D, D))).Q[:, :3]
    folder.mkdir()
    for i in range(3):
        atoms = np.linalg.qr(np.hstack([shared, rng.standard_normal((D, 3))])).Q
        X = rng.standard_normal((6, N + i)) * (rng.random((6, N + i)) < 0.3)
        rows = (atoms @ X + 0.05 * rng.standard_normal((D, N + i)) + 0.1).T
        writer(folder / f"{'abc'[i]}.{ending}", rows.astype(dtype))
    return folder


def save_parquet(path, rows):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({f"x{j}": one for j, one in enumerate(rows.T)}), path, row_group_size=200)


def found(folder, path, in_memory, **settings):
    """Run a federation; return all its numbers."""
    told = {**LEARN, "data.path": str(path), "data.in_memory": in_memory, **settings}
    perdl.simulate("files", told, output=folder)
    numbers = {}
    for file in sorted(folder.rglob("*.npz")):
        with np.load(file) as arrays:
            place = str(file.relative_to(folder))
            numbers |= {(place, key): arrays[key] for key in arrays.files if arrays[key].dtype.kind in "fi"}
    summary = json.loads((folder / "summary.json").read_text())
    return numbers, {key: summary[key] for key in ("final", "clients", "rounds", "stop_reason")}


RUNS = {
    "as it is": {},
    "single precision": {"dtype": "float32"},
    "scaled and held out": {"data.center": True, "data.scale": "client", "evaluation.held_out": 0.2},
    "agreed and whitened": {"data.site_scale": "agree", "data.whiten": True},
    "windows": {"data.window": 2, "data.stride": 1, "n_atoms": 8},
    "unguarded": {"privacy": "none", "aggregation": "procrustes", "coder": "top-k", "n_nonzero": 2},
    "summed": {"privacy": "aggregated", "aggregation": "energy"},
    "other learner": {"learner": "coordinate", "coder": "omp", "n_nonzero": 2, "refine_steps": 1},
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("run", RUNS)
def test_a_streamed_run_has_the_bits_of_one_in_memory(tmp_path, monkeypatch, run):
    monkeypatch.setattr(blocks, "NUMBERS", 2000)
    monkeypatch.setattr(subset, "MOST", 300 * D)
    writer = {"agreed and whitened": save_parquet}.get(run, np.save)
    path = save(tmp_path / "data", writer, "parquet" if writer is save_parquet else "npy")
    (one, told), (other, also_told) = (found(tmp_path / str(m), path, m, **RUNS[run]) for m in (True, False))
    assert len(one) >= 20
    assert one.keys() == other.keys()
    for key, numbers in one.items():
        np.testing.assert_array_equal(other[key], numbers, str(key))
    assert also_told == told


@pytest.mark.parametrize(("available", "is_streamed"), [(1e12, False), (1e5, True)])
def test_auto_streams_what_does_not_fit(tmp_path, monkeypatch, available, is_streamed):
    path = save(tmp_path / "data")
    monkeypatch.setattr(room, "available_memory", lambda: available)
    settings = load_settings(None, ["data.source=files", f"data.path={path}", "n_clients=3"])
    samples = read_file(settings, path / "a.npy", Absent())
    assert isinstance(samples.data, blocks.Stream) == is_streamed
    memories = [Memory() for _ in range(3)]
    check_data(settings, memories)
    assert all(isinstance(one.look("float64").data, blocks.Stream) == is_streamed for one in memories)


def test_a_setting_that_needs_all_samples_is_refused_before_the_run(tmp_path):
    path = save(tmp_path / "data")
    with pytest.raises(SettingsError, match=r'outliers = "mask": .* of a are read block by block: .*in_memory = true'):
        found(tmp_path / "run", path, False, outliers="mask")


UNDER_A_LIMIT = """
import json, resource, sys, warnings
warnings.simplefilter("ignore")
import perdl

def data_bytes():
    status = open("/proc/self/status").read().splitlines()
    return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmData"))

settings, small, large, folder, beyond = json.loads(sys.argv[1]), *sys.argv[2:5], int(sys.argv[5])
perdl.simulate("files", {**settings, "data.path": small}, output=folder + "/small")
limit = data_bytes() + beyond
resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))
result = perdl.simulate("files", {**settings, "data.path": large}, output=folder + "/large")
print(json.dumps(result.summary["clients"]))
"""


def save_large(path, size, d):
    """Write about so many bytes of samples in single precision."""
    n = size // (4 * d)
    out = np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
    rng = np.random.default_rng(0)
    atoms = np.linalg.qr(rng.standard_normal((d, 4))).Q.astype(np.float32)
    for i in range(0, n, 50_000):
        m = min(50_000, n - i)
        codes = rng.standard_normal((m, 4), np.float32) * (rng.random((m, 4), np.float32) < 0.3)
        out[i : i + m] = codes @ atoms.T + 0.02
    out.flush()


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
def test_a_file_of_300_mb_needs_100_mb(tmp_path):
    small, large = tmp_path / "small", tmp_path / "large"
    small.mkdir()
    large.mkdir()
    save_large(small / "a.npy", 40_000, 64)
    save_large(large / "a.npy", 300_000_000, 64)
    settings = {"n_global": 2, "n_atoms": 4, "rounds": 2, "n_restarts": 1, "dtype": "float32"}
    settings |= {"data.center": True, "data.scale": "client", "evaluation.held_out": 0}
    arguments = [json.dumps(settings), str(small), str(large), str(tmp_path / "runs"), str(100_000_000)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", UNDER_A_LIMIT, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    client = json.loads(done.stdout.splitlines()[-1])["a"]
    assert client["n_samples"] == 300_000_000 // 256
    assert client["final_error"] < 0.2


@pytest.mark.skipif("PERDL_LARGE" not in os.environ, reason="writes 4 GB and takes minutes: set PERDL_LARGE=1")
def test_a_client_with_1_gb_learns_from_4_gb(tmp_path):
    save_large(tmp_path / "a.npy", 4_200_000_000, 1024)
    told = [
        "n_global=2",
        "n_atoms=8",
        "rounds=3",
        "dtype=float32",
        "evaluation.held_out=0",
        f"data.path={tmp_path}/a.npy",
    ]
    options = [part for one in told for part in ("-c", one)]
    command = f"ulimit -v 1048576; exec {sys.executable} -m perdl simulate files --output {tmp_path}/run"
    subprocess.run(["bash", "-c", f"{command} {' '.join(options)}"], check=True)
    client = json.loads((tmp_path / "run" / "summary.json").read_text())["clients"]["a"]
    assert client["n_samples"] == 4_200_000_000 // 4096
    assert client["final_error"] < 0.2
