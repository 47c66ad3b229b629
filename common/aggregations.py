"""What both sides must know of an aggregation. The server's half is in ``perdl_server.algorithm.aggregation``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Aggregation:
    """What an aggregation asks of clients, and what it gives.

    Attributes
    ----------
    contribution : {"atoms", "stretched"}
        ``stretched``: D^g_i P^gg_i of the client's polar decomposition Y X' = D P; needs orthonormal learners.
    weighted : bool
        Whether clients send the r^g energies too.
    orthonormal : bool
        Whether the result has orthonormal columns, so that at most d atoms fit.
    robust : bool
        Whether it bears hostile clients, so that matching should, too.
    """

    contribution: Literal["atoms", "stretched"] = "atoms"
    weighted: bool = False
    orthonormal: bool = False
    robust: bool = False


AGGREGATIONS: dict[str, Aggregation] = {
    "mean": Aggregation(),
    "normalized": Aggregation(),
    "polar": Aggregation(orthonormal=True),
    "energy": Aggregation(weighted=True, orthonormal=True),
    "procrustes": Aggregation(contribution="stretched", orthonormal=True),
    "trimmed": Aggregation(robust=True),
    "geometric-median": Aggregation(robust=True),
}
"""By the name that the setting ``aggregation`` takes."""
