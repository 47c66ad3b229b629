"""What travels of an evaluation, and what a server refuses of it."""

import math

import pytest

from common.evaluation import EXACT, Evaluation, counts_of_atoms, evaluation_of, gain, percent

ERRORS = {k: {"alone": 0.5 / k, "federated": 0.45 / k, "shared": 0.9} for k in (1, 3, 5)}
ONE = Evaluation(40, 3, ERRORS, 0.02, 0.18)


def test_what_is_told_is_understood():
    told = ONE.scalars()
    assert evaluation_of(told) == ONE
    assert all(isinstance(value, (int, float)) for value in told.values())
    assert evaluation_of({"client": "ada", "error": 0.1}) is None


def test_the_gain_is_the_share_by_which_the_error_is_lower():
    assert ONE.gain == pytest.approx(0.1)
    assert gain(0.5, 0.6) == pytest.approx(-0.2)
    assert gain(0.0, 0.0) == gain(1e-14, 3e-13) == gain(EXACT, 0.0) == 0
    assert gain(0.5, 1e-16) == pytest.approx(1 - EXACT / 0.5)
    assert math.isfinite(gain(0.0, 1.0))


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.01, 0.2, "gained"), (-0.2, -0.01, "better alone"), (-0.1, 0.1, "undecided"), (0.0, 0.0, "undecided")],
)
def test_the_verdict_is_undecided_if_the_interval_includes_zero(low, high, verdict):
    one = Evaluation(40, 3, ERRORS, low, high)
    assert one.verdict == one.facts()["verdict"] == verdict


def test_in_words():
    assert ONE.in_words() == (
        "on 40 held-out samples, with 3 atoms a sample, its error is 0.15, alone it would be 0.167: federating helped "
        "(gain 10 %, 95 % interval 2 % to 18 %)"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"held_out": 0},
        {"held_out": 4.5},
        {"held_out": True},
        {"held_out_k": 4},
        {"held_out_k": "3"},
        {"gain_low": math.nan},
        {"gain_low": 0.5},
        {"gain_high": math.inf},
        {"gain_high": 1.5},
        {"alone_3": -0.1},
        {"alone_3": 1.5},
        {"alone_3": math.nan},
        {"alone_3": "0.1"},
        {"shared_5": None},
        {"alone_7": 0.3},
        {f"{name}_{k}": 0.3 for name in ("alone", "federated", "shared") for k in range(1, 12)},
    ],
    ids=lambda wrong: f"{str(next(iter(wrong.items())))[:30]} and {len(wrong) - 1} more",
)
def test_what_cannot_be_is_refused(wrong):
    told = {**ONE.scalars(), **wrong}
    with pytest.raises(
        ValueError, match=r"must be positive|the interval of|no relative error|expected (int|float)|it tells errors"
    ):
        evaluation_of(told)


@pytest.mark.parametrize("name", ["alone_" + "9" * 5000, "alone_x", "alone_"])
def test_what_names_no_number_of_atoms_is_ignored(name):
    assert evaluation_of({**ONE.scalars(), name: 0.1}) == ONE


@pytest.mark.parametrize("missing", ["held_out_k", "gain_low", "federated_3", "shared_1"])
def test_what_is_missing_is_named(missing):
    told = {key: value for key, value in ONE.scalars().items() if key != missing}
    with pytest.raises(ValueError, match=missing):
        evaluation_of(told)


@pytest.mark.parametrize(
    ("n_nonzero", "n_atoms", "n_features", "k", "counts"),
    [
        (5, 40, 64, 5, [1, 3, 5, 10]),
        (7, 40, 64, 7, [1, 3, 5, 7, 10]),
        (5, 4, 64, 4, [1, 3, 4]),
        (5, 6, 6, 3, [1, 3, 5]),
        (5, 4, 4, 2, [1, 2, 3]),
        (5, 1, 1, 1, [1]),
    ],
)
def test_no_more_atoms_than_tell_dictionaries_apart(n_nonzero, n_atoms, n_features, k, counts):
    assert counts_of_atoms(n_nonzero, n_atoms, n_features) == (k, counts)


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.06, "6 %"), (0.0634, "6.3 %"), (0.096, "9.6 %"), (0.47, "47 %"), (-0.0001, "0 %"), (1, "100 %")],
)
def test_percent(share, text):
    assert percent(share) == text
