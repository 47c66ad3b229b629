"""Clients that are silent, wrong, gone or hostile, and runs that are interrupted: what is lost, and what is said."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from flwr.app import Error, Message
from flwr.common.constant import ErrorCode

from common.errors import DataError, FederationError, SettingsError
from common.protocol import FINISH, INITIALISE, UPDATE, pack, unpack
from common.settings import load_settings
from perdl import Callback, PerDL, simulate
from perdl.engines.in_process import InProcessGrid, simulation
from perdl.experiments.run import run_experiment
from perdl_client.app import app as client_app
from perdl_server.app import run


class SilentGrid(InProcessGrid):
    """Some clients never answer updates, or answer nonsense."""

    silent: frozenset[int] = frozenset()
    spoil = None

    def _answer(self, message):
        answer = super()._answer(message)
        if (
            message.metadata.message_type == UPDATE
            and message.metadata.dst_node_id % 1000 in self.silent
            and self.spoil
        ):
            self.spoil(answer)
        return answer

    def pull_messages(self, message_ids):
        found = super().pull_messages(message_ids)
        drop = not self.spoil
        return [
            m
            for m in found
            if not (drop and m.metadata.message_type == UPDATE and m.metadata.src_node_id % 1000 in self.silent)
        ]


def federate_over(grid_class, folder, *overrides, record=None):
    settings = load_settings(None, [f"output={folder}", *overrides])
    with simulation():
        grid = grid_class(client_app, [{"partition-id": i} for i in range(settings.n_clients)], record)
        run(settings, grid)
    return json.loads((folder / "summary.json").read_text())


def test_silent_clients_are_left_out_while_the_quorum_holds(tmp_path):
    class Grid(SilentGrid):
        silent = frozenset({0, 4})

    summary = federate_over(Grid, tmp_path / "a", "quorum=8", "round_timeout=0.2", "rounds=20")
    assert summary["final"]["global_distance"] <= 1e-4
    rows = [json.loads(line) for line in (tmp_path / "a" / "rounds.jsonl").read_text().splitlines()]
    assert {row["clients"] for row in rows} == {8}
    with pytest.raises(
        FederationError,
        match=r"round 1: 8 of 10 clients answered \(quorum 9\): client-1, client-5: no answer within 0.2 s",
    ):
        federate_over(Grid, tmp_path / "b", "quorum=9", "round_timeout=0.2")


def spoil_with(array):
    def spoil(answer):
        payload = unpack(answer.content)
        answer.content = pack(
            {**payload.arrays, "contribution": array}, **{k: v for k, v in payload.scalars.items() if k != "protocol"}
        )

    return staticmethod(spoil)


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (np.full((6, 3), np.nan), "NaN or infinity"),
        (np.full((6, 3), np.inf), "NaN or infinity"),
        (np.zeros((6, 1)), "shape"),
        (np.zeros((3, 6)), "shape"),
        (np.zeros((6, 3), dtype=np.int64), "type"),
        (np.zeros((6, 3), dtype=np.float16), "type"),
        (np.zeros((6, 3), dtype=complex), "type"),
    ],
)
def test_answers_that_break_the_protocol_are_refused_and_named(tmp_path, array, why):
    class Grid(SilentGrid):
        silent = frozenset({2})
        spoil = spoil_with(array)

    with pytest.raises(FederationError, match=f"client-3: contribution .*{why}"):
        federate_over(Grid, tmp_path / "a", "rounds=2")
    summary = federate_over(Grid, tmp_path / "b", "rounds=20", "quorum=9")
    assert summary["final"]["global_distance"] <= 1e-4


def test_interruption_keeps_what_was_done(tmp_path):
    class Grid(InProcessGrid):
        def push_messages(self, messages):
            messages = list(messages)
            if messages[0].metadata.message_type == UPDATE and unpack(messages[0].content).scalars["round"] == 4:
                raise KeyboardInterrupt
            return super().push_messages(messages)

    with pytest.raises(KeyboardInterrupt):
        federate_over(Grid, tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["stop_reason"] == "interrupted"
    assert summary["rounds"] == 3
    assert np.load(tmp_path / "global_dictionary.npz")["dictionary"].shape == (6, 3)


def test_an_unforeseen_failure_on_a_client_tells_the_server_only_its_type(tmp_path, monkeypatch):
    def leak(*args, **kwargs):
        raise RuntimeError("secret 0.12345")

    monkeypatch.setattr("perdl_client.answers.resume.ClientLearner.update", leak)
    with pytest.raises(FederationError) as caught:
        federate_over(InProcessGrid, tmp_path)
    assert "RuntimeError" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "secret" not in (tmp_path / "summary.json").read_text()


def test_one_fault_of_all_clients_is_told_once_with_the_log_of_the_simulation(tmp_path, monkeypatch, capfd):
    def fail(*args, **kwargs):
        raise RuntimeError("secret 0.12345")

    monkeypatch.setattr("perdl_client.answers.resume.ClientLearner.update", fail)
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "out" / "log.jsonl"
    with pytest.raises(FederationError) as caught:
        simulate(settings={"n_clients": 7}, output="out")
    assert str(caught.value) == (
        "round 1: 0 of 7 clients answered (quorum 7): client-1, client-2, client-3, client-4, client-5 and 2 others: "
        f"RuntimeError (details are in {log})"
    )
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    failed = {line["client"] for line in lines if line.get("exception") == "RuntimeError"}
    assert failed == {f"client-{i}" for i in range(1, 8)}
    assert "secret" not in log.read_text()
    with pytest.raises(FederationError) as caught:
        simulate(settings={"n_clients": 7, "threshold": 50}, output="out")
    assert "0 of 7 clients could start (quorum 7): client-1 has no code" in str(caught.value)
    assert str(caught.value).endswith("(6 other clients likewise)")
    assert str(caught.value).count("has no code") == 1


def test_a_folder_in_which_no_round_was_done_may_be_used_again(tmp_path):
    with pytest.raises(FederationError):
        simulate(settings={"threshold": 50}, output=tmp_path / "out")
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["rounds"] == 0
    simulate(settings={"rounds": 1}, output=tmp_path / "out")
    with pytest.raises(SettingsError, match="out holds the results of a run: choose another output"):
        simulate(output=tmp_path / "out")


def test_two_runs_do_not_mix(tmp_path, monkeypatch):
    """Neither in one folder, nor in default folders of the same second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda *args: "20260102-030405")
    X = np.random.default_rng(0).standard_normal((30, 4))
    refused = []

    class Second(Callback):  # called from another thread than the first
        def on_start(self, settings):
            for attempt in (
                lambda: simulate(output=settings.output, overwrite=True),
                lambda: PerDL(1, output=settings.output).fit([X, X]),
                lambda: run_experiment("synthetic", load_settings(None, [f"output={settings.output}"]), preset="text"),
            ):
                with pytest.raises(SettingsError) as caught:
                    attempt()
                refused.append(str(caught.value))

    with ThreadPoolExecutor(3) as pool:
        runs = list(pool.map(lambda _: simulate(settings={"rounds": 2}), range(3)))
    assert len({run.folder for run in runs}) == 3
    simulate(settings={"rounds": 2}, output="one", callbacks=[Second()])
    assert refused == ["one is in use by another run that is still running: take another folder"] * 3
    assert len((tmp_path / "one" / "rounds.jsonl").read_text().splitlines()) == 2


def test_a_run_that_fails_before_it_writes_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for output in (None, tmp_path / "deep" / "out"):
        with pytest.raises(DataError):
            simulate("files", {"data.path": "nope"}, output=output)
    assert not list(tmp_path.iterdir())


def test_a_deployed_client_reads_no_path_that_the_server_names(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", np.ones((5, 4)))
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    monkeypatch.chdir(tmp_path)
    settings = load_settings(
        None,
        [f"output={tmp_path}/out", "n_clients=1", "data.source=files", f"data.path={tmp_path}/a.npy", "n_global=1"],
    )
    grid = InProcessGrid(client_app, [{"partition-id": 0}])
    with pytest.raises(FederationError, match="client-1 was given no data"):
        run(settings, grid)


def spoil_start(**changes):
    """A grid whose client 3 changes its first message."""

    class Grid(InProcessGrid):
        def _answer(self, message):
            answer = super()._answer(message)
            if message.metadata.message_type == INITIALISE and message.metadata.dst_node_id % 1000 == 2:
                payload = unpack(answer.content)
                arrays = {**payload.arrays, **{k: v for k, v in changes.items() if isinstance(v, np.ndarray)}}
                scalars = {**payload.scalars, **{k: v for k, v in changes.items() if not isinstance(v, np.ndarray)}}
                answer.content = pack(arrays, **{k: v for k, v in scalars.items() if k != "protocol" and v is not None})
            return answer

    return Grid


@pytest.mark.parametrize(
    "changes",
    [
        {"dictionary": 1e16 * np.ones((6, 6))},
        {"dictionary": 1e200 * np.ones((6, 6))},
        {"dictionary": np.zeros((6, 6))},
        {"dictionary": np.eye(7)[:, :6]},
        {"usage": -np.ones(6)},
        {"n_samples": None},
        {"start_error": float("nan")},
        {"client": "a/../b"},
        {"client": "9" * 5000},
        {"client": "line\nbreak"},
    ],
    ids=lambda changes: " ".join(changes),
)
def test_a_start_that_does_not_fit_is_left_out_and_stops_nobody_else(tmp_path, changes):
    summary = federate_over(spoil_start(**changes), tmp_path / "a", "quorum=9", "join_timeout=0.2", "rounds=20")
    assert len(summary["clients"]) == 9
    assert summary["final"]["global_distance"] <= 1e-4
    with pytest.raises(FederationError, match="9 of 10 clients could start"):
        federate_over(spoil_start(**changes), tmp_path / "b", "join_timeout=0.2")


def test_a_client_is_told_its_own_failure_and_no_others(tmp_path):
    reasons = {}

    def record(message):
        if message.metadata.message_type == FINISH and not message.metadata.reply_to_message_id:
            reasons[message.metadata.dst_node_id % 1000] = unpack(message.content).scalars["reason"]

    rng = np.random.default_rng(0)
    for i, d in enumerate((5, 5, 7)):
        np.save(tmp_path / f"{i}.npy", rng.standard_normal((50, d)))
    overrides = ["n_clients=3", "data.source=files", f"data.path={tmp_path}/*.npy", "n_global=2"]
    with pytest.raises(FederationError):
        federate_over(InProcessGrid, tmp_path / "out", *overrides, record=record)
    assert "client-3 has 7 features" in reasons[2]
    assert reasons[0] == reasons[1] == "it failed at the server, whose log says why"


class DyingGrid(InProcessGrid):
    """Client 2 goes after round 3: from then on Flower answers in its place, under its own name."""

    asked = 0

    def _answer(self, message):
        payload = unpack(message.content)
        if message.metadata.dst_node_id % 1000 == 1 and payload.scalars.get("round", 0) > 3:
            self.asked += 1
            answer = Message(Error(ErrorCode.NODE_UNAVAILABLE, "gone"), reply_to=message)
            answer.metadata.__dict__["_src_node_id"] = 1
            answer.metadata.__dict__["_message_id"] = f"{message.object_id}-gone"
            message.metadata.__dict__["_message_id"] = f"{message.object_id}-asked"
            answer.metadata.__dict__["_reply_to_message_id"] = message.metadata.message_id
            return answer
        return super()._answer(message)


def test_a_client_that_has_gone_is_asked_no_more(tmp_path):
    settings = load_settings(None, [f"output={tmp_path}", "quorum=9", "rounds=8", "tolerance=0", "round_timeout=30"])
    with simulation():
        grid = DyingGrid(client_app, [{"partition-id": i} for i in range(10)])
        run(settings, grid)
    rows = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    assert [row["clients"] for row in rows] == [10, 10, 10, 9, 9, 9, 9, 9]
    assert grid.asked == 1
