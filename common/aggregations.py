"""Properties of aggregations that both sides need. The server's half is in ``perdl_server.algorithm.aggregation``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Aggregation:
    """What an aggregation needs from clients, and the properties of its result.

    Parameters
    ----------
    contribution : {"atoms", "procrustes"}
        What clients send: ``atoms`` is D^g_i; ``procrustes`` is D^g_i P^gg_i from the client's polar decomposition Y
        X' = D P, which needs orthonormal learners.
    weighted : bool
        Whether clients also send the r^g energies.
    orthonormal : bool
        Whether the result has orthonormal columns, so that there can be at most d atoms.
    robust : bool
        Whether it tolerates hostile clients. ``matching = auto`` then uses ``star``.
    """

    contribution: Literal["atoms", "procrustes"] = "atoms"
    weighted: bool = False
    orthonormal: bool = False
    robust: bool = False


AGGREGATIONS: dict[str, Aggregation] = {
    "mean": Aggregation(),
    "normalized": Aggregation(),
    "polar": Aggregation(orthonormal=True),
    "energy": Aggregation(weighted=True, orthonormal=True),
    "procrustes": Aggregation(contribution="procrustes", orthonormal=True),
    "trimmed": Aggregation(robust=True),
    "geometric-median": Aggregation(robust=True),
}
"""Aggregations by name, as in the setting ``aggregation``."""
