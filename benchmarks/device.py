"""A client's round and its start on a device against numpy, by one thread each.

    python benchmarks/device.py [DEVICE]

DEVICE is as in the setting `device`; by default torch, which is torch on the CPU. On the CPU, CPU seconds are taken,
else seconds, with the transfers. Runs alternate; the median of the ratios is told with the least and the largest.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from common.learning_settings import LearningSettings
from perdl_client.learning.client import ClientLearner
from perdl_client.learning.device import CPU, Device

SIZES = ((784, 500, 100), (784, 500, 784), (576, 1600, 576), (64, 10_000, 64), (784, 5000, 100))
RUNS = 7


def compared(numpy: Callable[[], object], device: Callable[[], object], clock: Callable[[], float]) -> str:
    """Numpy's milliseconds, and how much longer the device takes."""
    found = []
    for run in range(RUNS + 1):  # the first one warms up
        times = []
        for work in (numpy, device):
            began = clock()
            work()
            times.append(clock() - began)
        found.append(times) if run else None
    ratios = sorted(other / one for one, other in found)
    middle = ratios[RUNS // 2]
    least = 1e3 * sorted(one for one, _ in found)[RUNS // 2]
    return f"{least:.1f} | {middle:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def main(name: str) -> None:
    clock = time.process_time if name == "torch" else time.perf_counter
    print(f"{platform.processor() or platform.machine()}, numpy {np.__version__}, torch {torch.__version__}, {name}\n")
    print("| d x n, r | type | a round, numpy, ms | device / numpy | a start, numpy, ms | device / numpy |")
    print("|---|---|---|---|---|---|")
    for d, n, r in SIZES:
        for dtype in ("float64", "float32"):
            rng = np.random.default_rng(0)
            D = np.linalg.qr(rng.standard_normal((d, d))).Q
            X = rng.standard_normal((d, n)) * (rng.random((d, n)) < 0.1)
            Y = np.asfortranarray(D @ X + 0.01 * rng.standard_normal((d, n)), dtype)
            first = np.linalg.qr(rng.standard_normal((d, r))).Q.astype(dtype)
            D_g, D_l = first[:, : r // 3], first[:, r // 3 :]
            k = 20 if r == 100 else max(r // 10, 5)
            learning = LearningSettings(
                n_atoms=r, coder="top-k", n_nonzero=k, n_restarts=2, warmup_steps=2, local_restarts=0
            )
            places = CPU, Device(name, dtype)

            def clients(dictionary, Y=Y, learning=learning, places=places):
                told = {"guarded": True, "size": 1.0}
                return [ClientLearner(Y, learning, 0, "ada", dictionary=dictionary, device=p, **told) for p in places]

            rounds = compared(*(lambda c=c, D_g=D_g: c.update(D_g, 1) for c in clients(D_l)), clock)

            def start(i, clients=clients):
                return lambda: clients(None)[i].dictionary

            print(f"| {d} x {n}, {r} | {dtype} | {rounds} | {compared(start(0), start(1), clock)} |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with threadpool_limits(1):
        main(*(sys.argv[1:] or ["torch"]))
