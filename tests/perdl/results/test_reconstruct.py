"""Samples written anew by a client's model are in the units and the shape in which they came."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from common.settings import load_settings, override_settings
from perdl.cli.app import app
from perdl.cli.command import find_config
from perdl.engines.run import count_clients, simulate
from perdl.experiments.comparison import add_comparison
from perdl_client.model import load_model

rng = np.random.default_rng(0)


def perdl(*args):
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    return result.exit_code, (result.stdout + result.stderr).strip()


def learn(folder, **settings):
    """A short run over the files in ``folder``."""
    told = {
        "data.path": str(folder / "in" / "*"),
        "output": str(folder / "run"),
        "rounds": 3,
        "n_global": 2,
        **settings,
    }
    told = {"evaluation.held_out": 0, **told}  # what is reconstructed is compared with what was learnt from
    simulate(count_clients(override_settings(load_settings(find_config("files")), told)))
    return folder / "run" / "clients" / "client-0"


@pytest.fixture
def table(tmp_path):
    """Three clients' tables with names, in different units, and what one of them holds."""
    (tmp_path / "in").mkdir()
    D, scales = np.linalg.qr(rng.standard_normal((5, 5))).Q, np.array([1, 50, 0.1, 3, 1])
    for i in range(3):
        X = rng.standard_normal((300, 5)) * (rng.random((300, 5)) < 0.3)
        rows = (X @ D.T) * scales + [3, 1000, 0, -2, 7]
        np.savetxt(tmp_path / "in" / f"{i}.csv", rows, delimiter=",", header="a,b,c,d,e", comments="", fmt="%.17g")
    return tmp_path, np.loadtxt(tmp_path / "in" / "0.csv", delimiter=",", skiprows=1)


def test_parts_of_a_table_add_up_in_its_own_units(table):
    folder, rows = table
    model = learn(folder, **{"data.divide_by": "1, 50, 0.1, 3, 1", "data.scale": "client"})
    data, parts = folder / "in" / "0.csv", {}
    for part in ("all", "shared", "own", "rest"):
        code, text = perdl("reconstruct", model, data, "--output", folder / f"{part}.csv", "--part", part)
        assert code == 0, text
        assert (folder / f"{part}.csv").read_text().startswith("a,b,c,d,e\n")
        parts[part] = np.loadtxt(folder / f"{part}.csv", delimiter=",", skiprows=1)
    assert np.allclose(parts["shared"] + parts["own"], parts["all"], atol=1e-9)
    assert np.allclose(parts["all"] + parts["rest"], rows, atol=1e-9)
    error = np.linalg.norm(parts["rest"]) / np.linalg.norm(rows)
    with open(folder / "run" / "summary.json") as file:
        of_the_run = next(iter(json.load(file)["clients"].values()))["final_error"]
    both = f"{of_the_run:.3g} of the norm of the data as the run counts it, {error:.3g} in the units of the file"
    assert f"the rest is {both}; 300 samples" in text
    text = perdl("reconstruct", model, data, "--output", folder / "all.csv")[1]
    assert f"relative error {of_the_run:.3g} as the run counts it, {error:.3g} in the units of the file; 300" in text
    assert of_the_run > 10 * error, "the mean is not what a run explains"
    # With all its atoms at hand the dictionary spans the space.
    assert perdl("reconstruct", model, data, "--output", folder / "five.npy", "--atoms", "5")[0] == 0
    assert np.allclose(np.load(folder / "five.npy"), rows, rtol=1e-9, atol=1e-9)


def test_each_part_is_told_what_it_leaves_itself(table):
    folder, _ = table
    model, data = learn(folder, **{"data.divide_by": "1, 50, 0.1, 3, 1"}), folder / "in" / "0.csv"
    facts = json.loads((folder / "run" / "summary.json").read_text())["clients"]["client-0"]
    loaded = load_model(model)
    rows = np.loadtxt(data, delimiter=",", skiprows=1)
    Z = loaded.preprocessing.apply(rows.T)
    own_alone = Z - loaded.local_dictionary @ loaded.encode(rows.T)[2:]
    left = {
        "shared": (1 - facts["final_shared"]) ** 0.5,
        "own": np.linalg.norm(own_alone) / np.linalg.norm(Z),
    }
    for part, mean in {"shared": "not in it but in the own part", "own": "in it"}.items():
        _, text = perdl("reconstruct", model, data, "--output", folder / f"{part}.csv", "--part", part)
        alone = f"the {part} part alone leaves {left[part]:.3g} of the norm of the data as the run counts it"
        assert f"{alone}; the mean of the features is {mean}; 300 samples" in text
    shared = np.loadtxt(folder / "shared.csv", delimiter=",", skiprows=1)
    assert np.abs(shared.mean(axis=0)).max() < 20, "without the mean of 1000"
    _, text = perdl("reconstruct", model, data, "--output", folder / "rest.csv", "--part", "rest")
    assert f"the rest is {facts['final_error']:.3g} of the norm of the data as the run counts it" in text


def test_windows_of_a_series_come_back_as_the_series(tmp_path):
    (tmp_path / "in").mkdir()
    t = np.arange(403)[:, None]
    for i in range(3):
        series = np.sin(t / [4, 7]) + 0.3 * np.sin(t / [2 + i, 3]) + 10
        np.save(tmp_path / "in" / f"{i}.npy", series + 0.01 * rng.standard_normal(series.shape))
    folder = learn(tmp_path, **{"data.window": 12, "data.stride": 5, "threshold": 0.05})
    model = load_model(folder)
    assert model.cut.piece == (12, 2)
    assert model.global_dictionary.shape == (24, 2)
    data = tmp_path / "in" / "0.npy"
    assert perdl("reconstruct", folder, data, "--output", tmp_path / "out.npy")[0] == 0
    written, series = np.load(tmp_path / "out.npy"), np.load(data)
    assert written.shape == series.shape
    assert np.linalg.norm(written - series) < 0.05 * np.linalg.norm(series - series.mean(axis=0))
    np.save(tmp_path / "longer.npy", np.vstack([series, series]))
    assert perdl("reconstruct", folder, tmp_path / "longer.npy", "--output", tmp_path / "longer-out.npy")[0] == 0
    assert np.load(tmp_path / "longer-out.npy").shape == (806, 2)


def test_patches_of_images_come_back_as_images(tmp_path):
    (tmp_path / "in").mkdir()
    for i in range(3):
        images = rng.random((4, 10, 13, 3))
        np.save(tmp_path / "in" / f"{i}.npy", images)
    folder = learn(tmp_path, **{"data.patch": 4, "data.center": True, "rounds": 1})
    out, all_atoms = tmp_path / "out.npy", 4 * 4 * 3
    assert perdl("reconstruct", folder, tmp_path / "in" / "0.npy", "--output", out, "--atoms", all_atoms)[0] == 0
    assert np.allclose(np.load(out), np.load(tmp_path / "in" / "0.npy"), atol=1e-9)
    np.save(tmp_path / "other.npy", rng.random((1, 7, 8, 3)))
    assert perdl("reconstruct", folder, tmp_path / "other.npy", "--output", out)[0] == 0
    assert np.load(out).shape == (1, 7, 8, 3)


def test_what_does_not_fit_is_said_in_a_line(table):
    folder, rows = table
    model, data = learn(folder, rounds=0, **{"data.divide_by": "1, 50, 0.1, 3, 1"}), folder / "in" / "0.csv"
    np.save(folder / "narrow.npy", rows[:, :4])
    (folder / "named.csv").write_text("a,b,x,d,e\n1,2,3,4,5\n")
    wrong = {
        ("reconstruct", folder / "run", data, "--output", folder / "x.csv"): "give a client's folder",
        ("reconstruct", model, data, "--output", folder / "x.txt"): "must end in .csv or .npy",
        (
            "reconstruct",
            model,
            data,
            "--output",
            folder / "x.csv",
            "--part",
            "half",
        ): "must be all, shared, own or rest",
        ("reconstruct", model, data, "--output", folder / "x.csv", "--atoms", "-1"): "must be 0 or more",
        ("reconstruct", model, data, "--output", folder / "x.csv", "--part", "own", "--atoms", "2"): "all and rest",
        (
            "reconstruct",
            model,
            folder / "narrow.npy",
            "--output",
            folder / "x.csv",
        ): "shape (4,), those of the model (5,)",
        (
            "reconstruct",
            model,
            folder / "named.csv",
            "--output",
            folder / "x.csv",
        ): "feature 3 is called 'x', the model's 'c'",
    }
    for call, words in wrong.items():
        code, text = perdl(*call)
        assert code in (1, 2, 3), call
        assert words in text
        assert "\n" not in text
    assert not (folder / "x.csv").exists()


def test_no_figure_compares_preprocessed_data_with_what_is_not(tmp_path, request):
    settings = load_settings(None, ["n_clients=2", "rounds=1", "data.whiten=true", f"output={tmp_path / 'a'}"])
    final = simulate(settings)["final"]
    assert "global_distance" not in final
    assert "local_distance_max" not in final
    mnist = request.getfixturevalue("mnist")
    told = [f"data.path={mnist}", "data.patch=14", "n_clients=2", "data.n_samples=20", "rounds=1", "warmup_steps=2"]
    told += ["n_atoms=20", "n_global=5", f"output={tmp_path / 'b'}"]
    summary = simulate(load_settings(find_config("mnist"), told), complete=add_comparison)
    assert "evaluation" not in summary
    assert "no comparison on test images" in " ".join(summary["warnings"])
    assert summary["shape"] == [14, 14]
