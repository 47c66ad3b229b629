"""Sums in one pass over blocks of samples: against the same sums over all samples at once."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from common.coders import HardThreshold, TopK
from common.learners import LEARNERS
from perdl_client.learning import local_update as module
from perdl_client.learning import sweep as blocks
from perdl_client.learning.guard import SHARE, passed
from perdl_client.learning.local_update import local_update
from perdl_client.learning.sweep import sweep

CODERS = [HardThreshold(0.7), HardThreshold(0.0), TopK(3), TopK(1)]


def samples(seed, d=12, n=700, dtype="f8"):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((d, n)) * rng.gamma(1.0, size=n)).astype(dtype)


def dictionary(seed, kind, d=12, r=9, dtype="f8"):
    rng = np.random.default_rng(seed)
    D = np.linalg.qr(rng.standard_normal((d, r))).Q
    if kind == "averaged":  # D^g is a mean of clients' atoms, shorter than 1 and not orthogonal
        D[:, :4] = 0.9 * D[:, :4] + 0.2 * rng.standard_normal((d, 4))
    elif kind == "any":
        D = rng.standard_normal((d, r))
    return D.astype(dtype)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "_BLOCK", 0)
    monkeypatch.setattr(blocks, "_LEAST", 64)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("kind", ["orthonormal", "averaged", "any"])
@pytest.mark.parametrize("coder", CODERS, ids=repr)
def test_sums_are_those_over_all_samples_at_once(coder, kind, dtype):
    Y, D = samples(0, dtype=dtype), dictionary(1, kind, dtype=dtype)
    found = sweep(Y, D, coder, second_moment=True)
    X = coder(Y, D).astype("f8")
    rest = np.square(Y - D @ X).sum(axis=0)
    made, tol = np.square(Y.astype("f8")).sum(axis=0), {"rtol": 1e-10 if dtype == "f8" else 3e-4}
    np.testing.assert_allclose(found.moment, Y @ X.T, atol=1e-10 if dtype == "f8" else 0.05)
    np.testing.assert_allclose(found.second_moment, X @ X.T, atol=1e-10 if dtype == "f8" else 0.05)
    np.testing.assert_allclose(found.energies, np.square(X).sum(axis=1), **tol)
    np.testing.assert_allclose(found.made, np.square(X) @ made, **tol)
    np.testing.assert_allclose(found.moved, np.square(X) @ rest, **tol)
    np.testing.assert_array_equal(found.users, np.count_nonzero(X, axis=1))
    assert found.energy == pytest.approx(made.sum(), rel=1e-5)
    assert found.misfit == pytest.approx(rest.sum(), rel=1e-4)
    assert (found.most_made >= (np.square(X) * made).max(axis=1) * (1 - 1e-5)).all()
    assert (found.most_moved >= (np.square(X) * rest).max(axis=1) * (1 - 1e-3)).all()
    assert found.moment.dtype == Y.dtype


@pytest.mark.parametrize("noise", [0.0, 1e-12, 1e-9, 1e-7, 1e-5])
def test_an_error_near_rounding_is_exact(noise):
    """||y||^2 - ||x||^2 alone would be off by the square root of the machine epsilon."""
    D, rng = dictionary(0, "orthonormal"), np.random.default_rng(1)
    X = np.where(rng.random((9, 700)) < 0.2, 1 + rng.random((9, 700)), 0)
    Y = D @ X + noise * rng.standard_normal((12, 700))
    found, rest = sweep(Y, D, HardThreshold(0.5)), np.linalg.norm(Y - D @ HardThreshold(0.5)(Y, D))
    assert found.misfit**0.5 == pytest.approx(rest, rel=1e-4, abs=1e-14)


@pytest.mark.parametrize("seed", range(30))
def test_what_surely_passes_the_guard_passes_it(seed):
    """Never the other way round: samples and codes of all shapes, with some that dominate."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 400))
    Y, D = samples(seed, n=n), dictionary(seed, rng.choice(["orthonormal", "averaged"]))
    Y[:, : int(rng.integers(0, 3))] *= rng.choice([1, 5, 50])
    coder = CODERS[rng.integers(4)]
    if sweep(Y, D, coder).passes(5, SHARE):
        seen = passed(Y, D, coder(Y, D), 5)
        assert (seen.weights == 1).all()
        assert seen.moves.all() or not coder(Y, D)[~seen.moves].any()


def test_many_samples_surely_pass_the_guard():
    Y = np.random.default_rng(0).standard_normal((12, 700))
    assert sweep(Y, dictionary(1, "averaged"), TopK(3)).passes(5, SHARE)


@pytest.mark.parametrize("guard", [None, 5])
@pytest.mark.parametrize(("learner", "coder"), itertools.product(("orthogonal", "gradient", "coordinate"), CODERS))
@pytest.mark.parametrize("few", [False, True])
def test_an_update_is_that_of_all_samples_at_once(monkeypatch, learner, coder, guard, few):
    Y, D = samples(3, n=20 if few else 700), dictionary(2, "averaged")
    told = (Y, D[:, :4], D[:, 4:], LEARNERS[learner], coder, 0.5)
    fast = local_update(*told, min_samples=guard)
    monkeypatch.setattr(module, "SELECTING", ())
    slow = local_update(*told, min_samples=guard)
    for key, value in vars(slow).items():
        np.testing.assert_allclose(getattr(fast, key), value, rtol=1e-8, atol=1e-9, err_msg=key)


def test_an_atom_that_no_sample_uses_goes_back_as_it_came(monkeypatch):
    Y, D = samples(3), dictionary(2, "orthonormal")
    Y -= np.outer(D[:, 1], D[:, 1] @ Y)
    told = (Y, D[:, :4], D[:, 4:], LEARNERS["orthogonal"], TopK(3), 0.5)
    fast = local_update(*told, min_samples=5)
    np.testing.assert_array_equal(fast.global_dictionary[:, 1], D[:, 1])
    assert fast.energies[1] == 0
    assert not fast.procrustes_contribution[:, 1].any()
    monkeypatch.setattr(module, "SELECTING", ())
    slow = local_update(*told, min_samples=5)
    np.testing.assert_allclose(fast.local_dictionary, slow.local_dictionary, atol=1e-10)
