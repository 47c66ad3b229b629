"""Claims of the online learner, against literal loops over atoms and samples."""

import numpy as np
import pytest

from common import online
from common.coders import OLS, OMP, TopK
from common.dictionaries import dictionary_distance
from common.learners import online_step, product
from common.online import online_pass, pass_over_atoms


def unit(D):
    return D / np.linalg.norm(D, axis=0)


def planted(seed, d=16, r=24, k=3, n=4000, noise=0.0):
    """Unit atoms that are not orthogonal, more of them than features, and samples of k atoms."""
    rng = np.random.default_rng(seed)
    D, X = unit(rng.standard_normal((d, r))), np.zeros((r, n))
    for x in X.T:
        x[rng.choice(r, k, replace=False)] = rng.choice([-1, 1], k) * rng.uniform(0.5, 1.5, k)
    return D, D @ X + noise * rng.standard_normal((d, n)), rng


@pytest.fixture
def blocks(monkeypatch):
    """Small blocks, so that few samples make many."""
    monkeypatch.setattr(online, "BLOCK", 20)
    monkeypatch.setattr(online, "_SAMPLES", 0)


@pytest.mark.parametrize("shape", [(6, 4), (5, 9), (3, 1)])
@pytest.mark.parametrize("seed", range(3))
def test_a_pass_over_the_atoms_is_least_squares_of_one_after_the_other(shape, seed):
    rng = np.random.default_rng(seed)
    Y, D, X = rng.standard_normal((shape[0], 30)), unit(rng.standard_normal(shape)), rng.standard_normal((shape[1], 30))
    X *= rng.random(X.shape) < 0.4
    new, norms = pass_over_atoms(D, Y @ X.T, X @ X.T)
    expected = D.copy()
    for j in range(shape[1]):
        if X[j].any():
            others = np.delete(expected, j, axis=1) @ np.delete(X, j, axis=0)
            expected[:, j] = (Y - others) @ X[j] / (X[j] @ X[j])
    np.testing.assert_allclose(norms, np.linalg.norm(expected, axis=0), atol=1e-10)
    np.testing.assert_allclose(new, unit(expected), atol=1e-10)


@pytest.mark.parametrize("seed", range(20))
def test_a_pass_over_the_atoms_never_raises_the_error(seed):
    rng = np.random.default_rng(seed)
    d, r, n = rng.integers(1, 12, 3)
    Y, D = rng.standard_normal((d, n)), unit(rng.standard_normal((d, r)))
    X = rng.standard_normal((r, n)) * (rng.random((r, n)) < 0.5)
    errors = [np.sum((Y - D @ X) ** 2)]
    for _ in range(5):
        D, norms = pass_over_atoms(D, Y @ X.T, X @ X.T)
        X = X * norms[:, None]
        errors.append(np.sum((Y - D @ X) ** 2))
    assert (np.diff(errors) <= 1e-10 * (1 + errors[0])).all()


def test_atoms_that_no_sample_uses_and_those_that_would_vanish_stay():
    rng = np.random.default_rng(0)
    D, X = unit(rng.standard_normal((4, 3))), rng.standard_normal((3, 20))
    X[1] = 0
    new, norms = pass_over_atoms(D, np.zeros((4, 3)), X @ X.T)
    np.testing.assert_array_equal(new[:, 1], D[:, 1])
    assert norms[1] == 1
    new, norms = pass_over_atoms(D[:, :1], np.zeros((4, 1)), np.ones((1, 1)))
    np.testing.assert_array_equal(new, D[:, :1])
    np.testing.assert_array_equal(norms, 1)


def test_few_samples_are_one_block_and_the_codes_those_of_the_old_dictionary():
    true, Y, _ = planted(0, n=500)
    step = online_step(Y, true, OMP(2))
    X = OMP(2)(Y, true)
    np.testing.assert_array_equal(step.codes, X)
    np.testing.assert_array_equal(step.dictionary, pass_over_atoms(true, Y @ X.T, X @ X.T)[0])
    np.testing.assert_array_equal(step.moment, Y @ X.T)


def test_a_pass_is_the_loop_over_blocks(blocks):
    _, Y, rng = planted(1, n=205)
    D = unit(rng.standard_normal((16, 24)))
    step = online_step(Y, D, TopK(3))
    n_blocks, B, A, moment = 10, 0, 0, 0
    rho = n_blocks / 8
    for t in range(1, n_blocks + 1):
        part = Y[:, t - 1 :: n_blocks]
        X = TopK(3)(part, D)
        beta = (1 - 1 / t) ** rho
        B, A, moment = beta * B + part @ X.T, beta * A + X @ X.T, moment + part @ X.T
        D, norms = pass_over_atoms(D, B, A)
        B, A = B * norms, np.diag(norms) @ A @ np.diag(norms)
    np.testing.assert_allclose(step.dictionary, D, atol=1e-10)
    np.testing.assert_allclose(step.moment, moment, atol=1e-10)
    assert step.codes is None


def test_a_block_has_three_samples_for_two_atoms_or_more():
    seen = []

    def spy(B, D):
        seen.append(B.shape[1])
        return TopK(1)(B, D)

    Y = np.random.default_rng(0).standard_normal((3, 4099))
    online_pass(Y, np.eye(3), spy, product)
    assert set(seen) == {195, 196}
    seen.clear()
    online_pass(Y, np.ones((3, 300)), spy, product)
    assert set(seen) == {455, 456}
    seen.clear()
    online_pass(Y, np.ones((3, 900)), spy, product)
    assert seen == [4099]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_planted_dictionary_of_more_atoms_than_features_is_found(dtype):
    true, Y, rng = planted(2)
    D = unit(true + 0.6 * unit(rng.standard_normal(true.shape))).astype(dtype)
    assert dictionary_distance(D, true) > 0.6
    for _ in range(3):
        D = online_step(Y.astype(dtype), D, OLS(3)).dictionary
    assert D.dtype == dtype
    assert dictionary_distance(D, true) < 0.03  # pursuit takes wrong atoms of some samples even with the true ones


@pytest.mark.parametrize("seed", range(3))
def test_samples_alone_are_enough_to_find_most_atoms(seed):
    true, Y, rng = planted(seed, d=20, r=40, noise=0.01)
    D = unit(Y[:, rng.permutation(4000)[:40]])
    assert np.count_nonzero(np.abs(true.T @ D).max(axis=1) > 0.99) == 0
    for _ in range(8):
        D = online_step(Y, D, OLS(3)).dictionary
    assert np.count_nonzero(np.abs(true.T @ D).max(axis=1) > 0.99) >= 34


def test_one_pass_is_worth_several_coordinate_steps():
    from common.learners import coordinate_step

    _, Y, rng = planted(4, noise=0.05, n=8000)
    start = unit(rng.standard_normal((16, 24)))
    D = start
    for _ in range(3):
        D = coordinate_step(Y, D, OLS(3)).dictionary
    once = online_step(Y, start, OLS(3)).dictionary
    error = [np.linalg.norm(Y - E @ OLS(3)(Y, E)) for E in (once, D)]
    assert error[0] < error[1]


def test_it_is_the_same_each_time_and_leaves_its_arguments_alone(blocks):
    _, Y, rng = planted(5, n=300)
    D = unit(rng.standard_normal((16, 24)))
    before = Y.copy(), D.copy()
    Y.flags.writeable = D.flags.writeable = False
    one, other = (online_step(Y, D, OMP(3)).dictionary for _ in range(2))
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(Y, before[0])
    np.testing.assert_array_equal(D, before[1])
