"""Missing entries: against brute force, against the complete run, and where a client lacks a feature."""

import itertools

import numpy as np
import pytest

from common.coders import OMP, HardThreshold, TopK
from common.dictionaries import dictionary_distance
from common.settings import settings_from_values
from common.synthetic import generate
from perdl.perma import perma
from perdl_client.learning.client import ClientLearner
from perdl_client.learning.local_update import local_update
from perdl_client.learning.missing import complete, gaps, observed_omp, observed_residual
from perdl_client.learning.warm_up import objective


def orthonormal(d, r, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, r))).Q


def with_holes(Y, share, seed=0):
    out = Y.copy()
    out[np.random.default_rng(seed).random(Y.shape) < share] = np.nan
    return out


def run(damage=lambda Y, i, rng: Y, *, d=6, noise=0.05, seed=0, n_clients=10, **settings):
    """Error of D^g on the paper's synthetic data, of which each client's are damaged first."""
    base = {"n_clients": n_clients, "n_atoms": 6, "rounds": 30, "seed": seed, "synthetic": {"n_features": d}}
    s = settings_from_values({**base, **settings})
    clients = []
    for i in range(n_clients):
        name = f"client-{i + 1}"
        truth = generate(seed, name, n_features=d, n_global=3, n_local=3, n_samples=200, noise=noise)
        Y = damage(truth.data.copy(), i, np.random.default_rng(1000 * seed + i))
        clients.append(ClientLearner(Y, s.for_client(name), seed, name))
    return dictionary_distance(perma(clients, s), truth.global_dictionary)


@pytest.mark.parametrize("coder", [HardThreshold(0.15), TopK(2), OMP(2)])
def test_complete_samples_are_returned_as_they_are(coder):
    Y = np.random.default_rng(0).standard_normal((6, 9))
    assert complete(Y, orthonormal(6, 4), coder) is Y
    assert gaps(Y) is None


@pytest.mark.parametrize("coder", [HardThreshold(0.15), TopK(2), OMP(2)])
def test_observed_entries_stay_and_missing_ones_are_those_of_the_model(coder):
    D = orthonormal(12, 6)
    truth = generate(0, "a", n_features=12, n_global=3, n_local=3, n_samples=300, sparsity=0.15)
    D, Y = np.hstack([truth.global_dictionary, truth.local_dictionary]), truth.data
    few = (truth.codes != 0).sum(axis=0) <= 2
    holes = with_holes(Y[:, few], 0.1)
    F = complete(holes, D, coder)
    known = ~np.isnan(holes)
    np.testing.assert_array_equal(F[known], holes[known])
    wrong = np.abs(F - Y[:, few])[~known] > 1e-3  # a sample whose few observed entries fit other atoms as well
    assert wrong.mean() < 0.05


def test_a_whole_sample_that_is_missing_gets_no_codes():
    Y = np.random.default_rng(0).standard_normal((6, 4))
    Y[:, 2] = np.nan
    for coder in (HardThreshold(0.1), OMP(3)):
        assert not complete(Y, orthonormal(6, 6), coder)[:, 2].any()


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_omp_of_one_atom_is_the_best_of_all_by_observed_entries(share):
    rng = np.random.default_rng(1)
    D, Y = rng.standard_normal((8, 11)), with_holes(rng.standard_normal((8, 60)), share)
    X = observed_omp(Y, D, 1)
    for y, x in zip(Y.T, X.T, strict=True):
        known = ~np.isnan(y)
        fits = [np.linalg.lstsq(D[known][:, [j]], y[known])[0] for j in range(11)]
        left = [np.linalg.norm(y[known] - D[known][:, [j]] @ fits[j]) for j in range(11)]
        np.testing.assert_allclose(np.linalg.norm(y[known] - D[known] @ x), min(left), atol=1e-9)


def test_omp_is_least_squares_on_its_support():
    rng = np.random.default_rng(2)
    D, Y = rng.standard_normal((10, 14)), with_holes(rng.standard_normal((10, 40)), 0.3)
    for y, x in zip(Y.T, observed_omp(Y, D, 4).T, strict=True):
        known, support = ~np.isnan(y), np.flatnonzero(x)
        assert len(support) == 4
        best = np.linalg.lstsq(D[known][:, support], y[known])[0]
        np.testing.assert_allclose(x[support], best, atol=1e-6)


def test_omp_takes_no_more_atoms_than_observed_entries():
    Y = np.random.default_rng(0).standard_normal((6, 3))
    Y[2:, 0] = np.nan
    Y[:, 1] = np.nan
    counts = np.count_nonzero(observed_omp(Y, orthonormal(6, 6), 5), axis=0)
    assert counts[0] <= 2
    assert counts[1] == 0


def test_filled_codes_are_the_best_for_single_holes_as_brute_force_says():
    """min over codes of ||W (y - Dx)||^2 + zeta^2 ||x||_0, by all supports of 4 atoms."""
    D, zeta = orthonormal(6, 4), 0.4
    rng = np.random.default_rng(3)
    Y = D @ (rng.standard_normal((4, 80)) * (rng.random((4, 80)) < 0.3)) + 0.05 * rng.standard_normal((6, 80))
    Y[rng.integers(0, 6, 80), np.arange(80)] = np.nan
    coder = HardThreshold(zeta)
    X = coder(complete(Y, D, coder), D)
    mine = (observed_residual(Y, D @ X) ** 2).sum(axis=0) + zeta**2 * np.count_nonzero(X, axis=0)
    best = []
    for y in Y.T:
        known, costs = ~np.isnan(y), [np.nansum(y**2)]
        for k in range(1, 5):
            for support in itertools.combinations(range(4), k):
                A = D[known][:, support]
                x = np.linalg.lstsq(A, y[known])[0]
                costs.append(np.linalg.norm(y[known] - A @ x) ** 2 + zeta**2 * k)
        best.append(min(costs))
    assert (mine >= np.array(best) - 1e-6).all()
    assert (mine <= np.array(best) + 1e-3).mean() > 0.85
    assert mine.sum() < 1.1 * sum(best)


def test_a_step_lowers_the_objective_over_observed_entries():
    Y = with_holes(generate(0, "a", n_features=6, n_global=3, n_local=3, n_samples=200, noise=0.1).data, 0.2)
    D, coder = orthonormal(6, 6), HardThreshold(0.3)
    from common.learners import LEARNERS

    before = objective(Y, D, coder)
    for _ in range(10):
        new = local_update(Y, D[:, :3], D[:, 3:], LEARNERS["orthogonal"], coder)
        D = np.hstack([new.global_dictionary, new.local_dictionary])
        after = objective(Y, D, coder)
        assert after <= before * (1 + 1e-3)  # the codes of an objective are found anew, not continued
        before = after


@pytest.mark.parametrize("d", [6, 20])
@pytest.mark.parametrize(("share", "most"), [(0.05, 1.5), (0.2, 2.3)])
def test_missing_entries_cost_little_and_filling_by_the_mean_costs_more(d, share, most):
    def holes(Y, i, rng):
        Y[rng.random(Y.shape) < share] = np.nan
        return Y

    def filled(Y, i, rng):
        Y = holes(Y, i, rng)
        return np.where(np.isnan(Y), np.nanmean(Y, axis=1)[:, None], Y)

    whole, masked, by_mean = run(d=d), run(holes, d=d), run(filled, d=d)
    assert masked < most * whole
    assert masked < 0.85 * by_mean


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("d", [6, 20])
def test_a_client_may_lack_a_feature(d, seed):
    def lack(Y, i, rng):
        if i == 4:
            Y[1] = np.nan
        return Y

    assert run(lack, d=d, seed=seed) < 1.5 * run(d=d, seed=seed)


def test_a_client_that_lacks_a_feature_says_nothing_of_it():
    truth = generate(0, "a", n_features=6, n_global=3, n_local=3, n_samples=200, noise=0.05)
    Y = truth.data.copy()
    Y[1] = np.nan
    client = ClientLearner(Y, settings_from_values({}).for_client("a"), 0, "a")
    start = client.start()
    assert not start.atoms[1].any()
    client.split(np.arange(3))
    sent = client.update(truth.global_dictionary, 1).contribution("mean")
    # In the round it sends there what it received, up to the turn of its other entries.
    np.testing.assert_allclose(sent[1], truth.global_dictionary[1], atol=0.1)


def test_other_learners_take_part_with_omp():
    def holes(Y, i, rng):
        Y[rng.random(Y.shape) < 0.05] = np.nan
        return Y

    options = {"learner": "gradient", "coder": "omp", "n_nonzero": 2, "start": "warm-up", "d": 20}
    assert run(holes, **options) < 1.5 * run(**options) + 0.02


def test_in_float32_atoms_that_look_parallel_where_they_are_observed_do_no_harm():
    """Without the first feature the two atoms differ by 1e-4, and their Gram matrix is singular in float32."""
    D = np.array([[0, 1], [0, 1e-4], [1, 1]], dtype=np.float32)
    Y = np.array([[np.nan], [1], [1]], dtype=np.float32)
    X = observed_omp(Y, D, 2)
    assert X.dtype == np.float32
    np.testing.assert_allclose((D @ X)[1:], Y[1:], atol=1e-2)
