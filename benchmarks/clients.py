"""Simulated clients against seconds and memory, by engine, on the synthetic set-up (d = 6, 200 samples a client).

    python benchmarks/clients.py [ENGINE:CLIENTS ...]

For example ``processes:1000 in-process:1000 ray:100 flower:100``, the last with Flower's own defaults. Prints
seconds until the first dictionaries are learnt and matched, CPU milliseconds of a client and round, and the most
memory that all processes had together (PSS).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

ROUNDS = 6
DEFAULT = [f"{engine}:{n}" for n in (10, 100, 1000) for engine in ("in-process", "processes")]


def memory(process: psutil.Process) -> int:
    """Return the bytes of a process and its children, what they share counted once."""
    total = 0
    for one in (process, *process.children(recursive=True)):
        try:
            total += one.memory_full_info().pss
        except psutil.Error:
            continue
    return total


def cpu(process: psutil.Process) -> float:
    """Return CPU seconds of a process and its children so far."""
    total = 0.0
    for one in (process, *process.children(recursive=True)):
        try:
            times = one.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def measure(engine: str, n: int, folder: Path) -> str:
    """Run n clients, and return a row of the table."""
    options = [f"n_clients={n}", f"rounds={ROUNDS}", "tolerance=0", "local_restarts=0"]
    if engine == "flower":
        command = [sys.executable, str(Path(__file__).with_name("flower_default.py")), str(folder), *options]
        return watched(engine, n, folder, command)
    command = [
        sys.executable,
        "-m",
        "perdl",
        "simulate",
        "synthetic",
        "-q",
        "--engine",
        engine,
        "--output",
        str(folder),
    ]
    command += [word for option in options for word in ("-c", option)]
    return watched(engine, n, folder, command)


def watched(engine: str, n: int, folder: Path, command: list[str]) -> str:
    """Run a command that writes a run's folder, and return a row of the table."""
    began = time.perf_counter()
    # Ray's workers give way to all other work of a machine; here that would measure the other work.
    environment = {**os.environ, "RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    environment["RAY_TMPDIR"] = str(folder.parent)  # where Flower's default would look for another Ray to join
    environment.pop("RAY_ADDRESS", None)
    running = psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    most, marks, file = 0, {}, folder / "rounds.jsonl"
    while running.poll() is None:
        looked = time.perf_counter()
        most = max(most, memory(running))
        looked = time.perf_counter() - looked  # Ray has many processes
        done = file.read_text().count("\n") if file.exists() else 0
        marks.setdefault(done, cpu(running))
        time.sleep(max(min(0.05 + n / 20_000, 2.0), 10 * looked))
    whole = time.perf_counter() - began
    if running.returncode:
        raise RuntimeError(f"{engine}, {n} clients: exit code {running.returncode}")
    ends = [json.loads(line)["seconds"] for line in file.read_text().splitlines()]
    seen = sorted(done for done in marks if 1 <= done < ROUNDS)  # short rounds may pass between two looks
    each = (marks[seen[-1]] - marks[seen[0]]) / (seen[-1] - seen[0]) / n if len(seen) > 1 else float("nan")
    size = (folder / "summary.json").stat().st_size
    start = ends[0] - float(np.median(np.diff(ends)))
    return (
        f"| {engine} | {n:,} | {start:.1f} | {np.median(np.diff(ends)):.3f} | {1e3 * each:.2f} | {whole:.1f} | "
        f"{most / 2**20:.0f} | {size / 1024:.0f} |"
    )


def main() -> None:
    """Print the table."""
    columns = "engine", "clients", "start, s", "a round, s", "CPU ms a client and round", "whole command, s", "most MB"
    print(f"| {' | '.join((*columns, 'summary KB'))} |")
    print("|---|---|---|---|---|---|---|---|")
    for one in sys.argv[1:] or DEFAULT:
        engine, _, n = one.partition(":")
        with tempfile.TemporaryDirectory() as folder:
            print(measure(engine, int(n), Path(folder) / "run"), flush=True)


if __name__ == "__main__":
    main()
