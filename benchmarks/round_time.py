"""Seconds a round costs on each engine, on the synthetic set-up, where numerics are next to nothing.

    python benchmarks/round_time.py [in-process] [ray] [processes] [stock] [fifty]

Prints the median, least and largest time between the ends of two rounds, as the server writes them, and the fewest
clients that answered in one. `fifty` runs only when it is named: 50 clients for 200 rounds take 11 minutes.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PERDL = [sys.executable, "-m", "perdl"]
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def settings(n_clients: int, rounds: int) -> list[str]:
    values = [f"n_clients={n_clients}", f"rounds={rounds}", "tolerance=0", "round_timeout=900", "join_timeout=300"]
    return [word for value in values for word in ("-c", value)]


def simulated(engine: str, n_clients: int, rounds: int, folder: Path) -> None:
    command = [*PERDL, "simulate", "synthetic", "--engine", engine, "--output", str(folder)]
    subprocess.run([*command, *settings(n_clients, rounds)], check=True, **QUIET)


def served(n_clients: int, rounds: int, folder: Path, *extra: str) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    server = [*PERDL, "server", "synthetic", "--insecure", "--address", address, "--output", str(folder)]
    clients = []
    running = subprocess.Popen([*server, *settings(n_clients, rounds)], **QUIET)
    try:
        for i in range(1, n_clients + 1):
            own = ["--name", f"client-{i}", "--folder", str(folder / "own" / str(i)), *extra]
            clients.append(subprocess.Popen([*PERDL, "client", "--insecure", "--server", address, *own], **QUIET))
        if running.wait(3600):
            raise RuntimeError(f"the server ended with {running.returncode}")
    finally:
        for process in (running, *clients):
            if process.poll() is None:
                process.terminate()
        for process in clients:
            process.wait(60)


def report(label: str, run, *arguments) -> None:
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        run(*arguments[:-1], Path(folder) / "run", *arguments[-1])
        whole = time.perf_counter() - began
        rows = [json.loads(line) for line in (Path(folder) / "run" / "rounds.jsonl").read_text().splitlines()]
    each = np.diff([row["seconds"] for row in rows])
    print(
        f"| {label} | {len(rows)} | {np.median(each):.3f} | {each.min():.3f} | {each.max():.3f} | {whole:.1f} "
        f"| {min(row['clients'] for row in rows)} |",
        flush=True,
    )


def main() -> None:
    wanted = sys.argv[1:] or ["in-process", "ray", "processes", "stock"]
    print("| engine | rounds | median s/round | least | largest | whole command, s | fewest clients |")
    print("|---|---|---|---|---|---|---|")
    if "in-process" in wanted:
        for n in (2, 10):
            report(f"in-process, {n} clients", simulated, "in-process", n, 50, ())
    if "ray" in wanted:
        report("ray, 10 clients", simulated, "ray", 10, 20, ())
    if "processes" in wanted:
        for n in (2, 8):
            report(f"processes, {n} clients, perdl client", served, n, 20, ())
    if "stock" in wanted:
        for n, rounds in ((2, 4), (8, 2)):
            report(f"processes, {n} clients, flower-supernode", served, n, rounds, ("--stock",))
    if "fifty" in wanted:
        report("processes, 50 clients, perdl client", served, 50, 200, ())


if __name__ == "__main__":
    main()
