"""Claims of the start from fourth powers."""

import numpy as np
import pytest

from common.errors import SettingsError
from common.learning_settings import LearningSettings
from common.settings import settings_from_values
from common.statistics import rms
from perdl_client.learning.initialization import first_dictionary
from perdl_client.learning.l4_start import l4_start
from perdl_client.learning.warm_up import objective, random_dictionary


def planted(seed, d, n, share=0.2, noise=0.0):
    rng = np.random.default_rng(seed)
    D = np.linalg.qr(rng.standard_normal((d, d))).Q
    X = rng.standard_normal((d, n)) * (rng.random((d, n)) < share)
    return D @ X + noise * rng.standard_normal((d, n)), D


def fourth_powers(Y, D):
    """Sum over samples, those longer than the median shortened to it."""
    norms = np.linalg.norm(Y, axis=0)
    return ((D.T @ (Y / np.maximum(norms / np.median(norms[norms > 0]), 1))) ** 4).sum()


def distance(D, truth):
    """Largest distance of an atom of the truth to the nearest atom."""
    return np.sqrt(np.maximum(2 - 2 * np.abs(truth.T @ D).max(axis=1), 0)).max()


@pytest.mark.parametrize("r", [1, 7, 20])
def test_no_step_lowers_the_sum_of_fourth_powers(r):
    Y, _ = planted(0, 20, 300)
    D = random_dictionary(np.random.default_rng(1), 20, r, Y.dtype)
    values = [fourth_powers(Y, D)]
    for _ in range(25):
        D = l4_start(Y, D, 1)
        np.testing.assert_allclose(D.T @ D, np.eye(r), atol=1e-12)
        values.append(fourth_powers(Y, D))
    assert (np.diff(values) >= -1e-9 * values[-1]).all()
    assert values[-1] > 1.2 * values[0]


def test_its_end_is_a_maximum_among_turned_dictionaries():
    Y, _ = planted(2, 12, 2000)
    D = l4_start(Y, random_dictionary(np.random.default_rng(0), 12, 12, Y.dtype), 100)
    rng, best = np.random.default_rng(1), fourth_powers(Y, D)
    for size in (1e-3, 1e-2, 0.1):
        for _ in range(30):
            turned = np.linalg.qr(D + size * rng.standard_normal(D.shape))
            assert fourth_powers(Y, turned.Q * np.where(np.diag(turned.R) < 0, -1, 1)) <= best * (1 + 1e-9)


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_forty_planted_atoms_are_found_where_ten_random_starts_are_stuck(noise):
    told, stuck = {"n_atoms": 40, "threshold": 0.3}, 0
    for seed in range(6):
        Y, truth = planted(seed, 40, 1500, noise=noise)
        one, other = (first_dictionary(Y, LearningSettings(start=w, **told), 0, "ada") for w in ("l4", "warm-up"))
        assert distance(one, truth) < 0.05
        stuck += distance(other, truth) > 0.3
        coder = LearningSettings(**told).make_coder(rms(Y))
        assert objective(Y, one, coder) <= objective(Y, other, coder) * (1 + 1e-9)
    assert stuck >= 3


@pytest.mark.parametrize(
    ("taken", "d", "r", "n", "learner"),
    [
        ("warm-up", 12, 9, 150, "orthogonal"),
        ("l4", 12, 10, 150, "orthogonal"),
        ("l4", 12, 12, 48, "orthogonal"),
        ("warm-up", 12, 12, 47, "orthogonal"),
        ("l4", 150, 150, 150, "orthogonal"),  # ten starts of so many take long
        ("warm-up", 12, 12, 150, "coordinate"),
        ("warm-up", 12, 12, 150, "gradient"),
        ("warm-up", 12, 20, 150, "online"),
    ],
)
@pytest.mark.parametrize("min_samples", [None, 5])
def test_by_default_ten_orthonormal_atoms_or_more_start_from_fourth_powers(taken, d, r, n, learner, min_samples):
    Y, _ = planted(5, d, n)
    told = {"n_atoms": r, "learner": learner, "coder": "top-k", "n_nonzero": 2, "n_restarts": 2, "warmup_steps": 4}
    by_default, named = (
        first_dictionary(Y, LearningSettings(**told, **start), 0, "ada", min_samples=min_samples)
        for start in ({}, {"start": taken})
    )
    np.testing.assert_array_equal(by_default, named)


def test_noisy_sums_start_from_random_dictionaries_by_default():
    Y, _ = planted(5, 12, 150)
    by_default, named = (
        first_dictionary(Y, LearningSettings(n_restarts=2, **start), 0, "ada", product=lambda A, X: A @ X.T)
        for start in ({}, {"start": "warm-up"})
    )
    np.testing.assert_array_equal(by_default, named)


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_units_of_the_data_do_not_matter(scale):
    Y, _ = planted(3, 8, 200)
    D = random_dictionary(np.random.default_rng(0), 8, 6, Y.dtype)
    np.testing.assert_allclose(l4_start(scale * Y, D, 10), l4_start(Y, D, 10), atol=1e-10)


def test_zero_samples_no_samples_and_missing_entries():
    D = random_dictionary(np.random.default_rng(0), 8, 6, np.dtype(float))
    np.testing.assert_allclose(l4_start(np.zeros((8, 5)), D, 3), D, atol=1e-12)
    np.testing.assert_allclose(l4_start(np.zeros((8, 0)), D, 3), D, atol=1e-12)
    Y, _ = planted(4, 8, 100)
    holes = Y.copy()
    holes[2, ::3] = np.nan
    np.testing.assert_array_equal(l4_start(holes, D, 5), l4_start(np.nan_to_num(holes), D, 5))


@pytest.mark.parametrize("learner", ["orthogonal", "gradient", "coordinate"])
@pytest.mark.parametrize("seed", range(4))
def test_a_sample_as_long_as_all_others_does_not_become_an_atom(learner, seed):
    """Its fourth powers alone would be those of all others, and the guard is of the last step."""
    Y, _ = planted(seed, 20, 200)
    Y[:, 7] = 100 * np.random.default_rng(seed).standard_normal(20)
    wild = Y[:, 7] / np.linalg.norm(Y[:, 7])
    learning = LearningSettings(n_atoms=20, threshold=0.3, start="l4", learner=learner)
    D = first_dictionary(Y, learning, 0, "ada", min_samples=5)
    assert np.isfinite(D).all()
    assert np.abs(wild @ D).max() < 0.95
    alone = l4_start(Y, random_dictionary(np.random.default_rng(0), 20, 20, Y.dtype), 20)
    assert np.abs(wild @ alone).max() < 0.9


def test_what_it_does_not_fit_is_refused():
    with pytest.raises(SettingsError, match="n_atoms = 9: must be at most the 8 features of ada for"):
        first_dictionary(np.ones((8, 5)), LearningSettings(n_atoms=9, start="l4", learner="gradient"), 0, "ada")
    private = {"privacy": {"mode": "private", "epsilon": 1.0, "clip": 1.0}}
    with pytest.raises(SettingsError, match="start = l4: looks at all samples of a client without noise"):
        settings_from_values({"start": "l4", **private})
