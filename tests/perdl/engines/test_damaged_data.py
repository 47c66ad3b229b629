"""Missing entries, outliers and agreed scales through whole runs: files, arrays, engines, messages, resume."""

import json

import numpy as np
import pytest

import perdl
from common.dictionaries import dictionary_distance
from common.errors import DataError, PerdlError, SettingsError
from common.protocol import SCALE, unpack
from common.settings import settings_from_values
from common.synthetic import generate
from perdl.check.files import check
from perdl.cli.app import app
from perdl.engines.in_process import run_in_process
from perdl_client.app import app as client_app
from perdl_server.app import app as server_app

UNITS = np.array([0.4, 15, 2, 0.8, 6, 1.2, 3, 10])
OPTIONS = {"n_atoms": 6, "threshold": 0.33, "threshold_unit": "rms", "warmup_threshold": 1.4, "rounds": 12}
N = 4


def truth(i):
    return generate(0, f"client-{i + 1}", n_features=8, n_global=3, n_local=3, n_samples=250, noise=0.02)


@pytest.fixture
def in_units(tmp_path):
    folder = tmp_path / "samples"
    folder.mkdir()
    data = {f"client-{i + 1}": (truth(i).data * UNITS[:, None]).T for i in range(N)}
    for name, X in data.items():
        np.savetxt(folder / f"{name}.csv", X, delimiter=",", fmt="%.17g")
    return folder, data


@pytest.fixture
def with_empty_cells(tmp_path):
    """Four files with 5 % empty cells; the second lacks the third feature."""
    folder = tmp_path / "holes"
    folder.mkdir()
    for i in range(N):
        X, rng = truth(i).data.T.copy(), np.random.default_rng(i)
        X[rng.random(X.shape) < 0.05] = np.nan
        if i == 1:
            X[:, 2] = np.nan
        words = ["", "NA", "nan"]
        lines = [",".join(words[(i + j) % 3] if np.isnan(x) else f"{x:.12g}" for j, x in enumerate(row)) for row in X]
        head = ",".join("abcdefgh")
        (folder / f"client-{i + 1}.csv").write_text("\n".join([head, *lines]) + "\n")
    return folder


def simulated(folder, output, **data):
    settings = {**OPTIONS, "n_clients": N, "data": {"source": "files", "path": str(folder), **data}}
    return perdl.simulate(settings=settings, output=str(output))


def test_files_with_empty_cells_are_learnt_from_and_filled_in(with_empty_cells, tmp_path):
    with pytest.raises(DataError, match=r'is empty.*data.missing = "mask"'):
        simulated(with_empty_cells, tmp_path / "refused")
    run = simulated(with_empty_cells, tmp_path / "run", missing="mask")
    assert dictionary_distance(run.global_dictionary, truth(0).global_dictionary) < 0.02
    out = tmp_path / "filled.npy"
    app(
        [
            "reconstruct",
            str(tmp_path / "run/clients/client-2"),
            str(with_empty_cells / "client-2.csv"),
            "--output",
            str(out),
        ],
        standalone_mode=False,
    )
    filled = np.load(out)
    assert np.isfinite(filled).all()
    # The feature that client-2 never measured follows from the others and the shared atoms.
    assert np.corrcoef(filled[:, 2], truth(1).data[2])[0, 1] > 0.8


def test_check_says_what_is_missing(with_empty_cells):
    files = sorted(with_empty_cells.iterdir())
    asked = settings_from_values({"data": {"source": "files", "path": str(with_empty_cells)}})
    assert all('data.missing = "mask"' in problem for problem in check(files, asked).problems)
    masked = settings_from_values({"data": {"source": "files", "path": str(with_empty_cells), "missing": "mask"}})
    report = check(files, masked, str(with_empty_cells))
    assert not report.problems
    assert any(note.startswith("missing at client-1") for note in report.notes)
    assert report.suggested["data.missing"] == "mask"
    assert 'missing = "mask"' in report.toml()


def test_infinite_numbers_are_refused_all_the_same(with_empty_cells, tmp_path):
    file = with_empty_cells / "client-1.csv"
    file.write_text(file.read_text() + "1,2,3,4,5,6,7,inf\n")
    with pytest.raises(DataError, match="has 1 infinite of"):
        simulated(with_empty_cells, tmp_path / "run", missing="mask")


def test_arrays_with_nan_are_learnt_from():
    rng = np.random.default_rng(0)
    data = {f"client-{i + 1}": truth(i).data.T.copy() for i in range(N)}
    for X in data.values():
        X[rng.random(X.shape) < 0.1] = np.nan
    with pytest.raises(ValueError, match='missing="mask"'):
        perdl.PerDL(**OPTIONS).fit(data)
    model = perdl.PerDL(**OPTIONS, missing="mask", center=True, scale="client").fit(data)
    assert dictionary_distance(model.global_components_.T, truth(0).global_dictionary) < 0.05
    X = data["client-1"]
    assert np.isfinite(model.transform(X, "client-1")).all()
    assert np.isfinite(model.reconstruct(X, "client-1", 3)).all()
    assert 0.8 < model.score(X, "client-1") <= 1
    assert np.isfinite(model.anomaly_score(X, "client-1")).all()
    model.add_client(X[:100], "new")
    assert np.isfinite(model.usage_["new"]).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"whiten": True}, "whiten=True: needs complete"),
        ({"learner": "gradient"}, 'must be "omp" with learner = "gradient"'),
    ],
)
def test_settings_that_cannot_work_with_missing_entries_are_refused(options, words):
    data = [truth(i).data.T.copy() for i in range(2)]
    data[1][0, 0] = np.nan
    with pytest.raises(PerdlError, match=words):
        perdl.PerDL(**OPTIONS, missing="mask", **options).fit(data)


def test_outliers_are_masked_before_centring():
    data = [truth(i).data.T.copy() for i in range(N)]
    for i, X in enumerate(data):
        wild = np.random.default_rng(i).random(X.shape) < 0.01
        X[wild] = 1e3
    model = perdl.PerDL(**OPTIONS, outliers="mask", center=True).fit(data)
    assert dictionary_distance(model.global_components_.T, truth(0).global_dictionary) < 0.02


def test_an_agreed_scale_is_found_and_used_and_gives_the_bits_of_divide_by(in_units, tmp_path):
    folder, data = in_units
    run = simulated(folder, tmp_path / "run", site_scale="agree")
    scale = run.summary["agreed_scale"]
    ratio = np.array(scale) / UNITS
    assert ratio.max() / ratio.min() < 1.6
    by_hand = simulated(folder, tmp_path / "by hand", divide_by=", ".join(map(repr, scale)))
    np.testing.assert_array_equal(run.global_dictionary, by_hand.global_dictionary)
    assert "agreed_scale" not in by_hand.summary
    model = perdl.PerDL(**OPTIONS, site_scale="agree").fit(data)
    np.testing.assert_array_equal(model.global_components_.T, run.global_dictionary)
    more = perdl.PerDL(**{**OPTIONS, "rounds": 5}, site_scale="agree").fit(data).partial_fit(data, rounds=7)
    np.testing.assert_array_equal(more.global_components_, model.global_components_)
    in_file = D_in_units = model.inverse_transform(model.transform(data["client-1"], "client-1"), "client-1")
    assert np.linalg.norm((in_file - data["client-1"]) / UNITS) < 0.5 * np.linalg.norm(data["client-1"] / UNITS)
    assert D_in_units.shape == data["client-1"].shape


def test_the_sums_are_all_that_travels_for_the_scale(tmp_path):
    sent = []
    text = {"n_clients": 3, "rounds": 2, "output": str(tmp_path), "data": {"site_scale": "agree"}}
    run_in_process(server_app, client_app, settings_from_values(text), record=sent.append)
    mine = [unpack(m.content) for m in sent if m.metadata.message_type == SCALE]
    answers = [p for p in mine if "client" in p.scalars]
    assert len(mine) == 2 * len(answers) == 6
    for payload in answers:
        assert set(payload.scalars) == {"client", "protocol"}
        assert {key: a.shape for key, a in payload.arrays.items()} == {"counts": (6,), "squares": (6,)}
    later = [unpack(m.content).scalars.get("settings") for m in sent if m.metadata.message_type == "train.initialise"]
    told = [json.loads(text)["data"] for text in later if text]
    assert all(one["site_scale"] == "none" and len(one["divide_by"].split(",")) == 6 for one in told)


def test_two_ways_to_set_a_scale_are_refused():
    with pytest.raises(SettingsError, match="set one of them"):
        settings_from_values({"data": {"site_scale": "agree", "divide_by": "2"}})
