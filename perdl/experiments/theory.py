r"""The conditions of theorem 1, computed from the known truth.

Source: Liang, Shi, Al Kontar, Fattahi, "Personalized Dictionary Learning for Heterogeneous Datasets", 2023,
assumptions 1 and 2 and theorem 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from common.dictionaries import mutual_coherence

Floats = NDArray[np.floating]


def identifiability(local_dictionaries: Sequence[Floats]) -> tuple[float, float]:
    r"""Bound the largest beta for which local dictionaries are beta-identifiable.

    .. math:: \beta^* = \min_{\lVert v\rVert = 1} \max_i \min_j d_2((D^l_i)_{(j)}, v)

    If it is small, some direction lies near an atom of every client and may be mistaken for a global atom.

    Parameters
    ----------
    local_dictionaries : sequence of (d, r_i) arrays
        True local dictionaries, atoms of unit norm.

    Returns
    -------
    lower, upper : float
        ``lower <= beta* <= upper``. The lower bound comes from pairs of atoms that include one client's atom: it is the
        distance for half their angle. The upper bound is attained by a direction found by alternating search from every
        atom. The bounds agree for two clients. ``(inf, inf)`` if a client has no local atom: then no direction can be
        mistaken for a global atom.

    Notes
    -----
    The exact value would need a search over all choices of one atom per client.
    """
    if any(D.shape[1] == 0 for D in local_dictionaries):
        return np.inf, np.inf
    U: list[Floats] = [np.asarray(D, dtype=np.float64) for D in local_dictionaries]
    lower = max(_half_angle_bound(U, i) for i in range(len(U)))
    upper = min(_search(U, v) for D in U for v in D.T)
    return min(lower, upper), upper


def _half_angle_bound(U: list[Floats], i: int) -> float:
    """Bound beta from the atoms of client i: if v is near one of them, other clients have atoms within twice that."""
    cosines = [np.abs(U[i].T @ D).max(axis=1) for D in U]
    nearest = np.min(cosines, axis=0)
    return float(_chord(np.cos(np.arccos(np.clip(nearest, 0, 1)) / 2)).min())


def _search(U: list[Floats], v: Floats) -> float:
    """Alternate between the nearest atom of each client, and the centre of the smallest cap that holds these atoms."""
    best = np.inf
    while True:
        cosines = [D.T @ v for D in U]
        chosen = [int(np.abs(c).argmax()) for c in cosines]
        radius = float(_chord(min(abs(c[j]) for c, j in zip(cosines, chosen, strict=True))))
        if radius >= best - 1e-12:
            return best
        best = radius
        signed = np.column_stack(
            [D[:, j] * (1 if c[j] >= 0 else -1) for D, c, j in zip(U, cosines, chosen, strict=True)]
        )
        v = _cap_centre(signed)


def _cap_centre(points: Floats) -> Floats:
    """Unit vector whose smallest inner product with ``points`` is largest: towards their hull's point of least norm."""
    weights, _ = nnls(np.vstack([points, np.ones(points.shape[1])]), np.append(np.zeros(len(points)), 1.0))
    centre = points @ weights
    return centre / np.linalg.norm(centre)


def _chord(cosine: Floats | float) -> Floats:
    return np.sqrt(np.maximum(2 - 2 * np.asarray(cosine, dtype=np.float64), 0))


@dataclass(frozen=True)
class MatchingCondition:
    """Theorem 1's condition ``4 sum(errors) <= min(sqrt(2 - 2 coherence), beta)`` and its two sides.

    Parameters
    ----------
    left, right : float
        The two sides of the inequality.
    coherence : float
        Largest coherence among the true dictionaries, mu / sqrt(d).
    beta : float
        The lower bound of :func:`identifiability`, so that ``holds`` is never true by mistake.
    """

    left: float
    right: float
    coherence: float
    beta: float

    @property
    def holds(self) -> bool:
        """Whether theorem 1 applies."""
        return self.left <= self.right


def matching_condition(
    dictionaries: Sequence[Floats], n_global: int, start_errors: Sequence[float]
) -> MatchingCondition:
    """Check the condition under which global matching is right by theorem 1.

    Parameters
    ----------
    dictionaries : sequence of (d, r_i) arrays
        True dictionaries, global atoms first.
    n_global : int
        Number of global atoms.
    start_errors : sequence of float
        d_{1,2} of each client's start to its true dictionary.

    Returns
    -------
    MatchingCondition
    """
    coherence = max(mutual_coherence(D) for D in dictionaries)
    beta, _ = identifiability([D[:, n_global:] for D in dictionaries])
    return MatchingCondition(
        left=4 * float(sum(start_errors)),
        right=min(float(_chord(coherence)), beta),
        coherence=coherence,
        beta=beta,
    )
