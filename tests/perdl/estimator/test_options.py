"""The estimator's presets, progress, frames, scores over all clients and held-out samples."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

import perdl
from common.errors import PerdlError, SettingsError
from common.synthetic import generate
from perdl import PerDL, cross_validate

FAST = {"n_global": 2, "n_atoms": 4, "n_restarts": 2, "rounds": 3}


def draw(name, n=60):
    made = generate(0, name, n_features=8, n_global=2, n_local=2, n_samples=n, sparsity=0.25)
    return np.ascontiguousarray(made.data.T)


DATA = {name: draw(name) for name in ("ada", "bob", "cy")}


@pytest.fixture(scope="module")
def model():
    return PerDL(**FAST).fit(DATA)


def test_a_preset_gives_what_is_not_given():
    one = PerDL(preset="files", threshold=0.15, rounds=2)
    told = one.get_params()
    assert {key: told[key] for key in ("n_global", "threshold", "threshold_unit", "warmup_threshold", "center")} == {
        "n_global": "auto",
        "threshold": 0.15,  # given, though it is the default
        "threshold_unit": "rms",
        "warmup_threshold": 2.0,
        "center": True,
    }
    assert (one.rounds, one.output, one.seed) == (2, None, 0)
    assert repr(one) == "PerDL(rounds=2, threshold=0.15, preset='files')"
    assert eval(repr(one)).get_params() == told
    assert PerDL(3, preset="files").n_global == 3
    assert (
        PerDL().set_params(preset="mnist-best", n_global=7).get_params() == PerDL(7, preset="mnist-best").get_params()
    )


def test_a_preset_is_learnt_with_and_copied(tmp_path):
    given = {"n_global": "auto", "threshold": 0.5, "threshold_unit": "rms", "warmup_threshold": 2.0, "center": True}
    given["held_out"] = 0.2
    one = PerDL(preset="files", rounds=1).fit(DATA)
    np.testing.assert_array_equal(one.global_components_, PerDL(**given, rounds=1).fit(DATA).global_components_)
    (tmp_path / "mine.toml").write_text('n_global = 1\n[data]\nsource = "files"\nscale = "client"\n')
    mine = PerDL(preset=tmp_path / "mine.toml", **{**FAST, "n_global": 2}).fit(DATA)
    assert (mine.n_global, mine.scale) == (2, "client")
    mine.save(tmp_path / "m.npz")
    (tmp_path / "mine.toml").unlink()
    loaded = PerDL.load(tmp_path / "m.npz")
    assert loaded.scale == "client"
    assert "scale='client'" in repr(loaded)
    clone = pytest.importorskip("sklearn.base").clone
    assert clone(mine).get_params() == mine.get_params()


@pytest.mark.parametrize(
    ("preset", "words"),
    [("fils", "did you mean files"), ("surveillance", "is for videos; for arrays there are files, mnist, ")],
)
def test_a_preset_that_is_none_for_arrays(preset, words):
    with pytest.raises(SettingsError, match=words):
        PerDL(preset=preset)


def test_random_state_is_another_name_of_seed():
    options = {**FAST, "rounds": 1, "warmup_steps": 3}
    a, b = PerDL(**options, random_state=np.int64(5)).fit(DATA), PerDL(**options, seed=5).fit(DATA)
    np.testing.assert_array_equal(a.global_components_, b.global_components_)
    assert a.summary_["settings"]["seed"] == 5
    assert PerDL(**options, seed=5, random_state=5).fit(DATA).summary_["settings"]["seed"] == 5
    with pytest.raises(SettingsError, match="seed = 4 and random_state = 5: are two names of one"):
        PerDL(seed=4, random_state=5).fit(DATA)
    with pytest.raises(SettingsError, match="must be a whole number or None; draw one"):
        PerDL(random_state=np.random.RandomState(0)).fit(DATA)


@pytest.mark.parametrize(("verbose", "lines"), [(0, 0), (True, 2), (2, 4)])
def test_verbose_shows_the_run(capsys, verbose, lines):
    PerDL(**FAST, tolerance=0.0, verbose=verbose).fit(DATA)
    told = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("first dictionaries: ")]
    assert len(told) == lines
    if lines:
        assert told[0].startswith("round 1 of 3")
        assert re.fullmatch(r"3 rounds in \d+\.\d s: rounds", told[-1])


def test_weights_are_refused_in_a_line():
    for fit in (PerDL().fit, PerDL().partial_fit):
        with pytest.raises(TypeError, match="PerDL has no sample_weight: all samples of a client count the same"):
            fit(DATA, sample_weight=[1.0])
        with pytest.raises(TypeError, match="no parameter 'epochs'"):
            fit(DATA, epochs=3)


def test_codes_have_names(model):
    names = ["global0", "global1", "local0", "local1"]
    assert model.get_feature_names_out().tolist() == names
    odd = PerDL(**FAST, clients={"bob": {"n_atoms": 5}}).fit(DATA)
    assert odd.get_feature_names_out(client="bob").tolist() == [*names, "local2"]
    with pytest.raises(ValueError, match=r"different numbers of local atoms \(ada 2, bob 3, cy 2\): give client=NAME"):
        odd.get_feature_names_out()


def test_codes_come_as_the_frames_that_are_wanted(model):
    sklearn, base = pytest.importorskip("sklearn"), pytest.importorskip("sklearn.base")
    pandas = pytest.importorskip("pandas")
    codes = model.transform(DATA["ada"], "ada")
    one = PerDL(**FAST).set_output(transform="pandas").fit(DATA)
    index = [f"row {i}" for i in range(60)]
    frame = one.transform(pandas.DataFrame(DATA["ada"], index=index), "ada")
    assert isinstance(frame, pandas.DataFrame)
    assert (list(frame.index), list(frame.columns)) == (index, one.get_feature_names_out().tolist())
    np.testing.assert_array_equal(frame.to_numpy(), codes)
    assert isinstance(base.clone(one).fit(DATA).transform(DATA["ada"], "ada"), pandas.DataFrame)
    one.set_output(transform="default")
    with sklearn.config_context(transform_output="pandas"):
        assert isinstance(one.transform(DATA["ada"], 0), np.ndarray)
        assert isinstance(model.transform(DATA["ada"], 0), pandas.DataFrame)
    with pytest.raises(SettingsError, match="transform = 'arrow': must be 'default', 'pandas' or 'polars'"):
        one.set_output(transform="arrow")


def test_a_frame_that_is_not_installed_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(SettingsError, match="polars is not installed; pip install polars"):
        PerDL().set_output(transform="polars")


def test_polars_lazy_or_not(model):
    polars = pytest.importorskip("polars")
    frames = {name: polars.DataFrame(X, schema=list("abcdefgh")) for name, X in DATA.items()}
    one = PerDL(**FAST).set_output(transform="polars").fit({name: frame.lazy() for name, frame in frames.items()})
    assert one.feature_names_in_.tolist() == list("abcdefgh")
    np.testing.assert_array_equal(one.global_components_, model.global_components_)
    codes = one.transform(frames["ada"].lazy(), "ada")
    assert isinstance(codes, polars.DataFrame)
    np.testing.assert_array_equal(codes.to_numpy(), model.transform(DATA["ada"], "ada"))
    assert cross_validate(PerDL(**FAST), frames, cv=2)["test_score"].shape == (2,)


def test_a_lazy_frame_is_collected(model):
    class LazyFrame:
        def collect(self):
            return DATA["ada"]

    LazyFrame.__module__ = "polars.lazyframe.frame"
    assert model.score(LazyFrame(), "ada") == model.score(DATA["ada"], "ada")


def test_fitting_imports_no_frames():
    code = (
        "import sys, numpy as np, perdl; X = np.random.default_rng(0).normal(size=(40, 4));"
        "m = perdl.PerDL(1, rounds=0).fit([X, X]); m.transform(X, 0);"
        "print([m for m in ('pandas', 'polars', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


def test_score_of_all_clients_is_the_mean_of_theirs(model):
    each = [model.score(X, name) for name, X in DATA.items()]
    assert model.score(DATA) == pytest.approx(np.mean(each), abs=1e-15)
    assert model.score(list(DATA.values())) == model.score(DATA)
    assert model.score({"bob": DATA["bob"]}) == each[1]
    unequal = {**DATA, "ada": DATA["ada"][:5] * 3 + 1}
    expected = np.mean([model.score(X, name) for name, X in unequal.items()])
    assert model.score(unequal) == pytest.approx(expected, abs=1e-15)
    for wrong in (DATA["ada"], [DATA["ada"]], {}):
        with pytest.raises(ValueError, match=r"and no client: give score\(X, client\), or a data set for"):
            model.score(wrong)


def test_held_out_samples_are_scored():
    found = cross_validate(PerDL(**FAST), DATA, cv=3, return_train_score=True)
    assert {key: value.shape for key, value in found.items()} == dict.fromkeys(
        ("fit_time", "score_time", "test_score", "train_score"), (3,)
    )
    again = cross_validate(PerDL(**FAST), dict(reversed(DATA.items())), cv=3)
    np.testing.assert_array_equal(found["test_score"], again["test_score"])
    assert (found["test_score"] > 0.9).all()


def test_each_sample_is_held_out_once_and_stays_with_its_client(tmp_path):
    marked = {name: np.column_stack([X, np.arange(60) + 1000 * (i + 1)]) for i, (name, X) in enumerate(DATA.items())}
    seen = []

    def scoring(model, datasets):
        seen.append({name: X[:, -1] for name, X in datasets.items()})
        return 0.0

    class Still(PerDL):
        def fit(self, datasets, y=None):
            assert self.output is None
            return self

    for state in (0, None):
        seen.clear()
        cross_validate(Still(output=tmp_path), marked, cv=7, random_state=state, scoring=scoring)
        for i, name in enumerate(DATA):
            held_out = np.concatenate([part[name] for part in seen])
            assert sorted(held_out) == list(range(1000 * (i + 1), 1000 * (i + 1) + 60))
            assert (np.diff(held_out) > 0).all() == (state is None)
            assert {len(part[name]) for part in seen} == {8, 9}


def test_a_grid_is_compared():
    found = cross_validate(PerDL(**FAST), DATA, cv=2, param_grid={"n_atoms": [4, 2], "center": [False]})
    assert found["params"] == [{"n_atoms": 4, "center": False}, {"n_atoms": 2, "center": False}]
    assert found["rank_test_score"].tolist() == [1, 2]
    assert found["mean_test_score"][0] > 0.9 > found["mean_test_score"][1]
    np.testing.assert_allclose(found["mean_test_score"], (found["split0_test_score"] + found["split1_test_score"]) / 2)


def test_splitters_of_scikit_learn_part_each_clients_samples():
    splitter = pytest.importorskip("sklearn.model_selection").TimeSeriesSplit(2)
    assert cross_validate(PerDL(**FAST), DATA, cv=splitter)["test_score"].shape == (2,)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cv": 61}, "ada: 60 samples, fewer than cv = 61 parts"),
        ({"cv": 1}, "cv = 1: must be a whole number, at least 2"),
        ({"param_grid": {"n_atoms": 4}}, r"param_grid\['n_atoms'\] = 4: must be a list"),
        ({"param_grid": {"atoms": [4]}}, "no parameter 'atoms'"),
    ],
)
def test_wrong_ways_to_validate(options, words):
    with pytest.raises((PerdlError, ValueError), match=words):
        cross_validate(PerDL(**FAST), DATA, **options)


def test_errors_are_said_in_the_names_of_parameters():
    with pytest.raises(PerdlError, match=r"^divide_by has 3 numbers, ada has 8 features: give one for each$"):
        PerDL(divide_by="1, 2, 3").fit(DATA)
    with pytest.raises(SettingsError, match=r"^scale = 'big': must be"):
        PerDL(scale="big").fit(DATA)
    assert perdl.cross_validate is cross_validate
