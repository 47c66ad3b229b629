"""The estimator: the bits of `perdl simulate`, scikit-learn's conventions, what it says of samples."""

from __future__ import annotations

import itertools
import json
import pickle
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import perdl
from common.data_settings import DataSettings, EvaluationSettings
from common.dictionaries import dictionary_distance
from common.errors import DataError, PerdlError, SettingsError
from common.learning_settings import LearningSettings
from common.settings import Settings, settings_from_values
from common.synthetic import generate, true_global_dictionary
from perdl import PerDL
from perdl.cli.app import app
from perdl.engines.run import simulate
from perdl.estimator import fitted
from perdl.estimator.array_settings import DATA_PARAMETERS, EVALUATION_PARAMETERS, NO_SETTINGS, in_python
from perdl.perma import adapt
from perdl_client.learning.client import ClientLearner
from perdl_client.learning.evaluation import evaluate_client

ROOT = Path(__file__).resolve().parents[3]
D, R_G, R_L = 8, 2, 2
FAST = {"n_global": R_G, "n_atoms": R_G + R_L, "n_restarts": 3}
SHARED = true_global_dictionary(0, D, R_G)


def draw(name: str) -> np.ndarray:
    """Samples in rows: two shared atoms, two of the client's own."""
    made = generate(0, name, n_features=D, n_global=R_G, n_local=R_L, n_samples=120, sparsity=0.25)
    return np.ascontiguousarray(made.data.T)


DATA = {name: draw(name) for name in ("ada", "bob", "cy")}


@pytest.fixture(scope="module")
def model() -> PerDL:
    return PerDL(**FAST).fit(DATA)


def same(a: PerDL, b: PerDL) -> bool:
    alike = np.array_equal(a.global_components_, b.global_components_) and a.client_names_ == b.client_names_
    return alike and all(
        np.array_equal(a.local_components_[x], b.local_components_[y])
        for x, y in zip(a.client_names_, b.client_names_, strict=True)
    )


class Frame:
    """As much of a data frame as the estimator looks at."""

    def __init__(self, rows, columns):
        self._rows, self.columns = rows, columns

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self._rows, dtype)


@pytest.mark.parametrize("options", [{}, {"center": True, "aggregation": "procrustes", "threshold_unit": "rms"}])
def test_gives_the_bits_of_perdl_simulate_on_the_same_files(tmp_path, options):
    for i, X in enumerate(DATA.values(), start=1):
        np.save(tmp_path / f"{i}.npy", X)
    learning = {key: value for key, value in options.items() if key != "center"}
    data = {"source": "files", "path": str(tmp_path / "*.npy"), "center": options.get("center", False)}
    settings = {**FAST, **learning, "n_clients": 3, "output": str(tmp_path / "run"), "data": data}
    summary = simulate(settings_from_values(settings))
    fitted = PerDL(**FAST, **options, output=tmp_path / "other").fit(list(DATA.values()))
    with np.load(tmp_path / "run" / "global_dictionary.npz") as file:
        np.testing.assert_array_equal(fitted.global_components_, file["dictionary"].T)
    for i, (name, X) in enumerate(zip(fitted.client_names_, DATA.values(), strict=True)):
        with np.load(tmp_path / "run" / "clients" / name / "dictionary.npz") as file:
            np.testing.assert_array_equal(fitted.local_components_[name], file["local"].T)
        error = summary["clients"][name]["final_error"]
        assert fitted.score(X, i) == pytest.approx(1 - error**2, abs=5e-3 * error)  # told with three digits
    assert (fitted.n_rounds_, fitted.stop_reason_) == (summary["rounds"], summary["stop_reason"])
    assert fitted.path_lengths_.tolist() == summary["path_lengths"]
    assert [row["round"] for row in fitted.history_] == list(range(1, summary["rounds"] + 1))
    files = {path.relative_to(tmp_path / "run") for path in (tmp_path / "run").rglob("*.*")} - {Path("log.jsonl")}
    assert files <= {path.relative_to(tmp_path / "other") for path in (tmp_path / "other").rglob("*.*")}


def test_finds_what_is_shared_and_leaves_nothing_behind(model, tmp_path, monkeypatch):
    assert dictionary_distance(model.global_components_.T, SHARED) < 1e-8
    assert model.global_components_.shape == (R_G, D)
    assert {name: own.shape for name, own in model.local_components_.items()} == dict.fromkeys(DATA, (R_L, D))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert same(PerDL(**FAST).fit(dict(reversed(DATA.items()))).fit(DATA), model)
    PerDL(**FAST, rounds=1).fit(DATA).partial_fit(DATA)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(lambda X, path: np.asfortranarray(X), id="column order"),
        pytest.param(lambda X, path: np.repeat(X, 2, axis=0)[::2], id="strides"),
        pytest.param(lambda X, path: X.tolist(), id="lists"),
        pytest.param(lambda X, path: Frame(X, [f"f{i}" for i in range(D)]), id="data frame"),
        pytest.param(lambda X, path: np.save(path, X) or np.load(path, mmap_mode="r"), id="memory map"),
    ],
)
def test_takes_what_people_hold(model, tmp_path, given):
    held = {name: given(X, tmp_path / f"{name}.npy") for name, X in DATA.items()}
    assert same(PerDL(**FAST).fit(held), model)


def test_data_stay_as_they_are():
    held = {name: X.copy() for name, X in DATA.items()}
    for X in held.values():
        X.flags.writeable = False
    PerDL(**FAST, center=True, rounds=1).fit(held)
    assert all(np.array_equal(held[name], X) for name, X in DATA.items())


def test_pandas_frames():
    pandas = pytest.importorskip("pandas")
    frames = {name: pandas.DataFrame(X, columns=list("abcdefgh")) for name, X in DATA.items()}
    fitted = PerDL(**FAST, rounds=1).fit(frames)
    assert list(fitted.feature_names_in_) == list("abcdefgh")
    assert fitted.transform(frames["ada"], "ada").shape == (120, 4)
    with pytest.raises(ValueError, match="column 1 is 'h', but 'a' is expected"):
        fitted.transform(frames["ada"].iloc[:, ::-1], "ada")


def test_integer_names_missing_values_and_text_of_pandas_frames():
    pandas = pytest.importorskip("pandas")
    frames = {name: pandas.DataFrame(X) for name, X in DATA.items()}
    fitted = PerDL(**FAST, rounds=1).fit(frames)
    assert not hasattr(fitted, "feature_names_in_")
    with pytest.raises(ValueError, match="column 1 is '7', but '0' is expected"):
        fitted.score(frames["ada"].iloc[:, ::-1], "ada")
    named = {name: frame.rename(columns=lambda i: 400.5 + i) for name, frame in frames.items()}
    assert list(PerDL(**FAST, rounds=0).fit(named).feature_names_in_) == [str(400.5 + i) for i in range(D)]
    holes = named["ada"].astype("Float64")
    holes.iloc[3, 2] = pandas.NA
    with pytest.raises(ValueError, match=r"1 missing value \(NaN\) of \d+, the first in row 4, column 3 \('402.5'\)"):
        fitted.score(holes, "ada")
    with pytest.raises(ValueError, match="column 'sex' is not of numbers"):
        PerDL(**FAST).fit({**named, "ada": named["ada"].assign(sex="m")})


def test_names_of_features(tmp_path):
    columns = [f"f{i}" for i in range(D)]
    frames = {name: Frame(X, columns) for name, X in DATA.items()}
    fitted = PerDL(**FAST, rounds=0).fit(frames)
    assert fitted.n_features_in_ == D
    assert list(fitted.feature_names_in_) == columns
    fitted.save(tmp_path / "m.npz")
    assert list(PerDL.load(tmp_path / "m.npz").feature_names_in_) == columns
    with pytest.raises(ValueError, match="column 1 is 'f7', but 'f0' is expected"):
        fitted.transform(Frame(DATA["ada"], columns[::-1]), "ada")
    with pytest.raises(ValueError, match=r"bob: column 1 is 'f7', but 'f0'"):
        PerDL(**FAST).fit({**frames, "bob": Frame(DATA["bob"], columns[::-1])})
    assert not hasattr(fitted.fit(DATA), "feature_names_in_")


def test_parts_add_up(model):
    for client in ("ada", 0):
        X = DATA["ada"]
        codes = model.transform(X, client)
        shared, own = model.split(X, client)
        assert codes.shape == (len(X), R_G + R_L)
        np.testing.assert_allclose(model.inverse_transform(codes, client), X, atol=1e-7)
        np.testing.assert_allclose(shared + own, X, atol=1e-7)
        np.testing.assert_allclose(shared, X @ SHARED @ SHARED.T, atol=1e-7)
        assert model.score(X, client) > 1 - 1e-12
        np.testing.assert_allclose(model.reconstruct(X, client, k=4), X, atol=1e-7)
        np.testing.assert_allclose(model.anomaly_score(X, client), (own**2).sum(axis=1), atol=1e-7)


def test_reconstruct_uses_at_most_k_atoms_and_an_anomaly_stands_out(model):
    X = DATA["bob"]
    left = [np.linalg.norm(X - model.reconstruct(X, "bob", k=k)) for k in range(5)]
    assert left[0] == np.linalg.norm(X)
    assert all(more > less for more, less in itertools.pairwise(left))
    usual = SHARED[:, 0] * 2
    strange = usual + 3 * np.linalg.qr(SHARED, mode="complete").Q[:, 5]
    scores = model.anomaly_score([usual, strange], "bob")
    np.testing.assert_allclose(scores, [0, 9], atol=1e-6)


def test_a_mean_is_taken_off_and_given_back():
    moved = {name: X + 5 for name, X in DATA.items()}
    fitted = PerDL(**FAST, center=True, rounds=5).fit(moved)
    X = moved["cy"]
    codes = fitted.transform(X, "cy")
    shared, own = fitted.split(X, "cy")
    np.testing.assert_allclose(shared + own, fitted.inverse_transform(codes, "cy"), atol=1e-10)
    np.testing.assert_allclose(fitted.reconstruct(X, "cy", k=0), np.tile(X.mean(axis=0), (len(X), 1)))
    assert fitted.score(X, "cy") == pytest.approx(
        1 - fitted.summary_["clients"]["cy"]["final_error"] ** 2, abs=1e-4
    )  # told with three digits


def test_float32_stays_float32():
    fitted = PerDL(**FAST, dtype="float32", center=True, rounds=2).fit({k: np.float32(X) for k, X in DATA.items()})
    for array in (fitted.global_components_, fitted.transform(DATA["ada"], "ada"), *fitted.split(DATA["ada"], "ada")):
        assert array.dtype == np.float32


@pytest.mark.filterwarnings("ignore:.*no nearer")
@pytest.mark.parametrize(("through", "first"), [("memory", 0), ("pickle", 6), ("save", 6)])
def test_partial_fit_ends_on_the_bits_of_one_fit(tmp_path, through, first):
    # From this start a client restarts its local block in round 7, for what it saw in rounds 5 and 6.
    options = {**FAST, "n_restarts": 1, "warmup_steps": 5, "seed": 5, "tolerance": 0.0}
    whole = PerDL(**options, rounds=9).fit(DATA)
    part = PerDL(**options, rounds=first).fit(DATA)
    if through == "pickle":
        part = pickle.loads(pickle.dumps(part))
    elif through == "save":
        part.save(tmp_path / "part.npz")
        part = PerDL.load(tmp_path / "part.npz")
    part.partial_fit(DATA, rounds=9 - first)
    assert part.n_rounds_ == 9
    assert same(part, whole)
    assert [row["round"] for row in part.history_] == list(range(1, 10))


def test_usage_is_the_energy_of_each_atoms_codes(model, tmp_path):
    model.save(tmp_path / "model.npz")
    for one in (model, PerDL.load(tmp_path / "model.npz"), PerDL(**FAST).fit(DATA).add_client(draw("dan"), "dan")):
        for name, X in DATA.items() if "dan" not in one.client_names_ else {"dan": draw("dan")}.items():
            codes = one.transform(X, name)
            np.testing.assert_allclose(one.usage_[name], (codes**2).sum(axis=0) / (X**2).sum(), rtol=1e-12)


def test_partial_fit_wants_those_who_came_later_too_and_sees_what_was_unset(model):
    late = PerDL(**FAST).fit(DATA).add_client(draw("dan"), "dan")
    with pytest.raises(ValueError, match="needs the data of all clients of the model; dan is missing"):
        late.partial_fit(DATA)
    with pytest.raises(SettingsError, match="n_atoms = None, but was 8 when the run began"):
        PerDL(**{**FAST, "n_atoms": 8}).fit(DATA).set_params(n_atoms=None).partial_fit(DATA)
    with pytest.raises(SettingsError, match=r"^scale = 'client', but was 'none'"):
        PerDL(**FAST).fit(DATA).set_params(scale="client").partial_fit(DATA)


def test_partial_fit_begins_where_nothing_was_and_holds_to_its_run(model):
    assert same(PerDL(**FAST).partial_fit(DATA), model)
    part = PerDL(**FAST, rounds=1).fit(DATA)
    with pytest.raises(ValueError, match="cy is missing"):
        part.partial_fit({name: DATA[name] for name in ("ada", "bob")})
    with pytest.raises(SettingsError, match=r"threshold = 0\.2, but was 0\.15"):
        part.set_params(threshold=0.2).partial_fit(DATA)
    with pytest.raises(ValueError, match="ada: 7 features, but 8 are expected"):
        part.set_params(threshold=0.15).partial_fit({name: X[:, :7] for name, X in DATA.items()})


def test_who_comes_later_is_aligned(model):
    late = PerDL(**FAST).fit(DATA)
    before = late.global_components_.copy()
    late.add_client(draw("dan"), "dan")
    np.testing.assert_array_equal(late.global_components_, before)
    assert late.client_names_ == [*DATA, "dan"]
    assert late.score(draw("dan"), "dan") > 1 - 1e-6
    np.testing.assert_allclose(late.global_components_ @ late.local_components_["dan"].T, 0, atol=1e-10)
    with pytest.raises(ValueError, match="there is a client dan already"):
        late.add_client(draw("dan"), "dan")
    late.partial_fit({**DATA, "dan": draw("dan")}, rounds=10)
    assert late.client_names_ == [*DATA, "dan"]
    assert dictionary_distance(late.global_components_.T, SHARED) < 1e-8
    assert late.score(draw("dan"), "dan") > 1 - 1e-6


def test_a_newcomer_gives_up_the_atoms_that_are_shared():
    truth = generate(0, "eve", n_features=D, n_global=R_G, n_local=R_L, n_samples=120, sparsity=0.25)
    # Those are the last two of this client's start.
    learning = LearningSettings(n_atoms=R_G + R_L, local_restarts=0)
    for rounds, error in ((0, 0.2), (30, 1e-8)):  # a wrong choice may come right in the rounds, not before them
        own = adapt(ClientLearner(truth.data, learning, 0, "eve"), SHARED, rounds=rounds, tolerance=1e-12)
        assert dictionary_distance(own, truth.local_dictionary) < error


def near_atom(angle, noise=0.0, n=300):
    """A client's data, its atoms (the first is shared, the second at an angle to the second shared one), and D^g."""
    rng = np.random.default_rng(5)
    Q = np.linalg.qr(rng.standard_normal((D, D))).Q
    atoms = Q[:, :4]
    X = rng.uniform(0.3, 1, (4, n)) * rng.choice([-1, 1], (4, n)) * (rng.random((4, n)) < 0.25)
    D_g = np.stack([atoms[:, 0], np.cos(angle) * atoms[:, 1] + np.sin(angle) * Q[:, 5]], axis=1)
    return atoms @ X + noise * rng.standard_normal((D, n)), atoms, D_g


@pytest.mark.parametrize(("angle", "noise"), [(0.0, 0.0), (0.0, 0.05), (0.1, 0.0), (0.2, 0.01), (1.5, 0.0)])
def test_a_newcomer_shares_what_its_data_carry_and_leaves_what_they_contradict(angle, noise):
    """0.2 is nearer than chance, so that the first dictionary alone does not tell; what it learns afterwards does."""
    Y, atoms, D_g = near_atom(angle, noise)
    client = ClientLearner(Y, LearningSettings(n_atoms=4), 0, "eve")
    own = adapt(client, D_g, rounds=30, tolerance=1e-12, sharing="some")
    assert client.members.tolist() == [True, angle == 0]
    true = atoms[:, 2:] if angle == 0 else atoms[:, 1:]
    assert dictionary_distance(own, true) < (1e-8 if noise == 0 else 0.05)


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_newcomers_share_no_atom_that_they_lack(noise):
    """Three of them have an own atom nearer than chance to a shared one (numbers 8, 24 and 32)."""
    G, lacking = true_global_dictionary(3, D, 3), 0
    for i in (8, 24, 32, 1, 2):
        truth = generate(
            3, f"l{i}", n_features=D, n_global=3, n_local=3, n_samples=200, sparsity=0.2, absence=0.3, noise=noise
        )
        client = ClientLearner(truth.data, LearningSettings(), 0, f"x{i}")
        own = adapt(client, G, rounds=50, tolerance=1e-12, sharing="some")
        has = np.abs(G.T @ truth.global_dictionary).max(axis=1, initial=0) > 0.999
        np.testing.assert_array_equal(client.members, has)
        assert dictionary_distance(own, truth.local_dictionary) < (1e-8 if noise == 0 else 0.1)
        lacking += np.count_nonzero(~has)
    assert lacking >= 3


def test_without_rounds_a_newcomer_shares_what_is_nearer_than_chance():
    Y, _, D_g = near_atom(0.2)
    client = ClientLearner(Y, LearningSettings(n_atoms=4), 0, "eve")
    adapt(client, D_g, rounds=0, tolerance=1e-12, sharing="some")
    assert client.members.tolist() == [True, True]


def draw_some(name, seed=3):
    made = generate(seed, name, n_features=D, n_global=3, n_local=R_L, n_samples=150, sparsity=0.25, absence=0.3)
    return np.ascontiguousarray(made.data.T), made.global_dictionary


@pytest.fixture(scope="module")
def some():
    sites = {name: draw_some(name)[0] for name in ("ada", "bob", "cy", "dan", "eve")}
    return PerDL("auto", sharing="some", n_atoms=5, n_restarts=3).fit(sites)


def owned(name, components, seed=3):
    """Which of the atoms a client has in truth."""
    inner = np.abs(components @ draw_some(name, seed)[1])
    return inner.max(axis=1, initial=0) > 1 - 1e-6


def test_membership_is_that_of_the_truth_in_the_order_of_the_clients(some):
    assert some.membership_.shape == (5, len(some.global_components_))
    assert some.membership_.dtype == bool
    assert not some.membership_.all()
    for name, row in zip(some.client_names_, some.membership_, strict=True):
        np.testing.assert_array_equal(row, owned(name, some.global_components_))
        assert np.flatnonzero(row).tolist() == some.summary_["members"][name]


def test_codes_of_atoms_that_a_client_does_not_share_are_zero(some):
    for name, row in zip(some.client_names_, some.membership_, strict=True):
        X = draw_some(name)[0]
        codes = some.transform(X, name)[:, : len(row)]
        assert not codes[:, ~row].any()
        assert (np.abs(codes[:, row]).sum(axis=0) > 0).all()
        assert some.score(X, name) > 1 - 1e-8
        assert not some.usage_[name][: len(row)][~row].any()
        assert np.linalg.norm(some.reconstruct(X, name, 5) - X) < 1e-6 * np.linalg.norm(X)
        shared, own = some.split(X, name)
        np.testing.assert_allclose(shared + own, X, atol=1e-6)


def test_who_comes_later_to_atoms_of_some_shares_its_own(some, tmp_path):
    late = PerDL(**some.get_params()).fit({name: draw_some(name)[0] for name in some.client_names_})
    X = draw_some("fay")[0]
    late.add_client(X, "fay")
    assert late.client_names_[-1] == "fay"
    np.testing.assert_array_equal(late.membership_[:5], some.membership_)
    np.testing.assert_array_equal(late.membership_[5], owned("fay", late.global_components_))
    assert late.score(X, "fay") > 1 - 1e-8
    late.save(tmp_path / "model.npz")
    again = PerDL.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.membership_, late.membership_)
    np.testing.assert_array_equal(again.transform(X, "fay"), late.transform(X, "fay"))
    with pytest.raises(SettingsError, match="partial_fit cannot go on with such a run; call fit"):
        late.partial_fit({name: draw_some(name)[0] for name in late.client_names_})


def test_where_all_share_all_membership_is_true_everywhere(model):
    assert model.membership_.shape == (3, R_G)
    assert model.membership_.all()


def test_save_and_load(model, tmp_path):
    model.save(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz", allow_pickle=False) as file:
        assert all(file[key].dtype != object for key in file)
        assert not any(set(DATA["ada"].shape) <= set(file[key].shape) for key in file)
    loaded = PerDL.load(tmp_path / "model.npz")
    assert same(loaded, model)
    assert loaded.get_params() == model.get_params()
    assert loaded.history_ == model.history_
    np.testing.assert_array_equal(loaded.transform(DATA["cy"], "cy"), model.transform(DATA["cy"], "cy"))
    (tmp_path / "text.npz").write_text("no")
    np.savez(tmp_path / "other.npz", a=np.ones(2))
    for name, words in {"none": "No such file", "text": "not a model", "other": "not a model"}.items():
        with pytest.raises(PerdlError, match=words):
            PerDL.load(tmp_path / f"{name}.npz")


def test_parameters_are_the_settings():
    defaults = PerDL().get_params()
    for name, value in defaults.items():
        if name not in ("clients", "output", *NO_SETTINGS):
            tables = [(DATA_PARAMETERS, DataSettings), (EVALUATION_PARAMETERS, EvaluationSettings)]
            table = next((table for parameters, table in tables if name in parameters), Settings)
            assert value == table.model_fields[name].default, name
    assert repr(PerDL()) == "PerDL()"
    assert repr(PerDL("auto", seed=4)) == "PerDL(n_global='auto', seed=4)"
    assert eval(repr(PerDL(2, rounds=3))).get_params() == PerDL(2, rounds=3).get_params()
    odd = PerDL(threshold=(given := object()))
    assert odd.threshold is given
    assert PerDL().set_params(rounds=3).rounds == 3
    with pytest.raises(ValueError, match="no parameter 'n_clusters'"):
        PerDL().set_params(n_clusters=3)
    with pytest.raises(TypeError):
        PerDL(n_clusters=3)


def test_parameters_are_checked_in_fit_and_stay():
    with pytest.raises(SettingsError, match="threshold = 'high': must be a number"):
        PerDL(threshold="high").fit(DATA)
    with pytest.raises(SettingsError, match=r"n_global = 9: must be at most the 8 features"):
        PerDL(n_global=9).fit(DATA)
    with pytest.raises(SettingsError, match="there is no data set eve"):
        PerDL(clients={"eve": {"threshold": 0.1}}).fit(DATA)
    one = PerDL(n_global=np.int64(2), threshold=np.float64(0.15), clients={"ada": {"n_atoms": 5}}, rounds=1)
    params = one.get_params()
    assert one.fit(DATA) is one
    assert one.get_params() == params
    assert one.local_components_["ada"].shape == (3, D)


def test_not_fitted():
    without = (
        "import sys, perdl\n"
        "try: perdl.PerDL().transform([[1.0]], 0)\n"
        "except perdl.NotFittedError as e: print(isinstance(e, (ValueError, AttributeError)))\n"
        "assert 'sklearn' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "True\n"
    sklearn = pytest.importorskip("sklearn.exceptions")
    for call in (lambda m: m.transform(DATA["ada"], 0), lambda m: m.save("x"), lambda m: m.add_client(DATA["ada"])):
        with pytest.raises(sklearn.NotFittedError):
            call(PerDL())


def test_scikit_learn_knows_it(model):
    base = pytest.importorskip("sklearn.base")
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    copy = base.clone(model)
    assert copy is not model
    assert copy.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        check_is_fitted(copy)
    check_is_fitted(model)
    assert same(copy.fit(DATA), model)


@pytest.mark.parametrize(
    ("datasets", "words"),
    [
        (DATA["ada"], r"one array of shape \(120, 8\)"),
        ([], "no data sets"),
        ("ada.csv", "not a str"),
        ({"a/b": DATA["ada"]}, "cannot be a client's name"),
        ({1: DATA["ada"]}, "1 cannot be a client's name"),
        ([DATA["ada"], DATA["bob"][:, :7]], "client-2: 7 features, but 8 are expected"),
        ([DATA["ada"][0]], r"client-1: expected a 2-D array, samples in rows, got 1-D"),
        ([np.empty((0, 8))], "client-1: no data"),
        ([np.where(np.arange(8) == 3, np.nan, DATA["ada"])], r"120 missing values \(NaN\) of .* row 1, column 4"),
        ([np.array([["a", "b"]])], "not all values are real numbers"),
        ([np.ones((3, 2)) * 1j], "complex numbers; give X.real"),
        ([[[1.0, 2.0], [1.0]]], "rows are of unequal length"),
    ],
)
def test_bad_data_are_told_in_a_line(datasets, words):
    with pytest.raises(ValueError, match=words) as caught:
        PerDL().fit(datasets)
    assert isinstance(caught.value, DataError)
    assert "\n" not in str(caught.value)


def test_wrong_samples_codes_and_clients(model):
    for call in (model.transform, model.split, model.score, model.anomaly_score):
        with pytest.raises(ValueError, match="samples for ada: 7 features, but 8 are expected"):
            call(DATA["ada"][:, :7], "ada")
        with pytest.raises(ValueError, match="no client 'eve'; give one of ada, bob, cy, or 0 to 2"):
            call(DATA["ada"], "eve")
    with pytest.raises(ValueError, match="codes of ada: 3 features, but 4"):
        model.inverse_transform(np.ones((2, 3)), "ada")


def test_a_failed_fit_leaves_the_model_as_it_was(model):
    other = pickle.loads(pickle.dumps(model))
    with pytest.raises(PerdlError, match="samples of bob are zero"):
        other.fit({**DATA, "bob": np.zeros((5, D))})
    assert same(other, model)


def test_doubts_are_warnings():
    with pytest.warns(UserWarning, match="set center=True"):
        PerDL(**FAST, rounds=1).fit({name: X + 50 for name, X in DATA.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PerDL(**FAST).fit(DATA)


def test_doubts_about_samples_are_in_the_summary_too(tmp_path):
    counted = {name: np.column_stack([np.arange(len(X)), X]) for name, X in DATA.items()}
    with pytest.warns(UserWarning, match="counts the samples") as told:
        model = PerDL(**FAST, rounds=1, output=tmp_path / "run").fit(counted)
    warned = [str(one.message) for one in told]
    assert len([text for text in warned if "counts the samples" in text]) == 1
    assert {in_python(text) for text in model.summary_["warnings"]} <= set(warned)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["warnings"] == model.summary_["warnings"]
    sizes = np.array([1, 100, *[1] * (D - 2)])
    with pytest.warns(UserWarning, match="the spreads of the features differ by a factor of"):
        PerDL(**FAST, rounds=1).fit({name: X * sizes for name, X in DATA.items()})


def test_two_threads_fit_at_once(model):
    fitted = [PerDL(**FAST), PerDL(**FAST)]
    threads = [threading.Thread(target=one.fit, args=(DATA,)) for one in fitted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all(same(one, model) for one in fitted)


def test_simulate_writes_the_folder_of_the_command(tmp_path):
    run = perdl.simulate(settings={"n_clients": 3, "rounds": 2, "synthetic.noise": 0.01}, output=tmp_path / "run")
    assert run.summary["settings"]["synthetic"]["noise"] == 0.01
    assert (run.global_dictionary.shape, len(run.local_dictionaries), len(run.history)) == ((6, 3), 3, 2)
    assert (tmp_path / "run" / "figures" / "convergence.png").exists()
    assert repr(run).endswith("3 clients, 3 global atoms, 2 rounds, rounds)")
    assert np.array_equal(perdl.read_run(run.folder).global_dictionary, run.global_dictionary)
    with pytest.raises(SettingsError, match="a run: choose another output, or give overwrite=True"):
        perdl.simulate(output=tmp_path / "run")
    with pytest.raises(SettingsError, match="engine = 'rey': must be 'in-process', 'processes', 'ray'"):
        perdl.simulate(engine="rey", output=tmp_path / "other")
    with pytest.raises(PerdlError, match=r"cannot write results to /proc/no: .*; choose another output$"):
        perdl.simulate(output="/proc/no")
    with pytest.raises(SettingsError, match="did you mean rounds"):
        perdl.simulate(settings={"round": 3}, output=tmp_path / "other")
    with pytest.raises(DataError, match=r"perdl\.PerDL"):
        perdl.simulate(settings={"data.source": "memory"}, output=tmp_path / "none")


def test_the_code_of_the_pages_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["samples"]).exit_code == 0
    for page in ("README.md", "docs/python.md"):
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
        names: dict = {}
        for block in blocks if page != "README.md" else [block for block in blocks if "PerDL" in block]:
            exec(compile(block, page, "exec"), names)
        model = names["model"]
        assert dictionary_distance(model.global_components_.T, SHARED) < 0.01
    assert names["late"].client_names_ == ["1", "2", "3", "4"]
    assert names["run"].summary["final"]["global_distance"] < 0.1


def test_import_is_light():
    heavy = ("torch", "ray", "matplotlib", "flwr", "numpy", "scipy", "pydantic", "sklearn")
    code = f"import sys, perdl; dir(perdl); print([m for m in sys.modules if m.partition('.')[0] in {heavy}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
    use = (
        "import sys, perdl, numpy; m = perdl.PerDL(); perdl.simulate; "
        "print([m for m in ('torch', 'ray', 'matplotlib', 'flwr', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", use], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_who_comes_later_is_judged_by_the_atoms_that_it_shares(monkeypatch):
    seen = []

    def record(held_out, client, D_g, *rest):
        seen.append(D_g)
        return evaluate_client(held_out, client, D_g, *rest)

    monkeypatch.setattr(fitted, "evaluate_client", record)
    sites = {name: draw_some(name)[0] for name in ("ada", "bob", "cy", "dan", "eve")}
    late = PerDL("auto", sharing="some", n_atoms=5, n_restarts=3, held_out=0.2).fit(sites)
    late.add_client(draw_some("fay")[0], "fay")
    shares = late.membership_[late.client_names_.index("fay")]
    assert not shares.all()
    np.testing.assert_array_equal(seen[-1].any(axis=0), shares)
