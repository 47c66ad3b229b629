"""Symptoms of docs/troubleshooting.md: each cause there gives its symptom, and the cure cures it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from perdl import PerDL

RMS = {"n_global": "auto", "threshold_unit": "rms", "threshold": 0.5, "warmup_threshold": 2.0}


@pytest.fixture(scope="module")
def tables():
    """Three clients' rows of eight features: two shared atoms, two own ones."""
    rng = np.random.default_rng(1)
    shared = np.linalg.qr(rng.standard_normal((8, 2))).Q.T
    made = {}
    for name in ("ada", "bob", "cy"):
        atoms = np.linalg.qr(np.vstack([shared, rng.standard_normal((2, 8))]).T).Q.T
        codes = rng.standard_normal((400, 4)) * (rng.random((400, 4)) < 0.3)
        made[name] = codes @ atoms + 0.05 * rng.standard_normal((400, 8))
    return made


def learn(tables, **settings):
    """Model, its clients' facts, and all warnings in one text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model = PerDL(**{**RMS, **settings}).fit(tables)
    return model, model.summary_["clients"], " ".join(str(one.message) for one in caught if one.category is UserWarning)


def test_healthy_data_have_no_symptom(tables):
    model, clients, notes = learn(tables)
    assert len(model.global_components_) == 2
    assert max(client["nonzeros"] for client in clients.values()) < 2
    assert not notes


def test_the_mean_is_what_all_share_until_it_is_taken_off(tables):
    raised = {name: X + 5 for name, X in tables.items()}
    model, clients, notes = learn(raised)
    assert len(model.global_components_) == 1
    assert min(client["final_shared"] for client in clients.values()) > 0.98
    assert "set center=True" in notes
    assert len(learn(raised, center=True)[0].global_components_) == 2


def test_a_feature_in_another_unit_is_the_one_shared_atom_until_it_is_divided(tables):
    large = np.array([100, 1, 1, 1, 1, 1, 1, 1])
    spoilt = {name: X * large for name, X in tables.items()}
    model, _, _ = learn(spoilt, center=True)
    assert len(model.global_components_) == 1
    assert np.abs(model.global_components_[0]).argmax() == 0
    assert np.abs(model.global_components_[0, 0]) > 0.99
    assert len(learn(spoilt, center=True, divide_by=large.tolist())[0].global_components_) == 2


def test_a_threshold_that_is_too_low_leaves_no_error_and_uses_all_atoms(tables):
    _, clients, notes = learn(tables, threshold=0.01)
    assert max(client["final_error"] for client in clients.values()) < 0.01
    assert min(client["nonzeros"] for client in clients.values()) > 7
    assert "codes are not sparse" in notes


def test_scales_that_differ_hide_what_is_shared_until_thresholds_follow_them(tables):
    scaled = {name: X * scale for (name, X), scale in zip(tables.items(), (1, 10, 0.1), strict=True)}
    model, _, notes = learn(scaled, threshold_unit="data", threshold=0.15, warmup_threshold=0.8)
    assert not len(model.global_components_)
    assert "found no shared atom" in notes
    assert len(learn(scaled)[0].global_components_) == 2


def test_columns_in_another_order_are_named(tables):
    spoilt = {**tables, "cy": tables["cy"][:, ::-1]}
    # Two of three share it, so that the mean distance is below chance; the note says that the third does not fit.
    assert "the matched atoms of cy were no nearer" in learn(spoilt)[2]
    assert "the matched atoms of cy were no nearer" in learn(spoilt, n_global=2)[2]
