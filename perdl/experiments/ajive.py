r"""AJIVE: directions that blocks of data have in common, and each block's own, by angles between signal spaces.

.. math:: Y_i = J A_i + W_i B_i + \text{noise}, \qquad J^\top J = I, \quad J^\top W_i = 0

Codes are dense here. Blocks share their features, so J lies in the space of samples' features.

Source: Feng, Jiang, Hannig, Marron, "Angle-based joint and individual variation explained", Journal of Multivariate
Analysis 166, 2018.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


def ajive(blocks: Mapping[str, Floats], r: int, seed: int = 0, draws: int = 50) -> tuple[Floats, dict[str, Floats]]:
    """Find joint directions, and each block's own at right angles to these.

    Parameters
    ----------
    blocks : mapping of str to (d, n_i) array
        Samples of each block in columns, centred.
    r : int
        Rank of each signal space, less than d and than every n_i.
    seed : int
        Seed of the random spaces.
    draws : int
        Number of random spaces for each bound.

    Returns
    -------
    joint : (d, r_g) array
        J, orthonormal.
    own : dict of str to (d, r - r_g) array
        W_i of each block, orthonormal.

    Notes
    -----
    Signal spaces of rank ``r`` are compared by the singular values of all their bases side by side. Joint is a
    direction whose squared singular value is beyond what random spaces have (95th percentile) and what noise can take
    from a joint one (Wedin's bound, 5th percentile).
    """
    rng = np.random.default_rng(seed)
    spaces, bounds = [], np.zeros((len(blocks), draws))
    for i, Y in enumerate(blocks.values()):
        X = Y.T
        U, s, Vt = np.linalg.svd(X, full_matrices=False)
        U, s_r, V, noise = U[:, :r], s[r - 1], Vt[:r], (U[:, r:] * s[r:]) @ Vt[r:]
        spaces.append(V)
        for t in range(draws):
            left = np.linalg.norm(_away(U, rng).T @ noise, 2)
            right = np.linalg.norm(noise @ _away(V.T, rng), 2)
            bounds[i, t] = min(1.0, max(left, right) / s_r) ** 2
    _, s, Vt = np.linalg.svd(np.concatenate(spaces), full_matrices=False)
    chance = [_largest_by_chance(len(blocks), r, len(Y), rng) for _ in range(draws)]
    limit = max(np.quantile(chance, 0.95), np.quantile(len(blocks) - bounds.sum(axis=0), 0.05))
    joint = Vt[: int((s**2 > limit).sum())].T
    own = {}
    for name, Y in blocks.items():
        rest = Y - joint @ (joint.T @ Y)
        own[name] = np.linalg.svd(rest, full_matrices=False).U[:, : r - joint.shape[1]]
    return joint, own


def _away(V: Floats, rng: np.random.Generator) -> Floats:
    """As many random directions at right angles to the columns of ``V``, as far as there is room."""
    d, r = V.shape
    G = rng.standard_normal((d, min(r, d - r)))
    Q: Floats = np.linalg.qr(G - V @ (V.T @ G)).Q
    return Q


def _largest_by_chance(n: int, r: int, d: int, rng: np.random.Generator) -> float:
    spaces = [np.linalg.qr(rng.standard_normal((d, r))).Q.T for _ in range(n)]
    return float(np.linalg.norm(np.concatenate(spaces), 2) ** 2)
