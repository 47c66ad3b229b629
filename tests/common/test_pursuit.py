"""Claims of the pursuits, against a loop over samples with residuals formed and least squares by LAPACK."""

import numpy as np
import pytest

from common import pursuit
from common.coders import CODERS, OLS
from common.pursuit import ols, omp


def unit(D):
    return D / np.linalg.norm(D, axis=0)


def fit(D, support, y):
    weights = np.linalg.lstsq(D[:, support], y, rcond=None)[0]
    return weights, y - D[:, support] @ weights


def by_the_book(y, D, k, *, best_fit):
    """One sample: the atom of the largest correlation, or the one with which least squares leave least."""
    x, support, residual = np.zeros(D.shape[1]), [], y
    for _ in range(min(k, D.shape[1])):
        free = [j for j in range(D.shape[1]) if j not in support and np.linalg.norm(D[:, j]) > 0]
        sizes = {j: abs(D[:, j] @ residual) / np.linalg.norm(D[:, j]) for j in free}
        if not free or max(sizes.values()) <= 1e-10 * np.linalg.norm(y):
            break
        if best_fit:
            left = {j: np.linalg.norm(fit(D, [*support, j], y)[1]) for j in free}
            support.append(min(left, key=left.get))
        else:
            support.append(max(sizes, key=sizes.get))
        weights, residual = fit(D, support, y)
    if support:
        x[support] = weights
    return x


RULES = [pytest.param(omp, False, id="omp"), pytest.param(ols, True, id="ols")]


@pytest.mark.parametrize(("pursue", "best_fit"), RULES)
@pytest.mark.parametrize(
    ("d", "r", "k"), [(8, 5, 3), (6, 12, 1), (6, 12, 4), (10, 30, 6), (5, 5, 5), (4, 3, 9), (20, 60, 18), (3, 90, 2)]
)
@pytest.mark.parametrize("seed", range(3))
def test_supports_and_codes_are_those_of_the_loop(pursue, best_fit, d, r, k, seed):
    rng = np.random.default_rng([seed, d, r, k])
    D = rng.standard_normal((d, r)) * rng.uniform(0.05, 20, r)
    Y = rng.standard_normal((d, 30)) * 10.0 ** rng.uniform(-6, 6, 30)
    found = pursue(Y, D, k)
    truth = np.column_stack([by_the_book(y, D, k, best_fit=best_fit) for y in Y.T])
    scale = np.linalg.norm(Y, axis=0) / np.linalg.norm(D, axis=0).min()
    np.testing.assert_array_equal(found != 0, truth != 0)
    np.testing.assert_allclose(found / scale, truth / scale, atol=1e-9)


@pytest.mark.parametrize(("pursue", "best_fit"), RULES)
def test_dictionaries_without_full_rank_repeated_and_zero_atoms_and_zero_samples(pursue, best_fit):
    rng = np.random.default_rng(0)
    D = rng.standard_normal((8, 4)) @ rng.standard_normal((4, 12))
    D[:, 3], D[:, 5], D[:, 7] = D[:, 0], -2 * D[:, 1], 0
    Y = rng.standard_normal((8, 40))
    Y[:, 4] = 0
    X = pursue(Y, D, 12)
    assert np.isfinite(X).all()
    assert not X[:, 4].any()
    assert not X[7].any()
    assert (np.count_nonzero(X, axis=0) <= 4).all()
    assert not (X[0] * X[3]).any()
    assert not (X[1] * X[5]).any()
    basis = np.linalg.svd(D)[0][:, :4]
    np.testing.assert_allclose(D @ X, basis @ (basis.T @ Y), atol=1e-10)
    for k in (1, 2, 3):
        X = pursue(Y, D, k)
        truth = np.column_stack([by_the_book(y, D, k, best_fit=best_fit) for y in Y.T])
        np.testing.assert_allclose(D @ X, D @ truth, atol=1e-10)  # of two equal atoms either may be taken


@pytest.mark.parametrize(("pursue", "best_fit"), RULES)
def test_float32_gives_float32_and_the_same_to_its_digits(pursue, best_fit):
    rng = np.random.default_rng(1)
    D, Y = unit(rng.standard_normal((12, 30))).astype("f4"), rng.standard_normal((12, 200)).astype("f4")
    X = pursue(Y, D, 5)
    assert X.dtype == np.float32
    truth = np.column_stack([by_the_book(y, D.astype(float), 5, best_fit=best_fit) for y in Y.T.astype(float)])
    same = ((X != 0) == (truth != 0)).all(axis=0)
    assert same.mean() > 0.98
    np.testing.assert_allclose(X[:, same], truth[:, same], atol=2e-4)


@pytest.mark.parametrize("pursue", [omp, ols])
def test_blocks_dense_and_sparse_products_and_samples_that_are_done_early_change_nothing(monkeypatch, pursue):
    rng = np.random.default_rng(2)
    D = unit(rng.standard_normal((20, 40)))
    X = np.zeros((40, 300))
    for s, x in enumerate(X.T):  # so most samples need fewer atoms than they may use
        x[rng.choice(40, 1 + s % 6, replace=False)] = rng.choice([-1, 1], 1 + s % 6) * rng.uniform(1, 2, 1 + s % 6)
    Y = D @ X + 1e-3 * rng.standard_normal((20, 300)) * (np.arange(300) % 5 == 0)
    whole = pursue(Y, D, 12)
    assert (np.count_nonzero(whole, axis=0) < 12).any()
    for name, value in (("_BLOCK", 1), ("_MOST", 7), ("_ROOM", 1), ("_FEW", 0), ("_FEW", 1000)):
        with monkeypatch.context() as patch:
            patch.setattr(pursuit, name, value)
            if name == "_MOST":
                patch.setattr(pursuit, "_FEWEST", 7)
            np.testing.assert_allclose(pursue(Y, D, 12), whole, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("seed", range(5))
def test_least_squares_leave_less_than_matching_pursuit(seed):
    rng = np.random.default_rng(seed)
    D, Y = unit(rng.standard_normal((16, 48))), rng.standard_normal((16, 400))
    for k in (2, 4, 8):
        left = [np.linalg.norm(Y - D @ pursue(Y, D, k)) for pursue in (omp, ols)]
        assert left[1] < left[0]
    np.testing.assert_array_equal(ols(Y, D, 1) != 0, omp(Y, D, 1) != 0)


def test_on_orthonormal_atoms_both_are_the_same():
    rng = np.random.default_rng(3)
    D, Y = np.linalg.qr(rng.standard_normal((9, 6))).Q, rng.standard_normal((9, 50))
    np.testing.assert_allclose(ols(Y, D, 3), omp(Y, D, 3), atol=1e-12)


@pytest.mark.parametrize("pursue", [omp, ols])
def test_read_only_and_strided_samples_stay_as_they_are(pursue):
    rng = np.random.default_rng(4)
    wide, D = rng.standard_normal((16, 60)), unit(rng.standard_normal((8, 12)))
    before = wide.copy()
    wide.flags.writeable = False
    np.testing.assert_allclose(pursue(wide[::2, ::3], D, 3), pursue(before[::2, ::3].copy(), D, 3), atol=1e-12)
    np.testing.assert_array_equal(wide, before)


def test_the_coder_is_the_function():
    rng = np.random.default_rng(5)
    Y, D = rng.standard_normal((5, 20)), unit(rng.standard_normal((5, 7)))
    coder = CODERS["ols"].make(2.0)
    assert coder == OLS(2)
    assert coder.warm(4.0, 0.5) is coder
    np.testing.assert_array_equal(coder(Y, D), ols(Y, D, 2))
