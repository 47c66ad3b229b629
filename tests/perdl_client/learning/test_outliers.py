"""Wild entries and samples: which are found, and what they cost."""

import numpy as np
import pytest

from common.coders import HardThreshold, TopK
from common.synthetic import generate
from perdl_client.learning.outliers import mark, screen
from tests.perdl_client.learning.test_missing import run


def truth(seed=0, d=20):
    one = generate(seed, "a", n_features=d, n_global=3, n_local=3, n_samples=200, noise=0.05)
    return one.data.copy(), np.hstack([one.global_dictionary, one.local_dictionary])


def wild(kind, Y, rng):
    size = np.sqrt(np.mean(Y**2))
    where = rng.random(Y.shape) < 0.01 if kind == "entries" else np.tile(rng.random(Y.shape[1]) < 0.01, (len(Y), 1))
    Y[where] = 10 * size * rng.standard_normal(where.sum())
    return Y, where


def test_clean_samples_keep_nearly_all_entries():
    Y, D = truth()
    assert np.isnan(screen(Y)).mean() < 0.005
    assert np.isnan(mark(Y, D, HardThreshold(0.15))).mean() < 0.005


@pytest.mark.parametrize("coder", [HardThreshold(0.15), TopK(3)])
@pytest.mark.parametrize("d", [6, 20])
def test_entries_that_are_far_out_are_found_and_others_are_kept(d, coder):
    Y, D = truth(d=d)
    rms = np.sqrt(np.mean(Y**2))
    before = Y.copy()
    Y, where = wild("entries", Y, np.random.default_rng(1))
    far = where & (np.abs(Y - before) > 3 * rms)
    found = np.isnan(mark(screen(Y), D, coder))
    assert found[far].mean() > 0.9
    assert found[~where].mean() < 0.03


def test_wild_samples_are_left_out_as_a_whole():
    Y, D = truth()
    Y, where = wild("samples", Y, np.random.default_rng(3))
    assert where.any()
    found = np.isnan(mark(screen(Y), D, HardThreshold(0.15)))
    assert found[:, where[0]].all()


def test_what_is_missing_stays_missing_and_zeros_stay():
    Y = np.zeros((4, 20))
    Y[0, 0] = np.nan
    for out in (screen(Y), mark(Y, np.eye(4), HardThreshold(0.1))):
        np.testing.assert_array_equal(out, Y)


def test_float32_stays():
    Y, D = truth()
    Y, _ = wild("entries", Y.astype(np.float32), np.random.default_rng(1))
    assert mark(screen(Y), D.astype(np.float32), HardThreshold(0.15)).dtype == np.float32


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("d", [6, 20])
@pytest.mark.parametrize("kind", ["entries", "samples", "none"])
def test_the_shared_atoms_are_about_those_of_the_clean_run(kind, d, seed):
    def damage(Y, i, rng):
        return screen(wild(kind, Y, rng)[0] if kind != "none" else Y)

    assert run(damage, d=d, seed=seed, outliers="mask") < 1.5 * run(d=d, seed=seed)
