"""What preprocessing declares holds of its result, and undoing it gives the samples back."""

from __future__ import annotations

import numpy as np
import pytest

from common.coders import OMP, HardThreshold, TopK
from common.data_settings import DataSettings
from common.errors import DataError, PerdlError, SettingsError
from common.settings import settings_from_values
from perdl_client.data.load import load_data
from perdl_client.data.preprocessing import PREPROCESSING, Preprocessing, fit_preprocessing
from perdl_client.data.windows_patches import Cut
from perdl_client.identity import Identity
from perdl_client.learning.measures import measured
from perdl_client.model import ClientModel, load_model, save_model

rng = np.random.default_rng(0)
Y = np.array([[1.0], [20.0], [0.3], [4.0]]) * rng.standard_normal((4, 500)) + np.array([[5.0], [0.0], [-3.0], [1.0]])


def fitted(samples=Y, **data):
    preprocessing = fit_preprocessing(samples, DataSettings(source="files", **data), "ada")
    return preprocessing, preprocessing.apply(samples)


EVERY = [
    {},
    {"center": True},
    {"scale": "client"},
    {"center": True, "scale": "features"},
    {"divide_by": "1, 20, 0.3, 4"},
    {"center": True, "whiten": True},
    {"center": True, "divide_by": "1, 20, 0.3, 4", "scale": "client", "whiten": True},
]


@pytest.mark.parametrize("data", EVERY, ids=str)
def test_undo_gives_the_samples_back_and_parts_add_up(data):
    preprocessing, Z = fitted(**data)
    assert np.allclose(preprocessing.undo(Z), Y, rtol=1e-10, atol=1e-10)
    part = rng.standard_normal(Z.shape)
    assert np.allclose(preprocessing.undo(Z - part) + preprocessing.undo_part(part), Y, rtol=1e-10, atol=1e-9)
    again = Preprocessing.of(preprocessing.arrays())
    assert np.array_equal(again.apply(Y), Z)


def test_nothing_declared_leaves_the_bits_as_they_are():
    assert np.array_equal(fitted()[1], Y)
    assert np.array_equal(fitted(center=True)[1], Y - Y.mean(axis=1, keepdims=True))


def test_each_does_what_it_is_called():
    assert np.allclose(fitted(center=True)[1].mean(axis=1), 0, atol=1e-12)
    assert np.isclose(np.sqrt(np.mean(fitted(scale="client")[1] ** 2)), 1)
    assert np.allclose(fitted(center=True, scale="features")[1].std(axis=1), 1)
    assert np.allclose(fitted(divide_by="2")[1], Y / 2)
    assert np.allclose(fitted(divide_by="1, 2, 3, 4")[1], Y / np.arange(1, 5)[:, None])
    Z = fitted(center=True, divide_by="1, 20, 0.3, 4", whiten=True)[1]
    assert np.allclose(Z @ Z.T / Z.shape[1], np.eye(4), atol=5e-3)


def test_whitening_equals_the_inverse_square_root_of_the_second_moment():
    from scipy.linalg import inv, sqrtm

    preprocessing, _ = fitted(center=True, whiten=True)
    C = np.cov(Y, bias=True)
    assert np.allclose(
        preprocessing.numbers["whitener"], inv(sqrtm(C + 1e-3 * np.trace(C) / 4 * np.eye(4))).real, rtol=1e-6
    )


def test_constant_features_are_dropped_to_zero_and_given_back():
    held = Y.copy()
    held[2] = 7.5
    preprocessing, Z = fitted(held, drop_constant=True)
    assert not Z[2].any()
    assert np.array_equal(Z[[0, 1, 3]], held[[0, 1, 3]])
    assert np.array_equal(preprocessing.undo(Z), held)
    assert np.isfinite(fitted(held, center=True, scale="features")[1]).all()


def test_constants_serve_the_channels_of_windows():
    preprocessing = fit_preprocessing(
        np.ones((6, 9)), DataSettings(source="files", window=3, divide_by="2, 4"), "ada", 2
    )
    assert np.array_equal(preprocessing.apply(np.ones((6, 1))).ravel(), [0.5, 0.25] * 3)


def test_every_setting_that_preprocesses_is_obeyed_by_one_step():
    obeyed = [name for step in PREPROCESSING.values() for name in step.settings]
    obeyed.append("site_scale")  # it becomes divide_by before a client is asked for its first dictionary
    assert sorted(obeyed) == sorted(DataSettings.preprocessing_settings())


def test_a_model_whose_step_is_not_registered_is_refused():
    with pytest.raises(PerdlError, match=r"preprocessed by 'log', which is not in PREPROCESSING: register it first"):
        Preprocessing.of({"steps": np.array(["log"]), "log": np.ones(1)})


def test_float32_stays_float32():
    data = {"center": True, "divide_by": "1, 20, 0.3, 4", "scale": "client", "whiten": True}
    preprocessing, Z = fitted(Y.astype(np.float32), **data)
    assert Z.dtype == np.float32 == preprocessing.undo(Z).dtype


def test_what_cannot_be_done_is_said_with_the_cure():
    for wrong in ("1, two", "1, 0, 1, 1", "0", "nan", "inf", "", "1,,2", "-1"):
        with pytest.raises(SettingsError, match=rf'^data.divide_by: "{wrong}" must be positive numbers with commas'):
            settings_from_values({"data": {"source": "files", "path": "x", "divide_by": wrong}})
    with pytest.raises(SettingsError, match=r"data.divide_by has 3 numbers, ada has 4 features: give one for each"):
        fitted(divide_by="1, 2, 3")
    with pytest.raises(SettingsError, match=r"5 numbers, ada has 4 features: give one for each$"):
        fitted(divide_by="1, 2, 3, 4, 5")
    with pytest.raises(SettingsError, match=r"ada has 4 features: .* or leave out a column .* \(data.drop;"):
        fit_preprocessing(Y, DataSettings(source="files", divide_by="1, 2, 3"), "ada", len(Y))
    with pytest.raises(DataError, match=r"ada: all samples are zero or equal"):
        fitted(np.zeros((2, 3)), scale="client")
    for wrong in ({"window": 3, "patch": 3}, {"stride": 2}, {"scale": "robust"}):
        with pytest.raises(SettingsError):
            settings_from_values({"data": {"source": "files", "path": "x", **wrong}})
    with pytest.raises(SettingsError, match=r"window = 3: is for time series in files"):
        settings_from_values({"data": {"window": 3}})


def model(coder, whiten=False, names=()):
    preprocessing, Z = fitted(center=True, divide_by="1, 20, 0.3, 4", whiten=whiten)
    D = np.linalg.qr(rng.standard_normal((4, 4))).Q
    cut, measures = Cut("", 0, 0, (4,)), {"error": 0.25, "n_samples": 50}
    return ClientModel(D[:, :2], D[:, 2:3], preprocessing, coder, cut, names, np.array([0.5, 0, 0.25]), measures), Z


@pytest.mark.parametrize("coder", [HardThreshold(0.5), TopK(2), OMP(1)], ids=str)
@pytest.mark.parametrize("whiten", [False, True])
def test_a_model_is_the_same_after_it_was_saved(tmp_path, coder, whiten):
    one, _ = model(coder, whiten, ("a", "b", "c", "d"))
    save_model(one, tmp_path)
    other = load_model(tmp_path)
    assert (other.coder, other.cut, other.names, other.measures) == (one.coder, one.cut, one.names, one.measures)
    assert np.array_equal(other.usage, one.usage)
    for method in ("encode", "unshared_energy", "explained"):
        assert np.array_equal(getattr(other, method)(Y), getattr(one, method)(Y)), method
    assert np.array_equal(other.reconstruct(Y, 2), one.reconstruct(Y, 2))


def test_split_and_shares_add_up():
    one, Z = model(HardThreshold(0.5))
    shared, own = one.split(Y)
    assert np.allclose(shared + own, one.decode(one.encode(Y)))
    X = one.encode(Y)
    found = measured(Z, one.dictionary, one.coder, 2)
    s, o = found.shared, found.own
    size = np.linalg.norm(Z) ** 2
    # Orthonormal atoms: the energy of their codes is what they explain.
    assert np.isclose(s, np.linalg.norm(X[:2]) ** 2 / size)
    assert np.isclose(o, np.linalg.norm(X[2:]) ** 2 / size)
    assert np.isclose(one.explained(Y), s + o)
    assert np.isclose(1 - s - o, np.linalg.norm(Z - one.dictionary @ X) ** 2 / size)
    nothing = measured(np.zeros((4, 2)), one.dictionary, one.coder, 2)
    assert (nothing.shared, nothing.own) == (1.0, 0.0)


def test_what_is_no_model_is_said(tmp_path):
    with pytest.raises(PerdlError, match=r"No such file .*; give a client's folder"):
        load_model(tmp_path)
    np.savez(tmp_path / "dictionary.npz", dictionary=np.ones((2, 2)))
    with pytest.raises(PerdlError, match=r"is not a client's model"):
        load_model(tmp_path)


def test_constants_may_be_written_as_numbers():
    for given, text in [
        (2, "2"),
        (0.1, "0.1"),
        ([1, 200, 0.5], "1, 200, 0.5"),
        ((1 / 3, 2), f"{1 / 3!r}, 2"),
        ("1,2", "1,2"),
    ]:
        assert DataSettings(source="files", divide_by=given).divide_by == text
    for wrong in (True, [], ["a"], {"a": 1}):
        with pytest.raises(ValueError, match="divide_by"):
            DataSettings(source="files", divide_by=wrong)


@pytest.mark.parametrize(
    "data", [{"center": True}, {"scale": "features"}, {"center": True, "scale": "features"}], ids=str
)
def test_what_is_constant_leaves_no_rounding_behind(data):
    """The mean of 0.1, taken a thousand times, is off by 1e-17, which is nothing to be learnt from."""
    held = np.vstack([rng.standard_normal((2, 1000)), np.full((1, 1000), 0.1)])
    preprocessing, Z = fitted(held, **data)
    assert preprocessing.numbers["scale"][2] == 1
    assert set(np.unique(Z[2])) == ({0.0} if "center" in data else {0.1})
    assert not fitted(np.tile([[0.1], [0.2], [0.3]], 50), **{**data, "center": True})[1].any()


def test_channels_are_those_of_windows_and_colours():
    assert Cut("window", 8, 8, (3,)).channels == 3
    assert Cut("patch", 4, 4, (9, 9)).channels == 1
    assert Cut("patch", 4, 4, (9, 9, 3)).channels == 3
    assert Cut("", 0, 0, (9, 9, 3)).channels == 3
    assert Cut("", 0, 0, (9,)).channels == 9
    with pytest.raises(DataError, match="needs a time series, but a sample is an image of 5 x 7"):
        Cut("window", 2, 2, (5, 7)).apply(np.zeros((4, 35)))


@pytest.mark.parametrize(
    ("factor", "dtype", "data", "words"),
    [
        (1e80, "float64", {}, "has values up to .*, too large for float64: rescale them"),
        (1e-170, "float64", {"scale": "client"}, "has values of .* at most, too small for float64: rescale them"),
        (
            1e65,
            "float64",
            {"divide_by": "1e-18"},
            r"once preprocessed, values up to .*, too large .* look at data.divide_by",
        ),
        (1, "float32", {"divide_by": "1e-18"}, "once preprocessed, values up to .*, too large for float32"),
        (1e-140, "float64", {"divide_by": "1e18"}, "once preprocessed, values of .* at most, too small"),
    ],
)
def test_numbers_beyond_what_can_be_squared_are_told_at_the_right_place(
    tmp_path, monkeypatch, factor, dtype, data, words
):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    np.save(tmp_path / "a.npy", Y.T * factor)
    settings = settings_from_values({"dtype": dtype, "data": {"source": "files", **data}})
    with pytest.raises(DataError, match=words):
        load_data(Identity.of({"name": "ada", "data": str(tmp_path / "a.npy")}), settings)
