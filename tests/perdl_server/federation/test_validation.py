"""Which answers may touch D^g."""

from __future__ import annotations

import numpy as np
import pytest

from common.aggregations import AGGREGATIONS
from common.protocol import Payload, ProtocolError
from perdl_server.federation.validation import check_update

PRESENT = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 3))).Q
METRICS = {"round": 4, "error_before_update": 0.1, "nonzeros": 1.5, "reassigned": 0}


def check(contribution, aggregation="mean", present=PRESENT, **changes):
    arrays = {"contribution": contribution, "energies": changes.pop("energies", np.ones(3))}
    check_update(Payload(arrays, {**METRICS, **changes}), 4, present, AGGREGATIONS[aggregation])


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_honest_answers_pass(aggregation, dtype):
    check(PRESENT.astype(dtype), aggregation)
    check(-0.5 * PRESENT.astype(dtype), aggregation)
    # What no client used keeps its value, however short averaging made it.
    check(1e-3 * PRESENT, aggregation, present=1e-3 * PRESENT)
    check(np.zeros((6, 3)), aggregation, present=np.zeros((6, 3)))


def test_stretched_atoms_may_be_of_any_size_and_missing():
    check(1e12 * PRESENT, "procrustes")
    check(np.zeros((6, 3)), "procrustes")
    with pytest.raises(ProtocolError, match="out of all proportion"):
        check(1e200 * PRESENT, "procrustes")


@pytest.mark.parametrize(
    ("contribution", "changes", "why"),
    [
        (PRESENT, {"round": 3}, "answered round 3, was asked for round 4"),
        (PRESENT, {"round": 5}, "answered round 5"),
        (PRESENT, {"round": None}, "round is None"),
        (PRESENT, {"nonzeros": float("nan")}, "nonzeros is nan"),
        (PRESENT * [1, 0, 1], {}, "atom 1 of its contribution is zero"),
        (PRESENT * [1, 1, 1e-9], {}, "atom 2 of its contribution is zero"),
        (PRESENT * [1, 2e3, 1], {}, "an atom of norm 2e.03"),
        (PRESENT * [1, 1e300, 1], {}, "out of all proportion"),
        (PRESENT[:5], {}, "shape"),
        (np.full((6, 3), np.nan), {}, "NaN or infinity"),
    ],
)
def test_others_do_not(contribution, changes, why):
    with pytest.raises(ProtocolError, match=why):
        check(contribution, **changes)


def test_energies_are_checked_where_they_count():
    check(PRESENT, "mean", energies=-np.ones(3))
    for energies in (-np.ones(3), np.ones(2), np.array([1, np.inf, 1])):
        with pytest.raises(ProtocolError, match="energies"):
            check(PRESENT, "energy", energies=energies)
