"""Claims of the local update, against brute-force assignment, scipy's polar decomposition and literal loops."""

import itertools

import numpy as np
import pytest
import scipy.linalg

from common.coders import OMP, HardThreshold, TopK
from common.dictionaries import dictionary_distance
from common.learners import LEARNERS, Learner, Step
from common.synthetic import generate
from perdl_client.learning.alignment import align, retract
from perdl_client.learning.local_update import local_update, refine_local_dictionary
from perdl_client.learning.measures import relative_error

CODER = HardThreshold(0.15)


def unit(D):
    return D / np.linalg.norm(D, axis=0)


def orthonormal(rng, d, r):
    return np.linalg.qr(rng.standard_normal((d, r)))[0]


def d2(a, b):
    return min(np.linalg.norm(a - b), np.linalg.norm(a + b))


def client(seed=0, n=200, r_g=3, r_l=3, size=0.1):
    """Data and a start near their truth."""
    truth = generate(seed, "a", n_features=6, n_global=r_g, n_local=r_l, n_samples=n)
    rng = np.random.default_rng(seed)
    true = np.hstack([truth.global_dictionary, truth.local_dictionary])
    D = scipy.linalg.polar(true + size * unit(rng.standard_normal(true.shape)))[0] if true.size else true
    return truth, D[:, :r_g], D[:, r_g:]


# align


@pytest.mark.parametrize(("r_g", "r"), [(1, 1), (1, 5), (2, 4), (3, 3), (3, 5), (4, 5)])
@pytest.mark.parametrize("seed", range(6))
def test_alignment_is_the_assignment_of_least_squared_distance(r_g, r, seed):
    rng = np.random.default_rng([seed, r_g, r])
    reference, D = unit(rng.standard_normal((4, r_g))), unit(rng.standard_normal((4, r)))
    cost = np.array([[d2(a, b) ** 2 for b in D.T] for a in reference.T])
    best = min(itertools.permutations(range(r), r_g), key=lambda p: cost[range(r_g), p].sum())
    indices, signs, reassigned = align(reference, D)
    assert tuple(indices) == best
    np.testing.assert_array_equal(signs, np.sign((reference * D[:, best]).sum(axis=0)))
    assert reassigned == sum(best[j] != cost[j].argmin() for j in range(r_g))


def test_distances_are_squared_before_they_are_summed():
    angles = np.radians([[0, 20], [20, 41]])  # 20 with 20 costs least in plain sum, but leaves 0 with 41
    reference, D = (np.array([np.cos(a), np.sin(a)]) for a in angles)
    assert align(reference, D)[0].tolist() == [0, 1]


def test_alignment_equals_the_papers_arg_min_where_that_takes_no_atom_twice():
    rng = np.random.default_rng(0)
    D = orthonormal(rng, 7, 6)
    order, signs = rng.permutation(6), rng.choice([-1, 1], 6)
    reference = (D[:, order] * signs)[:, :4] + 0.1 * unit(rng.standard_normal((7, 4)))
    indices, found, reassigned = align(reference, D)
    assert indices.tolist() == order[:4].tolist() == [int(np.argmin([d2(a, b) for b in D.T])) for a in reference.T]
    assert found.tolist() == signs[:4].tolist()
    assert reassigned == 0


def test_an_atom_wanted_twice_is_given_once_and_counted():
    reference = unit(np.array([[1.0, 1.0], [0.1, -0.2], [0.0, 0.1]]))
    D = np.eye(3)
    indices, _, reassigned = align(reference, D)
    assert [int(np.argmin([d2(a, b) for b in D.T])) for a in reference.T] == [0, 0]
    assert indices.tolist() == [0, 1]
    assert reassigned == 1


def test_the_sign_of_zero_is_plus_one():
    indices, signs, _ = align(np.eye(3)[:, :1], np.eye(3)[:, 1:2])
    assert (indices.tolist(), signs.tolist()) == ([0], [1.0])
    assert align(np.eye(3)[:, :1], -np.eye(3)[:, :1])[1].tolist() == [-1.0]
    assert align(np.zeros((3, 1)), -np.eye(3)[:, :1])[1].tolist() == [1.0]


def test_alignment_without_atoms_is_empty_and_signs_have_the_dictionarys_type():
    indices, signs, reassigned = align(np.zeros((3, 0)), np.eye(3))
    assert (indices.shape, signs.shape, reassigned) == ((0,), (0,), 0)
    assert align(np.eye(3, dtype="f4"), np.eye(3, dtype="f4"))[1].dtype == np.float32


# retract


@pytest.mark.parametrize(("d", "r_g", "r_l"), [(6, 3, 3), (8, 2, 3), (8, 5, 1), (5, 4, 1)])
@pytest.mark.parametrize("seed", range(3))
def test_retraction_is_the_nearest_orthonormal_block_off_the_global_one(d, r_g, r_l, seed):
    rng = np.random.default_rng([seed, d, r_g])
    G, L = rng.standard_normal((d, r_g)), rng.standard_normal((d, r_l))
    W = retract(G, L)
    np.testing.assert_allclose(W.T @ W, np.eye(r_l), atol=1e-12)
    np.testing.assert_allclose(G.T @ W, 0, atol=1e-12)
    off = L - G @ np.linalg.lstsq(G, L, rcond=None)[0]
    np.testing.assert_allclose(W, scipy.linalg.polar(off)[0], atol=1e-9)
    for _ in range(50):
        other = orthonormal(rng, d, r_l + r_g)
        other = np.linalg.qr(np.hstack([G, other]))[0][:, r_g : r_g + r_l] @ orthonormal(rng, r_l, r_l)
        assert np.linalg.norm(other - L) >= np.linalg.norm(W - L) - 1e-9


def test_only_the_span_of_the_global_block_matters():
    rng = np.random.default_rng(1)
    G, L = rng.standard_normal((7, 3)), rng.standard_normal((7, 3))
    np.testing.assert_allclose(retract(G @ rng.standard_normal((3, 3)), L), retract(G, L), atol=1e-10)


def test_a_block_that_is_off_already_stays():
    rng = np.random.default_rng(2)
    D = orthonormal(rng, 8, 6)
    np.testing.assert_allclose(retract(0.3 * D[:, :2], D[:, 2:]), D[:, 2:], atol=1e-13)


@pytest.mark.parametrize("spare", [0, 2])
def test_atoms_inside_the_span_of_the_global_block_are_completed_off_it(spare):
    rng = np.random.default_rng(3)
    G = rng.standard_normal((6 + spare, 3))
    L = np.hstack([G @ rng.standard_normal((3, 2)), rng.standard_normal((6 + spare, 1))])
    W = retract(G, L)
    np.testing.assert_allclose(W.T @ W, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(G.T @ W, 0, atol=1e-12)
    off = L[:, 2] - G @ np.linalg.lstsq(G, L[:, 2], rcond=None)[0]
    np.testing.assert_allclose(W[:, 2], off / np.linalg.norm(off), atol=1e-9)


def test_a_global_block_with_a_repeated_or_zero_atom_is_no_trouble():
    rng = np.random.default_rng(4)
    G = rng.standard_normal((7, 3))
    G[:, 1], G[:, 2] = -2 * G[:, 0], 0
    W = retract(G, rng.standard_normal((7, 4)))
    np.testing.assert_allclose(W.T @ W, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(G.T @ W, 0, atol=1e-12)


def test_retraction_turns_with_the_feature_space_and_keeps_float32():
    rng = np.random.default_rng(5)
    G, L, Q = rng.standard_normal((7, 3)), rng.standard_normal((7, 3)), orthonormal(rng, 7, 7)
    np.testing.assert_allclose(retract(Q @ G, Q @ L), Q @ retract(G, L), atol=1e-10)
    assert retract(G.astype("f4"), L.astype("f4")).dtype == np.float32
    np.testing.assert_array_equal(retract(G[:, :0], L), L)
    assert retract(G, L[:, :0]).shape == (7, 0)


# local_update


@pytest.mark.parametrize("name", list(LEARNERS))
@pytest.mark.parametrize(("r_g", "r_l"), [(3, 3), (0, 6), (6, 0), (2, 1)])
def test_global_and_local_atoms_are_the_learners_output_up_to_order_and_sign(name, r_g, r_l):
    truth, G, L = client(1, r_g=r_g, r_l=r_l)
    update = local_update(truth.data, G, L, LEARNERS[name], CODER, 0.6)
    D = LEARNERS[name].step(truth.data, np.hstack([G, L]), CODER, 0.6).dictionary
    assert update.global_dictionary.shape == (6, r_g)
    assert update.local_dictionary.shape == (6, r_l)
    assert dictionary_distance(np.hstack([update.global_dictionary, update.local_dictionary]), D) == 0
    assert ((update.global_dictionary * G).sum(axis=0) >= 0).all()


def test_a_learner_that_shuffles_and_flips_its_atoms_is_put_in_order_again():
    truth, G, L = client(2)
    order, flips = np.array([4, 0, 5, 2, 1, 3]), np.array([1, -1, 1, -1, -1, 1])

    def shuffled(Y, D, coder, step_size):
        X = coder(Y, D)
        return Step(D[:, order] * flips, (X[order].T * flips).T)

    update = local_update(truth.data, G, L, Learner(shuffled), CODER)
    np.testing.assert_allclose(update.global_dictionary, G, atol=1e-14)
    assert dictionary_distance(update.local_dictionary, L) < 1e-14
    X = CODER(truth.data, np.hstack([G, L]))
    np.testing.assert_allclose(update.energies, np.sum(X[:3] ** 2, axis=1))
    # G is the dictionary here, so the stretched atoms are its own symmetric part of G' Y X^g'.
    S = G.T @ truth.data @ X[:3].T
    np.testing.assert_allclose(update.procrustes_contribution, G @ (S + S.T) / 2, atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [0.05, 0.5])
def test_stretched_atoms_are_the_global_block_of_the_polar_decomposition(seed, size):
    truth, G, L = client(seed, size=size)
    update = local_update(truth.data, G, L, LEARNERS["orthogonal"], CODER)
    X = CODER(truth.data, np.hstack([G, L]))
    U, P = scipy.linalg.polar(truth.data @ X.T)
    kept, signs, _ = align(G, U)
    truth_value = (U[:, kept] * signs) @ (P[np.ix_(kept, kept)] * np.outer(signs, signs))
    np.testing.assert_allclose(update.global_dictionary, U[:, kept] * signs, atol=1e-6)
    np.testing.assert_allclose(update.procrustes_contribution, truth_value, atol=1e-6 * np.linalg.norm(P))


def test_stretched_is_symmetric_positive_in_its_own_frame():
    truth, G, L = client(6)
    update = local_update(truth.data, G, L, LEARNERS["orthogonal"], CODER)
    P = update.global_dictionary.T @ update.procrustes_contribution
    np.testing.assert_allclose(P, P.T, atol=1e-10)
    assert np.linalg.eigvalsh(P).min() > 0


@pytest.mark.parametrize("name", list(LEARNERS))
def test_what_is_reported_is_of_the_dictionary_before_the_step(name):
    truth, G, L = client(7)
    D = np.hstack([G, L])
    update = local_update(truth.data, G, L, LEARNERS[name], CODER)
    X = LEARNERS[name].step(truth.data, D, CODER, 1.0).codes
    assert update.error == pytest.approx(np.linalg.norm(truth.data - D @ X) / np.linalg.norm(truth.data))
    assert update.nonzeros == pytest.approx(np.mean(np.count_nonzero(X, axis=0)))
    np.testing.assert_allclose(update.energies, np.sum(X[:3] ** 2, axis=1))
    assert update.reassigned == 0


def test_the_step_size_reaches_the_learner():
    truth, G, L = client(8)
    small, large = (
        local_update(truth.data, G, L, LEARNERS["gradient"], CODER, s).global_dictionary for s in (0.01, 1.0)
    )
    assert np.linalg.norm(small - G) == pytest.approx(0.01 * np.linalg.norm(large - G), rel=1e-6)


@pytest.mark.parametrize("name", list(LEARNERS))
def test_a_client_without_data_or_signal_keeps_its_atoms(name):
    _, G, L = client(9)
    for Y in (np.zeros((6, 5)), np.zeros((6, 0))):
        update = local_update(Y, G, L, LEARNERS[name], CODER)
        np.testing.assert_allclose(update.global_dictionary, G, atol=1e-12)
        assert dictionary_distance(update.local_dictionary, L) < 1e-12
        assert (update.error, update.nonzeros, update.reassigned) == (0.0, 0.0, 0)
        assert not update.energies.any()
        assert not update.procrustes_contribution.any()


@pytest.mark.parametrize("name", list(LEARNERS))
@pytest.mark.parametrize("coder", [CODER, TopK(2), OMP(2)], ids=repr)
def test_float32_stays_float32_through_the_update(name, coder):
    truth, G, L = client(10)
    update = local_update(*(a.astype("f4") for a in (truth.data, G, L)), LEARNERS[name], coder)
    for array in (update.global_dictionary, update.local_dictionary, update.energies, update.procrustes_contribution):
        assert array.dtype == np.float32


def test_inputs_may_be_read_only_and_are_left_alone():
    truth, G, L = client(11)
    frozen = [np.asfortranarray(a) for a in (truth.data, G, L)]
    for a in frozen:
        a.flags.writeable = False
    for name, learner in LEARNERS.items():
        plain, read_only = (local_update(*arrays, learner, CODER) for arrays in ((truth.data, G, L), frozen))
        np.testing.assert_allclose(read_only.global_dictionary, plain.global_dictionary, atol=1e-12, err_msg=name)


def test_relative_error_of_data_that_are_all_zero_is_zero():
    assert relative_error(np.zeros((3, 2)), np.eye(3), np.zeros((3, 2))) == 0.0
    assert relative_error(np.eye(3), np.eye(3), np.zeros((3, 3))) == 1.0


# refine_local_dictionary


@pytest.mark.parametrize("name", ["gradient", "projected"])
@pytest.mark.parametrize("n_steps", [1, 4])
def test_refinement_equals_algorithm_6_of_the_paper(name, n_steps):
    truth, G, L = client(12, size=0.3)
    X = CODER(truth.data, np.hstack([G, L]))
    D = L
    for _ in range(n_steps):
        D = LEARNERS[name].step(truth.data - G @ X[:3], D, CODER, 0.8).dictionary
    refined = refine_local_dictionary(truth.data, G, L, LEARNERS[name], CODER, n_steps, 0.8)
    np.testing.assert_allclose(refined, D, atol=1e-13)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", list(LEARNERS))
def test_refinement_lowers_the_error_and_leaves_the_global_block_alone(name, seed):
    truth, _, _ = client(seed)
    rng = np.random.default_rng(seed)
    G = truth.global_dictionary
    L = retract(G, truth.local_dictionary + 0.3 * unit(rng.standard_normal((6, 3))))
    before = G.copy()
    refined = refine_local_dictionary(truth.data, G, L, LEARNERS[name], CODER, 10, 0.7)
    np.testing.assert_array_equal(G, before)
    assert refined.shape == L.shape
    errors = [relative_error(truth.data, D, CODER(truth.data, D)) for D in (np.hstack([G, L]), np.hstack([G, refined]))]
    assert errors[1] < errors[0]
    assert dictionary_distance(refined, truth.local_dictionary) < dictionary_distance(L, truth.local_dictionary)
    if LEARNERS[name].orthonormal:
        D = np.hstack([G, refined])
        np.testing.assert_allclose(D.T @ D, np.eye(6), atol=1e-12)


def test_no_steps_and_no_local_atoms_change_nothing():
    truth, G, L = client(13)
    np.testing.assert_array_equal(refine_local_dictionary(truth.data, G, L, LEARNERS["orthogonal"], CODER, 0), L)
    assert refine_local_dictionary(truth.data, G, L[:, :0], LEARNERS["gradient"], CODER, 3).shape == (6, 0)
    assert refine_local_dictionary(truth.data, G[:, :0], L, LEARNERS["orthogonal"], CODER, 3).shape == L.shape
