"""Claims of dictionary geometry, each against the definition itself: norms of differences and enumeration."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from common.dictionaries import atom_distances, dictionary_distance, match_atoms, mutual_coherence


def d2(a, b):
    return min(np.linalg.norm(a - b), np.linalg.norm(a + b))


def distances_by_definition(A, B):
    A, B = np.asarray(A, dtype=np.longdouble), np.asarray(B, dtype=np.longdouble)
    plus, minus = (np.sqrt(((A[:, :, None] + s * B[:, None, :]) ** 2).sum(axis=0)) for s in (1, -1))
    return np.minimum(plus, minus).astype(np.float64)


def signed_permutations(r):
    for order in itertools.permutations(range(r)):
        for signs in itertools.product((1, -1), repeat=r):
            yield np.array(order, dtype=int), np.array(signs)


def unit(D):
    return D / np.linalg.norm(D, axis=0)


# atom_distances


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_distances_equal_norms_of_differences_for_atoms_of_any_norm(dtype, scale):
    rng = np.random.default_rng(0)
    A = (scale * rng.standard_normal((7, 9)) * rng.uniform(0.01, 10, 9)).astype(dtype)
    B = (scale * rng.standard_normal((7, 4)) * rng.uniform(0.01, 10, 4)).astype(dtype)
    B[:, 0], B[:, 1], A[:, 3] = A[:, 2], -A[:, 5], 0
    found = atom_distances(A, B)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, distances_by_definition(A, B), rtol=8e3 * np.finfo(dtype).eps, atol=0)
    assert found[2, 0] == found[5, 1] == 0


@pytest.mark.parametrize("gap", [1e-3, 1e-6, 1e-8, 1e-9, 1e-12, 1e-15])
@pytest.mark.parametrize("sign", [1, -1])
def test_distances_of_near_atoms_keep_their_digits(gap, sign):
    rng = np.random.default_rng(1)
    A = unit(rng.standard_normal((6, 5)))
    B = sign * (A + gap * unit(rng.standard_normal((6, 5))))
    found, truth = atom_distances(A, B), distances_by_definition(A, B)
    np.testing.assert_allclose(np.diag(found), np.diag(truth), rtol=1e-8)
    np.testing.assert_allclose(found, truth, rtol=1e-8)


def test_a_gap_of_1e_15_along_an_axis_is_read_exactly():
    a = np.array([[1.0], [0.0]])
    assert atom_distances(a, -a + [[0.0], [1e-15]])[0, 0] == 1e-15
    assert atom_distances(a.astype("f4"), (-a + [[0.0], [1e-7]]).astype("f4"))[0, 0] == np.float32(1e-7)


def test_atoms_whose_norms_alone_differ_are_near_too():
    a = np.array([[1.0], [1.0]])
    assert atom_distances(a, a * (1 + 1e-10))[0, 0] == pytest.approx(np.sqrt(2) * 1e-10, rel=1e-5)


@pytest.mark.parametrize("n", [64, 65, 97])
def test_many_near_pairs_are_all_taken_from_the_difference(n):
    rng = np.random.default_rng(2)
    base = unit(rng.standard_normal((5, 1)))
    A, B = (s * base + 1e-10 * rng.standard_normal((5, n)) for s in (1, -1))
    assert n * n >= 4096
    np.testing.assert_allclose(atom_distances(A, B), distances_by_definition(A, B), rtol=1e-5)


def test_arrays_that_are_read_only_strided_or_mixed_give_the_same():
    rng = np.random.default_rng(3)
    A, B = rng.standard_normal((6, 4)), rng.standard_normal((6, 3))
    plain = atom_distances(A, B)
    wide = np.zeros((12, 8))
    wide[::2, ::2] = A
    turned = np.asfortranarray(B)
    wide.flags.writeable = turned.flags.writeable = False
    np.testing.assert_allclose(atom_distances(wide[::2, ::2], turned), plain, rtol=1e-14)
    assert atom_distances(A.astype("f4"), B).dtype == np.float64
    assert atom_distances([[1, 0], [0, 1]], [[1], [1]]).tolist() == [[1], [1]]


def test_distances_without_atoms_are_empty():
    assert atom_distances(np.zeros((4, 0)), np.zeros((4, 3))).shape == (0, 3)
    assert atom_distances(np.zeros((4, 2)), np.zeros((4, 0))).shape == (2, 0)


# dictionary_distance and match_atoms


@pytest.mark.parametrize("r", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(4))
def test_dictionary_distance_is_the_least_over_all_signed_permutations(r, seed):
    rng = np.random.default_rng([seed, r])
    A, B = rng.standard_normal((2, 4, r)) * rng.uniform(0.2, 2, r)
    brute = min(np.linalg.norm(A[:, p] * s - B, axis=0).max() for p, s in signed_permutations(r))
    assert dictionary_distance(A, B) == pytest.approx(brute, rel=1e-12)
    assert dictionary_distance(B, A) == pytest.approx(brute, rel=1e-12)


def plane(*angles):
    return np.array([np.cos(np.radians(angles)), np.sin(np.radians(angles))])


def test_the_largest_error_counts_and_not_the_sum():
    # Angles 0, 20 against 20, 41: pairing 20 with 20 costs least in sum, but leaves 0 with 41.
    A, B = plane(0, 20), plane(20, 41)
    D = distances_by_definition(A, B)
    rows, cols = linear_sum_assignment(D)
    sum_largest = D[rows, cols].max()
    assert D[0, 0] + D[1, 1] > D[0, 1] + D[1, 0]
    assert dictionary_distance(A, B) == pytest.approx(2 * np.sin(np.radians(21) / 2))
    assert sum_largest > 1.8 * dictionary_distance(A, B)


def test_the_bottleneck_differs_from_the_sum_on_random_dictionaries_too():
    rng = np.random.default_rng(4)
    differs = 0
    for _ in range(60):
        A, B = unit(rng.standard_normal((3, 5))), unit(rng.standard_normal((3, 5)))
        D = distances_by_definition(A, B)
        brute = min(D[list(p), range(5)].max() for p in itertools.permutations(range(5)))
        assert dictionary_distance(A, B) == pytest.approx(brute, rel=1e-12)
        rows, cols = linear_sum_assignment(D)
        differs += D[rows, cols].max() > brute + 1e-9
    assert differs >= 5


@pytest.mark.parametrize("seed", range(10))
def test_errors_by_atom_belong_to_a_bottleneck_pairing_of_least_sum(seed):
    rng = np.random.default_rng(seed)
    A, B = unit(rng.standard_normal((3, 4))), unit(rng.standard_normal((3, 4)))
    D = distances_by_definition(A, B)
    pairings = [D[list(p), range(4)] for p in itertools.permutations(range(4))]
    least = min(e.max() for e in pairings)
    best = min((e for e in pairings if e.max() <= least + 1e-12), key=sum)
    match = match_atoms(A, B)
    assert sorted(match.order) == [0, 1, 2, 3]
    np.testing.assert_allclose(match.errors, best, rtol=1e-12)
    np.testing.assert_allclose(
        match.errors, [d2(A[:, k], b) for k, b in zip(match.order, B.T, strict=True)], rtol=1e-12
    )


def test_a_signed_permutation_with_small_errors_is_undone_at_full_size():
    rng = np.random.default_rng(5)
    A = unit(rng.standard_normal((60, 60)))
    order, signs = rng.permutation(60), rng.choice([-1, 1], 60)
    gaps = 10.0 ** rng.uniform(-14, -3, 60)
    B = signs * (A[:, order] + gaps * unit(rng.standard_normal((60, 60))))
    match = match_atoms(A, B)
    np.testing.assert_array_equal(match.order, order)
    np.testing.assert_allclose(match.errors, gaps, rtol=0.2)
    assert dictionary_distance(A, signs * A[:, order]) == 0


def test_triangle_inequality():
    rng = np.random.default_rng(6)
    for _ in range(100):
        A, B, C = (unit(rng.standard_normal((4, 5))) * rng.uniform(0.5, 1, 5) for _ in range(3))
        assert dictionary_distance(A, B) <= dictionary_distance(A, C) + dictionary_distance(C, B) + 1e-12


def test_equal_distances_everywhere_are_no_trouble():
    assert dictionary_distance(np.eye(6)[:, :3], np.eye(6)[:, 3:]) == pytest.approx(np.sqrt(2))
    assert dictionary_distance(np.zeros((3, 2)), np.zeros((3, 2))) == 0
    assert sorted(match_atoms(np.ones((3, 4)), np.ones((3, 4))).order) == [0, 1, 2, 3]


def test_dictionaries_without_atoms_are_at_distance_zero():
    assert dictionary_distance(np.zeros((5, 0)), np.zeros((5, 0))) == 0.0
    assert match_atoms(np.zeros((5, 0)), np.zeros((5, 0))).order.shape == (0,)


def test_unequal_shapes_are_named():
    with pytest.raises(ValueError, match=r"shapes \(4, 2\) and \(4, 3\) cannot be paired atom by atom"):
        dictionary_distance(np.zeros((4, 2)), np.zeros((4, 3)))


# mutual_coherence


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_coherence_is_the_largest_cosine_of_two_different_atoms(dtype):
    rng = np.random.default_rng(7)
    D = (rng.standard_normal((5, 8)) * rng.uniform(0.01, 100, 8)).astype(dtype)
    cosines = [
        abs(a @ b) / np.linalg.norm(a) / np.linalg.norm(b) for a, b in itertools.combinations(D.T.astype(float), 2)
    ]
    assert mutual_coherence(D) == pytest.approx(max(cosines), rel=10 * float(np.finfo(dtype).eps))


def test_coherence_at_its_ends():
    assert mutual_coherence(np.eye(4)) == 0
    assert mutual_coherence(np.array([[1.0, -3.0], [2.0, -6.0]])) == pytest.approx(1)
    assert mutual_coherence(np.array([[1.0, 0.0], [2.0, 0.0]])) == 0
    assert mutual_coherence(np.ones((3, 1))) == mutual_coherence(np.ones((3, 0))) == 0


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_stack_of_dictionaries_gives_the_distances_of_each_pair(dtype):
    rng = np.random.default_rng(9)
    A, B = rng.standard_normal((2, 5, 4, 3)).astype(dtype)
    B[2] = -A[2, :, ::-1]
    B[4, :, 1] = A[4, :, 0] * (1 + 1e-6)
    found = atom_distances(A, B)
    np.testing.assert_array_equal(found, [atom_distances(a, b) for a, b in zip(A, B, strict=True)])
    assert found.dtype == dtype
    assert found[2].diagonal().tolist() != found[2, ::-1].diagonal().tolist() == [0, 0, 0]


def test_many_atoms_pass_by_blocks():
    rng = np.random.default_rng(10)
    A, B = rng.standard_normal((2, 3, 400))
    B[:, 7] = -A[:, 399]
    found = atom_distances(A, B)
    assert found[399, 7] == 0
    np.testing.assert_allclose(found, distances_by_definition(A, B), atol=1e-10)


def test_distances_do_not_change_their_input():
    A = np.random.default_rng(8).standard_normal((4, 3))
    before = A.copy()
    atom_distances(A, A)
    mutual_coherence(A)
    np.testing.assert_array_equal(A, before)


@pytest.mark.parametrize("seed", range(20))
def test_of_more_atoms_the_best_are_paired(seed):
    rng = np.random.default_rng(seed)
    A, B = rng.standard_normal((3, 5)), rng.standard_normal((3, 3))
    D = atom_distances(A, B)
    brute = min(max(D[i, j] for j, i in enumerate(chosen)) for chosen in itertools.permutations(range(5), 3))
    match = match_atoms(A, B)
    assert match.errors.max() == pytest.approx(brute, abs=1e-12)
    assert len(set(match.order.tolist())) == 3
