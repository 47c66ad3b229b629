"""Claims of the aggregations, against symmetry, explicit sorting, scipy and pooled training."""

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize

from common.aggregations import AGGREGATIONS
from common.coders import HardThreshold
from common.dictionaries import dictionary_distance
from common.errors import SettingsError
from common.learners import LEARNERS, orthogonal_step
from common.synthetic import generate
from perdl_client.learning.local_update import local_update
from perdl_server.algorithm.aggregation import (
    COMBINE,
    combiner,
    consensus,
    energy,
    first_average,
    geometric_median,
    mean,
    normalized,
    over_members,
    polar,
    trimmed,
)
from perdl_server.algorithm.matching import global_matching

NAMES = list(AGGREGATIONS)
CODER = HardThreshold(0.15)


def unit(D):
    return D / np.linalg.norm(D, axis=0)


def orthonormal(rng, d, r):
    return np.linalg.qr(rng.standard_normal((d, r)))[0]


def contributions(seed=0, n_clients=7, d=6, r=3, spread=0.3):
    rng = np.random.default_rng(seed)
    present = orthonormal(rng, d, r)
    A = np.stack([unit(present + spread * rng.standard_normal((d, r))) for _ in range(n_clients)])
    return rng, A, rng.uniform(0.1, 5, (n_clients, r)), present


# Signs


@pytest.mark.parametrize("name", NAMES)
def test_turning_signs_back_changes_no_bit_of_what_honest_clients_send(name):
    _, A, w, present = contributions(3)
    A *= np.where((A * present).sum(axis=1, keepdims=True) < 0, -1, 1)
    np.testing.assert_array_equal(combiner(name)(A, w, present), COMBINE[name](A, w, present))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "procrustes"])
def test_a_flipped_sign_changes_no_bit_of_a_round(name):
    rng, A, w, present = contributions(3, spread=0.1)
    flipped = A * rng.choice([-1, 1], (len(A), 1, 3))
    np.testing.assert_array_equal(combiner(name)(flipped, w, present), combiner(name)(A, w, present))
    assert np.abs(COMBINE[name](flipped, w, present) - combiner(name)(A, w, present)).max() > 1e-3


def test_stretched_atoms_are_taken_as_they_come():
    """A client's first atom, hardly used, is stretched against D^g's by its second; pooled training wants it so."""
    D, P = np.eye(3)[:, :2], np.array([[0.01, -0.09], [-0.09, 1.0]])
    present = D @ np.array([[0.95, 0], [0.3, 1]])
    S = np.stack([D @ P, D @ P])
    assert ((S * present).sum(axis=1) < 0).any()
    np.testing.assert_array_equal(combiner("procrustes")(S, np.ones((2, 2)), present), polar(S, S, present))


# Symmetry


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n_clients", [1, 2, 7, 10])
def test_aggregations_turn_with_the_feature_space(name, n_clients):
    rng, A, w, present = contributions(1, n_clients)
    turn = orthonormal(rng, 6, 6)
    combine = COMBINE[name]
    np.testing.assert_allclose(combine(turn @ A, w, turn @ present), turn @ combine(A, w, present), atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_order_and_sign_of_atoms_only_order_and_sign_the_result(name):
    rng, A, w, present = contributions(2)
    order, signs = rng.permutation(3), np.array([1, -1, -1])
    combine = COMBINE[name]
    turned = combine(A[:, :, order] * signs, w[:, order], present[:, order] * signs)
    np.testing.assert_allclose(turned, combine(A, w, present)[:, order] * signs, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_clients_does_not_matter(name):
    rng, A, w, present = contributions(3, n_clients=10)
    order = rng.permutation(10)
    combine = COMBINE[name]
    np.testing.assert_allclose(combine(A[order], w[order], present), combine(A, w, present), atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n_clients", [1, 3, 10])
def test_identical_contributions_come_back(name, n_clients):
    rng, _, w, present = contributions(4, n_clients)
    D = orthonormal(rng, 6, 3)
    found = COMBINE[name](np.stack([D] * n_clients), w, present)
    np.testing.assert_allclose(found, D, atol=3e-8 if AGGREGATIONS[name].orthonormal else 1e-15)


@pytest.mark.parametrize("name", NAMES)
def test_float32_stays_float32_and_inputs_may_be_read_only(name):
    _, A, w, present = contributions(5)
    arrays = [np.asarray(a, dtype="f4") for a in (A, w, present)]
    for a in arrays:
        a.flags.writeable = False
    found = COMBINE[name](*arrays)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, COMBINE[name](A, w, present), atol=2e-3)


@pytest.mark.parametrize("name", NAMES)
def test_no_global_atoms_are_legal(name):
    assert COMBINE[name](np.zeros((4, 6, 0)), np.zeros((4, 0)), np.zeros((6, 0))).shape == (6, 0)


@pytest.mark.parametrize("name", NAMES)
def test_only_what_says_so_is_orthonormal(name):
    _, A, w, present = contributions(6)
    D = COMBINE[name](A, w, present)
    assert np.allclose(D.T @ D, np.eye(3), atol=1e-10) == AGGREGATIONS[name].orthonormal


# mean, normalized, polar


def test_mean_is_the_papers_and_weights_do_not_enter():
    _, A, w, present = contributions(7)
    np.testing.assert_allclose(mean(A, w, present), sum(A) / 7, atol=1e-15)
    np.testing.assert_array_equal(mean(A, 100 * w**2, -present), mean(A, w, present))


@pytest.mark.parametrize("n_clients", [2, 4, 10])
def test_normalized_is_the_mean_with_unit_atoms_and_keeps_an_atom_whose_mean_vanishes(n_clients):
    _, A, w, present = contributions(8, n_clients)
    np.testing.assert_allclose(normalized(A, w, present), unit(A.mean(axis=0)), atol=1e-14)
    A[n_clients // 2 :, :, 1] = -A[: n_clients // 2, :, 1]
    np.testing.assert_allclose(normalized(A, w, present)[:, 1], present[:, 1], atol=1e-14)


def test_polar_is_the_orthonormal_matrix_nearest_to_the_mean():
    rng, A, w, present = contributions(9)
    found = polar(A, w, present)
    np.testing.assert_allclose(found, scipy.linalg.polar(A.mean(axis=0))[0], atol=1e-7)
    for _ in range(200):
        Q = np.linalg.qr(found + 0.3 * rng.standard_normal((6, 3)))
        Q = Q[0] * np.sign(np.diag(Q[1]))
        assert np.linalg.norm(Q - A.mean(axis=0)) >= np.linalg.norm(found - A.mean(axis=0)) - 1e-9


# energy


def test_energy_is_the_polar_factor_of_the_weighted_mean():
    _, A, w, present = contributions(10)
    M = sum(a * v for a, v in zip(A, w, strict=True)) / w.sum(axis=0)
    np.testing.assert_allclose(energy(A, w, present), scipy.linalg.polar(M)[0], atol=1e-7)
    np.testing.assert_allclose(energy(A, 1e6 * w, present), energy(A, w, present), atol=1e-12)
    np.testing.assert_allclose(energy(A, np.ones_like(w), present), polar(A, w, present), atol=1e-7)


def test_energy_ignores_clients_without_weight():
    rng, A, w, present = contributions(11)
    w[[1, 4]] = 0
    wild = A.copy()
    wild[[1, 4]] = 100 * rng.standard_normal((2, 6, 3))
    np.testing.assert_allclose(
        energy(wild, w, present), energy(np.delete(A, [1, 4], 0), np.delete(w, [1, 4], 0), present), atol=1e-12
    )


def test_energy_keeps_an_atom_that_no_client_used():
    rng, _, w, present = contributions(12)
    w[:, 1] = 0
    off = np.linalg.svd(present[:, 1:2])[0][:, 1:]  # the others move off the unused atom
    A = np.stack([off @ orthonormal(rng, 5, 3) for _ in range(7)])
    np.testing.assert_allclose(energy(A, w, present)[:, 1], present[:, 1], atol=1e-7)
    np.testing.assert_allclose(energy(A, np.zeros_like(w), present), present, atol=1e-12)


# procrustes


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sizes", [[200] * 10, [200, 200, 20, 5], [3, 2, 1], [40]])
@pytest.mark.parametrize("r", [6, 4])
def test_procrustes_without_local_atoms_is_one_pooled_orthogonal_step(seed, sizes, r):
    truths = [
        generate(seed, f"client-{i}", n_features=6, n_global=r, n_local=0, n_samples=n) for i, n in enumerate(sizes)
    ]
    rng = np.random.default_rng(seed)
    D = scipy.linalg.polar(truths[0].global_dictionary + 0.2 * unit(rng.standard_normal((6, r))))[0]
    no_atoms = np.zeros((6, 0))
    updates = [local_update(t.data, D, no_atoms, LEARNERS["orthogonal"], CODER) for t in truths]
    found = polar(np.stack([u.procrustes_contribution for u in updates]), np.ones((len(sizes), r)), D)
    pooled = orthogonal_step(np.hstack([t.data for t in truths]), D, CODER).dictionary
    np.testing.assert_allclose(found, pooled, atol=1e-6)


def test_procrustes_takes_the_polar_factor_of_what_clients_stretched():
    _, A, w, present = contributions(13)
    aggregation = AGGREGATIONS["procrustes"]
    assert (COMBINE["procrustes"], aggregation.contribution, aggregation.weighted) == (polar, "procrustes", False)
    assert list(COMBINE) == list(AGGREGATIONS)
    assert [name for name in NAMES if AGGREGATIONS[name].contribution == "procrustes"] == ["procrustes"]
    assert [name for name in NAMES if AGGREGATIONS[name].weighted] == ["energy"]
    np.testing.assert_allclose(
        polar(A * w[:, None, :], w, present), scipy.linalg.polar((A * w[:, None, :]).sum(axis=0))[0], atol=1e-6
    )


def test_an_atom_that_nobody_used_keeps_its_value_under_procrustes():
    truth = generate(5, "a", n_features=8, n_global=5, n_local=0, n_samples=100)
    D = scipy.linalg.polar(truth.global_dictionary + 0.02 * unit(np.random.default_rng(0).standard_normal((8, 5))))[0]
    data = [Y - D[:, 4:] @ (D[:, 4:].T @ Y) for Y in np.hsplit(truth.data, 4)]
    updates = [local_update(Y, D, np.zeros((8, 0)), LEARNERS["orthogonal"], CODER) for Y in data]
    found = polar(np.stack([u.procrustes_contribution for u in updates]), np.ones((4, 5)), D)
    np.testing.assert_allclose(found[:, 4], D[:, 4], atol=1e-6)
    assert np.abs(found[:, :4] - D[:, :4]).max() > 1e-3


# Robust ones


@pytest.mark.parametrize("n_clients", [1, 3, 7, 10, 13])
@pytest.mark.parametrize("trim", [0.0, 0.1, 0.3, 0.49])
def test_trimming_leaves_out_the_farthest_from_the_median_atom_by_atom(n_clients, trim):
    _, A, w, present = contributions(14, n_clients)
    found = trimmed(A, w, present, trim)
    for j, median in enumerate(geometric_median(A, w, present).T):
        by_distance = sorted(range(n_clients), key=lambda i: np.linalg.norm(A[i, :, j] - median))
        kept = by_distance[: n_clients - int(trim * n_clients + 1e-9)]
        np.testing.assert_allclose(found[:, j], A[kept, :, j].mean(axis=0), atol=1e-14)


@pytest.mark.parametrize("name", ["trimmed", "geometric-median"])
@pytest.mark.parametrize("attack", ["noise", "huge", "flip", "one point"])
def test_three_wild_clients_of_ten_do_not_carry_the_result_away(name, attack):
    rng, A, w, present = contributions(15, n_clients=10, spread=0.02)
    honest = A[3:].mean(axis=0)
    A[:3] = {
        "noise": rng.standard_normal((3, 6, 3)),
        "huge": 1e6 * rng.standard_normal((3, 6, 3)),
        "flip": -A[:3],
        "one point": np.repeat(unit(rng.standard_normal((6, 3)))[None], 3, axis=0),
    }[attack]
    found = COMBINE[name](A, w, present)
    assert np.linalg.norm(found - honest, axis=0).max() < 0.1
    assert np.linalg.norm(mean(A, w, present) - honest, axis=0).max() > 0.2


def total_distance(m, points):
    return np.linalg.norm(points - m, axis=1).sum()


@pytest.mark.parametrize("n_clients", [3, 4, 7, 20])
@pytest.mark.parametrize("seed", range(5))
def test_the_geometric_median_equals_a_general_minimiser(n_clients, seed):
    _, A, w, present = contributions(seed, n_clients, d=4, r=2, spread=1.0)
    found = geometric_median(A, w, present)
    for j in range(2):
        points = A[:, :, j]
        options = {"xatol": 1e-11, "fatol": 1e-14, "maxiter": 20_000, "maxfev": 20_000}
        best = min(
            (
                scipy.optimize.minimize(total_distance, start, args=(points,), method="Nelder-Mead", options=options)
                for start in (points.mean(axis=0), found[:, j] + 1e-3)
            ),
            key=lambda result: result.fun,
        )
        least = min(best.fun, *(total_distance(p, points) for p in points))
        # Weiszfeld's steps shorten near a client's point: a millionth is what they promise.
        assert total_distance(found[:, j], points) <= least * (1 + 1e-6)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_geometric_median_may_be_a_clients_own_atom(scale):
    # The others pull at the first point with unit vectors whose sum is shorter than one: it is the median.
    pulls = unit(np.array([[1, 0, 0.2, 0], [-1, 0.3, 0, 0], [0, 1, 0, 0.1], [0.1, -1, 0.3, 0]]).T).T
    assert np.linalg.norm(pulls.sum(axis=0)) < 0.7
    points = scale * np.vstack([np.zeros(4), pulls * np.array([[1], [3], [0.5], [2]])])
    A = points[:, :, None] + scale * np.ones((1, 4, 1))
    found = geometric_median(A, np.ones((5, 1)), np.zeros((4, 1)))[:, 0]
    np.testing.assert_allclose(found / scale, np.ones(4), atol=1e-6)


def test_the_geometric_median_of_a_majority_at_one_place_is_that_place():
    _, A, w, present = contributions(17, n_clients=7)
    A[:4] = present
    np.testing.assert_allclose(geometric_median(A, w, present), present, atol=1e-9)


def test_the_geometric_median_of_three_corners_is_their_fermat_point():
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
    found = geometric_median(corners[:, :, None], np.ones((3, 1)), np.zeros((2, 1)))[:, 0]
    np.testing.assert_allclose(found, corners.mean(axis=0), atol=1e-9)
    obtuse = np.array([[0.0, 0.0], [1.0, 0.1], [-1.0, 0.1]])  # an angle over 120 degrees: the corner itself
    found = geometric_median(obtuse[:, :, None], np.ones((3, 1)), np.zeros((2, 1)))[:, 0]
    np.testing.assert_allclose(found, [0, 0], atol=1e-6)


# Errors of the truth


@pytest.mark.parametrize("name", [name for name in NAMES if AGGREGATIONS[name].contribution == "atoms"])
def test_averaging_brings_the_truth_nearer_than_clients_are(name):
    rng = np.random.default_rng(18)
    true = orthonormal(rng, 8, 3)
    A = np.stack([true + 0.1 * unit(rng.standard_normal((8, 3))) for _ in range(20)])
    found = COMBINE[name](A, np.ones((20, 3)), A[0])
    assert dictionary_distance(found, true) < 0.05 < 0.1 <= min(dictionary_distance(a, true) for a in A) + 1e-9


# consensus


def test_consensus_is_the_norm_of_the_mean_of_unit_atoms():
    rng, A, _, _ = contributions(19)
    np.testing.assert_allclose(consensus(A), np.linalg.norm(np.mean([unit(a) for a in A], axis=0), axis=0), atol=1e-14)
    np.testing.assert_allclose(consensus(A * rng.uniform(0.1, 9, (7, 1, 3))), consensus(A), atol=1e-14)


def test_consensus_at_its_ends():
    D = np.eye(4)[:, :2]
    np.testing.assert_allclose(consensus(np.stack([D, 3 * D, 0.1 * D])), [1, 1])
    np.testing.assert_allclose(consensus(np.stack([D, -D])), [0, 0])
    np.testing.assert_allclose(consensus(np.stack([D, D, 0 * D])), [1, 1])  # who sends nothing has no say
    np.testing.assert_allclose(consensus(np.zeros((3, 4, 2))), [0, 0])
    assert consensus(np.zeros((3, 4, 0))).shape == (0,)


@pytest.mark.parametrize("name", NAMES)
def test_more_global_atoms_than_features_fit_only_where_they_need_not_be_orthonormal(name):
    dictionaries = [unit(np.random.default_rng(i).standard_normal((3, 5))) for i in range(2)]
    matching = global_matching(dictionaries, 4)
    first = dictionaries, [np.ones(5)] * 2, matching.indices, matching.signs, name
    if AGGREGATIONS[name].orthonormal:
        with pytest.raises(SettingsError, match="n_global = 4: must be at most the 3 features for aggregation"):
            first_average(*first)
    else:
        assert first_average(*first)[1].shape == (3, 4)


# over members


@pytest.mark.parametrize("name", [name for name in NAMES if AGGREGATIONS[name].contribution == "atoms"])
def test_each_atom_is_aggregated_over_its_members_alone(name):
    _, A, w, present = contributions(3)
    members = np.array([[True, True, False]] * 3 + [[True, False, False]] * 4)
    seen = np.where(members[:, None, :], A, np.nan)
    found = over_members(COMBINE[name], seen, np.where(members, w, np.nan), present, members)
    np.testing.assert_array_equal(found[:, 0], COMBINE[name](A[:, :, :1], w[:, :1], present[:, :1])[:, 0])
    np.testing.assert_array_equal(found[:, 1], COMBINE[name](A[:3, :, 1:2], w[:3, 1:2], present[:, 1:2])[:, 0])
    np.testing.assert_array_equal(found[:, 2], present[:, 2])  # nobody's
    everybody = np.ones((7, 3), dtype=bool)
    np.testing.assert_array_equal(over_members(COMBINE[name], A, w, present, everybody), COMBINE[name](A, w, present))


def test_the_first_average_leaves_out_who_has_no_such_atom():
    D = unit(np.random.default_rng(0).standard_normal((4, 2)))
    A, found = first_average(
        [D, -D[:, ::-1], D[:, :1]],
        [np.ones(2)] * 2 + [np.ones(1)],
        np.array([[0, 1], [1, 0], [0, -1]]),
        np.array([[1.0, 1], [-1, -1], [1, 1]]),
        "mean",
    )
    np.testing.assert_allclose(found, D, atol=1e-15)
    assert not A[2, :, 1].any()
    np.testing.assert_allclose(consensus(A), [1, 1])


@pytest.mark.parametrize("name", NAMES)
def test_more_shared_atoms_than_features_fit_where_each_client_has_few_of_them(name):
    if AGGREGATIONS[name].contribution != "atoms":
        pytest.skip("takes all clients")
    E = np.eye(2)
    indices = np.array([[0, 1, -1], [0, -1, 0], [-1, 1, 0]])
    assert first_average([E, E, E], [np.ones(2)] * 3, indices, np.ones((3, 3)), name)[1].shape == (2, 3)
