"""Claims of the coders, against sorting, enumeration of supports and a textbook loop."""

import itertools

import numpy as np
import pytest

from common.coders import CODERS, OMP, HardThreshold, TopK, hard_threshold, omp, top_k


def unit(D):
    return D / np.linalg.norm(D, axis=0)


def orthonormal(rng, d, r):
    return np.linalg.qr(rng.standard_normal((d, r)))[0]


def frozen(A):
    A = A.copy()
    A.flags.writeable = False
    return A


# hard_threshold


def test_threshold_keeps_entries_of_its_own_size():
    A = np.array([[0.15, -0.15, np.nextafter(0.15, 0), -np.nextafter(0.15, 0), np.nextafter(0.15, 1), 0.0]])
    assert hard_threshold(A, 0.15).tolist() == [[A[0, 0], A[0, 1], 0, 0, A[0, 4], 0]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threshold_equals_its_definition_entry_by_entry(dtype):
    A = frozen(np.random.default_rng(0).standard_normal((8, 12)).astype(dtype))[::2, ::3]
    found = hard_threshold(A, 0.7)
    assert found.dtype == dtype
    assert found.tolist() == [[a if abs(a) >= 0.7 else 0 for a in row] for row in A]


def test_threshold_zero_keeps_everything_and_infinity_nothing():
    A = np.random.default_rng(1).standard_normal((3, 4))
    np.testing.assert_array_equal(hard_threshold(A, 0), A)
    assert not hard_threshold(A, np.inf).any()


# top_k


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [0, 1, 3, 6, 7, 8, 100])
def test_top_k_equals_sorting_each_column(dtype, k):
    A = frozen(np.random.default_rng(2).standard_normal((14, 10)).astype(dtype))[::2]
    found = top_k(A, k)
    assert found.dtype == dtype
    for column, coded in zip(A.T, found.T, strict=True):
        kept = sorted(range(7), key=lambda i, c=column: -abs(c[i]))[:k]
        assert coded.tolist() == [column[i] if i in kept else 0 for i in range(7)]


@pytest.mark.parametrize("k", [2, 9])
def test_top_k_gives_an_array_of_its_own(k):
    A = np.ones((4, 2))
    top_k(A, k)[:] = 5
    assert (A == 1).all()


def test_top_k_keeps_exactly_k_of_equal_entries():
    assert (np.count_nonzero(top_k(np.ones((6, 5)), 4), axis=0) == 4).all()


# omp


def omp_by_the_book(y, D, k):
    """One sample: residual formed, least squares by LAPACK."""
    norms = np.linalg.norm(D, axis=0)
    x, support, residual = np.zeros(D.shape[1]), [], y
    for _ in range(min(k, D.shape[1])):
        score = [abs(D[:, j] @ residual) / norms[j] if norms[j] > 0 and j not in support else -1 for j in range(len(x))]
        if max(score) <= 1e-10 * np.linalg.norm(y):
            break
        support.append(int(np.argmax(score)))
        weights = np.linalg.lstsq(D[:, support], y, rcond=None)[0]
        residual = y - D[:, support] @ weights
    if support:
        x[support] = weights
    return x


@pytest.mark.parametrize("threshold", [0.3, 1.0])
def test_pursuit_with_a_threshold_is_the_loop_until_no_atom_passes_it(threshold):
    rng = np.random.default_rng(3)
    D = rng.standard_normal((8, 12))
    D /= np.linalg.norm(D, axis=0)
    Y = rng.standard_normal((8, 50))
    X = CODERS["omp-threshold"].make(threshold)(Y, D)
    residual = np.abs(D.T @ (Y - D @ X))
    residual[X != 0] = 0
    assert residual.max() < threshold
    for y, x in zip(Y.T, X.T, strict=True):
        k = np.count_nonzero(x)
        np.testing.assert_allclose(x, omp_by_the_book(y, D, k), atol=1e-9)
        before = y - D @ omp_by_the_book(y, D, max(k - 1, 0))
        assert k == 0 or np.abs(D.T @ before).max() >= threshold - 1e-12


def test_on_orthonormal_atoms_pursuit_with_a_threshold_is_the_hard_threshold():
    rng = np.random.default_rng(4)
    D = np.linalg.qr(rng.standard_normal((7, 7))).Q
    Y = rng.standard_normal((7, 40))
    pursuit, hard = (CODERS[name].make(0.8) for name in ("omp-threshold", "hard-threshold"))
    np.testing.assert_allclose(pursuit(Y, D), hard(Y, D), atol=1e-12)
    assert pursuit.penalty == hard.penalty
    assert pursuit.warm(4.0, 0.5).number == hard.warm(4.0, 0.5).number


@pytest.mark.parametrize(("d", "r", "k"), [(8, 5, 3), (6, 12, 1), (6, 12, 4), (10, 30, 6), (5, 5, 5), (4, 3, 9)])
@pytest.mark.parametrize("seed", range(5))
def test_omp_equals_the_textbook_loop(d, r, k, seed):
    rng = np.random.default_rng([seed, d, r, k])
    D = rng.standard_normal((d, r)) * rng.uniform(0.05, 20, r)
    Y = rng.standard_normal((d, 40)) * 10.0 ** rng.uniform(-6, 6, 40)
    found = omp(frozen(Y), frozen(D), k)
    truth = np.column_stack([omp_by_the_book(y, D, k) for y in Y.T])
    scale = np.linalg.norm(Y, axis=0) / np.linalg.norm(D, axis=0).min()
    np.testing.assert_array_equal(found != 0, truth != 0)
    np.testing.assert_allclose(found / scale, truth / scale, atol=1e-10)


@pytest.mark.parametrize("seed", range(10))
def test_omp_recovers_sparse_codes_of_incoherent_atoms_exactly(seed):
    rng = np.random.default_rng(seed)
    hadamard = np.array([[1]])
    for _ in range(5):
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    D = np.hstack([np.eye(32), hadamard / np.sqrt(32)]) * rng.uniform(
        0.1, 10, 64
    )  # coherence 1/sqrt(32): 3 atoms are safe
    X = np.zeros((64, 50))
    for x in X.T:
        x[rng.choice(64, 3, replace=False)] = rng.choice([-1, 1], 3) * rng.uniform(0.5, 2, 3)
    found = omp(D @ X, D, 7)
    np.testing.assert_array_equal(np.count_nonzero(found, axis=0), 3)  # and it stops when nothing is left
    np.testing.assert_allclose(found, X, atol=1e-9)


def test_omp_residual_is_orthogonal_to_the_atoms_taken_and_falls_with_k():
    rng = np.random.default_rng(3)
    D, Y = rng.standard_normal((20, 40)), rng.standard_normal((20, 30))
    last = np.linalg.norm(Y, axis=0)
    for k in range(1, 20):
        X = omp(Y, D, k)
        residual = Y - D @ X
        assert np.abs((unit(D).T @ residual)[X != 0]).max() < 1e-9
        sizes = np.linalg.norm(residual, axis=0)
        assert (sizes < last).all()
        last = sizes


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_omp_of_an_orthonormal_dictionary_is_top_k(dtype, k):
    rng = np.random.default_rng(4)
    D, Y = orthonormal(rng, 9, 6).astype(dtype), rng.standard_normal((9, 50)).astype(dtype)
    np.testing.assert_allclose(omp(Y, D, k), top_k(D.T @ Y, k), atol=20 * np.finfo(dtype).eps)


def test_omp_passes_over_zero_atoms_and_duplicates_and_leaves_zero_samples_at_zero():
    rng = np.random.default_rng(5)
    D = unit(rng.standard_normal((6, 8)))
    D[:, 1], D[:, 4], D[:, 6] = 0, D[:, 0], -3 * D[:, 2]
    Y = rng.standard_normal((6, 30))
    Y[:, 7], Y[:, 8] = 0, 2 * D[:, 0]
    X = omp(Y, D, 8)
    assert np.isfinite(X).all()
    assert not X[1].any()
    assert not X[:, 7].any()
    assert np.count_nonzero(X[:, 8]) == 1
    assert (np.count_nonzero(X, axis=0) <= 6).all()
    basis = np.linalg.qr(D[:, [0, 2, 3, 5, 7]])[0]
    np.testing.assert_allclose(D @ X, basis @ (basis.T @ Y), atol=1e-7)
    assert np.abs(X).max() < 1e3  # no blow-up from parallel atoms


def test_omp_of_float32_stays_float32_and_near_float64():
    rng = np.random.default_rng(6)
    D, Y = rng.standard_normal((12, 20)), rng.standard_normal((12, 60))
    narrow, wide = omp(Y.astype("f4"), D.astype("f4"), 4), omp(Y, D, 4)
    assert narrow.dtype == np.float32
    same = ((narrow != 0) == (wide != 0)).all(axis=0)
    assert same.mean() > 0.95
    np.testing.assert_allclose(narrow[:, same], wide[:, same], atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_omp_stops_on_samples_that_few_atoms_explain(dtype):
    rng = np.random.default_rng(7)
    D = orthonormal(rng, 16, 16).astype(dtype)
    X = np.zeros((16, 100), dtype=dtype)
    X[rng.integers(0, 16, 100), np.arange(100)] = rng.uniform(1, 2, 100)
    assert (np.count_nonzero(omp(D @ X, D, 10), axis=0) == 1).all()


def test_omp_with_no_atoms_to_take_gives_zeros():
    rng = np.random.default_rng(8)
    assert not omp(rng.standard_normal((4, 5)), rng.standard_normal((4, 3)), 0).any()
    assert omp(rng.standard_normal((4, 5)), np.zeros((4, 3)), 2).tolist() == np.zeros((3, 5)).tolist()
    assert omp(rng.standard_normal((4, 0)), rng.standard_normal((4, 3)), 2).shape == (3, 0)
    assert omp(rng.standard_normal((4, 5)), np.zeros((4, 0)), 2).shape == (0, 5)


# Coders as objects


def test_coders_apply_their_function_to_correlations():
    rng = np.random.default_rng(9)
    Y, D = rng.standard_normal((5, 20)), rng.standard_normal((5, 7))
    np.testing.assert_array_equal(HardThreshold(0.8)(Y, D), hard_threshold(D.T @ Y, 0.8))
    np.testing.assert_array_equal(TopK(2)(Y, D), top_k(D.T @ Y, 2))
    np.testing.assert_array_equal(OMP(2)(Y, D), omp(Y, D, 2))
    assert (HardThreshold(0.8).penalty, TopK(2).penalty, OMP(2).penalty) == (pytest.approx(0.64), 0, 0)


@pytest.mark.parametrize("seed", range(5))
def test_hard_threshold_minimises_its_objective_for_orthonormal_atoms(seed):
    rng = np.random.default_rng(seed)
    D, coder = orthonormal(rng, 6, 4), HardThreshold(0.6)
    Y = rng.standard_normal((6, 30))
    X = coder(Y, D)
    value = ((Y - D @ X) ** 2).sum(axis=0) + coder.penalty * np.count_nonzero(X, axis=0)
    supports = [list(s) for n in range(5) for s in itertools.combinations(range(4), n)]
    for y, mine in zip(Y.T, value, strict=True):
        least = min(
            np.sum((y - D[:, s] @ np.linalg.lstsq(D[:, s], y, rcond=None)[0]) ** 2) + 0.36 * len(s) if s else y @ y
            for s in supports
        )
        assert mine == pytest.approx(least, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_top_k_minimises_the_error_over_supports_of_its_size_for_orthonormal_atoms(seed):
    rng = np.random.default_rng(seed)
    D, Y = orthonormal(rng, 7, 5), rng.standard_normal((7, 20))
    error = ((Y - D @ TopK(2)(Y, D)) ** 2).sum(axis=0)
    for y, mine in zip(Y.T, error, strict=True):
        pairs = (D[:, list(s)] for s in itertools.combinations(range(5), 2))
        assert mine == pytest.approx(min(np.linalg.lstsq(S, y, rcond=None)[1][0] for S in pairs), abs=1e-12)


@pytest.mark.parametrize("coder", [HardThreshold(0.4), TopK(2)])
def test_a_stack_of_dictionaries_gets_the_codes_of_each(coder):
    rng = np.random.default_rng(9)
    Y, D = rng.standard_normal((5, 8)), rng.standard_normal((3, 5, 4))
    for X, one in zip(coder(Y, D), D, strict=True):
        np.testing.assert_allclose(X, coder(Y, one), atol=1e-14)
