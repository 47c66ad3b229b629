"""What is doubtful about samples is told in one line for each kind, and of honest samples nothing is."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from common.data_settings import DataSettings
from common.settings import load_settings
from common.statistics import largest_feature_share
from common.synthetic import generate
from perdl_client.data.load import load_data
from perdl_client.data.quality import data_warnings, sample_statistics
from perdl_client.data.units import pooled, spreads, suggested_divide_by
from perdl_client.identity import Identity
from perdl_client.node.runner import node_config

RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((5, 60))
ASIS = DataSettings(source="files")


def found(*clients, shape=(), names=(), data=ASIS):
    return data_warnings(
        {f"c{i}": sample_statistics(Y, shape, names) for i, Y in enumerate(clients)}, "turn them", data
    )


def with_row(j, row):
    Y = RNG.standard_normal((5, 60))
    Y[j] = row
    return Y


def test_of_honest_samples_nothing_is_said():
    assert found(TABLE, 3 * RNG.standard_normal((5, 60))) == []
    truth = [generate(0, f"client-{i}", n_features=6, n_global=3, n_local=3, n_samples=200).data for i in range(4)]
    assert found(*truth) == []
    assert found(np.full((5, 60), 998.0), np.full((5, 60), 999.0)) == [], "all other numbers: there are none"
    images = RNG.integers(0, 256, (64, 20)).astype(float)
    images[5], images[6] = 0, [99, *[0] * 19]  # dark pixels at the border, one of them bright once
    assert found(images, images + 1, shape=(8, 8)) == []
    assert found(images, images + 1) == [
        "c0, c1 have fewer samples than features (20 of 64 at c0); if their samples are in columns, turn them"
    ]


def test_the_same_on_many_features_and_clients_is_one_line():
    Y = np.tile(np.arange(60.0), (9, 1))
    assert found(*(Y + i for i in range(6)), data=None)[0].startswith(
        "features 1, 2, 3 and 6 more of c0, c1, c2 and 3 more count the samples"
    )
    years = with_row(3, 2000 - 2 * np.arange(60))
    assert found(years, with_row(0, 5 * np.arange(60)), names=("a", "b", "c", "d", "e"))[0].startswith(
        "features 1 ('a'), 4 ('d') of c0, c1 go up or down by whole numbers"
    )
    (line,) = found(TABLE, 2 * TABLE, TABLE, 2 * TABLE, TABLE)
    assert line == (
        "c2 has the very samples of c0, c3 has the very samples of c1, c4 has the very samples of c0; give each client "
        "its own"
    )


def test_a_mark_of_missing_values_is_seen_beside_large_features_and_makes_no_other_units():
    row = RNG.standard_normal(60)
    row[[3, 9]] = -999
    Y = np.vstack([with_row(2, row), 1e5 + RNG.standard_normal(60)])  # beyond which -999 is not far
    (line,) = found(Y, names=("a", "b", "c", "d", "e", "pressure"))
    assert line.startswith("feature 3 ('c') of c0 holds -999, far beyond all other numbers there")
    (line,) = found(TABLE, with_row(2, row))
    assert line.startswith("feature 3 of c1 holds -999"), "and not: c1 has other units"
    images = RNG.random((64, 80))
    images[:, 7] = -999
    assert found(images, shape=(8, 8))[0].startswith("c0 holds -999")


def test_features_in_different_units_are_told_where_they_are_learnt_from_as_they_are():
    sizes = np.array([15, 0.4, 1, 8, 2])
    clients = [sizes[:, None] * RNG.standard_normal((5, 400)) + 80 for _ in range(3)]
    clients[1][0, :5] = 3000  # a few wild numbers do not count
    names = ("pulse", "temperature", "c", "d", "e")
    (line,) = found(*clients, names=names)
    middle = pooled([spreads(Y) for Y in clients])
    factor, small, large = (f"{x:.2g}" for x in (middle[0] / middle[1], middle[1], middle[0]))
    assert middle[0] == pytest.approx(15, rel=0.1), "whatever the wild numbers"
    assert line.startswith(
        f"the spreads of the features differ by a factor of {factor} (feature 2 ('temperature'): {small}, "
        f"feature 1 ('pulse'): {large}); if they are in different units, set data.divide_by"
    )
    for told in ({"divide_by": "1"}, {"whiten": True}, {"scale": "features"}):
        assert found(*clients, data=DataSettings(source="files", **told)) == []
    assert found(*clients, data=DataSettings(source="files", window=16)) != []
    assert found(*clients, data=DataSettings(source="files", scale="client")) != []
    assert found(*(Y[:4] for Y in clients), shape=(2, 2)) == [], "pixels are of one kind"
    assert found(*(np.tile(Y, (12, 1)) for Y in clients)) == [], "and so are many features"
    assert found(*(Y[2:] for Y in clients)) == []


def test_constants_are_the_spreads_of_the_median_client_in_two_digits():
    Y = np.array([[15.0], [0.4], [1234], [0]]) * RNG.standard_normal((4, 20_000)) + 7
    np.testing.assert_allclose(spreads(Y), [15, 0.4, 1234, 0], rtol=0.03)
    rare = (RNG.random(1000) < 0.02) * 1.0
    np.testing.assert_allclose(spreads(np.vstack([rare, 1e200 * rare])), [1, 1e200])
    middle = pooled([np.array([1, 2, 0.0, 0]), np.array([1.26, 4, 3, 0]), np.array([700, 0.0377, 0, 0])])
    np.testing.assert_allclose(middle, [1.26, 2, 3, 0])
    assert suggested_divide_by(middle) == "1.3, 2, 3, 1"
    assert suggested_divide_by(pooled([])) == suggested_divide_by(pooled([np.ones(2), np.ones(3)])) == ""


def test_a_channel_that_carries_nearly_all_is_seen_in_windows():
    Y = np.tile([[1.0], [9], [1]], (16, 100)) * RNG.standard_normal((48, 100))
    assert largest_feature_share(Y) < 0.2
    assert largest_feature_share(Y, 3) == pytest.approx((Y[1::3] ** 2).sum() / (Y**2).sum())


def test_a_deployed_client_hears_of_its_series_and_images(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)

    def heard(array):
        np.save("samples.npy", array)
        notes = []
        told, _ = node_config("ada", tmp_path / "samples.npy", "rows", None, None, on_warning=notes.append)
        return told, notes

    images = RNG.random((30, 8, 8))
    images[4] = -999
    assert "ada holds -999" in heard(images)[1][0]
    assert heard(RNG.random((30, 8, 8)))[1] == []
    told, notes = heard(RNG.standard_normal((300, 3)) * [1, 100, 1])
    assert notes == [], "what the run does to them is not known yet"
    for override, said in (("data.window=16", True), ("data.divide_by=1, 100, 1", False)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "perdl"):
            load_data(Identity.of(told), load_settings(None, ["data.source=files", override]))
        assert ("the spreads of the features differ" in caplog.text) == said
