"""Mutated messages to a client's handlers: declared errors in one line, no hang, and nothing false is accepted.

What is accepted is a message that an honest server could send, or one that says the same as the message of the run.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import resource
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, Message
from flwr.supercore.task_identity import TaskIdentity

from common.errors import PerdlError
from common.mask import simulated_secret
from common.protocol import FINISH, INITIALISE, LAST_ROUND, MEASURE, OPEN, SCALE, UPDATE, answer_keys, pack, unpack
from common.secure_sum import threshold
from common.settings import Settings, load_settings, settings_from_values
from common.synthetic import generate
from perdl.engines.in_process import InProcessGrid
from perdl_client.app import app as client_app
from perdl_client.data.memory import memory_of
from perdl_client.state import find_state
from perdl_client.terms import Terms
from perdl_server.app import run
from perdl_server.tuning import Tuner
from tests.perdl.mutants import HangError, Mutator, settings_names, watched, with_setting

TOTAL = int(os.environ.get("PERDL_MUTANTS", "2000"))
"""Mutants of messages to clients, over all runs below. ``PERDL_MUTANTS=10000`` takes a minute or two."""

PATIENCE = 60.0  # seconds that no message may take
MEMORY = 4 * 2**30  # bytes of address space that no message may take
TERMS = Terms(privacy=["none", "guarded", "aggregated", "masked", "private"], seconds=5, memory=0.05, epsilon=1e6)

SMALL = ["n_clients=3", "rounds=2", "tolerance=0", "n_restarts=1", "warmup_steps=3", "local_restarts=1"]
SMALL += ["data.source=files", "data.path=unused", "min_samples=2", "join_timeout=5", "round_timeout=5"]
RUNS = {
    "none": ["privacy=none", "evaluation.held_out=0.3"],
    "guarded": ["n_global=2", "aggregation=energy", "dtype=float32"],
    "guarded, the number found": ["n_global=auto", "data.site_scale=agree", "aggregation=procrustes"],
    "guarded, some share": ["n_global=auto", "sharing=some"],
    "aggregated": ["privacy=aggregated", "n_global=2", "aggregation=energy"],
    "masked": ["privacy=masked", "n_global=2"],
    "private": ["privacy=private", "privacy.epsilon=50", "privacy.clip=3", "n_global=2"],
    "search": ["n_global=2", "evaluation.held_out=0.3", "evaluation.n_nonzero=2"],
}


EXTREMES = [0, 1, 7, 1000, 10**5, 10**9, 2**62, -1, 1e-9, 1e-300, 1e300, 0.999999]
"""Values for every setting. Those of another type are refused."""

VARIED = {"guarded": "", "private": "privacy.", "search": "evaluation."}
"""In which runs which settings are varied: those whose names begin so."""


class Recorded:
    """A message of an honest run, and what its receiver was before it came."""

    def __init__(self, message, context):
        self.kind, self.content = message.metadata.message_type, copy.deepcopy(message.content)
        self.state, self.files, self.answer = copy.deepcopy(context.state), files_in(own_folder(context)), None


def own_folder(context):
    return Path(context.node_config["folder"])


def files_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def marks_in(folder):
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*") if path.is_file()}


class RecordingGrid(InProcessGrid):
    """Keeps the messages to the first client, with its state and folder before each."""

    def __init__(self, configs):
        super().__init__(client_app, configs)
        self.recorded = []

    def _answer(self, message):
        context = self._contexts[message.metadata.dst_node_id]
        if context.node_id != 1000:
            return super()._answer(message)
        before = Recorded(message, context)
        answer = super()._answer(message)
        if answer.has_content():
            before.answer = copy.deepcopy(answer.content)
            self.recorded.append(before)
        return answer


def recorded_run(name, place):
    """Run a federation of deployed clients; return the first one's configuration and the messages to it."""
    (place / "secret").write_text(simulated_secret(0).hex())
    kind = {"n_features": 4, "n_global": 2, "n_local": 2, "sparsity": 0.4, "noise": 0.02}
    configs = []
    for i in range(1, 4):
        np.save(place / f"{i}.npy", generate(0, f"client-{i}", n_samples=60, **kind).data.T)
        (place / f"own-{i}").mkdir()
        config = {"name": f"client-{i}", "data": str(place / f"{i}.npy"), "folder": str(place / f"own-{i}")}
        config |= {"terms": TERMS.model_dump_json(), "ledger": str(place / f"own-{i}" / "ledger.json")}
        config |= {"secret": str(place / "secret")} if name == "masked" else {}
        configs.append(config | ({"record": True} if name == "none" else {}))
    settings = load_settings(None, [*SMALL, f"output={place / 'out'}", *RUNS[name]])
    grid = RecordingGrid(configs)
    if name == "search":
        Tuner(settings, grid, frozenset({"n_global", "n_atoms", "coder"})).run()
    else:
        run(settings, grid)
    return configs[0], grid.recorded[:12], settings


@contextmanager
def bounded_memory():
    """Let nothing take much more memory than there is in use."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


class Receiver:
    """The client, put back before each mutant to what it was when the honest message came."""

    def __init__(self, config):
        self.config, self.was, self.marks = config, None, {}
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 7, 1, 1

    def ask(self, before, content):
        state = copy.deepcopy(before.state)
        context = Context(run_id=7, node_id=1000, node_config=self.config, state=state, run_config={})
        self._put_back(own_folder(context), before)
        if before.kind in (SCALE, INITIALISE):
            memory_of(context).clear()
        return client_app(Message(content, 1000, before.kind), context)

    def _put_back(self, own, before):
        now = marks_in(own)
        if before is self.was and now == self.marks:
            return
        for path in now.keys() - before.files.keys():
            path.unlink()
        for path, content in before.files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self.was, self.marks = before, marks_in(own)


def same_content(one, other):
    return one is not None and dict(one.config_records["perdl"]) == dict(other.config_records["perdl"])


def acceptable(before, content, settings, terms):
    """Whether an honest server, in another run or with other clients, could have sent this content."""
    try:
        honest, payload = unpack(before.content), unpack(content)
    except PerdlError:
        return False
    if set(content.keys()) != {"perdl"}:
        return False
    state = find_state(honest.scalars["run"], Context(7, 1000, {}, before.state, {}), None)
    judge = Judge(before.kind, honest, payload, settings, terms, state)
    names = {*payload.scalars, *payload.arrays, *honest.scalars, *honest.arrays}
    return all(judge.name(name) for name in names)


class Judge:
    """Says of each name whether its value may differ from that of the honest message."""

    def __init__(self, kind, honest, payload, settings, terms, state):
        self.kind, self.honest, self.payload = kind, honest, payload
        self.settings, self.terms, self.state = settings, terms, state

    def name(self, name):
        one, other = ({**p.scalars, **p.arrays}.get(name) for p in (self.honest, self.payload))
        if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
            if one.dtype == other.dtype and np.array_equal(one, other):
                return True
        elif type(one) is type(other) and not isinstance(one, np.ndarray) and one == other:
            return True
        judge = getattr(self, f"judge_{name}", None)
        return judge is not None and judge(one, other)

    @property
    def width(self):
        """Number of atoms of the D^g that came; -1 without one."""
        D_g = self.payload.arrays.get("global_dictionary")
        return -1 if D_g is None or D_g.ndim != 2 else D_g.shape[1]

    def judge_run(self, one, other):
        alone = self.kind in (SCALE, INITIALISE) or (
            self.kind == FINISH and "global_dictionary" not in self.payload.arrays
        )
        return alone and isinstance(other, str) and 0 < len(other) <= 100 and other.isprintable()

    def judge_settings(self, one, other):
        try:
            settings = settings_from_values(json.loads(other))
            self.terms.check_settings(settings, settings.for_client("client-1"), "client-1")
        except (PerdlError, ValueError, RecursionError, TypeError):
            return False
        return True

    def judge_round(self, one, other):
        most = self.settings.rounds if self.settings.privacy.mode == "private" else LAST_ROUND
        return self.kind == UPDATE and type(other) is int and self.state.step < other <= most

    def judge_global_dictionary(self, one, other):
        if other is None:
            return self.kind == FINISH and not self.payload.arrays
        as_agreed = one is not None and other.dtype == one.dtype and other.shape == one.shape
        found = self.settings.n_global == "auto" and self.state.n_global < 0
        wide = one is not None and found and other.dtype == one.dtype and len(other) == len(one)
        return (as_agreed or wide) and bool(np.isfinite(other).all())

    def judge_indices(self, one, other):
        if other is None or not len(self.state.used):
            return not len(self.state.used)
        own, r_g = other[other != -1], self.width
        good = other.shape == (r_g,) and len(set(own.tolist())) == len(own)
        return other.dtype.kind == "i" and good and set(own.tolist()) <= set(range(len(self.state.used)))

    def judge_members(self, one, other):
        if self.settings.sharing != "some":
            return True  # not read
        r_g = self.width
        return other is not None and other.dtype == bool and other.shape == (r_g,)

    judge_shared = judge_members

    def judge_reason(self, one, other):
        return self.kind == FINISH and (other is None or type(other) is str)

    def judge_trials(self, one, other):
        return self.kind == FINISH and (other is None or type(other) is int)

    def judge_bits(self, one, other):
        return (type(other) is int and abs(other) <= 1100) or self.settings.privacy.mode != "aggregated"

    def judge_roster(self, one, other):
        return self.settings.privacy.mode != "aggregated"  # elsewhere it is not read

    judge_clients = judge_roster

    def judge_present(self, one, other):
        n = len(one)
        good = other is not None and other.dtype == bool and other.shape == (n,) and other[0]
        return good and np.count_nonzero(other) >= max(threshold(n), self.settings.n_clients)

    def judge_shares(self, one, other):
        if self.kind != OPEN or other is None or other.shape != one.shape or other.dtype != one.dtype:
            return self.kind != OPEN
        return np.array_equal(other[1:], one[1:])  # its own row is not read


def allotted(recorded, total):
    """Share a number of mutants among messages: the same kinds in the same number, first ones most."""
    kinds = Counter(one.kind for one in recorded)
    return [max(1, total // (len(kinds) * kinds[one.kind])) for one in recorded]


@pytest.mark.parametrize("name", RUNS)
def test_a_client_takes_no_mutated_message(tmp_path, monkeypatch, name):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    config, recorded, settings = recorded_run(name, tmp_path)
    kinds = {one.kind for one in recorded}
    assert {INITIALISE, UPDATE, FINISH, *({OPEN} if name == "aggregated" else set())} <= kinds | {MEASURE, FINISH}
    receiver = Receiver(config)
    mutator = Mutator(np.random.default_rng(list(RUNS).index(name)))
    counts, faults = Counter(), []
    for before, n in zip(recorded, allotted(recorded, TOTAL // len(RUNS)), strict=True):
        answer = receiver.ask(before, copy.deepcopy(before.content))
        assert answer.has_content(), answer.error.reason  # put back, it answers
        for _ in range(n):
            content = mutator.mutant(before.content)
            shown = f"{before.kind} of {name}: {shortened(content)}"
            try:
                with bounded_memory(), watched(PATIENCE):
                    answer = receiver.ask(before, copy.deepcopy(content))
            except HangError as error:
                pytest.fail(f"{shown}: {error}")
            kind, fault = judged(before, content, answer, settings)
            counts[kind] += 1
            if fault:
                faults.append(f"{shown}: {fault}")
    assert not faults, "\n".join(faults[:30])
    assert counts["refused"] > 0.5 * counts.total(), counts


@pytest.mark.parametrize("name", VARIED)
def test_no_setting_costs_a_client_time_or_memory(tmp_path, monkeypatch, name):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    config, recorded, _ = recorded_run(name, tmp_path)
    receiver, before = Receiver(config), recorded[0]
    text, faults = unpack(before.content).scalars["settings"], []
    names = [key for key in settings_names(Settings) if key.startswith(VARIED[name])]
    for key, value in itertools.product(names, EXTREMES):
        content = pack(None, run="another", settings=with_setting(text, key, value))
        try:
            with bounded_memory(), watched(PATIENCE):
                answer = receiver.ask(before, content)
        except HangError as error:
            pytest.fail(f"{key} = {value}: {error}")
        if answer.has_error() and (fault := fault_of(answer.error.reason)):
            faults.append(f"{key} = {value}: {fault}")
    assert not faults, "\n".join(faults)


def judged(before, content, answer, settings):
    """Return what became of a mutant, and what is wrong with that; empty if nothing is."""
    if answer.has_error():
        return "refused", fault_of(answer.error.reason)
    told = unpack(answer.content, answer_keys(before.kind))
    if not all(np.isfinite(array).all() for array in told.arrays.values() if array.dtype.kind == "f"):
        return "taken", "the answer is not finite"
    if same_content(before.answer, answer.content):
        return "the same", ""
    return "taken", "" if acceptable(before, content, settings, TERMS) else f"it was taken: {told.scalars}"


def fault_of(reason):
    """Say what is wrong with the reason of a refusal."""
    plain = reason and reason.isprintable() and len(reason) < 600
    return "" if plain and "details are in" not in reason and "disk or folder" not in reason else repr(reason)


def shortened(content):
    return {key: {k: repr(v)[:160] for k, v in dict(record).items()} for key, record in content.items()}
