"""A long run with processes that are killed and started again on both sides, and what it leaves behind.

    python benchmarks/soak.py [--minutes 20] [--rounds 200] [--clients 8] [--seed 0] [--output soak]

Prints a table and writes ``soak.json`` and ``soak.png`` to the output folder. Ends with 1 if anything is not as it
should be.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

PERDL = [sys.executable, "-m", "perdl"]
NOISE = 0.05


class Soak:
    """One server, its clients, and somebody who pulls plugs."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.folder = Path(options.output).resolve()
        self.folder.mkdir(parents=True)
        self.n, self.rounds, self.minutes = options.clients, options.rounds, options.minutes
        self.rng = random.Random(options.seed)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.processes: dict[str, subprocess.Popen] = {}
        self.events: list[dict] = []
        self.memory: list[dict] = []
        self.began = time.monotonic()

    def start(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("a") as log:
            self.processes[name] = subprocess.Popen(
                [*PERDL, *arguments], cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def start_server(self, *extra: str) -> None:
        begin = extra or ("synthetic", "--output", "run", *self.settings())
        self.start("server", "server", *begin, "--insecure", "--address", f"127.0.0.1:{self.port}")

    def start_client(self, name: str) -> None:
        self.start(name, "client", "--insecure", "--server", f"127.0.0.1:{self.port}", "--name", name, "--wait", "120")

    def settings(self) -> list[str]:
        values = [f"n_clients={self.n}", f"quorum={self.n - 2}", "rounds=1000000", "tolerance=0", "round_timeout=20"]
        return [w for v in [*values, f"synthetic.noise={NOISE}", "join_timeout=120"] for w in ("-c", v)]

    @property
    def round(self) -> int:
        path = self.folder / "run" / "rounds.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def say(self, what: str, who: str) -> None:
        seconds = round(time.monotonic() - self.began, 1)
        self.events.append({"seconds": seconds, "round": self.round, "what": what, "who": who})
        print(f"{self.events[-1]['seconds']:7.1f} s  round {self.events[-1]['round']:4d}  {what} {who}", flush=True)

    def note_memory(self) -> None:
        row = {"seconds": round(time.monotonic() - self.began, 1), "round": self.round}
        for name, process in self.processes.items():
            if process.poll() is None:
                row[name] = resident(process.pid)
        server = self.processes["server"]
        if server.poll() is None:
            for pid, command in family(server.pid):
                for kind, word in (("superlink", "flower_superlink"), ("serverapp", "flwr-serverapp")):
                    if word in command:
                        row[kind] = max(row.get(kind, 0), resident(pid))
        self.memory.append(row)

    def pull_a_plug(self) -> None:
        """Kill somebody, and start it again after a while."""
        if self.rng.random() < 0.15:
            self.processes["server"].kill()
            self.processes["server"].wait()
            self.say("kill -9", "server")
            self.wait(self.rng.uniform(0, 5))
            self.start_server("--resume", "run")
            return
        name = f"client-{self.rng.randint(1, self.n)}"
        number = self.rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
        if self.processes[name].poll() is None:
            self.processes[name].send_signal(number)
            self.processes[name].wait()
            self.say("kill -9" if number == signal.SIGKILL else "SIGTERM", name)
            self.wait(self.rng.uniform(0, 15))
            self.start_client(name)

    def wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.note_memory()
            time.sleep(min(left, 2.0))

    def run(self) -> dict:
        self.start_server()
        names = [f"client-{i + 1}" for i in range(self.n)]
        for name in names:
            self.start_client(name)
        while self.round < 5:
            self.wait(2.0)
        while self.round < self.rounds or time.monotonic() - self.began < 60 * self.minutes:
            self.wait(self.rng.uniform(8, 20))
            self.pull_a_plug()
            for name, process in self.processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended by itself with {process.returncode}")
        self.wait(20)
        self.processes["server"].kill()
        self.processes["server"].wait()
        last = self.round + 5
        self.say("kill -9, and five rounds more for", "server")
        self.start_server("--resume", "run", "-c", f"rounds={last}")
        codes = {name: process.wait(300) for name, process in self.processes.items()}
        time.sleep(2)
        return self.report(codes)

    def report(self, codes: dict[str, int]) -> dict:
        summary = json.loads((self.folder / "run" / "summary.json").read_text())
        rows = [json.loads(row) for row in (self.folder / "run" / "rounds.jsonl").read_text().splitlines()]
        with socket.socket() as s:
            port_left = s.connect_ex(("127.0.0.1", self.port)) == 0
        table = {
            "minutes": (time.monotonic() - self.began) / 60,
            "rounds": summary["rounds"],
            "rounds in order, none twice": [row["round"] for row in rows] == list(range(1, len(rows) + 1)),
            "resumed": summary["resumed"],
            "clients killed": sum(event["who"] != "server" for event in self.events),
            "clients in a round, mean": float(np.mean([row["clients"] for row in rows])),
            "exit codes": codes,
            "distance of D^g to the truth": summary["final"]["global_distance"],
            "the same without a fault": self.undisturbed(),
            "processes left": [command for _, command in strangers(str(self.folder))],
            "port left": port_left,
            "files left half written": [str(p.relative_to(self.folder)) for p in self.folder.rglob(".*-????????")],
            "memory, MiB (first, last third)": self.memory_by_thirds(),
        }
        (self.folder / "soak.json").write_text(
            json.dumps({"table": table, "events": self.events, "memory": self.memory}, indent=1)
        )
        return table

    def undisturbed(self) -> float:
        """What the same clients come to when nobody is ever away."""
        command = [*PERDL, "simulate", "synthetic", "--output", "undisturbed", *self.settings(), "-c", "rounds=200"]
        subprocess.run(command, cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
        summary = json.loads((self.folder / "undisturbed" / "summary.json").read_text())
        return summary["final"]["global_distance"]

    def memory_by_thirds(self) -> dict[str, tuple[float, float]]:
        """Median of what each kind of process holds, of those that had 20 seconds to settle."""
        kinds: dict[str, list[list[float]]] = {}
        end = self.memory[-1]["seconds"]
        for row in self.memory:
            third = min(int(3 * row["seconds"] / end), 2)
            for name, value in row.items():
                if name not in ("seconds", "round"):
                    kind = "client" if name.startswith("client") else name
                    kinds.setdefault(kind, [[], [], []])[third].append(value)
        return {kind: (float(np.median(a)), float(np.median(c))) for kind, (a, _, c) in kinds.items() if a and c}


def resident(pid: int) -> float:
    """Resident memory in MiB; 0 if the process has gone."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
    return 0.0


def table_of_processes() -> list[tuple[int, int, str]]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if fields[0] not in "ZX":
                found.append((int(entry.name), int(fields[1]), command))
    return found


def family(pid: int) -> list[tuple[int, str]]:
    everyone, found, parents = table_of_processes(), [], {pid}
    while children := [(p, command) for p, parent, command in everyone if parent in parents]:
        found += children
        parents = {p for p, _ in children}
    return found


def strangers(folder: str) -> list[tuple[int, str]]:
    """Processes that still work in the folder, or were told of it."""
    found = []
    for pid, _, command in table_of_processes():
        with suppress(OSError):
            inside = os.readlink(f"/proc/{pid}/cwd").startswith(folder)
            told = folder.encode() in Path(f"/proc/{pid}/environ").read_bytes()
            if pid != os.getpid() and (inside or told):
                found.append((pid, command))
    return found


def draw(folder: Path, memory: list[dict], events: list[dict]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for kind in ("superlink", "serverapp", "server"):
        points = [(row["round"], row[kind]) for row in memory if row.get(kind)]
        axes.plot(*zip(*points, strict=True), ".", markersize=2, label=kind)
    clients = [(row["round"], value) for row in memory for name, value in row.items() if name.startswith("client")]
    axes.plot(*zip(*clients, strict=True), ".", markersize=2, label="clients", color="0.6", zorder=0)
    for event in events:
        axes.axvline(event["round"], color="C3" if event["who"] == "server" else "0.9", linewidth=0.5, zorder=-1)
    axes.set(xlabel="round", ylabel="resident memory, MiB", ylim=(0, None))
    axes.legend()
    figure.savefig(folder / "soak.png", dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", default="soak")
    soak = Soak(parser.parse_args())
    try:
        table = soak.run()
    finally:
        for process in soak.processes.values():
            if process.poll() is None:
                process.terminate()
    draw(soak.folder, soak.memory, soak.events)
    for key, value in table.items():
        print(f"| {key} | {value} |")
    good = (
        table["rounds in order, none twice"]
        and not any(table["exit codes"].values())
        and not table["processes left"]
        and not table["port left"]
        and not table["files left half written"]
        and table["distance of D^g to the truth"] < 2 * table["the same without a fault"]
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
