"""Our kernels against their floor and against what a user would pick instead, in one run with one BLAS thread.

    pip install scikit-learn networkx
    python benchmarks/kernels.py

A kernel's floor is its matrix products at the speed that this machine's BLAS shows on a product of the same size.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from threadpoolctl import threadpool_limits

from common.coders import TopK, omp
from common.dictionaries import atom_distances
from common.learners import orthogonal_step
from perdl_server.algorithm.matching import global_matching


def seconds(f: Callable[[], object], runs: int = 5) -> float:
    """CPU seconds of the fastest of several runs: on a busy machine the least disturbed."""
    best = np.inf
    for _ in range(runs):
        began = time.process_time()
        f()
        best = min(best, time.process_time() - began)
    return best


def line(what: str, ours: float, other: str, theirs: float) -> None:
    print(f"| {what} | {1e3 * ours:.1f} | {other} | {1e3 * theirs:.1f} | {ours / theirs:.2f} |", flush=True)


def units(rng: np.random.Generator, d: int, r: int) -> np.ndarray:
    G = rng.standard_normal((d, r))
    return G / np.linalg.norm(G, axis=0)


def learner() -> None:
    rng = np.random.default_rng(0)
    for r in (100, 784):
        Y = rng.standard_normal((784, 500))
        D = np.linalg.qr(rng.standard_normal((784, r))).Q
        X = TopK(20)(Y, D)
        floor = seconds(lambda D=D, Y=Y: D.T @ Y) + seconds(lambda X=X, Y=Y: Y @ X.T)
        svd = seconds(lambda X=X, Y=Y: np.linalg.svd(Y @ X.T, full_matrices=False), 3)
        ours = seconds(lambda D=D, Y=Y: orthogonal_step(Y, D, TopK(20)), 3)
        line(f"orthogonal step, 784 × 500, r {r}", ours, "its two matrix products", floor)
        line(f"the same, r {r}", ours, "products and the SVD they need", floor + svd)


def pursuit() -> None:
    from sklearn.linear_model import orthogonal_mp_gram

    rng = np.random.default_rng(0)
    D = units(rng, 784, 100)
    Y = rng.standard_normal((784, 1000))
    ours = seconds(lambda: omp(Y, D, 5), 3)
    theirs = seconds(lambda: orthogonal_mp_gram(D.T @ D, D.T @ Y, n_nonzero_coefs=5), 1)
    np.testing.assert_allclose(omp(Y, D, 5), orthogonal_mp_gram(D.T @ D, D.T @ Y, n_nonzero_coefs=5), atol=1e-10)
    line("OMP, 5 of 100 atoms, 1,000 samples", ours, "scikit-learn orthogonal_mp_gram", theirs)


def matching() -> None:
    rng = np.random.default_rng(0)
    dictionaries = [units(rng, 576, 576) for _ in range(12)]
    floor = seconds(lambda: [a.T @ b for a, b in itertools.pairwise(dictionaries)], 3)
    ours = seconds(lambda: global_matching(dictionaries, 30), 2)
    line("matching, 12 clients, r 576, 30 paths", ours, "its matrix products", floor)
    line("the same", ours, "scipy dijkstra, the graph built anew for each of 30 paths", 30 * _dijkstra(dictionaries))
    _against_networkx(rng)


def _dijkstra(dictionaries: list[np.ndarray]) -> float:
    """Seconds for one path by scipy, without the edge weights."""
    weights = [atom_distances(a, b) for a, b in itertools.pairwise(dictionaries)]

    def one_path() -> None:
        r, n = weights[0].shape[0], len(weights) + 1
        rows = np.concatenate([np.repeat(np.arange(r) + i * r, r) for i in range(n - 1)])
        cols = np.concatenate([np.tile(np.arange(r) + (i + 1) * r, r) for i in range(n - 1)])
        graph = csr_array((np.concatenate([w.ravel() for w in weights]), (rows, cols)), shape=(n * r, n * r))
        dijkstra(graph, indices=np.arange(r), min_only=True)

    return seconds(one_path, 2)


def _against_networkx(rng: np.random.Generator) -> None:
    import networkx

    dictionaries = [units(rng, 40, 40) for _ in range(10)]

    def theirs() -> None:
        graph = networkx.DiGraph()
        for i, (a, b) in enumerate(itertools.pairwise(dictionaries)):
            for (p, q), w in np.ndenumerate(atom_distances(a, b)):
                graph.add_edge((i, p), (i + 1, q), weight=w)
        graph.add_edges_from((("s", (0, p)) for p in range(40)), weight=0.0)
        graph.add_edges_from((((9, p), "t") for p in range(40)), weight=0.0)
        for _ in range(10):
            path = networkx.dijkstra_path(graph, "s", "t")
            graph.remove_nodes_from(path[1:-1])

    line(
        "matching, 10 clients, r 40, 10 paths",
        seconds(lambda: global_matching(dictionaries, 10), 3),
        "networkx",
        seconds(theirs, 1),
    )


def main() -> None:
    print("| ours | CPU ms | against | CPU ms | ratio |")
    print("|---|---|---|---|---|")
    with threadpool_limits(1):
        learner()
        pursuit()
        matching()


if __name__ == "__main__":
    main()
