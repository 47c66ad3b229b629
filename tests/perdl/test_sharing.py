"""Atoms that some clients share, from first dictionaries to models: who shares what, and nothing else changes it."""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.proto.node_pb2 import NodeInfo

from common.dictionaries import atom_distances, dictionary_distance
from common.errors import SettingsError
from common.protocol import FINISH, INITIALISE, UPDATE, unpack
from common.settings import load_settings, settings_from_values
from common.synthetic import generate
from perdl.engines.in_process import InProcessGrid, run_in_process, simulation
from perdl.perma import perma
from perdl_client.app import app as client_app
from perdl_client.learning.client import ClientLearner
from perdl_server.app import app as server_app
from perdl_server.app import resuming, run
from perdl_server.checkpoint import load_checkpoint
from perdl_server.results import NEW, SERVED

ROOT = Path(__file__).resolve().parent.parent.parent
COUNT = itertools.count()
SOME = ["sharing=some", "n_global=auto"]
LACKING = ["synthetic.absence=0.3", "data.n_samples=300", "n_clients=5", "seed=3"]


def benchmark(name="membership"):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


BENCHMARK = benchmark()


def federate(folder, *overrides, **keywords):
    """Run a federation; return its summary, D^g and the clients' models."""
    settings = load_settings(None, [f"output={folder}", *overrides])
    run_in_process(server_app, client_app, settings, **keywords)
    return outcome(folder)


def outcome(folder):
    with np.load(folder / "global_dictionary.npz") as file:
        D_g = file["dictionary"]
    models = {}
    for path in sorted((folder / "clients").iterdir()):
        with np.load(path / "dictionary.npz") as file:
            models[path.name] = {key: file[key] for key in ("global", "local")}
    return json.loads((folder / "summary.json").read_text()), D_g, models


def same(one, other):
    np.testing.assert_array_equal(one[1], other[1])
    assert one[2].keys() == other[2].keys()
    for name, model in one[2].items():
        for key, array in model.items():
            np.testing.assert_array_equal(array, other[2][name][key])
    assert one[0]["members"] == other[0]["members"]


def truth_of(name, seed=3, absence=0.3, n=300, noise=0.0):
    return generate(seed, name, n_features=6, n_global=3, n_local=3, n_samples=n, absence=absence, noise=noise)


def learners(settings, **more):
    names = [f"client-{i + 1}" for i in range(settings.n_clients)]
    return [
        ClientLearner(truth_of(name, **more).data, settings.for_client(name), settings.seed, name, guarded=True)
        for name in names
    ]


@pytest.mark.parametrize("which", BENCHMARK.TRUTHS)
@pytest.mark.parametrize("seed", range(3))
def test_members_are_exact_and_atoms_as_near_as_an_oracle_has_them(which, seed):
    known = BENCHMARK.truth(which, seed)
    settings = BENCHMARK.options(known)
    clients = BENCHMARK.learners(known, settings, seed)
    D_g = perma(clients, settings)
    assert BENCHMARK.is_exact(BENCHMARK.found_members(clients, D_g.shape[1]), known)
    assert dictionary_distance(D_g, known.atoms) < 1e-10
    assert BENCHMARK.nearest(BENCHMARK.oracle(known, settings, seed), known.atoms) < 1e-10
    for client, own in zip(clients, known.own, strict=True):
        assert dictionary_distance(client.finish(D_g), own) < 1e-8


@pytest.mark.parametrize("seed", range(2))
def test_with_noise_atoms_are_as_near_as_an_oracle_has_them(seed):
    known = BENCHMARK.truth("one lacks an atom", seed, 0.05)
    settings = BENCHMARK.options(known)
    clients = BENCHMARK.learners(known, settings, seed)
    D_g = perma(clients, settings)
    best = BENCHMARK.nearest(BENCHMARK.oracle(known, settings, seed), known.atoms)
    assert BENCHMARK.is_exact(BENCHMARK.found_members(clients, D_g.shape[1]), known)
    assert BENCHMARK.nearest(D_g, known.atoms) <= 1.05 * best


def test_single_precision_finds_the_same_members():
    known = BENCHMARK.truth("one lacks an atom", 0)
    settings = BENCHMARK.options(known)
    clients = [ClientLearner(Y.astype(np.float32), settings, 0, f"c{i}") for i, Y in enumerate(known.data)]
    D_g = perma(clients, settings)
    assert D_g.dtype == np.float32
    assert BENCHMARK.is_exact(BENCHMARK.found_members(clients, D_g.shape[1]), known)
    assert dictionary_distance(D_g, known.atoms) < 1e-5


@pytest.mark.parametrize("aggregation", ["mean", "normalized", "energy", "geometric-median"])
def test_the_loop_on_arrays_is_the_flower_run_bit_for_bit(tmp_path, aggregation):
    overrides = [*SOME, *LACKING, f"aggregation={aggregation}", "rounds=12", "tolerance=0"]
    settings = load_settings(None, overrides)
    clients = learners(settings)
    D_g = perma(clients, settings)
    summary, found, models = federate(tmp_path, *overrides)
    np.testing.assert_array_equal(D_g, found)
    assert summary["n_global"] == D_g.shape[1] == 3
    for client in clients:
        np.testing.assert_array_equal(client.finish(D_g), models[client.name]["local"])
        np.testing.assert_array_equal(np.where(client.members, D_g, 0), models[client.name]["global"])
        assert summary["members"][client.name] == np.flatnonzero(client.members).tolist()


def test_members_in_the_summary_are_those_of_the_truth(tmp_path):
    summary, D_g, models = federate(tmp_path, *SOME, *LACKING)
    for name, model in models.items():
        truth = truth_of(name)
        mine = summary["members"][name]
        assert len(mine) == truth.global_dictionary.shape[1]
        assert dictionary_distance(D_g[:, mine], truth.global_dictionary) < 1e-10
        assert dictionary_distance(model["local"], truth.local_dictionary) < 1e-8
    assert summary["final"]["global_distance"] < 1e-10


def test_if_nobody_lacks_an_atom_it_is_what_all_share(tmp_path):
    summary, some, _ = federate(tmp_path / "some", "n_clients=5", *SOME)
    assert all(members == [0, 1, 2] for members in summary["members"].values())
    _, everybody, _ = federate(tmp_path / "all", "n_clients=5")
    assert dictionary_distance(some, everybody) < 1e-10


def test_where_nothing_is_shared_the_run_ends_well_and_says_so(tmp_path):
    summary, D_g, models = federate(tmp_path, *SOME, "n_clients=3", "synthetic.n_global=0", "synthetic.n_features=12")
    assert D_g.shape == (12, 0)
    assert summary["members"] == {name: [] for name in models}
    assert any(
        text.startswith("no two clients have an atom that is nearer than chance") for text in summary["warnings"]
    )


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"aggregation": "procrustes"}, 'aggregation = "procrustes": must be one of those that take atoms'),
        ({"n_global": 3}, 'n_global = 3: must be "auto" where sharing = "some"'),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(values, text):
    with pytest.raises(SettingsError, match=text):
        settings_from_values({"sharing": "some", "n_global": "auto", **values})


@pytest.mark.parametrize("first", [1, 4, 9])
def test_a_resumed_run_gives_the_same_bits(tmp_path, monkeypatch, first):
    overrides = [*SOME, *LACKING, "tolerance=0"]
    whole = federate(tmp_path / "whole", *overrides, "rounds=14")
    settings = load_settings(None, [f"output={tmp_path}/part", *overrides, f"rounds={first}"])
    monkeypatch.setenv(SERVED, NEW)  # a simulation writes no checkpoints
    states = run_in_process(server_app, client_app, settings)
    monkeypatch.delenv(SERVED)
    checkpoint = load_checkpoint(tmp_path / "part")
    assert checkpoint.membership is not None
    more = load_settings(None, [f"output={tmp_path}/part", *overrides, "rounds=14"])
    run_in_process(resuming(checkpoint), client_app, more, states=states)
    same(whole, outcome(tmp_path / "part"))


def pairs(sent):
    """Questions with their answers."""
    questions = {m.metadata.message_id: m for m in sent if not m.metadata.reply_to_message_id}
    return [(questions[m.metadata.reply_to_message_id], m) for m in sent if m.metadata.reply_to_message_id in questions]


@pytest.mark.parametrize("aggregation", ["mean", "energy"])
def test_messages_carry_what_the_protocol_allows_and_nothing_private(tmp_path, aggregation):
    """An atom travels while its owner is told that it shares it, and only those; local atoms never."""
    sent: list = []
    noisy = [*SOME, *LACKING, "synthetic.noise=0.05", f"aggregation={aggregation}", "rounds=12", "tolerance=0"]
    _, _, models = federate(tmp_path, *noisy, record=sent.append)
    r_g = (
        unpack(next(q for q, _ in pairs(sent) if q.metadata.message_type == UPDATE).content)
        .arrays["global_dictionary"]
        .shape[1]
    )
    energies = {"energies"} if aggregation == "energy" else set()
    asked = {
        INITIALISE: set(),
        UPDATE: {"global_dictionary", "indices", "members"},
        FINISH: {"global_dictionary", "members", "shared"},
    }
    told = {
        INITIALISE: {"dictionary", "usage"},
        UPDATE: {"contribution", "spread", "nearest"} | energies,
        FINISH: set(),
    }
    secrets = {name: np.hstack([truth_of(name, noise=0.05).data, model["local"]]) for name, model in models.items()}
    assert len(pairs(sent)) * 2 == len(sent)
    for question, answer in pairs(sent):
        kind, asks, tells = question.metadata.message_type, unpack(question.content), unpack(answer.content)
        assert set(asks.arrays) <= asked[kind]
        assert set(tells.arrays) == told[kind]
        if kind != INITIALISE:
            assert asks.arrays["members"].dtype == bool
            assert asks.arrays["members"].shape == (r_g,)
        if kind == UPDATE:
            m = int(asks.arrays["members"].sum())
            assert tells.arrays["contribution"].shape == (6, m)
            assert all(tells.arrays[key].shape == (m,) for key in energies)
            assert all(tells.arrays[key].shape == (r_g,) for key in ("spread", "nearest"))
        for array in (*asks.arrays.values(), *tells.arrays.values()):
            if array.ndim == 2 and array.shape[1]:
                units = array / np.linalg.norm(array, axis=0)
                for secret in secrets.values():
                    assert np.abs(units.T @ (secret / np.linalg.norm(secret, axis=0))).max() < 1 - 1e-12


class ComingAndGoing(InProcessGrid):
    """Some nodes are gone in some rounds; one that is started again in a round has lost its folder."""

    def __init__(self, *args, away, restart, **keywords):
        super().__init__(*args, **keywords)
        self.round, self.away, self.restart, self.session = 0, away, restart, dict.fromkeys(self._contexts, 1)

    def _gone(self, node):
        return self.round in self.away.get(node - min(self._contexts), ())

    def get_nodes(self):
        for node in self._contexts:
            if self._gone(node):
                self.session[node] = self.round + 2
        there = [node for node in self._contexts if not self._gone(node)]
        return [NodeInfo(node_id=node, last_activated_at=str(self.session[node])) for node in there]

    def _answer(self, message):
        scalars, node = unpack(message.content).scalars, message.metadata.dst_node_id
        self.round = scalars.get("round", self.round)
        again = self.restart.pop(node - min(self._contexts), None) if "round" in scalars else None
        if again is not None and again != self.round:
            self.restart[node - min(self._contexts)] = again
        elif again is not None:
            self._contexts[node].state, self.session[node] = RecordDict(), 99
        if not self._gone(node) and (again is None or again != self.round):
            return super()._answer(message)
        message.metadata.__dict__["_message_id"] = f"gone {next(COUNT)}"
        answer = Message(Error(ErrorCode.NODE_UNAVAILABLE, "gone"), reply_to=message)
        answer.metadata.__dict__["_message_id"] = f"gone {next(COUNT)}"
        return answer


@pytest.fixture
def come_and_go(tmp_path, monkeypatch):
    """Run a federation whose nodes come and go."""
    monkeypatch.setattr("perdl_server.federation.admission._LOOK", 0.0)

    def play(*overrides, away=None, restart=None):
        settings = load_settings(None, [f"output={tmp_path}", *SOME, *LACKING, "join_timeout=0.3", *overrides])
        n = settings.n_clients
        with simulation():
            configs = [{"partition-id": i, "num-partitions": n} for i in range(n)]
            run(settings, ComingAndGoing(client_app, configs, away=away or {}, restart=restart or {}))
        rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
        return outcome(tmp_path), {row["round"] for row in rows if row["client"] == "client-3"}

    return play


def check_truth(result):
    summary, D_g, models = result
    for name, model in models.items():
        truth, mine = truth_of(name), summary["members"][name]
        assert dictionary_distance(D_g[:, mine], truth.global_dictionary) < 1e-6
        assert len(mine) == truth.global_dictionary.shape[1]
        assert dictionary_distance(model["local"], truth.local_dictionary) < 1e-4


LONG = ["rounds=60", "tolerance=0"]


def test_a_client_that_comes_late_shares_what_its_data_carry(come_and_go):
    result, answered = come_and_go("quorum=4", *LONG, away={2: range(4)})
    assert len(result[0]["members"]) == 5
    assert answered
    assert min(answered) >= 4
    check_truth(result)


def test_a_client_that_is_away_for_some_rounds_catches_up(come_and_go):
    result, answered = come_and_go("quorum=4", *LONG, away={2: range(3, 20)})
    assert {1, 2, 60} <= answered <= {*range(1, 3), *range(20, 61)}
    check_truth(result)


@pytest.mark.parametrize("t", [1, 2, 7])
def test_a_client_that_lost_its_folder_is_matched_anew(come_and_go, t):
    result, answered = come_and_go(*LONG, restart={2: t})
    assert answered == set(range(1, 61))
    assert result[0]["clients"]["client-3"]["returns"] == 1
    check_truth(result)


def test_who_uses_enough_atoms_changes_no_bit_and_who_uses_few_takes_part(tmp_path):
    """The one with few samples lacks atoms; all the same its model holds all that are shared."""
    weak = ["n_clients=5", "n_global=4", "synthetic.n_global=4", "synthetic.n_local=2", "synthetic.weak_clients=1"]
    summary, D_g, models = federate(tmp_path, *weak, "synthetic.weak_samples=6", "min_samples=3")
    ((name, count),) = summary["absent"].items()
    assert summary["n_edges"] == 3
    assert 0 < count < 4
    np.testing.assert_array_equal(models[name]["global"], D_g)
    assert models[name]["local"].shape == (6, 2)
    assert summary["rounds"] == len((tmp_path / "rounds.jsonl").read_text().splitlines()) > 0
    text = next(text for text in summary["warnings"] if text.startswith(name))
    assert f"{name} ({4 - count} of its 6 atoms) uses fewer atoms than the 4 that are shared: it takes part" in text


def test_with_auto_one_that_uses_few_atoms_does_not_decide_for_all(tmp_path):
    weak = ["n_clients=5", "n_global=auto", "synthetic.weak_clients=1", "synthetic.weak_samples=6", "min_samples=3"]
    summary, D_g, models = federate(tmp_path, *weak)
    assert summary["n_global"] == D_g.shape[1] == 3
    assert len(models) == 5
    assert atom_distances(D_g, D_g).shape == (3, 3)
