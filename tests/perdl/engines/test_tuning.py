"""``perdl server --tune``: federated trials equal simulated ones, what of them travels, and how a search ends."""

from __future__ import annotations

import json

import numpy as np
import pytest

from common.errors import DataError, FederationError
from common.protocol import FINISH, INITIALISE, MEASURE, SCALE, UPDATE, unpack
from common.settings import load_settings
from common.synthetic import generate
from perdl.check.tune import read_clients, tune
from perdl.engines.in_process import InProcessGrid, run_in_process, simulation
from perdl_client.app import app as client_app
from perdl_server.tuning import Tuner
from perdl_server.tuning import app as tuning_app

QUICK = ["rounds=4", "n_restarts=2", "local_restarts=2", "n_atoms=8", "n_global=auto"]
QUICK += ["data.source=files", "evaluation.held_out=0.2", "evaluation.n_nonzero=2"]


def write_samples(folder, sizes, *, d=8, n_global=5, n_local=3):
    """A CSV of each client, which share some atoms."""
    kind = {"n_features": d, "n_global": n_global, "n_local": n_local, "sparsity": 0.3, "noise": 0.05}
    for i, n in enumerate(sizes, start=1):
        Y = generate(0, f"client-{i}", n_samples=n, **kind).data
        np.savetxt(folder / f"{i}.csv", Y.T, delimiter=",")


def settings_of(folder, n, *overrides):
    told = [f"n_clients={n}", f"data.path={folder}/*.csv", f"output={folder / 'out'}"]
    return load_settings(None, [*QUICK, *told, *overrides])


def federate(settings, **keywords):
    """Search over the federation in this process; return what it wrote."""
    run_in_process(tuning_app, client_app, settings, **keywords)
    return result_of(settings)


def result_of(settings):
    with open(f"{settings.output}/tuning.json") as file:
        return json.load(file)


def simulate(folder, settings):
    files = sorted(folder.glob("*.csv"))
    return tune(*read_clients(files, settings), settings)


@pytest.mark.parametrize(("sizes", "overrides"), [((60, 80, 70), []), ((60, 12, 70), ["dtype=float32", "seed=3"])])
def test_the_federation_measures_what_the_simulation_does_to_the_last_bit(tmp_path, sizes, overrides):
    write_samples(tmp_path, sizes)
    settings = settings_of(tmp_path, len(sizes), *overrides)
    trials, best = simulate(tmp_path, settings)
    result = federate(settings)
    assert result["stop_reason"] == "tuned"
    told = [(row["group"], row["values"], row["n_global"], list(row["errors"].values())) for row in result["trials"]]
    assert told == [(one.group, one.values, one.n_global, one.errors.tolist()) for one in trials]
    assert [bool(row["failed"]) for row in result["trials"]] == [bool(one.failed) for one in trials]
    assert trials[result["chosen"]] is best
    judged = [f"client-{i}" for i, n in enumerate(sizes, start=1) if n > 20]
    assert all(list(row["errors"]) == judged for row in result["trials"] if not row["failed"])
    assert result["not_judged"] == [f"client-{i}" for i, n in enumerate(sizes, start=1) if n <= 20]


def test_choices_that_fit_no_client_are_told_and_the_search_goes_on(tmp_path):
    write_samples(tmp_path, (60, 60), d=4, n_global=2, n_local=2)
    settings = settings_of(tmp_path, 2, "n_atoms=4", "threshold=1e6", "warmup_threshold=1e6")
    trials, best = simulate(tmp_path, settings)
    result = federate(settings)
    assert result["trials"][0]["failed"].startswith("0 of 2 clients could start (quorum 2): client-1 has no code that")
    assert trials[0].failed
    assert trials[result["chosen"]].values == best.values
    assert list(result["trials"][result["chosen"]]["errors"].values()) == best.errors.tolist()


def test_what_is_given_is_not_varied_and_a_scale_is_agreed_on_once(tmp_path):
    write_samples(tmp_path, (60, 60))
    given = {"n_global": 2, "aggregation": "mean", "n_atoms": 8}
    told = [f"{key}={value}" for key, value in given.items()]
    settings = settings_of(tmp_path, 2, *told, "data.site_scale=agree")
    kinds = []
    with simulation():
        nodes = [{"partition-id": i, "name": f"client-{i + 1}"} for i in range(2)]
        grid = InProcessGrid(client_app, nodes, lambda message: kinds.append(message.metadata.message_type))
        Tuner(settings, grid, given.keys()).run()
    result = result_of(settings)
    assert not any(given.keys() & row["values"].keys() for row in result["trials"])
    assert {row["n_global"] for row in result["trials"]} == {2}
    assert kinds.count(SCALE) == 2 * 2
    assert kinds.count(MEASURE) == 2 * 2 * len(result["trials"])


ANSWERS = {
    INITIALISE: (
        {"client", "protocol", "step", "returning", "n_features", "n_samples", "n_atoms", "start_error", "nonzeros"}
        | {"mean_share", "largest_feature_share", "shape", "names"},
        {"dictionary", "usage"},
    ),
    UPDATE: (
        {"client", "protocol", "round", "error_before_update", "nonzeros", "reassigned"},
        {"contribution", "energies"},
    ),
    MEASURE: ({"client", "protocol", "held_out", "held_out_error"}, set()),
    FINISH: ({"client", "protocol"}, set()),
}
QUESTIONS = {
    INITIALISE: ({"protocol", "run", "settings"}, set()),
    UPDATE: ({"protocol", "run", "round"}, {"global_dictionary", "indices"}),
    MEASURE: ({"protocol", "run"}, {"global_dictionary", "indices"}),
    FINISH: ({"protocol", "run", "trials"}, set()),
}


def test_messages_carry_what_the_page_on_privacy_lists_and_clients_keep_no_trial(tmp_path):
    write_samples(tmp_path, (60, 80, 70))
    settings = settings_of(tmp_path, 3)
    sent = []
    states = run_in_process(tuning_app, client_app, settings, record=sent.append)
    result = result_of(settings)
    _, held_out = read_clients(sorted(tmp_path.glob("*.csv")), settings)
    secrets = [one.Z / np.linalg.norm(one.Z, axis=0) for one in held_out.values()]
    first: dict[str, set[bytes]] = {}
    runs: dict[str, set[str]] = {}
    for message in sent:
        payload, kind = unpack(message.content), message.metadata.message_type
        scalars, arrays = (ANSWERS if message.metadata.reply_to_message_id else QUESTIONS)[kind]
        assert set(payload.scalars) <= scalars, kind
        assert set(payload.arrays) <= arrays, kind
        if kind == INITIALISE and payload.arrays:
            first.setdefault(payload.scalars["client"], set()).add(payload.arrays["dictionary"].tobytes())
        if "run" in payload.scalars:
            runs.setdefault(kind, set()).add(payload.scalars["run"])
        for array in payload.arrays.values():
            if array.ndim == 2 and array.size:
                atoms = array / np.linalg.norm(array, axis=0)
                assert all(np.abs(atoms.T @ Z).max() < 1 - 1e-12 for Z in secrets)
    assert len(runs[INITIALISE]) == len(runs[MEASURE]) == len(result["trials"])
    assert {name: len(one) for name, one in first.items()} == result["first_dictionaries"]
    # Coders and numbers of atoms change first dictionaries; the number of shared atoms and the aggregation do not.
    learnt = sum(row["group"] in ("how samples are written", "atoms of a client") for row in result["trials"])
    assert set(result["first_dictionaries"].values()) == {learnt}
    assert not (tmp_path / "out" / "clients").exists()
    assert not (tmp_path / "out" / "summary.json").exists()
    assert not any(state.config_records for state in states)


class Silent(InProcessGrid):
    """From some message on, one client's answers do not come."""

    def __init__(self, n, after):
        super().__init__(client_app, [{"partition-id": i, "name": f"client-{i + 1}"} for i in range(n)])
        self.asked, self.after, self.told = 0, after, []

    def push_messages(self, messages):
        questions = list(messages)
        self.told += [unpack(one.content).scalars for one in questions if one.metadata.message_type == FINISH]
        ids = list(super().push_messages(questions))
        for i, question in zip(ids, questions, strict=True):
            if question.metadata.dst_node_id == 1000:
                self.asked += 1
                if self.asked > self.after:
                    self._answers.pop(i)
        return ids


PER_TRIAL = 1 + 4 + 1
SLOW = "no answer within 0.5 s"


@pytest.mark.parametrize(
    ("asked", "text", "own"),
    [
        (0, r"1 of 2 clients could start \(quorum 2\) within 0.5 s, without client-1; each trial needs all 2", None),
        (2, rf"round 2: 1 of 2 clients answered \(quorum 2\): client-1: {SLOW}; each trial needs all 2", SLOW),
        (5, rf"the end: 1 of 2 clients answered \(quorum 2\): client-1: {SLOW}; each trial needs all 2", SLOW),
    ],
)
def test_a_lost_client_ends_the_search_and_what_was_done_is_kept(tmp_path, monkeypatch, asked, text, own):
    monkeypatch.setattr("perdl_server.federation.rounds.LAST_WORD", 0.2)
    write_samples(tmp_path, (60, 60))
    settings = settings_of(tmp_path, 2, "round_timeout=0.5", "join_timeout=0.5", "tolerance=0")
    text = f"trial 3: {text}"
    with simulation():
        grid = Silent(2, 2 * PER_TRIAL + asked)
        with pytest.raises(FederationError, match=text):
            Tuner(settings, grid).run()
    result = result_of(settings)
    assert len(result["trials"]) == 2
    assert result["chosen"] is None
    assert result["stop_reason"].startswith("failed: trial 3: ")
    rows = (tmp_path / "out" / "trials.jsonl").read_text().splitlines()
    assert [json.loads(row) for row in rows] == result["trials"]
    why = [one["reason"] for one in grid.told]
    other = "it failed at the server, whose log says why"
    assert why == [own or other, other]


def test_an_interrupt_keeps_the_trials_and_lets_clients_go(tmp_path):
    write_samples(tmp_path, (60, 60))
    settings = settings_of(tmp_path, 2)
    kinds, reasons = [], []

    def stop(message):
        kinds.append(message.metadata.message_type)
        if kinds.count(INITIALISE) > 2 * 2 * 3:  # the fourth trial has begun
            (tmp_path / "out" / "stop").touch()
        reasons.extend([unpack(message.content).scalars.get("reason")] if kinds[-1] == FINISH else [])

    with pytest.raises(KeyboardInterrupt):
        federate(settings, record=stop)
    result = result_of(settings)
    assert result["stop_reason"] == "interrupted"
    assert len(result["trials"]) == 3
    assert reasons == ["it was interrupted at the server", None] * 2


def test_without_samples_to_hold_out_it_says_so(tmp_path):
    write_samples(tmp_path, (12, 12))
    with pytest.raises(DataError, match="no client has enough samples to hold some out"):
        federate(settings_of(tmp_path, 2))
    assert result_of(settings_of(tmp_path, 2))["stop_reason"].startswith("failed: no client has enough samples")
