"""What is shown while a run goes on: how long it may still take, and to whom which lines go."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys

import pytest
from rich.console import Console
from typer.testing import CliRunner

import perdl
from common.settings import Settings
from perdl.cli.app import app
from perdl.monitoring.progress import ProgressBar, human_time, seconds_left

QUICK = ["-c", "n_clients=2", "-c", "rounds=4", "-c", "tolerance=0", "-c", "n_restarts=2"]


def rows(changes, seconds=2.0):
    return [{"round": t, "change": change, "seconds": seconds * t} for t, change in enumerate(changes, start=1)]


@pytest.mark.parametrize(
    ("changes", "tolerance", "left"),
    [
        ([1e-1, 1e-2], 1e-8, None),  # too early to say anything
        ([1e-1, 1e-2, 1e-3], 1e-8, 5 * 2.0),
        ([1e-1, 1e-2, 1e-3, 1e-4], 1e-8, 4 * 2.0),
        ([0.5, 0.5, 0.5], 1e-8, 97 * 2.0),  # it does not shrink
        ([0.1, 0.2, 0.3], 1e-8, 97 * 2.0),
        ([1e-1, 1e-2, 1e-3], 0.0, 97 * 2.0),  # no tolerance
        ([1e-1, 1e-2, 1e-9], 1e-8, 0.0),
        ([0.0, 0.0, 0.0], 1e-8, 97 * 2.0),  # no shared atom that could move
        ([0.999, 0.998, 0.997], 1e-8, 97 * 2.0),  # the rounds are over before
    ],
)
def test_what_is_left_is_the_tolerance_or_the_rounds(changes, tolerance, left):
    told = seconds_left(rows(changes), 100, tolerance)
    assert told == (left if left is None else pytest.approx(left))


@pytest.mark.parametrize("more", [{}, {"learner": "gradient", "warmup_steps": 100}, {"synthetic.noise": 0.05}])
def test_the_estimate_of_a_real_run_is_near_what_it_then_took(tmp_path, more):
    run = perdl.simulate("synthetic", {"n_clients": 3, "rounds": 200, **more}, output=tmp_path / "run")
    changes = [row["change"] for row in run.history]
    assert len(changes) >= 10
    assert run.summary["stop_reason"] == "tolerance"
    known = rows(changes, seconds=1.0)
    for t in range(3, len(known)):
        told, took = seconds_left(known[max(0, t - 6) : t], 200, 1e-12), len(known) - t
        assert abs(told - took) <= max(3, 0.5 * took), (t, told, took)


def test_times_are_said_no_more_exactly_than_they_are_known():
    said = {
        0.2: "1 s",
        7.4: "7 s",
        41: "40 s",
        97: "100 s",
        130: "2 min",
        1500: "25 min",
        9000: "2 h",
        1e5: "30 h",
        1e7: "120 days",
    }
    assert {seconds: human_time(seconds) for seconds in said} == said


def test_lines_in_a_pipe_come_now_and_then_and_say_what_is_left(monkeypatch):
    clock, text = [0.0], io.StringIO()
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    bar = ProgressBar(Console(file=text))
    bar.on_start(Settings(rounds=50, tolerance=0.0))
    facts = {"error_before_update": {"min": 1.0, "median": 1.0, "max": 1.0}, "clients": 3, "bytes": 1200}
    for row in rows([0.5] * 12):
        clock[0] = 2 * row["round"]
        bar.on_round({**row, **facts})
    bar.on_end({})
    lines = text.getvalue().splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "round 1 of 50",
        "round 6 of 50, about 90 s left",
        "round 11 of 50, about 80 s left",
    ]
    assert text.getvalue().replace("\n", "").isprintable()


@pytest.mark.parametrize(("heard", "told"), [([0, 1, 3], [0, 3]), ([0, 2, 2, 3, 3], [0, 3]), ([3], [])])
def test_first_dictionaries_in_a_pipe_begin_and_end(heard, told):
    text = io.StringIO()
    bar = ProgressBar(Console(file=text))
    bar.on_start(Settings())
    for done in heard:
        bar.on_first_dictionaries(done, 3)
    assert text.getvalue().splitlines() == [f"first dictionaries: {done} of 3 clients" for done in told]


@pytest.mark.parametrize("width", [80, 160])
def test_a_terminal_of_any_width_shows_how_long_it_may_take(width):
    text = io.StringIO()
    bar = ProgressBar(Console(file=text, force_terminal=True, width=width))
    bar.on_start(Settings(rounds=500, tolerance=0.0))
    facts = {"error_before_update": {"min": 0.123, "median": 0.123, "max": 0.123}, "clients": 10, "bytes": 1_234_567}
    for row in rows([6.3e-4] * 300):
        bar.on_round({**row, **facts})
    bar.on_end({})
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.getvalue()).replace("\r", "\n")
    assert "300/500 change 6.3e-04" in shown
    assert ", about 7 min left" in shown
    assert ("clients 10  1.2 MB" in shown) == (width == 160)


def test_the_start_is_shown_before_the_first_round(monkeypatch):
    clock, text = [0.0], io.StringIO()
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    bar = ProgressBar(Console(file=text))
    bar.on_start(Settings(rounds=5, tolerance=0.0))
    for done in range(11):
        clock[0] = 6.0 * done
        bar.on_first_dictionaries(done, 10)
    facts = {"error_before_update": {"min": 1.0, "median": 1.0, "max": 1.0}, "clients": 3, "bytes": 1200}
    bar.on_round({**rows([0.5])[0], **facts})
    bar.on_end({})
    *first, last = text.getvalue().splitlines()
    assert first == [f"first dictionaries: {done} of 10 clients" for done in (0, 2, 4, 6, 8, 10)]
    assert last.startswith("round 1 of 5: ")


def test_a_terminal_shows_the_start_and_then_the_rounds():
    text = io.StringIO()
    bar = ProgressBar(Console(file=text, force_terminal=True, width=80, color_system=None))
    bar.on_start(Settings(rounds=7, tolerance=0.0))
    bar.on_first_dictionaries(3, 10)
    bar._bar.refresh()
    bar.on_round(rows([6.3e-4])[0])
    bar.on_end({})
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.getvalue())
    assert re.search(r"first dictionaries .* 3/10 clients", shown)
    assert re.search(r"round .* 1/7 +change 6.3e-04", shown)


def test_a_simulation_tells_how_many_clients_have_their_first_dictionary(tmp_path):
    heard = []

    class Ear(perdl.Callback):
        def on_first_dictionaries(self, done, total):
            heard.append((done, total))

        def on_round(self, row):
            heard.append("round")

    settings = {"n_clients": 3, "rounds": 1, "n_restarts": 5}
    perdl.simulate(settings=settings, output=tmp_path / "run", callbacks=[Ear()])
    assert heard[-2:] == [(3, 3), "round"]
    assert heard[:-1] == sorted(set(heard[:-1]))


def run(*arguments):
    done = CliRunner().invoke(app, ["simulate", *arguments])
    assert done.exit_code == 0, done.output
    return done


def test_json_lines_are_the_rounds_and_the_summary_and_nothing_else(tmp_path):
    done = run(*QUICK, "--json", "--output", str(tmp_path / "a"), "-c", "threshold=1e-9")  # of which there are notes
    *told, last = map(json.loads, done.stdout.splitlines())
    assert told == [json.loads(line) for line in (tmp_path / "a" / "rounds.jsonl").read_text().splitlines()]
    assert len(told) == 4
    folder = last.pop("folder")
    assert folder == str(tmp_path / "a")
    assert last == json.loads((tmp_path / "a" / "summary.json").read_text())
    assert last["warnings"]
    assert done.stderr == ""


def test_quiet_says_where_the_results_are(tmp_path):
    done = run(*QUICK, "--quiet", "--output", str(tmp_path / "a"))
    assert (done.stdout, done.stderr) == (f"results: {tmp_path / 'a'}\n", "")


@pytest.mark.parametrize("mode", ["--quiet", "--json"])
def test_errors_stay_plain_lines_on_standard_error(tmp_path, mode):
    done = CliRunner().invoke(app, ["simulate", mode, "--output", str(tmp_path / "a"), "-c", "n_globl=1"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "perdl: n_globl = 1: unknown setting; did you mean n_global?\n"


def test_a_server_in_json_ended_by_a_sink_of_ones_own(processes):
    """Of a served run, too, every round is told, and a callback ends it well."""
    (processes.folder / "halt.py").write_text(
        "import perdl\nclass Halt(perdl.Callback):\n    def on_round(self, row):\n        return row['round'] >= 2\n"
    )
    options = ["-c", "n_clients=2", "-c", "rounds=100000", "-c", "tolerance=0", "-c", "n_restarts=2"]
    processes.server(*options, "--json", "--quiet", "--sink", "halt:Halt")
    for i in (1, 2):
        processes.client(f"client-{i}", "--quiet")
    assert processes.wait("server", 120) == 0, processes.log("server")
    *told, last = map(json.loads, processes.log("server").splitlines())
    assert [row["round"] for row in told] == list(range(1, last["rounds"] + 1))
    assert last["stop_reason"] == "stopped by Halt"
    for i in (1, 2):
        assert processes.wait(f"client-{i}", 30) == 0
        folder = processes.folder / "perdl-clients" / f"client-{i}"
        assert processes.log(f"client-{i}") == f"client-{i}: done: its model is in {folder}\n"
        assert (folder / "dictionary.npz").exists()


@pytest.mark.parametrize("options", [["--json"], []])
@pytest.mark.parametrize("reader", ["head -1", "true"])
def test_a_reader_that_has_enough_ends_nothing(tmp_path, options, reader):
    run = ["simulate", "--output", str(tmp_path / "run"), "-c", "rounds=20", *options]
    command = [sys.executable, "-m", "perdl", *run]
    script = f"{shlex.join(command)} | {reader}; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "0"
    assert (tmp_path / "run" / "summary.json").exists()
