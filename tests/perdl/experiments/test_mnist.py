"""The MNIST experiment: what it measures is right, and its quick form says what it should."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from common.aggregations import AGGREGATIONS
from common.coders import omp
from common.errors import SettingsError
from common.settings import settings_from_values
from perdl.cli.app import app
from perdl.experiments.error_path import error_path
from perdl.experiments.federation import Client, first_dictionaries, perma, used
from perdl.experiments.images import deal_digits, deal_mnist
from perdl.experiments.mnist import run
from perdl.experiments.strategies import Learned, finish, learn
from perdl_client.learning.measures import relative_error

SETTINGS = {
    "n_clients": 3,
    "n_atoms": 16,
    "n_global": 8,
    "rounds": 3,
    "coder": "top-k",
    "n_nonzero": 6,
    "start": "random",
    "local_restarts": 0,
    "min_samples": 1,
    "aggregation": "procrustes",
    "data": {"source": "mnist"},
}


def settings(**changes):
    return settings_from_values({**SETTINGS, **changes})


@pytest.fixture(scope="module")
def digits():
    pytest.importorskip("sklearn")
    return deal_digits(settings())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_error_path_is_the_error_of_omp_at_every_number_of_atoms(dtype):
    rng = np.random.default_rng(0)
    D = (rng.standard_normal((20, 30)) * rng.uniform(0.1, 2, 30)).astype(dtype)
    Y = rng.standard_normal((20, 40)).astype(dtype)
    path = error_path(Y, D, 8)
    assert path == pytest.approx([relative_error(Y, D, omp(Y, D, k)) for k in range(9)], rel=1e-4)


def test_error_path_never_rises_and_ends_at_the_projection_on_the_span():
    rng = np.random.default_rng(1)
    D, Y = rng.standard_normal((12, 5)), rng.standard_normal((12, 30))
    D[:, 4] = 0.0
    path = error_path(Y, D, 50)
    assert len(path) == 6
    assert (np.diff(path) <= 1e-12).all()
    off = Y - D[:, :4] @ np.linalg.lstsq(D[:, :4], Y, rcond=None)[0]
    assert path[-1] == pytest.approx(np.linalg.norm(off) / np.linalg.norm(Y), rel=1e-10)


def test_no_image_is_dealt_twice_nor_tested_by_who_learned_it(digits):
    images = np.hstack([*digits.clients, digits.held_out, digits.test])
    assert images.shape == (64, 1797)
    assert len(np.unique(images, axis=1).T) == 1797
    assert [Y.shape[1] for Y in digits.clients] == [100] * 3
    assert len(digits.labels) == digits.test.shape[1]


def test_mnist_is_dealt_as_in_a_simulation_and_tested_on_its_last_images(mnist):
    images = deal_mnist(settings(data={"source": "mnist", "path": str(mnist), "n_samples": 20}))
    assert [Y.shape for Y in images.clients] == [(784, 20)] * 3
    assert images.test.shape == images.held_out.shape == (784, 1000)
    assert 0 < images.test.max() <= 1
    assert not np.array_equal(images.test, images.held_out)


def test_all_strategies_are_there_and_perma_is_the_federation(digits):
    own = settings()
    clients = [Client(f"client-{i + 1}", Y, own.for_client(f"client-{i + 1}")) for i, Y in enumerate(digits.clients)]
    said: list[str] = []
    learned = learn(clients, own, list(AGGREGATIONS), 2, said.append)
    assert said == list(learned)
    assert {f"PerMA, {name}" for name in AGGREGATIONS} | {"alone", "pooled", "averaged", "personalized PCA"} < set(said)
    model = perma(clients, first_dictionaries(clients, own.seed), own)
    ours = learned["PerMA, procrustes"][0]
    np.testing.assert_array_equal(ours.shared, model.global_dictionary)
    np.testing.assert_array_equal(ours.dictionaries[2][:, 8:], model.local_dictionaries[2])
    again = learn(clients, own, list(AGGREGATIONS), 2, said.append)
    for name, (result, _) in learned.items():
        np.testing.assert_array_equal(result.shared, again[name][0].shared)


def test_finishing_lowers_the_error_of_its_own_coder(digits):
    rng = np.random.default_rng(0)
    D = np.linalg.qr(rng.standard_normal((64, 16))).Q
    whole = np.hstack(digits.clients)
    before = relative_error(whole, D, omp(whole, D, 5))
    shared = finish(digits.clients, Learned([D] * 3, 16), 5, 20).shared
    alone = finish(digits.clients, Learned([D] * 3, 0), 5, 20).dictionaries
    assert relative_error(whole, shared, omp(whole, shared, 5)) < 0.9 * before
    for Y, own in zip(digits.clients, alone, strict=True):
        assert relative_error(Y, own, omp(Y, own, 5)) < relative_error(Y, shared, omp(Y, shared, 5))


def test_finishing_one_shared_client_equals_finishing_it_alone(digits):
    D = np.linalg.qr(np.random.default_rng(0).standard_normal((64, 16))).Q
    together, alone = (finish(digits.clients[:1], Learned([D], n), 5, 3).dictionaries[0] for n in (16, 0))
    np.testing.assert_allclose(together, alone, rtol=1e-12, atol=1e-12)


def test_quick_run_of_the_digits_alone(tmp_path):
    pytest.importorskip("sklearn")
    results = run(settings(), tmp_path, quick=True)
    assert json.loads(json.dumps(results, allow_nan=False))["experiment"] == "mnist"
    errors = {(r["trained with"], r["strategy"]): r["error"] for r in results["tables"]["8x8 digits: error"]}
    assert {coder for coder, _ in errors} == {"top-k 8", "top-k 5"}
    for coder in ("top-k 8", "top-k 5"):
        assert errors[coder, "PerMA, procrustes, finished"] < errors[coder, "alone, finished"]
        assert errors[coder, "PerMA, procrustes"] < errors[coder, "alone"]
    assert len(results["sentences"]) == 3
    assert f"{errors['top-k 8', 'PerMA, procrustes']:.3f} with PerMA" in results["sentences"][0]
    drawn = {path.name for path in (tmp_path / "figures").iterdir()}
    assert drawn == {f"8x8-digits-{what}.png" for what in ("reconstructions", "atoms", "curve")}


def test_quick_run_on_mnist(tmp_path, mnist):
    pytest.importorskip("sklearn")
    told = ["-c", f"data.path={mnist}", "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["experiment", "mnist", "--quick", *told])
    assert done.exit_code == 0, done.output
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    errors = {(r["trained with"], r["strategy"]): r["error"] for r in results["tables"]["MNIST: error"]}
    assert errors["top-k 8", "PerMA, procrustes, finished"] < errors["top-k 8", "alone, finished"]
    assert "MNIST images" in results["sentences"][0]
    curve = results["curves"]["MNIST"]["pooled"]
    assert curve[0] == pytest.approx(1.0)
    assert len(curve) == 31
    assert curve[5] == pytest.approx(errors["top-k 8", "pooled"], rel=1e-4)
    table = {row.pop("strategy"): row for row in results["tables"]["MNIST: error by atoms used"]}
    assert table["pooled"] == {str(n): curve[n] for n in (1, 2, 3, 5, 10, 20, 30)}


def test_without_scikit_learn_one_line_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(SettingsError, match="pip install scikit-learn"):
        run(settings(), tmp_path, quick=True)


def test_other_data_are_refused(tmp_path):
    with pytest.raises(SettingsError, match=r'data\.source = "synthetic"'):
        run(settings_from_values({}), tmp_path)


def test_clients_that_use_few_atoms_lower_what_is_shared(digits):
    own = settings(n_atoms=60, n_global=60, n_nonzero=1, rounds=1)
    clients = [Client(f"client-{i + 1}", Y, own.for_client(f"client-{i + 1}")) for i, Y in enumerate(digits.clients)]
    learned = learn(clients, own, ["mean", "procrustes"], 1, lambda text: None)
    n_used = min(len(used(c, D)[0]) for c, D in zip(clients, first_dictionaries(clients, own.seed), strict=True))
    assert 0 < n_used < 60
    assert learned["PerMA, mean"][0].n_shared == n_used


def test_procrustes_is_left_out_where_the_learner_is_not_orthonormal(tmp_path):
    pytest.importorskip("sklearn")
    changes = {"learner": "gradient", "aggregation": "mean", "rounds": 1, "warmup_steps": 1}
    results = run(settings(**changes), tmp_path, quick=True)
    names = {row["strategy"] for row in results["tables"]["8x8 digits: error"]}
    assert {f"PerMA, {name}" for name in AGGREGATIONS} - names == {"PerMA, procrustes"}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"evaluation": {"n_nonzero": 31}}, r"evaluation\.n_nonzero = 31: must be at most the 30 atoms for 8x8 digits"),
        ({"coder": "hard-threshold", "threshold": 1e6}, "there is a client that uses none of its atoms"),
    ],
)
def test_settings_that_do_not_fit_the_images_end_in_one_line(tmp_path, changes, line):
    pytest.importorskip("sklearn")
    with pytest.raises(SettingsError, match=line):
        run(settings(**changes), tmp_path, quick=True)
