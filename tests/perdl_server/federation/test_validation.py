"""Which answers may touch D^g."""

from __future__ import annotations

import numpy as np
import pytest

from common.aggregations import AGGREGATIONS
from common.errors import FederationError
from common.protocol import Payload, ProtocolError
from perdl_server.algorithm.aggregation import combiner
from perdl_server.federation.validation import check_sum, check_update, largest_energy

PRESENT = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 3))).Q
METRICS = {"round": 4, "error_before_update": 0.1, "nonzeros": 1.5, "reassigned": 0}


def check(contribution, aggregation="mean", present=PRESENT, **changes):
    arrays = {"contribution": contribution}
    if AGGREGATIONS[aggregation].weighted:
        arrays["energies"] = changes.pop("energies", np.ones(3, contribution.dtype))
    check_update(Payload(arrays, {**METRICS, **changes}), 4, present, AGGREGATIONS[aggregation])


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_honest_answers_pass(aggregation, dtype):
    present = PRESENT.astype(dtype)
    check(present, aggregation, present)
    check(dtype(-0.5) * present, aggregation, present)
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


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"error_before_update": -0.1}, "error_before_update = -0.1 cannot be"),
        ({"error_before_update": 1e9}, r"error_before_update = 1e\+09 cannot be"),
        ({"nonzeros": -1}, "nonzeros = -1 cannot be"),
        ({"reassigned": 2**62}, "reassigned = .* cannot be"),
        ({"reassigned": 0.5}, "reassigned is 0.5, expected int"),
        ({"held_out": 3}, "the answer holds held_out, which this run does not ask for"),
    ],
)
def test_measures_out_of_range_and_more_than_was_asked_for_are_refused(changes, why):
    with pytest.raises(ProtocolError, match=why):
        check(PRESENT, **changes)


def test_what_has_another_type_than_the_global_dictionary_is_refused():
    for one, present in ((np.float32, np.float64), (np.float64, np.float32)):
        with pytest.raises(ProtocolError, match=f"contribution has type {one.__name__}, expected {present.__name__}"):
            check(PRESENT.astype(one), "mean", PRESENT.astype(present))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_energies_and_atoms_that_pass_have_a_finite_average(dtype):
    present = PRESENT.astype(dtype)
    most = dtype(largest_energy(np.dtype(dtype)))
    contribution, energies = dtype(999) * present, np.full(3, most)
    check(contribution, "energy", present, energies=energies)
    with pytest.raises(ProtocolError, match="energies cannot be"):
        check(contribution, "energy", present, energies=energies * dtype(2))
    with np.errstate(over="raise", invalid="raise"):
        D = combiner("energy", 0.3)(np.stack([contribution] * 100), np.stack([energies] * 100), present)
    assert np.isfinite(D).all()


def test_energies_are_checked_where_they_count():
    with pytest.raises(ProtocolError, match="the answer holds energies, which this run does not ask for"):
        check_update(
            Payload({"contribution": PRESENT, "energies": np.ones(3)}, METRICS), 4, PRESENT, AGGREGATIONS["mean"]
        )
    for energies in (-np.ones(3), np.ones(2), np.array([1, np.inf, 1])):
        with pytest.raises(ProtocolError, match="energies"):
            check(PRESENT, "energy", energies=energies)


SHARED = np.array([True, False, True])


def told(members=SHARED, **changes):
    m = int(members.sum())
    arrays = {"contribution": PRESENT[:, members], "energies": np.ones(m), "spread": np.zeros(3), "nearest": np.ones(3)}
    payload = Payload({key: value for key, value in {**arrays, **changes}.items() if value is not None}, METRICS)
    check_update(payload, 4, PRESENT, AGGREGATIONS["energy"], members)


def test_of_atoms_that_some_share_a_client_sends_its_own_and_evidence_of_all():
    told()
    told(np.zeros(3, dtype=bool))
    told(np.ones(3, dtype=bool), spread=np.full(3, 2.0), nearest=np.full(3, 2.0))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"contribution": PRESENT}, r"contribution has shape \(6, 3\), expected \(6, 2\)"),
        ({"energies": np.ones(3)}, r"energies has shape \(3,\), expected \(2,\)"),
        ({"spread": np.zeros(2)}, r"spread has shape \(2,\), expected \(3,\)"),
        ({"nearest": np.zeros((3, 1))}, r"nearest has shape \(3, 1\), expected \(3,\)"),
        ({"nearest": None}, "the message holds no array nearest"),
        ({"spread": np.zeros(3, dtype=int)}, "spread has type int64"),
        ({"spread": np.array([0, np.nan, 0])}, "spread holds NaN or infinity"),
        ({"spread": np.array([0, -1e-9, 0])}, "spread is no distance of atoms: -1e-09 to 0"),
        ({"nearest": np.array([0, 2.1, 0])}, "nearest is no distance of atoms: 0 to 2.1"),
    ],
)
def test_evidence_of_another_shape_or_size_is_refused(changes, why):
    with pytest.raises(ProtocolError, match=why):
        told(**changes)


def test_without_atoms_there_is_no_evidence_to_refuse():
    nothing = {"contribution": np.empty((6, 0)), "spread": np.empty(0), "nearest": np.empty(0)}
    check_update(Payload(nothing, METRICS), 4, PRESENT[:, :0], AGGREGATIONS["mean"], np.empty(0, dtype=bool))


MEANS = {"error_before_update": 0.2, "nonzeros": 1.5, "reassigned": 0.0}


@pytest.mark.parametrize("aggregation", ["mean", "energy", "procrustes"])
def test_sums_that_clients_can_have_sent_pass(aggregation):
    kind, rng = AGGREGATIONS[aggregation], np.random.default_rng(0)
    A = np.linalg.qr(PRESENT + 0.3 * rng.standard_normal((5, 6, 3))).Q * (1e6 if aggregation == "procrustes" else 1)
    w = rng.uniform(0, 1e6, (5, 3)) if kind.weighted else np.linalg.norm(A, axis=1)
    total = (A * w[:, None, :] if kind.weighted else A).sum(axis=0)
    check_sum(total, w.sum(axis=0), MEANS, PRESENT, 5, kind)
    check_sum(np.zeros((6, 3)), np.zeros(3), MEANS, PRESENT, 5, kind)
    check_sum(np.zeros((6, 0)), np.zeros(0), MEANS, PRESENT[:, :0], 5, kind)


@pytest.mark.parametrize("aggregation", ["mean", "energy", "procrustes"])
@pytest.mark.parametrize(
    ("total", "weights", "means"),
    [
        (PRESENT * 5, [5, 5, -1e-9], MEANS),
        (PRESENT * 5 * 2**20, [5, 5, 5], MEANS),
        (PRESENT * 5, [5, 5, 5], {**MEANS, "nonzeros": -0.1}),
        (PRESENT * 5, [5, 5, 5], {**MEANS, "error_before_update": 2.0**21}),
    ],
)
def test_sums_that_cannot_be_are_refused(aggregation, total, weights, means):
    with pytest.raises(FederationError, match="the sum over 5 clients cannot be: a client sent nonsense"):
        check_sum(total, np.array(weights, float), means, PRESENT, 5, AGGREGATIONS[aggregation])


def test_a_wrong_mask_is_noticed():
    rng = np.random.default_rng(0)
    for _ in range(1000):
        words = rng.integers(0, 2**64, 3 * 7 + 3, dtype=np.uint64).view(np.int64) * 2.0**-48
        means = dict(zip(MEANS, words[-3:] * 2.0**16, strict=True))
        with pytest.raises(FederationError, match="cannot be"):
            check_sum(words[:18].reshape(6, 3), words[18:21], means, PRESENT, 5, AGGREGATIONS["mean"])
