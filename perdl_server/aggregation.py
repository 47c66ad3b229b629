r"""Aggregations: from the clients' aligned global atoms to one D^g.

Every aggregation takes a stack ``A`` (N, d, r) of aligned contributions in the order of client ids, non-negative
weights ``w`` (N, r), and the present D^g (d, r), and returns the new one. All commute with an orthogonal transform of
the feature space. To add one, write such a function and enter it in :data:`AGGREGATIONS`.

What a client contributes depends on the aggregation, see ``contribution`` below:

=========================  ====================================  ==========================================
name                       client i sends                        server takes
=========================  ====================================  ==========================================
``mean``                   D^g_i                                 the mean (the paper; its theorems hold)
``normalized``             D^g_i                                 the mean, atoms scaled to unit norm
``polar``                  D^g_i                                 the polar factor of the sum
``energy``                 D^g_i and energies w_ij               Polar(sum_i D^g_i diag(w_i) / sum_i w_i)
``procrustes``             D^g_i P^gg_i                          the polar factor of the sum
``trimmed``                D^g_i                                 the mean without the extremes, by coordinate
``geometric-median``       D^g_i                                 for each atom the point of least total distance
=========================  ====================================  ==========================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import trim_mean

from common.polar import polar_factor

Floats = NDArray[np.floating]
Combine = Callable[[Floats, Floats, Floats], Floats]


def mean(A: Floats, w: Floats, present: Floats) -> Floats:
    """Plain mean with uniform weights: algorithm 1, step 13, of the paper."""
    out: Floats = np.asarray(np.sum(A, axis=0) / len(A), dtype=A.dtype)
    return out


def normalized(A: Floats, w: Floats, present: Floats) -> Floats:
    """Mean with atoms scaled to unit norm; an atom whose mean vanishes keeps its present value."""
    M = mean(A, w, present)
    norms = np.linalg.norm(M, axis=0)
    return np.where(norms > 0, M / np.where(norms > 0, norms, 1), present)


def polar(A: Floats, w: Floats, present: Floats) -> Floats:
    """Polar factor of the sum: the orthonormal dictionary nearest to the mean."""
    return polar_factor(A.sum(axis=0), prior=present)


def energy(A: Floats, w: Floats, present: Floats) -> Floats:
    """Polar factor of the mean weighted, atom by atom, by the energy it carries at each client."""
    total = w.sum(axis=0)
    M = np.einsum("idr,ir->dr", A, w) / np.where(total > 0, total, 1)
    return polar_factor(np.where(total > 0, M, present), prior=present)


def trimmed(A: Floats, w: Floats, present: Floats, trim: float = 0.3) -> Floats:
    """Mean of each coordinate without the share ``trim`` of smallest and of largest values."""
    out: Floats = np.asarray(trim_mean(A, trim, axis=0), dtype=A.dtype)
    return out


def geometric_median(A: Floats, w: Floats, present: Floats) -> Floats:
    r"""For each atom the point of least total distance to the clients' atoms.

    .. math:: \min_m \sum_i \lVert A_{i(j)} - m \rVert_2

    Weiszfeld's iteration in Vardi and Zhang's (2000) form, which also leaves a point where the iterate meets it.
    """
    return np.stack([_vardi_zhang(A[:, :, j]) for j in range(A.shape[2])], axis=1) if A.shape[2] else present


def _vardi_zhang(points: Floats, n_steps: int = 200) -> Floats:
    """Geometric median of points (N, d)."""
    m = np.median(points, axis=0).astype(points.dtype)
    scale = np.abs(points).max(initial=0.0)
    for _ in range(n_steps):
        distances = np.linalg.norm(points - m, axis=1)
        here = distances <= 1e-14 * scale
        if here.all():
            break
        inverse = np.where(here, 0, 1 / np.where(here, 1, distances))
        target = (inverse[:, None] * points).sum(axis=0) / inverse.sum()
        pull = np.linalg.norm((target - m) * inverse.sum())
        share = min(1.0, here.sum() / pull) if pull > 0 else 1.0
        step = (1 - share) * (target - m)
        m = (m + step).astype(points.dtype)
        if np.linalg.norm(step) <= np.finfo(points.dtype).eps * scale:
            break
    return m


@dataclass(frozen=True)
class Aggregation:
    """An aggregation and what it asks of the clients.

    Attributes
    ----------
    combine : callable ``(A, w, present) -> D^g``
    contribution : {"atoms", "stretched"}
        ``stretched``: D^g_i P^gg_i of the client's polar decomposition Y X' = D P; needs orthonormal learners.
    weighted : bool
        Whether clients send the r^g energies too.
    orthonormal : bool
        Whether the result has orthonormal columns, so that at most d atoms fit.
    """

    combine: Combine
    contribution: Literal["atoms", "stretched"] = "atoms"
    weighted: bool = False
    orthonormal: bool = False


AGGREGATIONS: dict[str, Aggregation] = {
    "mean": Aggregation(mean),
    "normalized": Aggregation(normalized),
    "polar": Aggregation(polar, orthonormal=True),
    "energy": Aggregation(energy, weighted=True, orthonormal=True),
    "procrustes": Aggregation(polar, contribution="stretched", orthonormal=True),
    "trimmed": Aggregation(trimmed),
    "geometric-median": Aggregation(geometric_median),
}


def consensus(A: Floats) -> Floats:
    """Norm of the mean of each atom's contributions scaled to unit norm: 1 where all clients agree.

    Parameters
    ----------
    A : (N, d, r) array

    Returns
    -------
    (r,) array in [0, 1]
    """
    norms = np.linalg.norm(A, axis=1, keepdims=True)
    units = A / np.where(norms > 0, norms, 1)
    present = (norms > 0).sum(axis=0).ravel()
    norm_of_mean: Floats = np.linalg.norm(units.sum(axis=0), axis=0) / np.maximum(present, 1)
    return norm_of_mean
