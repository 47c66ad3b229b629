"""What d, n and N cost: CPU seconds and peak memory of `perdl simulate`, one of the three larger at a time.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/size.py

Samples of d features with noise, n at each of N clients, 3 shared and 3 own atoms, min(d, 50) atoms learnt, at most 50
rounds. A run has 90 s of CPU time; what is larger than one that took longer is not tried.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

LIMIT = 90
BASE = {"d": 50, "n": 200, "N": 10}
LADDERS = {"d": (10, 50, 200, 784), "n": (200, 2000, 10000, 20000), "N": (10, 50, 200)}


def command(size: dict[str, int], folder: str) -> list[str]:
    values = {
        "synthetic.n_features": size["d"],
        "n_atoms": min(size["d"], 50),
        "data.n_samples": size["n"],
        "n_clients": size["N"],
        "synthetic.noise": 0.05,
    }
    options = [word for key, value in values.items() for word in ("-c", f"{key}={value}")]
    return [sys.executable, "-m", "perdl", "simulate", "synthetic", "--quiet", "--output", f"{folder}/run", *options]


def cost(size: dict[str, int]) -> tuple[float, float] | None:
    """Return CPU seconds and MB, or nothing of a run that did not end in its time."""
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "said", "w") as said:
        process = subprocess.Popen(
            command(size, folder),
            stdout=said,
            stderr=said,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 5)),
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = used.ru_utime + used.ru_stime
        if process.returncode not in (0, -signal.SIGXCPU):
            raise SystemExit(
                f"exit code {process.returncode} after {seconds:.0f} s: {(Path(folder) / 'said').read_text()}"
            )
        return None if process.returncode else (seconds, used.ru_maxrss / 1e3)


def ladder(name: str, rungs: Iterable[int]) -> None:
    for rung in rungs:
        size = BASE | {name: rung}
        found = cost(size)
        told = "| more than 90 | - |" if found is None else f"| {found[0]:.0f} | {found[1]:.0f} |"
        print(f"| {size['d']} | {size['n']} | {size['N']} {told}", flush=True)
        if found is None:
            break


def main() -> None:
    print("| d | n | N | CPU s | peak MB |\n|---|---|---|---|---|")
    for name, rungs in LADDERS.items():
        ladder(name, rungs)


if __name__ == "__main__":
    main()
