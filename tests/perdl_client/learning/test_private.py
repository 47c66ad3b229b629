"""Differential privacy: sensitivity, noise and count of the sums that are released, and that nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from common.learners import LEARNERS
from common.learning_settings import LearningSettings
from perdl_client.learning.client import ClientLearner
from perdl_client.learning.private import PrivateProduct, clipped, releases

CLIP = 1.5


def private(multiplier=1.0, purpose="test", key=b"k" * 32):
    return PrivateProduct(CLIP, multiplier, key, purpose)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_a_sample_moves_a_sum_by_no_more_than_the_sensitivity(seed, scale):
    """Sample and codes may be anything, such as those of a hostile dictionary. The noise is the same, and cancels."""
    rng = np.random.default_rng(seed)
    Y, X = rng.standard_normal((5, 30)) * scale, rng.standard_normal((4, 30)) * scale ** rng.choice([0, 1, 2])
    s = int(rng.integers(30))
    Z, W = (np.where(np.arange(30) == s, 0, A) for A in (Y, X))
    for one, other in (((Y, X), (Z, W)), ((X, X), (W, W))):
        same = one[0] is one[1]
        with_sample, without = private()(*one), private()(other[0], other[0] if same else other[1])
        assert np.linalg.norm(with_sample - without) <= CLIP**2 * (1 + 1e-9)


def test_the_sensitivity_is_reached():
    """Else more noise would be added than needed."""
    y = np.full((4, 1), 100.0)
    assert np.linalg.norm(private()(y, y[:2]) - private()(0 * y, 0 * y[:2])) == pytest.approx(CLIP**2)


@pytest.mark.parametrize("symmetric", [False, True])
def test_the_noise_is_normal_with_the_multiplier_times_the_sensitivity(symmetric):
    A = np.zeros((60, 3))
    G = private(2.5)(A, A if symmetric else A[:50]) / (2.5 * CLIP**2)
    if symmetric:
        np.testing.assert_array_equal(G, G.T)
        G = G[np.triu_indices(60)]
    assert kstest(G.ravel(), "norm").pvalue > 1e-3
    assert chi2.cdf((G**2).sum(), G.size) == pytest.approx(0.5, abs=0.4999)


def test_noise_is_new_for_each_sum_purpose_and_key_and_else_the_same():
    A = np.zeros((3, 4))
    one = private()
    drawn = [one(A, A[:2]), one(A, A[:2]), private(purpose="other")(A, A[:2]), private(key=b"l" * 32)(A, A[:2])]
    assert len({G.tobytes() for G in drawn}) == 4
    np.testing.assert_array_equal(private()(A, A[:2]), drawn[0])


def test_short_columns_stay_as_they_are():
    A = np.array([[0.0, 0.3, 3.0], [0.0, 0.4, 4.0]])
    np.testing.assert_allclose(clipped(A, 1.0), [[0, 0.3, 0.6], [0, 0.4, 0.8]])


def learning(**changes):
    return LearningSettings(**{"n_atoms": 4, "threshold": 0.4, "warmup_steps": 3, **changes})


def samples(seed, n=80):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((6, n)) * (1 + seed)


SETTINGS = [
    learning(learner=learner, start=start, refine_steps=refine, local_steps=1 + refine, **coder)
    for learner in LEARNERS
    if LEARNERS[learner].products and not LEARNERS[learner].atom_by_atom
    for start in ("warm-up", "svd", "samples", "identity", "random")
    if not (start == "samples" and LEARNERS[learner].orthonormal)
    for refine in (0, 2)
    for coder in ({}, {"coder": "omp", "n_nonzero": 2})
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: f"{s.learner}-{s.start}-{s.refine_steps}-{s.coder}")
def test_a_run_releases_as_many_sums_as_it_pays_for(settings):
    rounds, start = 3, private(purpose="start")
    client = ClientLearner(samples(0), settings, 0, "ada", private=start)
    client.start()
    client.split(np.arange(2))
    D_l, count = client.dictionary, start.released
    for t in range(1, rounds + 1):
        one = private(purpose=f"round {t}")
        client = ClientLearner(samples(0), settings, 0, "ada", dictionary=D_l, private=one)
        client.update(np.eye(6)[:, :2], t)
        D_l, count = client.dictionary, count + one.released
    assert count == releases(settings, rounds)


class OnlyShapes(PrivateProduct):
    """Sums that do not depend on the samples: what is learnt from them may not either."""

    def __call__(self, A, X):
        return super().__call__(0 * A, 0 * X if A is not X else 0 * A)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: f"{s.learner}-{s.start}-{s.refine_steps}-{s.coder}")
def test_nothing_but_the_noisy_sums_shows_the_samples(settings):
    """Post-processing: with sums of other samples' shapes only, all that leaves is the same for any samples."""

    def sent(Y):
        one = OnlyShapes(CLIP, 1.0, b"k" * 32, "start")
        client = ClientLearner(Y, settings, 0, "ada", private=one)
        start = client.start()
        client.split(np.arange(2))
        new = client.update(np.eye(6)[:, :2], 1)
        return [start.atoms, start.usage, *(new.contribution(a) for a in ("mean", "procrustes")), new.energies]

    for one, other in zip(sent(samples(0)), sent(samples(3)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_settings_that_look_at_samples_are_off():
    one = ClientLearner(samples(0), learning(outliers="mask"), 0, "ada", private=private())
    assert (one.learning.n_restarts, one.learning.local_restarts, one.learning.outliers) == (1, 0, "keep")
    assert np.linalg.norm(one.Y, axis=0).max() <= CLIP * (1 + 1e-12)
