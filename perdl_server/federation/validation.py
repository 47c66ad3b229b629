"""Check which answers may be aggregated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.aggregations import Aggregation
from common.errors import FederationError
from common.protocol import Payload, ProtocolError

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]

METRICS = ("reassigned",)
MEASURES = ("error_before_update", "nonzeros")
"""Exact measures of a client's samples, which it does not tell in a private run."""

LARGEST = 1e6
"""Largest error relative to the samples' size, and largest norm of a first atom. Most are near one or below."""

_PROPORTION = 1e3
"""Largest norm of an atom relative to D^g. Normal norms are near one; robust aggregations must tolerate the rest."""

_NOTHING = 1e-6

_FAR = 2.0
"""Largest distance of atoms of norm one."""

_MOST = 1e6
"""Largest energy, in units of the root of the largest number: samples' squares are below that root."""


def number(payload: Payload, key: str, kind: type, least: float, most: float) -> Any:
    """Return a number from a client's answer, if it is in range.

    Parameters
    ----------
    payload : Payload
        The client's answer.
    key : str
        Name of the number.
    kind : type
        Its type; ``float`` also accepts an ``int``.
    least, most : float
        The range.

    Raises
    ------
    ProtocolError
        If it is missing, of another type, or out of range.
    """
    value = payload.scalar(key, kind)
    if not least <= value <= most:
        raise ProtocolError(f"{key} = {value:g} cannot be")
    return value


def check_holds_only(payload: Payload, expected: Set[str]) -> None:
    """Refuse what a run of this mode does not ask for.

    Parameters
    ----------
    payload : Payload
        The client's answer.
    expected : set of str
        All that it may hold beside the client's name.

    Raises
    ------
    ProtocolError
        If it holds more.
    """
    if more := sorted({*payload.arrays, *payload.scalars} - expected - {"client", "protocol"}):
        raise ProtocolError(f"the answer holds {more[0]}, which this run does not ask for")


def largest_energy(dtype: np.dtype[Any]) -> float:
    """Return the largest energy of an atom that may be; sums of many such times atoms are finite.

    Parameters
    ----------
    dtype : numpy.dtype
        Type of the energies.
    """
    return float(np.sqrt(np.finfo(dtype).max)) * _MOST


def check_update(
    payload: Payload,
    t: int,
    present: Floats,
    aggregation: Aggregation,
    members: Bools | None = None,
    metrics: Sequence[str] = METRICS + MEASURES,
) -> None:
    """Check a client's answer to round ``t``.

    Parameters
    ----------
    payload : Payload
        The client's answer.
    t : int
        Round of the question.
    present : (d, r_g) array
        D^g in the question.
    aggregation : Aggregation
        Says which arrays are needed.
    members : (r_g,) bool array, optional
        The atoms that the client shares, if there are some that it does not.
    metrics : sequence of str
        Scalars that must be there.

    Raises
    ------
    ProtocolError
        If the round differs, an array has the wrong shape or type or is not finite, an atom is zero or far too large,
        an energy or a metric cannot be, or something is missing or was not asked for.
    """
    expected = {"contribution", *metrics}
    expected |= {"energies"} if aggregation.weighted else set()
    expected |= {"spread", "nearest"} if members is not None else set()
    check_holds_only(payload, {"round", *expected})
    if members is not None:
        for key in ("spread", "nearest"):
            values = payload.array(key, members.shape)
            if (values < 0).any() or (values > _FAR).any():
                raise ProtocolError(f"{key} is no distance of atoms: {values.min():.3g} to {values.max():.3g}")
        present = present[:, members]
    answered = payload.scalar("round", int)
    if answered != t:
        raise ProtocolError(f"answered round {answered}, was asked for round {t}")
    contribution = payload.array("contribution", present.shape)
    for key, array in payload.arrays.items():
        if array.dtype != present.dtype:
            raise ProtocolError(f"{key} has type {array.dtype}, expected {present.dtype}")
    with np.errstate(over="ignore"):
        norms = np.linalg.norm(contribution.astype(np.float64), axis=0)
    before = np.linalg.norm(present.astype(np.float64), axis=0)
    if aggregation.contribution == "atoms":
        limit = _PROPORTION * max(1.0, before.max(initial=0.0))
        if (norms < _NOTHING * before).any():
            raise ProtocolError(f"atom {int(np.argmax(norms < _NOTHING * before))} of its contribution is zero")
    else:  # atoms times their second moments may have any norm, also zero
        limit = float(np.sqrt(np.finfo(contribution.dtype).max))
    if norms.max(initial=0.0) > limit:
        raise ProtocolError(f"contribution is out of all proportion: an atom of norm {norms.max():.3g}")
    for key in metrics:
        number(payload, key, int if key == "reassigned" else float, 0, LARGEST)
    if aggregation.weighted:
        energies = payload.array("energies", present.shape[1:])
        if (energies < 0).any() or (energies > largest_energy(energies.dtype)).any():
            raise ProtocolError(f"energies cannot be: {energies.min():.3g} to {energies.max():.3g}")


def check_sum(
    contributions: Floats,
    weights: Floats,
    means: Mapping[str, float],
    present: Floats,
    n: int,
    aggregation: Aggregation,
) -> None:
    """Check the sums of a round, as far as one can without the summands.

    A wrong mask, or shares that do not belong together, leave numbers that fill all 64 bits and fail here.

    Parameters
    ----------
    contributions : (d, r_g) array
        Sum of the clients' contributions.
    weights : (r_g,) array
        Sum of their energies, or else of the norms of their atoms.
    means : mapping of str to float
        Means of the metrics.
    present : (d, r_g) array
        D^g in the question.
    n : int
        Number of clients in the sum.
    aggregation : Aggregation
        Says what they sent.

    Raises
    ------
    FederationError
        If no n clients can have sent this.
    """
    longest = _PROPORTION * max(1.0, np.linalg.norm(present.astype(np.float64), axis=0).max(initial=0.0))
    plain = aggregation.contribution == "atoms" and not aggregation.weighted
    norms = np.linalg.norm(contributions, axis=0)
    most = weights * (longest if aggregation.weighted else 1.0)  # triangle inequality
    rounding = 1e-6 * (1 + weights.max(initial=0.0))
    good = (weights >= 0).all() and (norms <= most + rounding).all() and not (plain and (weights > n * longest).any())
    if not good or not all(0 <= mean <= 2.0**20 for mean in means.values()):
        raise FederationError(
            f"the sum over {n} clients cannot be: a client sent nonsense, and a sum does not tell which"
        )
