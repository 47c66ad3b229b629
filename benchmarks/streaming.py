"""A round of one client whose samples are read block by block, against the same round in memory, with one BLAS thread.

    python benchmarks/streaming.py [GB]

Each format holds the same samples (default 0.4 GB). A round is `ClientLearner.update` with the guard, after a start
that is not timed. CPU seconds of the fastest of three runs, both ways taken by turns; the file is in the system cache.
That both give the same bits is checked in every row. Memory is the peak (RSS) of a process of its own beyond what it
had before, of reading, preparing and one round.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from common.learning_settings import LearningSettings
from common.settings import load_settings
from perdl_client.data.load import prepare
from perdl_client.formats.read import load_samples
from perdl_client.learning.client import ClientLearner

D, R, R_G, RUNS = 256, 32, 8, 3
CUTS = {"as it is": [], "centre, scale": ["data.center=true", "data.scale=client"], "windows of 2": ["data.window=2"]}


def samples(n: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    atoms = np.linalg.qr(rng.standard_normal((D, R))).Q.astype(np.float32)
    rows = np.empty((n, D), np.float32)
    for i in range(0, n, 50_000):
        m = min(50_000, n - i)
        codes = rng.standard_normal((m, R), np.float32) * (rng.random((m, R), np.float32) < 0.2)
        rows[i : i + m] = codes @ atoms.T + 0.05 * rng.standard_normal((m, D), np.float32)
    return rows


def save(folder: Path, rows: np.ndarray) -> list[Path]:
    np.save(folder / "a.npy", rows)
    import h5py
    import pyarrow
    from pyarrow import feather, parquet

    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("x", data=rows)
    table = pyarrow.table({f"x{j}": one for j, one in enumerate(rows.T)})
    parquet.write_table(table, folder / "a.parquet")
    parquet.write_table(table, folder / "small-groups.parquet", row_group_size=20_000)
    feather.write_feather(table, folder / "a.feather")
    names = ("a.npy", "a.h5", "a.parquet", "small-groups.parquet", "a.feather")
    return [folder / name for name in names]


def learner(path: Path, stream: bool, overrides: list[str]) -> ClientLearner:
    settings = load_settings(None, ["data.source=files", "data.path=x", "dtype=float32", "n_atoms=32", *overrides])
    data = prepare(load_samples(path, dtype="float32", stream=stream), settings, settings, "ada")
    rng = np.random.default_rng(1)
    D_0 = np.linalg.qr(rng.standard_normal((len(data.Y), R - R_G))).Q.astype(np.float32)
    learning = LearningSettings(n_atoms=R, threshold=0.3, local_restarts=0)
    return ClientLearner(data.Y, learning, 0, "ada", dictionary=D_0, guarded=True)


def row(path: Path, name: str) -> None:
    clients = [learner(path, stream, CUTS[name]) for stream in (False, True)]
    d = len(clients[0].Y)
    D_g = np.linalg.qr(np.random.default_rng(2).standard_normal((d, R_G))).Q.astype(np.float32)
    best, found = [np.inf, np.inf], [None, None]
    for _ in range(RUNS):
        for k, client in enumerate(clients):
            client._dictionary = learner_start(d)
            began = time.process_time()
            found[k] = client.update(D_g, 1)
            best[k] = min(best[k], time.process_time() - began)
    assert np.array_equal(found[0].global_dictionary, found[1].global_dictionary)
    print(f"| {path.name} | {name} | {best[0]:.2f} | {best[1]:.2f} | {best[1] / best[0]:.2f} | {peak(path, name)} |")


def learner_start(d: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(1).standard_normal((d, R - R_G))).Q.astype(np.float32)


def peak(path: Path, name: str) -> str:
    """Peak RSS of one round beyond the start of the process, streamed and in memory, in MB."""
    told = []
    for stream in (True, False):
        arguments = [sys.executable, __file__, "--one", str(path), name, json.dumps(stream)]
        told.append(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.strip())
    return " / ".join(told)


def one(path: Path, name: str, stream: bool) -> None:
    def kilobytes(key: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(key))

    learner(path.with_name("few.npy"), False, CUTS[name])  # what is imported once does not count
    before = kilobytes("VmRSS")
    client = learner(path, stream, CUTS[name])
    d = len(client.Y)
    client.update(np.linalg.qr(np.random.default_rng(2).standard_normal((d, R_G))).Q.astype(np.float32), 1)
    print(f"{(kilobytes('VmHWM') - before) / 1000:.0f}")


def main() -> None:
    if "--one" in sys.argv:
        one(Path(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4]))
        return
    size = float(sys.argv[1]) if len(sys.argv) > 1 else 0.4
    rows = samples(int(size * 1e9 / 4 / D))
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}\n")
    print(f"{len(rows)} samples of {D} features in single precision, {R} atoms\n")
    print("| format | prepared | in memory, CPU s | streamed, CPU s | ratio | peak MB, streamed / in memory |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "few.npy", rows[:100])
        paths = save(Path(folder), rows)
        del rows
        for path in paths:
            for name in CUTS if path.suffix == ".npy" else ["as it is"]:
                row(path, name)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
