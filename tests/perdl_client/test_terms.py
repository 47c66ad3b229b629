"""A client refuses what its terms do not allow, before any work; what its data serve is counted beside them."""

from __future__ import annotations

import json
import multiprocessing
import time
import tomllib
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from common.errors import DataError, SettingsError
from common.privacy_settings import PrivacySettings
from common.protocol import FINISH, INITIALISE, UPDATE, pack
from common.settings import load_settings, settings_from_values
from perdl_client.app import app
from perdl_client.identity import Identity
from perdl_client.ledger import Ledger, count_round, count_run, count_start, ledger_path, read_ledger
from perdl_client.terms import DEFAULT_TERMS, Terms, TermsError, cost, load_terms

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SIZES = {"synthetic": (6, 200), "mnist": (784, 500), "processes": (784, 500), "files": (50, 60)}
"""Features and samples of each preset's clients, by the first word of its name. Video is for simulations."""


@pytest.fixture(autouse=True)
def deployed(monkeypatch):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)


class Client:
    """A client of the app with a file and a folder of its own."""

    def __init__(self, place, Y, **told):
        self.run = f"run of {place}"
        np.save(place / "data.npy", Y.T)
        config = {"name": "ada", "data": str(place / "data.npy"), "folder": str(place / "own"), **told}
        self.context = Context(run_id=5, node_id=3, node_config=config, state=RecordDict(), run_config={})
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 7, 1, 1

    def ask(self, kind, arrays=None, **scalars):
        return app(Message(pack(arrays or {}, run=self.run, **scalars), 3, kind), self.context)

    def start(self, *overrides):
        settings = load_settings(None, ["n_clients=1", "data.source=files", *overrides])
        return self.ask(INITIALISE, settings=settings.model_dump_json(exclude_none=True))


def sparse_data(d=6, n=200, seed=0):
    rng = np.random.default_rng(seed)
    return np.linalg.qr(rng.standard_normal((d, d))).Q @ (rng.standard_normal((d, n)) * (rng.random((d, n)) < 0.3))


def first_update(client, width=3, indices=(0, 1, 2), t=1):
    arrays = {"global_dictionary": np.eye(6)[:, :width], "indices": np.array(indices)}
    return client.ask(UPDATE, arrays, round=t)


def refused(answer, text):
    return answer.has_error() and text in answer.error.reason


def client_with(place, values=None, **told):
    terms = {} if values is None else {"terms": Terms.model_validate(values).model_dump_json()}
    return Client(place, sparse_data(), **terms, **told)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_the_default_accepts_all_presets(path):
    kind = path.stem.partition("-")[0]
    settings = load_settings(path)
    learning = settings.for_client("ada")
    DEFAULT_TERMS.check_settings(settings, learning, "ada")
    if kind in SIZES:
        DEFAULT_TERMS.check_size(settings, learning, *SIZES[kind], "ada")


REFUSED = [
    ({}, "rounds=1000000000", "rounds = 1000000000", "at most 500", "lower rounds", "`rounds`"),
    (
        {},
        "n_atoms=100000",
        "n_atoms = 100000",
        "at most 400 (0.5 samples an atom, of 200)",
        "n_atoms",
        "samples_per_atom",
    ),
    ({}, "n_restarts=100000000", "n_restarts = 100000000", "at most 100", "lower n_restarts", "`restarts`"),
    ({}, "local_restarts=101", "local_restarts = 101", "at most 100", "lower local_restarts", "`restarts`"),
    ({}, "warmup_steps=100000", "warmup_steps = 100000", "at most 1000", "lower warmup_steps", "`steps`"),
    ({}, "refine_steps=100000", "refine_steps = 100000", "at most 1000", "lower refine_steps", "`steps`"),
    ({}, "privacy=none", 'privacy.mode = "none"', '"guarded" or', "set privacy.mode", "`privacy`"),
    ({"learners": ["orthogonal"]}, "learner=gradient", 'learner = "gradient"', '"orthogonal"', "set", "`learners`"),
    ({"coders": ["omp"]}, "coder=top-k", 'coder = "top-k"', '"omp"', "set coder", "`coders`"),
    ({"aggregations": []}, "aggregation=mean", 'aggregation = "mean"', "none at all", "set", "`aggregations`"),
    ({"samples_per_global": 100}, "n_global=3", "n_global = 3", "at most 2", "lower n_global", "samples_per_global"),
    ({"memory": 1e-6}, "n_atoms=6", "GiB of memory", "at most 1e-06", "lower n_atoms", "`memory`"),
    ({"seconds": 1e-6}, "rounds=5", "seconds", "at most 1e-06", "lower rounds", "`seconds`"),
]


@pytest.mark.parametrize(
    ("terms", "override", "words"), [(a, b, c) for a, b, *c in REFUSED], ids=[r[1] for r in REFUSED]
)
def test_what_is_beyond_the_terms_is_refused_in_one_line_before_any_work(tmp_path, terms, override, words):
    client = client_with(tmp_path, terms)
    tracemalloc.start()
    began = time.monotonic()
    answer = client.start(override)
    seconds, (_, peak) = time.monotonic() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert answer.has_error()
    reason = answer.error.reason
    assert all(word in reason for word in ("ada does not accept", "perdl client --terms FILE", *words)), reason
    assert "\n" not in reason
    assert seconds < 5
    assert peak < 50e6
    assert not (tmp_path / "data.npy.perdl-ledger.json").exists()
    assert not (tmp_path / "own" / "state").exists()


def test_patches_that_would_multiply_the_samples_are_refused_before_they_are_cut(tmp_path):
    np.save(tmp_path / "images.npy", np.ones((20, 64, 64)))
    client = Client(
        tmp_path, sparse_data(), data=str(tmp_path / "images.npy"), terms=Terms(memory=0.05).model_dump_json()
    )
    tracemalloc.start()
    answer = client.start("data.patch=32", "data.stride=1", "n_atoms=6")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused(answer, "GiB of memory")
    assert peak < 20e6


def test_a_simulation_holds_to_no_terms(tmp_path, monkeypatch):
    monkeypatch.setenv("PERDL_SIMULATION", "1")
    assert Identity.of({"data": "x"}).terms() is None
    assert client_with(tmp_path).start("warmup_steps=1001", "n_restarts=1").has_content()
    assert not (tmp_path / "data.npy.perdl-ledger.json").exists()


def test_the_number_of_global_atoms_is_held_to_the_terms_when_auto_chose_it(tmp_path):
    client = client_with(tmp_path, {"samples_per_global": 100.0})
    assert client.start("n_global=auto").has_content()
    assert refused(first_update(client), "does not accept n_global = 3: its terms allow at most 2")
    assert first_update(client, width=2, indices=(0, 1)).has_content()


def test_the_data_serve_as_many_runs_as_the_terms_say_whatever_the_server(tmp_path):
    client = client_with(tmp_path, {"runs": 2})
    for number in range(2):
        client.run = f"run {number} of whom ever"
        assert client.start(f"seed={number}").has_content()
    client.run = "one more"
    answer = client.start("seed=9")
    assert refused(answer, "does not take part in another run: its data served 2, and its terms allow 2 in all")
    again = Client(tmp_path, sparse_data(), folder=str(tmp_path / "another"), terms=Terms(runs=2).model_dump_json())
    assert refused(again.start(), "does not take part in another run")


def test_a_resumed_run_counts_once_and_so_does_a_dictionary_that_is_sent_again(tmp_path):
    client = client_with(tmp_path)
    assert client.start().has_content()
    assert client.start("n_atoms=5").has_content()
    assert first_update(client).has_content()
    assert client.start().has_content()
    used = read_ledger(tmp_path / "data.npy.perdl-ledger.json").runs
    assert [(one.first_dictionaries, one.rounds) for one in used.values()] == [(1, 1)]


def test_first_dictionaries_of_one_run_are_counted_too(tmp_path):
    """A server that knows a run's id again, after the client has forgotten it."""
    values = {"first_dictionaries": 3}
    for number in range(3):
        client = client_with(tmp_path, values, folder=str(tmp_path / f"own {number}"))
        client.run = "the same"
        assert client.start(f"seed={number}").has_content()
    client = client_with(tmp_path, values, folder=str(tmp_path / "own 3"))
    client.run = "the same"
    assert refused(client.start(), "sends no other first dictionary: its data gave 3")


def test_rounds_that_are_asked_again_count(tmp_path):
    client = client_with(tmp_path, {"rounds": 4})
    assert client.start("rounds=4").has_content()
    for t in (1, 1, 2, 2):
        assert first_update(client, t=t).has_content()
    assert refused(first_update(client, t=2), "answers no other round: it answered 4 in this run")
    assert client.ask(FINISH, {"global_dictionary": np.eye(6)[:, :3]}).has_content()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"kind": "perdl ledger", "version": 9, "runs": {}}', "[" * 100_000]
)
def test_a_damaged_ledger_is_refused_and_left_as_it_is(tmp_path, text):
    ledger = tmp_path / "data.npy.perdl-ledger.json"
    ledger.write_text(text)
    answer = client_with(tmp_path).start()
    assert answer.has_error()
    assert all(word in answer.error.reason for word in ("the ledger", "put it back from a backup", "move it away"))
    assert "\n" not in answer.error.reason
    assert ledger.read_text() == text


def begin(path, run, privacy=None, *, is_new=True, **terms):
    count_start(path, run, PrivacySettings(**(privacy or {})), Terms(**terms), "ada", is_new=is_new)


def test_epsilons_of_all_runs_add_up(tmp_path):
    path, private = tmp_path / "ledger.json", {"mode": "private", "epsilon": 8.0, "clip": 1.0}
    for run in ("a", "b"):
        begin(path, run, private)
    with pytest.raises(TermsError, match="epsilon = 8: its data spent 16, and its terms allow 20 in all"):
        begin(path, "c", private)
    begin(path, "c", {**private, "epsilon": 4.0})
    with pytest.raises(TermsError, match="delta = 5e-05"):
        begin(path, "d", {**private, "epsilon": 1.0, "delta": 5e-5}, epsilon=100, delta=5e-5)
    begin(path, "d")  # runs without noise are bounded by their number alone
    assert (read_ledger(path).total("epsilon"), read_ledger(path).total("first_dictionaries")) == (20, 4)


def test_a_search_is_one_run_of_as_many_trials_as_the_terms_allow(tmp_path):
    path = tmp_path / "ledger.json"
    for k in range(3):
        begin(path, f"a/{k}", is_new=k == 0, trials=3, runs=1)
        for _ in range(2):
            count_round(path, f"a/{k}", Terms(rounds=2), "ada")
    assert read_ledger(path).runs["a"].first_dictionaries == 1
    with pytest.raises(TermsError, match="this search began 3"):
        begin(path, "a/3", trials=3)
    with pytest.raises(TermsError, match="it answered 6 in this run"):
        count_round(path, "a/1", Terms(rounds=2), "ada")
    with pytest.raises(TermsError, match="does not take part in another run: its data served 1"):
        begin(path, "b/0", runs=1)


def test_scales_count_as_a_run(tmp_path):
    path = tmp_path / "ledger.json"
    count_run(path, "a", Terms(runs=1), "ada")
    count_run(path, "a", Terms(runs=1), "ada")
    with pytest.raises(TermsError, match="another run"):
        count_run(path, "b", Terms(runs=1), "ada")


@pytest.mark.parametrize(
    "used", [{"first_dictionaries": -5}, {"first_dictionaries": "3"}, {"rounds": True}, {"epsilon": "much"}, {"no": 1}]
)
def test_counts_that_are_none_are_damage(tmp_path, used):
    file = tmp_path / "x.json"
    file.write_text(json.dumps({"kind": "perdl ledger", "version": 1, "runs": {"a": {"began": "", **used}}}))
    with pytest.raises(DataError, match="holds other values than a ledger"):
        read_ledger(file)


def _count(arguments):
    path, number = arguments
    for k in range(5):
        many = Terms(runs=1000, first_dictionaries=1000)
        count_start(path, f"run {number} {k}", PrivacySettings(), many, "ada", is_new=True)
        count_round(path, f"run {number} {k}", Terms(), "ada")


def test_two_processes_lose_no_count(tmp_path):
    path = tmp_path / "data.perdl-ledger.json"
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(_count, [(path, number) for number in range(4)], chunksize=1)
    found = read_ledger(path)
    assert len(found.runs) == found.total("first_dictionaries") == 20
    assert all(one.rounds == 1 for one in found.runs.values())


def test_the_ledger_lies_in_the_clients_folder_if_that_of_the_data_cannot_be_written(tmp_path, monkeypatch):
    data = tmp_path / "data.csv"
    assert ledger_path(data, tmp_path / "own") == tmp_path / "data.csv.perdl-ledger.json"
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert ledger_path(data, tmp_path / "own") == tmp_path / "own" / "data.csv.perdl-ledger.json"


def test_a_ledger_beside_the_data_is_no_client(tmp_path):
    from perdl_client.data.sources import client_files

    np.save(tmp_path / "ada.npy", np.ones((3, 2)))
    count_run(tmp_path / "ada.npy.perdl-ledger.json", "a", Terms(), "ada")
    settings = settings_from_values({"data": {"source": "files", "path": str(tmp_path)}})
    assert client_files(settings) == [tmp_path / "ada.npy"]


def test_terms_are_printed_as_the_file_that_gives_them(tmp_path):
    told = Terms(rounds=7, learners=["gradient"], seconds=12.5)
    (tmp_path / "terms.toml").write_text(told.toml())
    assert load_terms(tmp_path / "terms.toml") == told
    assert all(line.partition("#")[2] for line in told.toml().splitlines())
    assert tomllib.loads(Ledger(Path("x")).in_words(told)) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rounds = -1", "rounds = -1: must be a whole number, at least 0"),
        ("round = 5", "round = 5: unknown setting; did you mean rounds"),
        ('learners = ["gradiant"]', "learners"),
        ('rounds = "many"', "must be a whole number"),
        ("rounds: 5", "is not valid TOML"),
    ],
)
def test_terms_that_are_none_are_named(tmp_path, text, words):
    (tmp_path / "terms.toml").write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_terms(tmp_path / "terms.toml")
    assert words in str(caught.value)
    assert str(tmp_path / "terms.toml") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_estimate_grows_with_what_is_asked():
    plain = settings_from_values({})
    base = cost(plain, plain.for_client("a"), 50, 500)
    for more in ({"rounds": 500}, {"n_restarts": 50}, {"warmup_steps": 200}, {"refine_steps": 20}, {"local_steps": 20}):
        settings = settings_from_values(more)
        assert cost(settings, settings.for_client("a"), 50, 500)[1] > base[1]
    assert cost(plain, plain.for_client("a"), 50, 5000)[0] > 5 * base[0]


def test_the_estimate_bounds_what_a_start_takes():
    settings = settings_from_values(
        {"rounds": 0, "n_restarts": 5, "local_restarts": 0, "n_atoms": 100, "data": {"source": "files"}}
    )
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((200, 1000))
    from perdl_client.learning.client import ClientLearner

    learning = settings.for_client("ada")
    tracemalloc.start()
    began = time.process_time()
    ClientLearner(Y, learning, 0, "ada", guarded=True).start()
    seconds, peak = time.process_time() - began, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    memory, most = cost(settings, learning, *Y.shape)
    assert peak < memory
    assert seconds < 20 * most + 1  # processors differ; it is meant for orders of magnitude
