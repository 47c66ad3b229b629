"""What a client refuses, whatever a server asks: the protection of its data is its own."""

from __future__ import annotations

import itertools
import json
import logging
import pickle
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from common.protocol import FINISH, INITIALISE, MEASURE, UPDATE, pack, unpack
from common.settings import load_settings
from perdl_client.app import app
from perdl_client.data.load import load_data
from perdl_client.data.memory import memory_of
from perdl_client.identity import Identity
from perdl_client.state import VERSION
from perdl_client.terms import Terms

RUNS = itertools.count(1)


class Client:
    """A deployed client, asked directly; the server's messages are the test's."""

    def __init__(self, folder, Y, **told):
        self.run = f"run {next(RUNS)}"
        self.folder = folder
        np.save(folder / "data.npy", Y.T)
        config = {"name": "ada", "data": str(folder / "data.npy"), "folder": str(folder / "own"), **told}
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


@pytest.fixture
def client(tmp_path, monkeypatch):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    one = Client(tmp_path, sparse_data())
    assert one.start().has_content()
    return one


def first_update(client, width=3, indices=(0, 1, 2), t=1):
    arrays = {"global_dictionary": np.eye(6)[:, :width]}
    if indices is not None:
        arrays |= {"indices": np.array(indices)}
    return client.ask(UPDATE, arrays, round=t)


def refused(answer, text):
    return answer.has_error() and text in answer.error.reason


def same(one, other):
    one, other = unpack(one.content).arrays, unpack(other.content).arrays
    assert one.keys() == other.keys()
    return all(np.array_equal(one[key], other[key]) for key in one)


def test_the_first_dictionary_is_the_same_whatever_is_asked_and_none_after_round_1(tmp_path, monkeypatch):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    client = Client(tmp_path, sparse_data())
    first = client.start()
    assert same(client.start(), first)
    assert same(client.start("n_atoms=5", "threshold=0.01"), first)
    first_update(client)
    again = unpack(client.start("n_atoms=5").content)
    assert again.scalars["step"] == 1
    assert not again.arrays


def test_given_data_are_not_mixed_with_made_up_ones(tmp_path, monkeypatch):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    assert refused(Client(tmp_path, sparse_data()).start("data.source=synthetic"), "the run is of synthetic samples")


def test_no_more_atoms_are_sent_than_were_agreed(client):
    assert refused(first_update(client, width=6, indices=range(6)), "sent 6 global atoms, 3 were agreed")
    assert refused(first_update(client, width=0, indices=()), "sent 0 global atoms, 3 were agreed")
    answer = first_update(client)
    assert unpack(answer.content).arrays["contribution"].shape == (6, 3)
    assert refused(first_update(client, width=4, indices=None, t=2), "sent 4 global atoms, 3 were agreed")


def test_with_auto_the_first_width_holds_for_the_whole_run(tmp_path, monkeypatch):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    client = Client(tmp_path, sparse_data())
    client.start("n_global=auto")
    assert first_update(client, width=2, indices=(0, 1)).has_content()
    assert refused(first_update(client, width=5, indices=None, t=2), "sent 5 global atoms, 2 were agreed")


@pytest.mark.parametrize("indices", [(0, 0, 1), (0, 1, 6), (-2, 0, 1), None])
def test_indices_must_be_the_clients_own(client, indices):
    assert first_update(client, indices=indices).has_error()


def test_an_atom_that_it_does_not_use_is_taken_from_those_it_uses_least(client):
    answer = unpack(first_update(client, indices=(-1, 0, 1)).content)
    assert answer.arrays["contribution"].shape == (6, 3)


def sharing(tmp_path, monkeypatch):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    one = Client(tmp_path, sparse_data())
    assert one.start("sharing=some", "n_global=auto").has_content()
    return one


def shared_update(client, members, t=1, indices=(0, -1, 1)):
    arrays = {"global_dictionary": np.eye(6)[:, :3], "indices": np.array(indices), "members": np.array(members)}
    return client.ask(UPDATE, arrays, round=t)


def test_a_client_sends_the_atoms_that_it_is_told_it_shares(tmp_path, monkeypatch):
    client = sharing(tmp_path, monkeypatch)
    for t, members in enumerate(
        [(True, False, True), (True, True, True), (False, False, True), (False, False, False)], 1
    ):
        arrays = unpack(shared_update(client, members, t).content).arrays
        assert arrays["contribution"].shape == (6, sum(members))
        assert arrays["spread"].shape == arrays["nearest"].shape == (3,)
        assert (arrays["nearest"][list(members)] == 0).all()
    arrays = {
        "global_dictionary": np.eye(6)[:, :3],
        "members": np.zeros(3, dtype=bool),
        "shared": np.ones(3, dtype=bool),
    }
    assert client.ask(FINISH, arrays).has_content()
    with np.load(client.folder / "own" / "dictionary.npz") as file:
        assert not file["global"].any()
        assert file["local"].shape == (6, 6)  # no atom got lost on the way


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ((True, False), "members has shape (2,), expected (3,)"),
        ((1, 0, 1), "members has type int64"),
        ((0.0, 0.0, 1.0), "members has type float64"),
    ],
)
def test_members_are_one_truth_value_for_each_atom(tmp_path, monkeypatch, members, text):
    assert refused(shared_update(sharing(tmp_path, monkeypatch), members), text)


def test_without_members_nothing_is_answered(tmp_path, monkeypatch):
    assert refused(first_update(sharing(tmp_path, monkeypatch)), "the message holds no array members")


def test_nobody_shares_more_atoms_than_it_has(tmp_path, monkeypatch):
    client = sharing(tmp_path, monkeypatch)
    D = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6))).Q
    arrays = {
        "global_dictionary": np.hstack([D, (D[:, :2] + D[:, 2:4]) / 2]),
        "indices": np.array([0, 1, 2, 3, 4, -1, -1, -1]),
    }
    answer = client.ask(UPDATE, arrays | {"members": np.ones(8, dtype=bool)}, round=1)
    assert refused(answer, "ada was told to share 3 atoms more, and has 1 of its own")


def test_what_only_one_shares_at_the_end_becomes_its_own(tmp_path, monkeypatch):
    client = sharing(tmp_path, monkeypatch)
    assert shared_update(client, (True, False, True)).has_content()
    arrays = {"global_dictionary": np.eye(6)[:, :3], "members": np.array([True, False, True])}
    assert client.ask(FINISH, arrays | {"shared": np.array([False, True, True])}).has_content()
    with np.load(client.folder / "own" / "dictionary.npz") as file:
        assert file["global"].shape == (6, 2)
        assert np.flatnonzero(file["global"].any(axis=0)).tolist() == [1]
        assert file["local"].shape == (6, 5)


def restarted(client):
    client.context.state = RecordDict()  # the folder is all there is
    return client


def test_a_round_that_is_asked_again_is_answered_the_same_and_an_old_one_not(client):
    answers = {t: first_update(client, t=t) for t in range(1, 6)}
    for t in (5, 4):
        assert same(first_update(client, t=t), answers[t])
        assert same(first_update(restarted(client), t=t), answers[t])
    assert same(first_update(restarted(client), t=5), answers[5])
    first_update(client, t=6)
    assert refused(first_update(client, t=3), "has answered round 6 already, was asked for round 3")


def test_a_client_is_split_once(client):
    first_update(client, indices=(0, 1, 2))
    assert refused(first_update(client, indices=(0, 1, 3)), "other indices than before")
    assert first_update(client, indices=(0, 1, 2)).has_content()


def test_a_state_cut_short_anywhere_is_noticed_and_the_one_before_it_used(client, caplog):
    answers = {t: first_update(client, t=t) for t in range(1, 4)}
    newest = max((client.folder / "own" / "state").iterdir())
    content = newest.read_bytes()
    for length in (0, 1, len(content) // 3, len(content) // 2, len(content) - 1):
        newest.write_bytes(content[:length])
        with caplog.at_level(logging.WARNING, logger="perdl.client"):
            assert same(first_update(restarted(client), t=3), answers[3])
        assert max((client.folder / "own" / "state").iterdir()).read_bytes() == content
    newest.write_bytes(content[:100])
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="perdl.client"):
        assert first_update(restarted(client), t=4).has_content()
    assert "00000003.npz cannot be read" in caplog.text


def test_states_of_another_format_are_refused(client):
    first_update(client)
    newest = max((client.folder / "own" / "state").iterdir())
    with np.load(newest) as file:
        arrays = dict(file)
    head = json.loads(str(arrays["head"])) | {"version": 7}
    np.savez(newest, **{**arrays, "head": np.array(json.dumps(head))})
    assert refused(first_update(restarted(client), t=2), f"is of format 7, this perdl reads {VERSION}")


def test_a_disk_that_is_full_loses_no_state(client, monkeypatch):
    first_update(client)
    expected = first_update(client, t=2)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("perdl_client.state.write_record", full)
        assert refused(first_update(client, t=3), "its own disk or folder fails it: No space left on device")
        assert refused(first_update(client, t=2), "No space left on device")
    assert same(first_update(client, t=2), expected)


@pytest.mark.parametrize("bad", [np.full((6, 3), np.nan), np.zeros((5, 3)), np.zeros((6, 3), dtype=int)])
def test_a_broken_global_dictionary_is_refused(client, bad):
    arrays = {"global_dictionary": bad, "indices": np.arange(3)}
    assert client.ask(UPDATE, arrays, round=1).has_error()


@pytest.mark.parametrize(
    "overrides",
    [
        # k-means with more centres than samples: every sample its own atom
        ["n_atoms=400", "learner=gradient", "coder=top-k", "n_nonzero=1", "step_size=1.0", "min_usage=0"],
        # a threshold that only the largest samples pass
        ["threshold=6.0", "warmup_threshold=6.0", "min_usage=0"],
    ],
    ids=["every sample an atom", "largest samples alone"],
)
def test_settings_that_make_atoms_of_samples_reveal_none(tmp_path, monkeypatch, overrides):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    Y = np.random.default_rng(1).standard_normal((12, 150)) * np.random.default_rng(2).exponential(1, 150)
    answer = Client(tmp_path, Y).start("n_global=0", "n_restarts=1", "warmup_steps=60", *overrides)
    if answer.has_error():
        reasons = ("no code", "no atom that 5 of its 150 samples use", "its terms allow at most 300")
        assert any(reason in answer.error.reason for reason in reasons)
        return
    sent = unpack(answer.content).arrays["dictionary"]
    cosines = np.abs((sent / np.linalg.norm(sent, axis=0)).T @ (Y / np.linalg.norm(Y, axis=0)))
    assert (cosines > 1 - 1e-9).sum() == 0


def test_a_client_can_ask_for_more_samples_behind_every_atom(tmp_path, monkeypatch):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    sent = []
    for k in (1, 60, 201):
        (tmp_path / str(k)).mkdir()
        answer = Client(tmp_path / str(k), sparse_data(), **{"min-samples": k}).start("n_global=0")
        sent.append(0 if answer.has_error() else unpack(answer.content).arrays["dictionary"].shape[1])
    assert sent[0] == 6
    assert sent[0] >= sent[1] > sent[2] == 0


def test_a_server_can_ask_for_more_samples_behind_an_atom_never_for_fewer(monkeypatch):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    learning = [load_settings(None, [f"min_samples={k}"]) for k in (1, 9)]
    assert [Identity.of({"min-samples": 5}).min_samples(one) for one in learning] == [5, 9]
    assert [Identity.of({}).min_samples(one) for one in learning] == [5, 9]


def test_a_client_let_go_before_matching_answers_and_keeps_nothing(client):
    answer = client.ask(FINISH, reason="it failed at the server")
    assert set(unpack(answer.content).scalars) == {"protocol", "client"}


def test_state_survives_a_new_process(tmp_path, monkeypatch):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = Client(tmp_path / "a", sparse_data()), Client(tmp_path / "b", sparse_data())
    for client in (one, other):
        client.start()
        first_update(client)
    other.context.state = RecordDict()  # as after a restart: the folder is all there is
    again = [unpack(first_update(client, indices=None, t=2).content).arrays["contribution"] for client in (one, other)]
    np.testing.assert_array_equal(*again)


@pytest.mark.parametrize("text", ["{nope", "[" * 100_000, ""])
def test_settings_that_are_none_are_refused_in_words(tmp_path, monkeypatch, text):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    assert refused(Client(tmp_path, sparse_data()).ask(INITIALISE, settings=text), "settings are not JSON")


def test_other_data_than_before_are_told_so(client, monkeypatch):
    first_update(client)
    np.save(client.folder / "data.npy", sparse_data(d=5).T)
    memory_of(client.context).clear()  # a new process
    words = "ada has samples of 5 features, and began this run with 6"
    assert refused(client.ask(UPDATE, {"global_dictionary": np.eye(6)[:, :3]}, round=2), words)
    assert refused(client.ask(FINISH, {"global_dictionary": np.eye(6)[:, :3]}), words)


@pytest.mark.parametrize("restarted_with", ["a,b,c,d,f,e", "A, b,c,d,e,f", ""])
def test_columns_of_other_names_than_before_are_told_so(tmp_path, monkeypatch, restarted_with):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    table, Y = tmp_path / "data.csv", sparse_data()
    np.savetxt(table, Y.T, delimiter=",", header="a,b,c,d,e,f")
    one = Client(tmp_path, Y, data=str(table))
    assert one.start().has_content()
    assert first_update(one).has_content()
    np.savetxt(table, Y.T, delimiter=",", header=restarted_with, comments="#" if restarted_with else "")
    memory_of(one.context).clear()  # a new process
    one.context.state = RecordDict()
    answer = one.ask(UPDATE, {"global_dictionary": np.eye(6)[:, :3]}, round=2)
    if "f,e" in restarted_with:
        assert refused(answer, "ada has features of other names, or in another order, than it began this run with")
    else:
        assert answer.has_content()


def read_files(monkeypatch):
    """Count what is read."""
    read = []
    monkeypatch.setattr("perdl_client.answers.resume.load_data", lambda *args: read.append(args) or load_data(*args))
    return read


def test_a_node_reads_its_samples_once_and_keeps_those_of_one_run(client, monkeypatch):
    read = read_files(monkeypatch)
    first_update(client)
    assert not read
    former = client.run
    client.run = f"run {next(RUNS)}"  # the server began anew
    client.start()
    first_update(client)
    assert len(read) == 1
    assert memory_of(client.context).recall(former) is None
    client.ask(FINISH, {"global_dictionary": np.eye(6)[:, :3]})
    assert memory_of(client.context).recall(client.run) is None


def test_trials_of_a_search_share_samples_and_first_dictionaries_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    read = read_files(monkeypatch)
    client = Client(tmp_path, sparse_data())

    def trial(number, *overrides):
        client.run = f"f00d/{number}"
        return client.start("evaluation.held_out=0.2", *overrides)

    first = trial(1)
    first_update(client)
    arrays = {"global_dictionary": np.eye(6)[:, :3]}
    told = unpack(client.ask(MEASURE, arrays).content)
    assert not told.arrays
    assert told.scalars["held_out"] == 40
    assert 0 < told.scalars["held_out_error"] < 1
    assert refused(client.ask(MEASURE, arrays), "has no state of this run")  # one number a trial
    assert refused(first_update(client), "has no state of this run")
    assert same(trial(2, "aggregation=energy"), first)
    assert len(memory_of(client.context).ways) == 1
    assert not same(trial(3, "n_atoms=5"), first)
    assert same(trial(4), first)
    assert len(memory_of(client.context).ways) == 2
    assert len(read) == 1
    assert client.ask(FINISH, trials=4).has_content()
    assert memory_of(client.context).recall("f00d") is None
    assert not (client.folder / "own" / "dictionary.npz").exists()


def test_a_client_that_holds_nothing_out_tells_no_error(client):
    first_update(client)
    answer = unpack(client.ask(MEASURE, {"global_dictionary": np.eye(6)[:, :3]}).content)
    assert answer.scalars.keys() == {"client", "protocol"}


def test_a_context_that_goes_between_processes_carries_no_samples_and_finds_them_again(client, monkeypatch):
    """As Ray's do."""
    read = read_files(monkeypatch)
    kept = pickle.dumps(client.context)
    assert len(kept) < memory_of(client.context).recall(client.run).Y.nbytes
    client.context = pickle.loads(kept)
    first_update(client)
    assert not read
    with ThreadPoolExecutor() as other:  # another process
        client.context = other.submit(pickle.loads, kept).result()
    assert memory_of(client.context).recall(client.run) is None
    first_update(client)
    assert len(read) == 1
    client.ask(FINISH, {"global_dictionary": np.eye(6)[:, :3]})
    assert memory_of(pickle.loads(kept)).recall(client.run) is None


@pytest.mark.parametrize("restarted", [False, True])
def test_a_restarted_client_tells_the_same_of_its_held_out_samples(tmp_path, monkeypatch, restarted):
    """What it has alone starts from its first dictionary, which a new process learns again."""
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    told = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        client = Client(tmp_path / str(number), sparse_data())
        assert client.start("evaluation.held_out=0.2").has_content()
        for t in (1, 2):
            first_update(client, indices=(0, 1, 2) if t == 1 else None, t=t)
        if restarted and number:
            memory_of(client.context).clear()
        answer = client.ask(FINISH, {"global_dictionary": np.eye(6)[:, :3]})
        told.append(unpack(answer.content).scalars)
        assert "held_out" in told[-1]
    assert told[0] == told[1]


def test_a_client_of_a_run_that_failed_does_not_stay_to_evaluate(tmp_path, monkeypatch):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    client = Client(tmp_path, sparse_data())
    client.start("evaluation.held_out=0.2")
    first_update(client)
    answer = client.ask(FINISH, {"global_dictionary": np.eye(6)[:, :3]}, reason="it failed at the server")
    assert "held_out" not in unpack(answer.content).scalars


def test_too_few_samples_to_hold_some_out_are_a_warning_at_the_client(tmp_path, monkeypatch, caplog):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    client = Client(tmp_path, sparse_data(n=14))
    with caplog.at_level(logging.WARNING, logger="perdl.client"):
        assert client.start("evaluation.held_out=0.2").has_content()
    assert "ada holds out no samples: of 14 samples 20% are too few" in caplog.text


def test_a_client_insists_on_its_mode_of_privacy(tmp_path, monkeypatch):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    client = Client(tmp_path, sparse_data(), privacy="masked")
    assert refused(client.start(), 'takes part in runs with privacy = "masked" only, and this one has "guarded"')
    other = Client(tmp_path, sparse_data(), privacy="guarded", name="bob")
    assert other.start().has_content()


def test_with_auto_no_width_costs_a_client_memory(tmp_path, monkeypatch):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    client = Client(tmp_path, sparse_data())
    client.start("n_global=auto")
    wide = np.random.default_rng(0).standard_normal((6, 50_000))
    tracemalloc.start()
    answer = client.ask(UPDATE, {"global_dictionary": wide, "indices": np.full(50_000, -1)}, round=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused(answer, "sent 50000 global atoms, and takes 4096 at most")
    assert peak < 10 * wide.nbytes


@pytest.mark.parametrize("t", [-1, 0, 10**8, 2**62])
def test_no_round_has_a_number_that_files_cannot_have(client, t):
    assert refused(first_update(client, t=t), f"was asked for round {t}")
    assert first_update(client, t=1).has_content()


def test_the_global_dictionary_has_the_type_of_the_run(client):
    arrays = {"global_dictionary": np.eye(6, 3, dtype=np.float32), "indices": np.arange(3)}
    assert refused(client.ask(UPDATE, arrays, round=1), "sent a D^g of type float32, float64 was agreed")


@pytest.mark.parametrize("mode", [["none"], ["private", "privacy.epsilon=10", "privacy.clip=3"]])
def test_a_dictionary_out_of_all_proportion_is_refused_without_a_guard_too(tmp_path, monkeypatch, mode):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    client = Client(tmp_path, sparse_data(), terms=Terms(privacy=[mode[0]]).model_dump_json())
    assert client.start(f"privacy.mode={mode[0]}", *mode[1:]).has_content()
    for factor in (1e7, 1e200):
        arrays = {"global_dictionary": factor * np.eye(6, 3), "indices": np.arange(3)}
        assert refused(client.ask(UPDATE, arrays, round=1), "sent a D^g out of all proportion, an atom of norm ")
    assert first_update(client).has_content()


def test_what_is_no_message_of_perdls_is_refused_and_recorded(tmp_path, monkeypatch):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    client = Client(tmp_path, sparse_data(), record=True)
    (tmp_path / "own").mkdir()
    for content in (RecordDict(), RecordDict({"other": pack().config_records["perdl"]})):
        assert refused(app(Message(content, 3, UPDATE), client.context), "the message is not perdl's")
    rows = [json.loads(row) for row in (tmp_path / "own" / "record.jsonl").read_text().splitlines()]
    assert [row["run"] for row in rows] == ["", ""]
    assert all("not perdl's" in row["refused"] for row in rows)


def test_a_refusal_is_one_short_line_however_long_what_it_quotes(tmp_path, monkeypatch):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    client = Client(tmp_path, sparse_data())
    text = json.loads(load_settings(None, []).model_dump_json(exclude_none=True))
    reason = client.ask(INITIALISE, settings=json.dumps({**text, "learner": "a\n" * 5000})).error.reason
    assert len(reason) < 600
    assert reason.isprintable()


@pytest.mark.parametrize(
    ("key", "value"), [("run", "x" * 101), ("run", "a\nb"), ("run", 3), ("codes", 1.0), ("bits", 3)]
)
def test_ids_that_cannot_be_kept_and_keys_that_are_not_listed_are_refused(client, key, value):
    content = pack({}, **{"run": client.run, "settings": "{}", key: value})
    assert app(Message(content, 3, INITIALISE), client.context).has_error()


@pytest.mark.parametrize("name", ["indices", "members", "shared"])
def test_the_last_message_without_a_dictionary_holds_no_other_array(client, name):
    assert refused(client.ask(FINISH, {name: np.zeros(3)}), f"ada was sent {name} without a D^g")
    assert client.ask(FINISH).has_content()
