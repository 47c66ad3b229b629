"""Seconds from a fault to the next complete round with all clients, by real processes on one machine.

    python benchmarks/recovery.py

Three clients in plain text, numerics next to nothing: what is measured is noticing, starting Python, and rejoining.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from soak import Soak, family


class Faults(Soak):
    """A run of which every round needs all clients, and what is done to it."""

    def settings(self) -> list[str]:
        values = [f"n_clients={self.n}", "rounds=1000000", "tolerance=0", "round_timeout=120", "join_timeout=120"]
        return [w for v in [*values, "synthetic.noise=0.05"] for w in ("-c", v)]

    def begin(self) -> None:
        self.start_server()
        for i in range(self.n):
            self.start_client(f"client-{i + 1}")
        self.seconds_to(3)

    def seconds_to(self, more: int) -> float:
        """Wait until so many more rounds are complete."""
        began, t = time.monotonic(), self.round + more
        while self.round < t:
            if time.monotonic() - began > 300:
                raise RuntimeError(f"no round {t} within 300 s; see {self.folder}")
            time.sleep(0.01)
        return time.monotonic() - began

    def usual(self) -> float:
        return self.seconds_to(10) / 10

    def kill_client(self) -> None:
        self.processes["client-2"].kill()
        self.processes["client-2"].wait()
        self.start_client("client-2")

    def stop_client(self) -> None:
        self.processes["client-2"].terminate()
        self.processes["client-2"].wait()
        self.start_client("client-2")

    def kill_server(self) -> None:
        self.processes["server"].kill()
        self.processes["server"].wait()
        self.start_server("--resume", "run")

    def kill_superlink(self) -> None:
        for pid, command in family(self.processes["server"].pid):
            if "flower_superlink" in command:
                signal_process(pid)
        self.processes["server"].wait(60)
        self.start_server("--resume", "run")

    def kill_all(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()
        self.start_server("--resume", "run")
        for i in range(self.n):
            self.start_client(f"client-{i + 1}")

    def freeze_client(self) -> None:
        self.processes["client-2"].send_signal(signal.SIGSTOP)
        time.sleep(5)
        self.processes["client-2"].send_signal(signal.SIGCONT)


def signal_process(pid: int) -> None:
    import os

    os.kill(pid, signal.SIGKILL)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        options = argparse.Namespace(output=str(Path(folder) / "run"), clients=3, rounds=0, minutes=0, seed=0)
        faults = Faults(options)
        try:
            faults.begin()
            rows: list[tuple[str, float]] = [("nothing: a usual round", faults.usual())]
            for name, do in faults_of(faults):
                began = time.monotonic()
                do()
                faults.seconds_to(1)
                rows.append((name, time.monotonic() - began))
                faults.seconds_to(3)
        finally:
            for process in faults.processes.values():
                if process.poll() is None:
                    process.send_signal(signal.SIGCONT)
                    process.terminate()
            for process in faults.processes.values():
                process.wait(30)
        clients = {row["clients"] for row in map(json.loads, (faults.folder / "run" / "rounds.jsonl").open())}
        print("| fault | s to the next complete round |\n|---|---:|")
        for name, seconds in rows:
            print(f"| {name} | {seconds:.1f} |")
        return 0 if clients == {3} else 1


def faults_of(faults: Faults) -> list[tuple[str, Callable[[], None]]]:
    return [
        ("client kill -9, started again at once", faults.kill_client),
        ("client SIGTERM, started again at once", faults.stop_client),
        ("client frozen for 5 s", faults.freeze_client),
        ("server kill -9, resumed at once", faults.kill_server),
        ("SuperLink kill -9, server resumed at once", faults.kill_superlink),
        ("all processes kill -9, all started again", faults.kill_all),
    ]


if __name__ == "__main__":
    sys.exit(main())
