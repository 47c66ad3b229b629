"""Sets of real data: the same samples for a seed, none both learnt from and held out, and errors with a cure."""

from __future__ import annotations

import numpy as np
import pytest

from common.errors import DataError, SettingsError
from perdl.experiments import real_data
from perdl.experiments.dealing import hold_out_recordings, patches, smaller, windows
from perdl.experiments.real_data import SETS, load, missing

pytest.importorskip("sklearn")


@pytest.mark.parametrize("name", SETS)
def test_each_set_has_samples_of_all_sites_and_shows_none_twice(name):
    if reason := missing(name):
        pytest.skip(reason)
    sites, again, other = load(name), load(name), load(name, seed=1)
    assert list(sites.train) == list(sites.test)
    assert len(sites.train) >= 4
    for site, Y in sites.train.items():
        assert Y.shape[0] == sites.test[site].shape[0] == sites.n_features
        assert min(Y.shape[1], sites.test[site].shape[1]) > 0
        assert Y.dtype == np.float64
        assert np.isfinite(Y).all()
        np.testing.assert_array_equal(Y, again.train[site])
    assert any(Y.shape != other.train[site].shape or (other.train[site] != Y).any() for site, Y in sites.train.items())


@pytest.mark.parametrize("name", ["wine", "cancer", "diabetes"])
def test_a_table_is_dealt_without_rest_and_without_repetition(name):
    sites = load(name)
    dealt = np.hstack([*sites.train.values(), *sites.test.values()])
    table = real_data._table({"cancer": "breast_cancer"}.get(name, name))[0].T
    np.testing.assert_array_equal(dealt[:, np.lexsort(dealt)], table[:, np.lexsort(table)])


def test_a_shift_gives_every_site_its_own_factors_and_offsets():
    plain, shifted = load("wine"), load("wine-shift")
    spread = [np.std(Y, axis=1) for Y in shifted.train.values()]
    assert (
        np.std(np.log(spread), axis=0).mean()
        > 1.5 * np.std([np.log(np.std(Y, axis=1)) for Y in plain.train.values()], axis=0).mean()
    )


def test_recordings_are_held_out_whole():
    recordings = [(f"site-{i % 2}", np.full((3, 1), float(i))) for i in range(8)]
    for train, test in hold_out_recordings(recordings, np.random.default_rng(0)).values():
        assert len(train) == 9
        assert len(test) == 3
        assert not set(train.ravel()) & set(test.ravel())


def test_cutting_keeps_every_number_in_its_place():
    image = np.arange(48.0).reshape(6, 8)
    np.testing.assert_array_equal(patches(image, 2)[1], [2, 3, 10, 11])
    assert len(patches(image, 4)) == 2
    np.testing.assert_array_equal(smaller(image, 2)[0], patches(image, 2).mean(axis=1)[:4])
    np.testing.assert_array_equal(windows(np.arange(14.0).reshape(7, 2), 3), np.arange(12.0).reshape(2, 6))


def test_what_is_not_there_is_named_with_the_cure(monkeypatch, tmp_path):
    monkeypatch.setenv("PERDL_DATA", str(tmp_path))
    monkeypatch.setattr(real_data, "find_spec", lambda package: None)
    with pytest.raises(SettingsError, match=r"^there is no set wines; sets are wine, "):
        load("wines")
    with pytest.raises(DataError, match=r'^speech: the package aeon is missing: pip install "perdl\[benchmark\]"$'):
        load("speech")
    with pytest.raises(DataError, match=r"^mnist: there is no folder .*mnist; set PERDL_DATA$"):
        load("mnist")
