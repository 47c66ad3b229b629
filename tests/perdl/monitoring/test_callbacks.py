"""Callbacks hear of every round of every engine, may end a run, and cannot spoil one."""

from __future__ import annotations

import json

import numpy as np
import pytest

import perdl
from common.errors import DataError, FederationError
from common.synthetic import generate
from perdl import PerDL
from perdl.monitoring.jsonl import Tail

SMALL = {"n_clients": 2, "n_restarts": 2, "rounds": 5, "tolerance": 0.0}
ENDLESS = {**SMALL, "rounds": 100_000, "synthetic.noise": 0.1}
DATA = [generate(0, name, n_features=6, n_global=3, n_local=3, n_samples=80).data.T for name in ("a", "b")]
MODEL = {"n_global": 3, "n_restarts": 2, "rounds": 5, "tolerance": 0.0}


class Recorder(perdl.Callback):
    def __init__(self, halt=lambda row: None):
        self.heard, self.rows, self.halt = [], [], halt

    def on_start(self, settings):
        self.heard.append(("start", settings))

    def on_round(self, row):
        self.rows.append(row)
        return self.halt(row)

    def on_end(self, summary):
        self.heard.append(("end", summary))


class Raising(perdl.Callback):
    def __init__(self, *methods):
        self.calls = []
        for name in ("on_start", "on_round", "on_end"):
            setattr(self, name, lambda value, name=name: self.call(name, name in methods))

    def call(self, name, fails):
        self.calls.append(name)
        if fails:
            raise ValueError(f"no {name}")


def test_hears_of_the_whole_run(tmp_path):
    one, other = Recorder(), Recorder()
    run = perdl.simulate("synthetic", SMALL, output=tmp_path / "run", callbacks=[one, other])
    (start, settings), (end, summary) = one.heard
    assert (start, end) == ("start", "end")
    assert (settings.output, settings.rounds) == (str(tmp_path / "run"), 5)
    assert one.rows == other.rows == run.history
    assert len(run.history) == 5
    assert summary == run.summary


def test_a_former_run_in_the_folder_is_not_heard_of(tmp_path):
    for rounds in (5, 7):
        one = Recorder()
        perdl.simulate(
            "synthetic", {**SMALL, "rounds": rounds}, output=tmp_path / "run", overwrite=True, callbacks=[one]
        )
        assert [row["round"] for row in one.rows] == list(range(1, rounds + 1))


def test_the_estimator_tells_of_its_own_rounds():
    one, more = Recorder(), Recorder()
    model = PerDL(**MODEL).fit(DATA, callbacks=[one])
    assert one.rows == model.history_
    assert one.heard[-1] == ("end", model.summary_)
    model.partial_fit(DATA, rounds=2, callbacks=[more])
    assert [row["round"] for row in more.rows] == [6, 7]


def test_a_callback_that_fails_is_named_once_and_changes_nothing(tmp_path):
    broken = [Raising("on_start", "on_end"), Raising("on_round"), Raising("on_end")]
    one = Recorder()
    with pytest.warns(UserWarning, match="callback") as caught:
        run = perdl.simulate("synthetic", SMALL, output=tmp_path / "a", callbacks=[*broken, one])
    notes = [str(w.message) for w in caught if "callback" in str(w.message)]
    assert notes == [
        f"the callback Raising failed in {name} (ValueError: no {name}); the run goes on without it"
        for name in ("on_start", "on_round", "on_end")
    ]
    assert [callback.calls for callback in broken] == [
        ["on_start", "on_end"],
        ["on_start", "on_round", "on_end"],
        ["on_start", *["on_round"] * 5, "on_end"],
    ]
    assert one.rows == run.history
    plain = perdl.simulate("synthetic", SMALL, output=tmp_path / "b")
    np.testing.assert_array_equal(run.global_dictionary, plain.global_dictionary)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_that_a_callback_raises_is_its_own_affair(tmp_path, error):
    class Interrupting(perdl.Callback):
        def on_round(self, row):
            raise error

    one = Recorder()
    with pytest.warns(UserWarning, match="the callback Interrupting failed in on_round"):
        perdl.simulate("synthetic", SMALL, output=tmp_path / "a", callbacks=[Interrupting(), one])
    assert len(one.rows) == 5
    assert one.heard[-1][0] == "end"


def test_a_callback_ends_a_run_with_all_its_results(tmp_path):
    one = Recorder(halt=lambda row: row["round"] >= 3)
    run = perdl.simulate("synthetic", ENDLESS, output=tmp_path / "run", callbacks=[one])
    assert run.summary["stop_reason"] == "stopped by Recorder"
    assert 3 <= run.summary["rounds"] == len(run.history) < 10_000
    assert one.rows == run.history
    assert set(run.local_dictionaries) == {"client-1", "client-2"}
    assert "final_error" in run.summary["clients"]["client-1"]
    again = perdl.simulate("synthetic", SMALL, output=tmp_path / "run", overwrite=True)  # what it asked for is over
    assert again.summary["stop_reason"] == "rounds"


def test_an_estimator_that_was_stopped_goes_on():
    model = PerDL(**{**MODEL, "rounds": 100_000}).fit(DATA, callbacks=[Recorder(halt=lambda row: np.bool_(True))])
    assert model.stop_reason_ == "stopped by Recorder"
    before = model.n_rounds_
    assert model.partial_fit(DATA, rounds=2).n_rounds_ == before + 2


def test_the_end_of_a_run_that_failed_is_heard(tmp_path):
    for i, d in enumerate((5, 7)):
        np.save(tmp_path / f"{i}.npy", DATA[0][:, :5] if d == 5 else np.ones((9, d)))
    one = Recorder()
    settings = {"data.source": "files", "data.path": str(tmp_path / "*.npy")}
    with pytest.raises(DataError):
        perdl.simulate("synthetic", settings, output=tmp_path / "a", callbacks=[one])
    assert one.heard[-1] == ("end", {})
    with pytest.raises(FederationError):
        perdl.simulate("synthetic", {**SMALL, "threshold": 1e6}, output=tmp_path / "b", callbacks=[one])
    end, summary = one.heard[-1]
    assert end == "end"
    assert summary["stop_reason"].startswith("failed: ")


def test_a_tail_reads_whole_lines_once_and_notices_another_file(tmp_path):
    path = tmp_path / "rounds.jsonl"
    path.write_text('{"round": 1}\n')
    tail = Tail(path)
    assert tail.new_rows() == []
    with path.open("a") as file:
        file.write('{"round": 2}\n{"rou')
    assert [row["round"] for row in tail.new_rows()] == [2]
    with path.open("a") as file:
        file.write('nd": 3}\n')
    assert [row["round"] for row in tail.new_rows()] == [3]
    other = tmp_path / "other"
    other.write_text("".join(json.dumps({"round": t}) + "\n" for t in range(10, 20)))
    other.rename(path)
    assert [row["round"] for row in tail.new_rows()] == list(range(10, 20))
    path.unlink()
    assert tail.new_rows() == []
