r"""The null of matching: how near atoms of clients that share nothing come to each other by chance.

Dictionaries that have nothing in common point in directions of their own, which are uniform on the sphere. Matching
chooses the best of many paths, so even unrelated atoms look near. This module draws such dictionaries.

The edges of a path depend only on inner products. For two independent orthonormal frames these are a block of a random
orthogonal matrix, and the blocks along a chain, or around a centre, are independent. A block of :math:`m \times n` is
drawn as :math:`A R^{-1}`, with :math:`A` Gaussian, :math:`R'R = A'A + S`, and :math:`S` from Wishart's law with
:math:`d - m` degrees of freedom. So a draw costs :math:`O(r^3)`, whatever the number of features is.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]

LEVEL = 1e-4
"""Share of unrelated clients whose best path is nearer than the bound: of hundreds of runs hardly one."""
_TAIL = 0.02
_ENOUGH = 10
"""Most clients to draw. More clients make paths by chance less near, so that this errs towards chance."""
_MOST, _LEAST, _WORK = 5000, 50, 4e6
"""Draws at each place: the most, the least, and that number times the cube of the atoms in between."""


@dataclass(frozen=True)
class Null:
    """Mean edges of the best path through unrelated atoms, after 0, 1, 2, ... atoms of each client are removed.

    Parameters
    ----------
    mean : (r,) array, read-only
        Its mean. 0 where atoms cannot differ: one direction is left.
    bound : (r,) array, read-only
        Its quantile of :data:`LEVEL`: a path below it is hardly chance.
    """

    mean: Floats
    bound: Floats

    def nearness(self, edges: Floats) -> Floats:
        """Return mean edges of paths as shares of those of unrelated atoms, at most 1; 0 where atoms cannot differ.

        Parameters
        ----------
        edges : (m,) array
            Mean edges of the first paths, ``m <= r``.
        """
        mean = self.mean[: len(edges)]
        room = mean > 0
        near: Floats = np.where(room, np.minimum(edges / np.where(room, mean, 1), 1), 0.0)
        return near


@functools.lru_cache
def path_null(d: int, sizes: tuple[int, ...], method: str = "chain") -> Null:
    """Return how near the best path through random atoms is.

    Parameters
    ----------
    d : int
        Number of features.
    sizes : tuple of int
        Number of atoms of each client.
    method : {"chain", "star"}
        Method of matching.

    Returns
    -------
    Null
        Of ``min(sizes)`` paths. All zeros for a single client.

    Notes
    -----
    If ``r_i <= d``, atoms are drawn orthonormal, and once k are removed the rest is drawn in d - k dimensions. This
    matters: with two atoms in two dimensions even unrelated clients are near each other. The curves are smooth while
    many atoms are left, so that a few places are drawn, and the others interpolated. Random numbers come from a fixed
    seed.
    """
    r = min(sizes)
    if len(sizes) < 2 or r == 0:
        return _read_only(np.zeros(r), np.zeros(r))
    left = np.unique(np.minimum(r, np.ceil(1.5 ** np.arange(np.log(r) / np.log(1.5) + 2)).astype(int)))
    fit = max(sizes) <= d
    rng = np.random.default_rng(0)
    means, bounds = [], []
    for k in map(int, left):
        gone = r - k
        edges = best_paths(rng, d - gone if fit else d, [size - gone for size in sizes[:_ENOUGH]], fit, method)
        means.append(edges.mean())
        bounds.append(lower_quantile(edges, LEVEL))
    at = np.arange(r, 0, -1)
    mean = np.interp(at, left, means)
    room = mean > 1e-6
    return _read_only(np.where(room, mean, 0.0), np.where(room, np.interp(at, left, bounds), 0.0))


def lower_quantile(draws: Floats, level: float) -> float:
    r"""Return a quantile far below most draws.

    With many draws it is Weissman's estimator, from the smallest fiftieth of them: below their largest, :math:`u`,

    .. math:: P(x < q) = 0.02 \, (q / u)^{1/h}, \qquad h = \text{mean of } \log(u / x) \text{ over } x < u

    With few it is Gumbel's law with their mean and variance, which is on the side of caution.

    Parameters
    ----------
    draws : (n,) array
        Independent draws, each a minimum over many; at least 0.
    level : float
        Share of draws below the quantile.
    """
    if len(draws) >= 1000:
        u = float(np.quantile(draws, _TAIL))
        x = draws[(draws < u) & (draws > 0)]
        return u * (level / _TAIL) ** float(np.log(u / x).mean()) if len(x) else 0.0
    scale = np.std(draws, ddof=1) * np.sqrt(6) / np.pi
    return max(float(draws.mean() + scale * (np.euler_gamma + np.log(-np.log1p(-level)))), 0.0)


def best_paths(
    rng: np.random.Generator, d: int, sizes: Sequence[int], orthonormal: bool, method: str, n_draws: int | None = None
) -> Floats:
    """Draw dictionaries without anything in common; return the mean edge of the best path of each draw.

    Parameters
    ----------
    rng : numpy.random.Generator
        Random stream.
    d : int
        Number of features.
    sizes : sequence of int
        Number of atoms of each client.
    orthonormal : bool
        Whether a client's atoms are orthonormal; else they are independent.
    method : {"chain", "star"}
        Method of matching.
    n_draws : int, optional
        Number of draws. By default there are fewer if atoms are many: the best path then varies little.

    Returns
    -------
    (n_draws,) array
    """
    n = n_draws or int(np.clip(_WORK / max(sizes) ** 3, _LEAST, _MOST))
    chain = method == "chain"
    pairs = list(itertools.pairwise(sizes)) if chain else list(itertools.combinations(sizes, 2))
    pool = _edges(rng, n, d, max(sizes), max(sizes), orthonormal)  # fewer atoms are a part of it, with the same law
    if chain:
        cost = np.zeros((n, sizes[0]))
        for m, k in pairs:
            cost = (cost[:, :, None] + pool[rng.integers(n, size=n), :m, :k]).min(axis=1)
        return np.asarray(cost.min(axis=1) / len(pairs))
    sides = {(m, k): (pool[:, :m, :k].min(axis=2), pool[:, :m, :k].min(axis=1)) for m, k in set(pairs)}
    nearest: list[list[Floats]] = [[] for _ in sizes]
    for pair, clients in zip(pairs, itertools.combinations(range(len(sizes)), 2), strict=True):
        at = rng.integers(n, size=n)
        for client, side in zip(clients, sides[pair], strict=True):
            nearest[client].append(side[at])
    return np.asarray(np.min([np.median(edges, axis=0).min(axis=1) for edges in nearest], axis=0))


def _edges(rng: np.random.Generator, n: int, d: int, m: int, k: int, orthonormal: bool) -> Floats:
    return np.asarray(np.sqrt(np.maximum(2 - 2 * np.abs(inner_products(rng, n, d, m, k, orthonormal)), 0)))


def inner_products(rng: np.random.Generator, n: int, d: int, m: int, k: int, orthonormal: bool) -> Floats:
    """Draw the inner products of the atoms of two clients that have nothing in common.

    Parameters
    ----------
    rng : numpy.random.Generator
        Random stream.
    n : int
        Number of draws.
    d : int
        Number of features.
    m, k : int
        Numbers of atoms of the two clients; at most ``d`` if orthonormal.
    orthonormal : bool
        Whether a client's atoms are orthonormal; else they are independent.

    Returns
    -------
    (n, m, k) array
    """
    if not orthonormal:
        U, V = (rng.standard_normal((n, d, r)) for r in (m, k))
        U, V = (G / np.linalg.norm(G, axis=1, keepdims=True) for G in (U, V))
        return np.asarray(U.mT @ V)
    A = rng.standard_normal((n, m, k))
    if d - m <= k:
        B = rng.standard_normal((n, d - m, k))
        S = B.mT @ B
    else:  # Bartlett's decomposition
        L = np.tril(rng.standard_normal((n, k, k)), -1)
        L[:, np.arange(k), np.arange(k)] = np.sqrt(rng.chisquare(d - m - np.arange(k), (n, k)))
        S = L @ L.mT
    return np.asarray(np.linalg.solve(np.linalg.cholesky(A.mT @ A + S), A.mT).mT)


def _read_only(*arrays: Floats) -> Null:
    for array in arrays:
        array.setflags(write=False)  # all callers get the same cached arrays
    return Null(*arrays)
