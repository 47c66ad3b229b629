"""Claims of the warm-up from random dictionaries."""

import numpy as np
import pytest

from common.coders import OMP, HardThreshold, TopK
from common.dictionaries import dictionary_distance
from common.learners import LEARNERS, Learner, Step
from common.rng import stream
from common.synthetic import generate
from perdl_client.learning.warm_up import best_warm_up, objective, random_dictionary, warm_up

ORTHOGONAL, CODER = LEARNERS["orthogonal"], HardThreshold(0.15)


def paper_client(seed, n=200):
    truth = generate(seed, "client-0", n_features=6, n_global=3, n_local=3, n_samples=n)
    return truth.data, np.hstack([truth.global_dictionary, truth.local_dictionary])


def warm_up_error(seed, n_restarts):
    Y, D = paper_client(seed)
    rng = stream(seed, "client-0", "start")
    found = best_warm_up(Y, 6, ORTHOGONAL, CODER, rng, n_restarts=n_restarts, n_steps=20, first_threshold=0.8)
    for _ in range(50):
        found = ORTHOGONAL.step(Y, found, CODER, 1.0).dictionary
    return dictionary_distance(found, D)


def test_warm_up_with_restarts_finds_the_truth_on_every_seed_and_without_it_does_not():
    seeds = range(40)
    assert max(warm_up_error(seed, 10) for seed in seeds) < 1e-8
    assert sum(warm_up_error(seed, 1) > 0.1 for seed in seeds) >= 2


def test_the_restart_of_least_objective_is_kept():
    Y, _ = paper_client(3)
    options = {"n_steps": 3, "first_threshold": 0.8}
    rng = np.random.default_rng(0)
    ends = [warm_up(Y, random_dictionary(rng, 6, 6, Y.dtype), ORTHOGONAL, CODER, **options) for _ in range(8)]
    values = [np.sum((Y - D @ CODER(Y, D)) ** 2) + 0.15**2 * np.count_nonzero(CODER(Y, D)) for D in ends]
    kept = best_warm_up(Y, 6, ORTHOGONAL, CODER, np.random.default_rng(0), n_restarts=8, **options)
    np.testing.assert_array_equal(kept, ends[int(np.argmin(values))])
    assert np.argmin(values) != 0


def test_the_worse_half_of_large_starts_is_given_up_twice_and_the_last_step_is_done_once():
    truth = generate(1, "client-0", n_features=50, n_global=10, n_local=40, n_samples=2000)
    taken = []

    def step(Y, D, coder, step_size, product):
        taken.append(len(D) if D.ndim == 3 else 1)
        return ORTHOGONAL.step(Y, D, coder, step_size)

    learner = Learner(step, True, 1, forgets=True)
    options = {"n_restarts": 10, "n_steps": 20, "first_threshold": 0.8}
    last = []

    def last_step(Y, D, coder):
        last.append(D)
        return Step(D, coder(Y, D), None)

    rng = np.random.default_rng(0)
    best_warm_up(truth.data, 50, learner, CODER, rng, last=last_step, **options)
    assert sum(taken) == 10 * 10 + 5 * 5 + 5 * 3
    assert len(last) == 1
    best = best_warm_up(truth.data, 50, learner, CODER, np.random.default_rng(0), **options)
    np.testing.assert_array_equal(best, step(truth.data, last[0], CODER, 1.0, None).dictionary)
    rng = np.random.default_rng(0)
    starts = [random_dictionary(rng, 50, 50, best.dtype) for _ in range(10)]
    all_to_the_end = [warm_up(truth.data, D, ORTHOGONAL, CODER, n_steps=20, first_threshold=0.8) for D in starts]
    least = min(objective(truth.data, D, CODER) for D in all_to_the_end)
    assert objective(truth.data, best, CODER) <= least * (1 + 1e-9)


@pytest.mark.parametrize(
    ("coder", "penalty"), [(HardThreshold(0.15), 0.0225), (TopK(2), 0), (OMP(2), 0)], ids=["threshold", "top-k", "omp"]
)
def test_the_objective_is_error_plus_penalty(coder, penalty):
    rng = np.random.default_rng(1)
    Y, D = rng.standard_normal((6, 30)), np.linalg.qr(rng.standard_normal((6, 4)))[0]
    X = coder(Y, D)
    assert objective(Y, D, coder) == pytest.approx(np.sum((Y - D @ X) ** 2) + penalty * np.sum(X != 0), rel=1e-12)


def test_more_restarts_never_give_a_larger_objective():
    Y, _ = paper_client(4)
    values = [
        objective(Y, best_warm_up(Y, 6, ORTHOGONAL, CODER, np.random.default_rng(5), n_restarts=n, n_steps=4), CODER)
        for n in (1, 2, 4, 8, 16)
    ]
    assert (np.diff(values) <= 1e-9).all()


@pytest.mark.parametrize(("first", "expected"), [(0.8, 0.8), (None, 0.75), (0.01, 0.15)])
def test_thresholds_shrink_geometrically_to_the_coders_own(first, expected):
    seen = []

    def spy(Y, D, coder, step_size):
        seen.append((coder.number, step_size))
        return Step(D, D.T @ Y)

    warm_up(np.ones((3, 4)), np.eye(3), Learner(spy), CODER, n_steps=6, first_threshold=first, step_size=0.3)
    thresholds = [threshold for threshold, _ in seen]
    np.testing.assert_allclose(thresholds, np.geomspace(expected, 0.15, 6), rtol=1e-12)
    assert thresholds[-1] == 0.15
    assert {step for _, step in seen} == {0.3}


@pytest.mark.parametrize("coder", [TopK(2), OMP(2), HardThreshold(0.0)], ids=repr)
def test_coders_without_a_threshold_are_used_as_they_are(coder):
    seen = []

    def spy(Y, D, coder, step_size):
        seen.append(coder)
        return Step(D, D.T @ Y)

    warm_up(np.ones((3, 4)), np.eye(3), Learner(spy), coder, n_steps=3, first_threshold=0.8)
    assert seen == [coder] * 3


def test_no_warm_up_steps_leave_the_random_dictionary():
    D = np.eye(3)
    assert warm_up(np.ones((3, 4)), D, ORTHOGONAL, CODER, n_steps=0) is D


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("d", "r"), [(6, 6), (6, 2), (5, 9), (1, 1)])
def test_random_dictionaries_have_unit_atoms_orthonormal_where_they_fit(d, r, dtype):
    D = random_dictionary(np.random.default_rng(6), d, r, np.dtype(dtype))
    assert D.shape == (d, r)
    assert D.dtype == dtype
    np.testing.assert_allclose(np.linalg.norm(D, axis=0), 1, atol=1e-6)
    if r <= d:
        np.testing.assert_allclose(D.T @ D, np.eye(r), atol=1e-6)


@pytest.mark.parametrize("name", list(LEARNERS))
def test_warm_up_keeps_float32(name):
    Y, _ = paper_client(5, n=50)
    D = best_warm_up(
        Y.astype("f4"), 4, LEARNERS[name], CODER, np.random.default_rng(0), n_restarts=2, n_steps=3, first_threshold=0.8
    )
    assert D.dtype == np.float32
    assert np.isfinite(D).all()


# svd
