"""``perdl tune``: on data of known truth it finds what generated them, and it says what failed."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from common.errors import DataError, PerdlError, SettingsError
from common.settings import load_settings
from common.synthetic import generate
from perdl.check.tune import read_clients, tune
from perdl_client.data.held_out import HeldOut
from perdl_server.algorithm.search import GROUPS, first_within_one_error

QUICK = ["rounds=5", "n_restarts=2", "local_restarts=0", "evaluation.held_out=0.2", "evaluation.n_nonzero=2"]


def run_perdl(*arguments):
    return subprocess.run([sys.executable, "-m", "perdl", *arguments], capture_output=True, text=True, timeout=240)


def planted(n_global, n_local, *, n=60, d=8, clients=4):
    names = [f"client-{i}" for i in range(clients)]
    kind = {"n_features": d, "n_global": n_global, "n_local": n_local, "n_samples": n + 40, "sparsity": 0.3}
    data = {name: generate(0, name, **kind, noise=0.05).data for name in names}
    training = {name: Y[:, :n] for name, Y in data.items()}
    return training, {name: HeldOut(Y[:, n:], np.arange(40)) for name, Y in data.items()}


def settings_of(*overrides):
    return load_settings(None, ["n_clients=4", "data.source=memory", "n_global=auto", *QUICK, *overrides])


@pytest.mark.parametrize(("n_global", "n_local", "expected"), [(6, 2, range(2, 9)), (0, 8, range(1))])
def test_what_is_shared_is_found_by_held_out_error(n_global, n_local, expected):
    told = []
    samples = planted(n_global, n_local, n=24, clients=6)
    trials, best = tune(*samples, settings_of("n_atoms=8", "n_clients=6"), told.append)
    assert trials == told
    assert best.n_global in expected
    assert best in trials
    assert best.score <= trials[0].score
    assert {one.group for one in trials} >= {group.name for group in GROUPS[:3]}


def test_no_choice_is_run_twice_and_the_best_holds_to_the_end():
    trials, best = tune(*planted(4, 4), settings_of("n_atoms=8"))
    values = [tuple(sorted(one.values.items())) for one in trials]
    assert len(values) == len(set(values))
    same = [one for one in trials if one.group == "how samples are written"]
    kept = first_within_one_error(same).values
    assert {**kept, **best.values} | {"aggregation": ""} == best.values | {"aggregation": ""}


def test_choices_that_do_not_fit_are_told_and_left_out():
    training, held_out = planted(2, 2, d=4)
    trials, best = tune(training, held_out, settings_of("n_atoms=4"))
    assert len(best.errors) == 4
    assert all(one.failed or len(one.errors) == 4 for one in trials)


def test_without_held_out_samples_or_with_settings_that_never_work_it_says_why():
    training, held_out = planted(2, 2)
    with pytest.raises(DataError, match="no client has enough samples to hold some out"):
        tune(training, {}, settings_of())
    narrow = {name: Y[:3] if name == "client-2" else Y for name, Y in training.items()}
    with pytest.raises(PerdlError, match="client-2 has 3 features, client-0 has 8"):
        tune(narrow, held_out, settings_of())


def test_the_command_writes_settings_that_a_run_takes(tmp_path):
    for i, (name, Y) in enumerate(planted(3, 3, n=90, d=6, clients=3)[0].items()):
        np.savetxt(tmp_path / f"{name}.csv", Y.T, delimiter=",", header=",".join("abcdef"), comments="")
        assert i < 3
    output = tmp_path / "tuned.toml"
    quick = [part for one in QUICK[1:] for part in ("-c", one)]
    arguments = ["tune", str(tmp_path / "*.csv"), "--rounds", "3", "--output", str(output), *quick]
    done = run_perdl(*arguments)
    assert done.returncode == 0, done.stderr
    assert "chosen" in done.stdout
    assert f"perdl simulate {output} --seed 1" in done.stdout
    settings = load_settings(output)
    assert settings.evaluation.held_out == 0.2
    assert settings.n_clients == 3
    run = run_perdl("simulate", str(output), "--output", str(tmp_path / "run"), "-c", "rounds=2")
    assert run.returncode == 0, run.stderr
    again = run_perdl(*arguments)
    assert again.returncode == 2
    assert "add --overwrite" in again.stderr


def test_what_is_given_is_not_varied():
    given = settings_of("n_atoms=8", "n_global=2", "aggregation=trimmed")
    trials, best = tune(*planted(4, 4), given, fixed={"n_global", "aggregation"})
    assert {"learner", "coder"} <= {key for one in trials for key in one.values}
    assert not any({"n_global", "aggregation"} & one.values.keys() for one in trials)
    assert best.n_global == 2


def test_what_cannot_be_searched_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="finds n_global itself"):
        tune(*planted(2, 2), settings_of("sharing=some"))
    np.savetxt(tmp_path / "a.csv", np.eye(4), delimiter=",")
    with pytest.raises(SettingsError, match="agrees on no scale"):
        read_clients([tmp_path / "a.csv"], settings_of("data.site_scale=agree"))


def test_files_with_few_samples_take_part_and_are_not_judged(tmp_path):
    rng = np.random.default_rng(0)
    for name, n in (("large", 60), ("small", 9)):
        np.savetxt(tmp_path / f"{name}.csv", rng.standard_normal((n, 4)), delimiter=",")
    settings = load_settings(None, ["data.source=files", "n_clients=2", "evaluation.held_out=0.2"])
    training, held_out = read_clients(sorted(tmp_path.glob("*.csv")), settings)
    assert list(training) == ["large", "small"]
    assert list(held_out) == ["large"]
    assert training["small"].shape == (4, 9)
