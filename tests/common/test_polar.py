"""Claims of the polar factor, against scipy and against its optimality."""

import numpy as np
import pytest
import scipy.linalg

from common.polar import polar_factor


def orthonormal(rng, d, r):
    return np.linalg.qr(rng.standard_normal((d, r)))[0]


def singular(rng, d, r, rank):
    """Random matrix of some rank, well conditioned on it."""
    U, V = orthonormal(rng, d, rank), orthonormal(rng, r, rank)
    return U @ np.diag(rng.uniform(1, 3, rank)) @ V.T


def completed(M, P, rank):
    """U1 V1' on the range of M; on its null space the polar factor of what P has there, by explicit bases."""
    U, _, Vt = np.linalg.svd(M, full_matrices=True)
    U2, V2 = U[:, rank:], Vt[rank:].T
    return U[:, :rank] @ Vt[:rank] + U2 @ scipy.linalg.polar(U2.T @ P @ V2)[0] @ V2.T


SHAPES = [(1, 1), (5, 5), (8, 3), (20, 20), (30, 7)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("with_prior", [False, True])
def test_full_rank_equals_scipy(shape, with_prior):
    rng = np.random.default_rng(0)
    M = singular(rng, *shape, min(shape))
    prior = orthonormal(rng, *shape) if with_prior else None
    W = polar_factor(M, prior)
    # With a prior the second term moves W by about the square root of machine epsilon.
    np.testing.assert_allclose(W, scipy.linalg.polar(M)[0], atol=1e-12 if prior is None else 3e-7)
    np.testing.assert_allclose(W.T @ W, np.eye(shape[1]), atol=1e-13)


def test_a_prior_that_is_the_answer_leaves_it_to_the_last_digit():
    rng = np.random.default_rng(1)
    W = orthonormal(rng, 9, 6)
    B = rng.standard_normal((6, 6))
    np.testing.assert_allclose(polar_factor(W @ (B @ B.T + np.eye(6)), W), W, atol=1e-14)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("lost", [0, 1, 3])
def test_no_orthonormal_matrix_has_a_larger_inner_product(shape, lost):
    rng = np.random.default_rng(2)
    rank = max(min(shape) - lost, 0)
    M = singular(rng, *shape, rank)
    P = orthonormal(rng, *shape)
    best = (polar_factor(M, P) * M).sum()
    assert best == pytest.approx(np.linalg.svd(M, compute_uv=False).sum(), rel=1e-9)
    W = polar_factor(M, P)
    for step in (2.0, 0.1, 1e-3):
        for _ in range(50):
            Q = np.linalg.qr(W + step * rng.standard_normal(shape))
            Q = Q[0] * np.where(np.diag(Q[1]) < 0, -1, 1)
            assert (Q * M).sum() <= best + 1e-9


@pytest.mark.parametrize(("d", "r", "rank"), [(5, 5, 4), (6, 4, 2), (9, 9, 3), (12, 8, 1), (7, 7, 0), (10, 4, 3)])
def test_the_null_space_is_filled_nearest_to_the_prior(d, r, rank):
    rng = np.random.default_rng([3, d, r])
    M = singular(rng, d, r, rank)
    P = orthonormal(rng, d, r)
    W = polar_factor(M, P)
    np.testing.assert_allclose(W, completed(M, P, rank), atol=1e-6)
    np.testing.assert_allclose(W.T @ W, np.eye(r), atol=1e-13)


def test_among_equally_near_matrices_none_is_nearer_to_the_prior():
    rng = np.random.default_rng(4)
    M, P = singular(rng, 8, 5, 3), orthonormal(rng, 8, 5)
    W = polar_factor(M, P)
    U, _, Vt = np.linalg.svd(M)
    for _ in range(300):
        other = U[:, :3] @ Vt[:3] + U[:, 3:] @ orthonormal(rng, 5, 2) @ Vt[3:]
        assert (other * M).sum() == pytest.approx((W * M).sum(), rel=1e-9)
        assert np.linalg.norm(other - P) >= np.linalg.norm(W - P) - 1e-6


def test_dead_atoms_of_two_clients_do_not_become_the_same():
    rng = np.random.default_rng(5)
    Y = rng.standard_normal((10, 6))
    X = np.zeros((10, 6))
    X[:4] = rng.standard_normal((4, 6))
    one, two = (polar_factor(Y @ X.T, orthonormal(rng, 10, 10))[:, 4:] for _ in range(2))
    assert np.abs(one.T @ two).max() < 0.99
    filled = [polar_factor(Y @ X.T)[:, 4:] for _ in range(2)]  # without prior they do
    np.testing.assert_array_equal(*filled)


@pytest.mark.parametrize("rank", [6, 4, 1, 0])
def test_result_turns_with_the_feature_space(rank):
    rng = np.random.default_rng(6)
    M, P, Q = singular(rng, 8, 6, rank), orthonormal(rng, 8, 6), orthonormal(rng, 8, 8)
    np.testing.assert_allclose(polar_factor(Q @ M, Q @ P), Q @ polar_factor(M, P), atol=1e-7)


@pytest.mark.parametrize("rank", [6, 4])
def test_order_and_sign_of_columns_only_order_and_sign_the_result(rank):
    rng = np.random.default_rng(7)
    M, P = singular(rng, 8, 6, rank), orthonormal(rng, 8, 6)
    order, signs = rng.permutation(6), rng.choice([-1, 1], 6)
    np.testing.assert_allclose(
        polar_factor(M[:, order] * signs, P[:, order] * signs), polar_factor(M, P)[:, order] * signs, atol=1e-7
    )


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e-8, 1e8, 1e150, 1e300])
@pytest.mark.parametrize("rank", [5, 3])
def test_units_of_the_data_do_not_matter(scale, rank):
    rng = np.random.default_rng(8)
    M, P = singular(rng, 7, 5, rank), orthonormal(rng, 7, 5)
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_allclose(polar_factor(scale * M, P), polar_factor(M, P), atol=1e-6)
        if rank == 5:
            np.testing.assert_allclose(polar_factor(scale * M), scipy.linalg.polar(M)[0], atol=1e-12)


def test_powers_of_two_do_not_change_a_bit():
    rng = np.random.default_rng(9)
    M, P = rng.standard_normal((7, 5)), orthonormal(rng, 7, 5)
    np.testing.assert_array_equal(polar_factor(2.0**700 * M, P), polar_factor(M, P))


@pytest.mark.parametrize("scale", [1e-35, 1.0, 1e35])
@pytest.mark.parametrize("rank", [5, 3])
def test_float32_stays_float32(scale, rank):
    rng = np.random.default_rng(10)
    M, P = singular(rng, 7, 5, rank), orthonormal(rng, 7, 5)
    W = polar_factor((scale * M).astype("f4"), P.astype("f4"))
    assert W.dtype == np.float32
    np.testing.assert_allclose(W.T @ W, np.eye(5), atol=1e-5)
    np.testing.assert_allclose(W, completed(M, P, rank), atol=5e-3)


def test_the_polar_factor_of_zero_is_that_of_the_prior():
    rng = np.random.default_rng(11)
    P = rng.standard_normal((6, 4))
    np.testing.assert_allclose(polar_factor(np.zeros((6, 4)), P), scipy.linalg.polar(P)[0], atol=1e-12)
    W = polar_factor(np.zeros((6, 4)))
    np.testing.assert_allclose(W.T @ W, np.eye(4), atol=1e-13)


def test_arrays_that_are_read_only_or_strided_give_the_same_and_are_left_alone():
    rng = np.random.default_rng(12)
    M, P = rng.standard_normal((7, 5)), orthonormal(rng, 7, 5)
    wide = np.zeros((14, 10))
    wide[::2, ::2] = M
    fortran = np.asfortranarray(P)
    wide.flags.writeable = fortran.flags.writeable = False
    np.testing.assert_allclose(polar_factor(wide[::2, ::2], fortran), polar_factor(M, P), atol=1e-14)


def test_shapes_at_the_edge():
    assert polar_factor(np.zeros((4, 0))).shape == (4, 0)
    assert polar_factor(np.zeros((4, 0)), np.zeros((4, 0))).shape == (4, 0)
    with pytest.raises(ValueError, match="5 columns in 4 dimensions cannot be orthonormal; use at most 4 atoms"):
        polar_factor(np.zeros((4, 5)))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_stack_gives_what_each_of_its_matrices_gives(dtype):
    rng = np.random.default_rng(8)
    M, P = (rng.standard_normal((4, 7, 3)).astype(dtype) for _ in range(2))
    M[1, :, 0] = 0
    M[2] = 0
    M[3] *= 1e-20
    for prior in (None, P):
        stack = polar_factor(M[[0, 3]] if prior is None else M, prior=None if prior is None else prior)
        chosen = [0, 3] if prior is None else range(4)
        for W, i in zip(stack, chosen, strict=True):
            np.testing.assert_allclose(W, polar_factor(M[i], None if prior is None else prior[i]), atol=1e-5)
    assert stack.dtype == dtype


@pytest.mark.parametrize("shape", [(300, 70), (120, 100), (64, 64)], ids=str)
@pytest.mark.parametrize("condition", [1, 3, 30, 300, 900, 2000, 1e9])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_large_matrices_have_their_factor_whatever_their_condition(condition, dtype, shape):
    """Up to 1e3 by eigenvectors of M'M, whose error without refinement is the condition squared."""
    rng, (d, r) = np.random.default_rng(0), shape
    U, V = orthonormal(rng, d, r), orthonormal(rng, r, r)
    W = polar_factor(((U * np.geomspace(1, 1 / condition, r)) @ V.T).astype(dtype))
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(W, U @ V.T, atol=10 * eps * condition)
    np.testing.assert_allclose(W.T @ W, np.eye(r), atol=100 * eps)
    assert W.dtype == dtype


@pytest.mark.parametrize(("shape", "rank"), [((90, 70), 30), ((70, 70), 69), ((300, 64), 1), ((64, 64), 0)], ids=str)
def test_large_matrices_that_lack_rank_are_filled_nearest_to_the_prior(shape, rank):
    rng = np.random.default_rng(13)
    M, P = singular(rng, *shape, rank), orthonormal(rng, *shape)
    W = polar_factor(M, P)
    np.testing.assert_allclose(W, completed(M, P, rank), atol=1e-5)
    np.testing.assert_allclose(W.T @ W, np.eye(shape[1]), atol=1e-13)
