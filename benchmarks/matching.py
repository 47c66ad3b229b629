"""Matching over the number of clients: CPU seconds, memory and their exponents; the chain against its products.

    python benchmarks/matching.py            (some minutes)
    python benchmarks/matching.py floor      (only the chain against its matrix products; clients: only the rest)

Each figure is of a process of its own with one BLAS thread. Atoms are shared ones and own ones with noise; three
clients of ten have random atoms. Memory is the most that the process held, less what it held before matching, where the
clients' dictionaries are in any case. An exponent is the slope of a straight line through the logarithms.
"""

from __future__ import annotations

import itertools
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from perdl_server.algorithm.matching import global_matching, suggest_n_global

SHAPES = {"synthetic: d 6, r 6, 3 paths": (6, 6, 3), "d 64, r 32, 8 paths": (64, 32, 8)}
CLIENTS = {(6, 6, 3): (100, 300, 1000, 3000, 10_000, 100_000), (64, 32, 8): (100, 300, 1000, 3000, 10_000)}
FLOORS = {"12 x (576, 576), random": (12, 576, 576, 30, 1.0), "62 x (576, 576)": (62, 576, 576, 30, 0.3)}
FLOORS |= {"62 x (576, 576), random": (62, 576, 576, 30, 1.0), "1,000 x (32, 32)": (1000, 32, 32, 8, 0.3)}
FLOORS |= {"3,000 x (6, 6)": (3000, 6, 6, 3, 0.3)}


def dictionaries(N: int, d: int, r: int, k: int, wrong: float = 0.3) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shared = np.linalg.qr(rng.standard_normal((d, k))).Q
    found = []
    for _ in range(N):
        own = rng.standard_normal((d, r - k))
        own = np.linalg.qr(own - shared @ (shared.T @ own)).Q
        D = np.hstack([shared, own]) + 0.01 * rng.standard_normal((d, r))
        if rng.random() < wrong:
            D = rng.standard_normal((d, r))
        found.append(np.ascontiguousarray((D / np.linalg.norm(D, axis=0))[:, rng.permutation(r)]))
    return found


def one(method: str, N: int, d: int, r: int, k: int) -> tuple[float, float]:
    """CPU seconds and MB of one matching in this process."""
    Ds = dictionaries(N, d, r, k)
    global_matching(Ds[:3], k)  # what is loaded at first use
    before = most()
    began = time.process_time()
    if method == "auto":
        suggest_n_global(Ds)
    else:
        global_matching(Ds, k, method=method)
    return time.process_time() - began, most() - before


def most() -> float:
    """Return the MB that this process held at most (Linux)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def measured(method: str, N: int, shape: tuple[int, int, int]) -> tuple[float, float]:
    told = [sys.executable, __file__, "one", method, *map(str, (N, *shape))]
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    out = subprocess.run(told, check=True, capture_output=True, text=True, env={**os.environ, **threads}).stdout.split()
    return float(out[0]), float(out[1])


def slope(N: list[int], y: list[float]) -> float:
    return float(np.polyfit(np.log(N), np.log(np.maximum(y, 1e-3)), 1)[0])


def over_clients() -> None:
    for name, shape in SHAPES.items():
        print(f"\n{name}; CPU s (MB)\n\n| clients | chain | star | auto (chain) |\n|---|---|---|---|", flush=True)
        columns: dict[str, list[tuple[float, float]]] = {"chain": [], "star": [], "auto": []}
        for N in CLIENTS[shape]:
            row = {method: measured(method, N, shape) for method in columns}
            for method, found in row.items():
                columns[method].append(found)
            print(f"| {N:,} | " + " | ".join(f"{s:.3f} ({mb:.0f})" for s, mb in row.values()) + " |", flush=True)
        large = [N for N in CLIENTS[shape] if N >= 1000]  # below, what does not grow hides it
        fits = [
            tuple(slope(large, [found[i] for found in column[-len(large) :]]) for i in (0, 1))
            for column in columns.values()
        ]
        print("| exponent, from 1,000 | " + " | ".join(f"{t:.2f} ({m:.2f})" for t, m in fits) + " |", flush=True)


def cpu(f: Callable[[], object], runs: int = 3) -> float:
    best = np.inf
    for _ in range(runs):
        began = time.process_time()
        f()
        best = min(best, time.process_time() - began)
    return best


def floor() -> None:
    from perdl_server.algorithm.chain import edges, shortest_paths

    print("\n| chain | products, CPU ms | distances | paths | whole |\n|---|---|---|---|---|", flush=True)
    for name, (N, d, r, k, wrong) in FLOORS.items():
        Ds = dictionaries(N, d, r, k, wrong)
        least = cpu(lambda Ds=Ds: [a.T @ b for a, b in itertools.pairwise(Ds)], 5)
        parts = [edges, lambda Ds, k=k: shortest_paths(Ds, k), lambda Ds, k=k: global_matching(Ds, k)]
        distances, paths, whole = (cpu(lambda part=part, Ds=Ds: part(Ds)) / least for part in parts)
        ratios = f"{distances:.1f} | {paths - distances:.1f} | {whole:.1f}"
        print(f"| {name} | {1e3 * least:.1f} | {ratios} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        print(*one(sys.argv[2], *map(int, sys.argv[3:])))
    else:
        machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}"
        print(f"Python {platform.python_version()}, NumPy {np.__version__}, {machine}")
        if sys.argv[1:] != ["clients"]:
            with threadpool_limits(1):
                floor()
        if sys.argv[1:] != ["floor"]:
            over_clients()
