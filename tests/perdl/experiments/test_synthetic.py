"""The synthetic experiment, small; its oracle; and the command that runs experiments."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from common.dictionaries import dictionary_distance
from common.errors import DataError, PerdlError, SettingsError
from common.settings import settings_from_values
from common.synthetic import generate
from perdl.cli.app import app
from perdl.experiments import synthetic
from perdl.experiments import synthetic_runs as runs
from perdl.experiments.oracle import oracle_global_dictionary
from perdl.experiments.run import run_experiment
from perdl.experiments.workers import each, threads

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiment") / "out"
    done = CliRunner().invoke(app, ["experiment", "synthetic", "--quick", "--output", str(folder)])
    assert done.exit_code == 0, done.output
    return folder, json.loads((folder / "results.json").read_text()), done.output


def test_every_strategy_and_cure_is_compared(quick):
    _, results, _ = quick
    names = {row["strategy"] for row in results["tables"]["recovery from the default start"]}
    assert names >= {"independent clients", "pooled data", "federated averaging", "personalized PCA"}
    assert len([name for name in names if name.startswith("PerMA")]) == 7
    assert {row["strategy"] for row in results["tables"]["recovery from the paper's own start"]} >= set(runs.CURES)


def test_perma_is_exact_where_others_are_not(quick):
    _, results, _ = quick
    rows = {row["strategy"]: row for row in results["tables"]["recovery from the default start"]}
    assert rows["PerMA, mean"]["all <= 1e-12"] == 1
    for other in ("pooled data", "federated averaging", "personalized PCA"):
        assert rows[other]["D^g median"] > 1e-4
    cured = {row["strategy"]: row for row in results["tables"]["recovery from the paper's own start"]}
    assert cured["restart, star around the medoid"]["all <= 1e-12"] == 1


def test_figures_tables_and_sentences_are_written_and_printed(quick):
    folder, results, output = quick
    assert {path.name for path in (folder / "figures").iterdir()} == {
        "recovery.png",
        "weak_clients.png",
        "many_clients.png",
        "how_much_data.png",
    }
    assert len(results["sentences"]) == 3
    assert "of 1 seed with" in results["sentences"][0]
    assert "6 of 6: how much data it takes" in output
    assert results["finished"]
    for sentence in results["sentences"]:
        assert sentence in output
        assert sentence in (folder / "tables.md").read_text()
    for title in results["tables"]:
        assert f"{title}: {results['explained'][title]}" in output
        assert results["explained"][title][1:] in (folder / "tables.md").read_text()
    assert results["settings"]["n_global"] == 3
    assert results["versions"]["numpy"] == np.__version__


def test_what_is_done_is_kept_when_an_experiment_is_interrupted(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(synthetic.runs, "cures", interrupted)
    settings = settings_from_values({"rounds": 3, "output": str(tmp_path / "out")})
    with pytest.raises(KeyboardInterrupt):
        run_experiment("synthetic", settings, preset="text", quick=True)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert list(results["tables"]) == ["recovery from the default start"]
    assert not results["finished"]
    assert "Unfinished" in (tmp_path / "out" / "tables.md").read_text()


def test_a_folder_with_results_is_not_written_over(quick):
    folder, _, _ = quick
    again = CliRunner().invoke(app, ["experiment", "synthetic", "--quick", "--output", str(folder)])
    assert again.exit_code == 2
    assert "holds the results of a run" in again.output


def test_overwriting_leaves_no_former_tables_beside_what_failed(tmp_path):
    for name in ("results.json", "tables.md"):
        (tmp_path / name).write_text("{}")
    command = ["experiment", "synthetic", "--quick", "-c", "n_clients=3", "--output", str(tmp_path), "--overwrite"]
    assert CliRunner().invoke(app, command).exit_code == 2
    assert {path.name for path in tmp_path.iterdir()} <= {".lock"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["unheard"], "there is no experiment unheard; experiments are synthetic, mnist, surveillance"),
        (["synthetic", "--preset", "best"], "there is no configuration synthetic-best"),
        (["mnist", "--full"], "--full: the mnist experiment has no longer version"),
        (["synthetic", "-c", "data.source=mnist"], 'must be "synthetic" for this experiment'),
        (["synthetic", "-c", "n_clients=3"], "n_clients = 3: must be at least 4"),
        (["synthetic", "-c", "synthetic.n_global=0"], "synthetic.n_global = 0: must be at least 1"),
        (
            ["synthetic", "-c", "synthetic.n_global=2"],
            "synthetic.n_global = 2: must be at least 1 and n_global, here 3",
        ),
        (["synthetic", "-c", "learner=gradient"], 'learner = "gradient": must be "orthogonal"'),
        (
            [
                "synthetic",
                "-cn_global=1",
                "-csynthetic.n_global=1",
                "-csynthetic.n_local=0",
                "-csynthetic.n_features=1",
            ],
            "synthetic.n_features = 1: must be at least 2",
        ),
        (["synthetic", "-c", "threshold=50.0"], "client-1 has 0 usable atoms, fewer than n_global = 3"),
        (["synthetic", "-c", "n_atoms=4"], "n_atoms = 4: must be at least synthetic.n_features = 6"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_line(tmp_path, arguments, text):
    done = CliRunner().invoke(app, ["experiment", *arguments, "--quick", "--output", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert text in done.output
    assert "Traceback" not in done.output


def truths(n_clients, noise, n_samples=200):
    return [
        generate(0, f"client-{i}", n_features=6, n_global=3, n_local=3, n_samples=n_samples, noise=noise)
        for i in range(n_clients)
    ]


def test_the_oracle_is_exact_without_noise_and_gains_by_the_root_of_the_samples():
    exact = truths(3, 0.0)
    assert dictionary_distance(oracle_global_dictionary(exact), exact[0].global_dictionary) < 1e-13
    few, many = (
        dictionary_distance(oracle_global_dictionary(t), t[0].global_dictionary)
        for t in (truths(2, 0.05, 100), truths(2, 0.05, 10_000))
    )
    assert 4 < few / many < 25


def test_the_oracle_is_the_least_squares_solution():
    """Against one big system in all atoms of all clients, without elimination."""
    drawn = truths(3, 0.1, 30)
    blocks = []
    for i, t in enumerate(drawn):
        own = np.zeros((9, 30))
        own[3 * i : 3 * i + 3] = t.codes[3:]
        blocks.append(np.vstack([t.codes[:3], own]))
    Y, X = np.hstack([t.data for t in drawn]), np.hstack(blocks)
    D = np.linalg.lstsq(X.T, Y.T, rcond=None)[0].T[:, :3]
    D /= np.linalg.norm(D, axis=0)
    np.testing.assert_allclose(oracle_global_dictionary(drawn), D, atol=1e-12)


def test_numbers_do_not_depend_on_the_number_of_workers():
    settings = settings_from_values({"n_clients": 3, "rounds": 5})
    todo = [runs.changed(settings, seed=seed, synthetic={"noise": 0.05}) for seed in range(3)]
    assert each(runs.crowd, todo, 1) == each(runs.crowd, todo, 2)


def test_the_published_preset_starts_nobody_in_a_wrong_basin():
    from common.settings import load_settings
    from perdl.cli.command import find_config

    settings = load_settings(find_config("synthetic-published"), ["n_clients=4", "rounds=20"])
    known, clients = runs.draw(settings)
    run = runs.run_perma(settings, known, clients, runs.first_dictionaries(clients, settings.seed))
    assert max(run["global"], run["local"]) < 1e-8


@pytest.mark.parametrize(("number", "seconds"), [(signal.SIGINT, 0.1), (signal.SIGINT, 3), (signal.SIGTERM, 3)])
def test_an_interrupted_experiment_ends_at_once_and_leaves_no_worker(tmp_path, number, seconds):
    """Ctrl-C reaches the workers too, also while they begin.

    The pipe of the output closes only when the last worker is gone.
    """
    command = [sys.executable, "-m", "perdl", "experiment", "synthetic", "--output", str(tmp_path / "out")]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=_hear_interrupts,
        start_new_session=True,
    )
    try:
        assert "every strategy" in process.stdout.readline()
        time.sleep(seconds)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, output
    assert output == "perdl: interrupted\n"


def test_an_interrupt_does_not_wait_for_threads():
    let_go = threading.Event()
    jobs = []

    def interrupted():
        with threads(1) as pool:
            jobs.extend([pool.submit(let_go.wait, 60), pool.submit(print)])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    running, waiting = jobs
    assert not running.done()
    assert waiting.cancelled()
    let_go.set()


def test_clients_are_drawn_as_a_simulation_draws_them():
    _, clients = runs.draw(settings_from_values({"n_clients": 2, "dtype": "float32", "data": {"center": True}}))
    assert all(client.data.dtype == np.float32 for client in clients)
    assert all(np.abs(client.data.mean(axis=1)).max() < 1e-6 for client in clients)
    with pytest.raises(DataError, match="too large for float64"):
        runs.draw(settings_from_values({"synthetic": {"noise": 1e300}}))


def test_larger_problems_have_atoms_of_their_own(monkeypatch):
    monkeypatch.setattr(synthetic, "each", lambda function, jobs, workers: [{"d": job.n_atoms} for job in jobs])
    assert synthetic._large(settings_from_values({"n_atoms": 6}), [50], 1)[0]["d"] is None


def die(number):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_is_an_error_and_no_waiting():
    with pytest.raises(PerdlError, match="a worker process died"):
        each(die, range(4), 2)


def _hear_interrupts():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_settings_of_single_clients_are_refused(tmp_path):
    settings = settings_from_values({"clients": {"client-1": {"n_atoms": 5}}, "output": str(tmp_path / "out")})
    with pytest.raises(SettingsError, match=r"clients\.client-1: all clients of an experiment learn alike"):
        run_experiment("synthetic", settings, preset="text", quick=True)
