"""Claims of the start from samples."""

import numpy as np
import pytest

from common.errors import SettingsError
from common.settings import settings_from_values
from perdl_client.learning.samples_start import samples_start


def samples(d=8, n=40):
    return np.random.default_rng(0).standard_normal((d, n))


def matches(D, Y):
    """Which sample each atom is, -1 if none."""
    cosines = np.abs(D.T @ Y) / np.linalg.norm(Y, axis=0)
    return np.where(cosines.max(axis=1) > 1 - 1e-12, cosines.argmax(axis=1), -1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_atoms_are_different_samples_of_norm_one(dtype):
    Y = samples()
    D = samples_start(Y.astype(dtype), 12, np.random.default_rng(1))
    assert D.dtype == dtype
    np.testing.assert_allclose(np.linalg.norm(D, axis=0), 1, rtol=1e-6)
    cosines = np.abs(D.T @ Y) / np.linalg.norm(Y, axis=0)
    assert len(set(cosines.argmax(axis=1))) == 12
    np.testing.assert_allclose(cosines.max(axis=1), 1, rtol=1e-6)


def test_atoms_beyond_the_samples_and_of_zero_samples_are_random():
    Y = samples(n=5)
    Y[:, 3] = 0
    found = matches(samples_start(Y, 9, np.random.default_rng(1)), np.where(Y == 0, 1e-9, Y))
    assert sorted(found[found >= 0]) == [0, 1, 2, 4]
    D = samples_start(np.zeros((8, 0)), 3, np.random.default_rng(1))
    np.testing.assert_allclose(np.linalg.norm(D, axis=0), 1)


def test_what_was_not_measured_counts_as_zero():
    Y = samples()
    holes = Y.copy()
    holes[2, ::3] = np.nan
    D = samples_start(holes, 12, np.random.default_rng(1))
    np.testing.assert_array_equal(D, samples_start(np.nan_to_num(holes), 12, np.random.default_rng(1)))


def test_orthonormal_learners_refuse_it():
    with pytest.raises(SettingsError, match='start = "samples": must be another one with learner = "orthogonal"'):
        settings_from_values({"start": "samples", "privacy": "none"})
