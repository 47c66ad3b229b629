"""One round of one client against its floor, with one BLAS thread, and matching around one client over many clients.

    python benchmarks/client_round.py

The floor of a round is its two products with the samples, D'Y and Y X', and the cheapest polar factor that is safe
there. A step is the learner's; a round (`local_update`) adds figures, energies, and what each aggregation needs; the
last column has the guard too, which is on by default.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from matching import dictionaries
from threadpoolctl import threadpool_limits

from common.coders import TopK
from common.learners import LEARNERS, orthogonal_step
from perdl_client.learning.local_update import local_update
from perdl_server.algorithm.matching import global_matching

SIZES = ((784, 500, 100), (784, 500, 784), (576, 1600, 576), (64, 10_000, 64), (784, 5000, 100))
CLIENTS = ((62, 576, 576, 30), (300, 32, 32, 8), (1000, 32, 32, 8), (3000, 6, 6, 3))


def seconds(f: Callable[[], object], runs: int = 7) -> float:
    """CPU seconds of the fastest of several runs: on a busy machine the least disturbed."""
    best = np.inf
    for _ in range(runs):
        began = time.process_time()
        f()
        best = min(best, time.process_time() - began)
    return best


def floor(Y: np.ndarray, D: np.ndarray, X: np.ndarray) -> float:
    M = Y @ X.T

    def by_svd() -> np.ndarray:
        U, _, Vt = np.linalg.svd(M, full_matrices=False)
        return U @ Vt

    def by_gram() -> np.ndarray:
        w, V = np.linalg.eigh(M.T @ M)
        return M @ ((V / np.sqrt(w)) @ V.T)

    polar = seconds(by_svd, 3)
    if D.shape[1] < len(D):  # a square M may be singular
        polar = min(polar, seconds(by_gram, 3))
    return seconds(lambda: D.T @ Y) + seconds(lambda: Y @ X.T) + polar


def rounds() -> None:
    print("| d x n, r | type | floor, CPU ms | step | round | round with guard |\n|---|---|---|---|---|---|")
    for d, n, r in SIZES:
        for dtype in (np.float64, np.float32):
            rng = np.random.default_rng(0)
            Y = rng.standard_normal((n, d)).astype(dtype).T  # samples lie in rows in files, and so in memory
            D = np.linalg.qr(rng.standard_normal((d, r))).Q.astype(dtype)
            coder, g = TopK(max(r // 10, 5) if r != 100 else 20), r // 3
            least = floor(Y, D, coder(Y, D))
            told = (Y, D[:, :g], D[:, g:], LEARNERS["orthogonal"], coder)
            found = [
                seconds(lambda a=(Y, D, coder): orthogonal_step(*a)),
                seconds(lambda a=told: local_update(*a)),
                seconds(lambda a=told: local_update(*a, min_samples=5)),
            ]
            ratios = " | ".join(f"{one / least:.1f}" for one in found)
            print(f"| {d} x {n}, {r} | {np.dtype(dtype).name} | {1e3 * least:.1f} | {ratios} |", flush=True)


def matching() -> None:
    """Atoms of shared ones, own ones and noise; three clients of ten have random atoms."""
    print("\n| clients, d, r, paths | star, CPU s | chain, CPU s |\n|---|---|---|")
    for N, d, r, k in CLIENTS:
        Ds = dictionaries(N, d, r, k)
        told = [seconds(lambda m=m, k=k, Ds=Ds: global_matching(Ds, k, method=m), 1) for m in ("star", "chain")]
        print(f"| {N}, {d}, {r}, {k} | {told[0]:.2f} | {told[1]:.2f} |", flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        rounds()
        matching()
