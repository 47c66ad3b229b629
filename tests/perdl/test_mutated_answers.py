"""Mutated answers of a client at the server: refused in one line, or harmless; no other exception, no D^g with NaN."""

from __future__ import annotations

import copy
import json
import os
import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Message

from common.errors import PerdlError
from common.protocol import FINISH, INITIALISE, MEASURE, OPEN, SCALE, UPDATE, unpack
from common.settings import load_settings
from common.synthetic import generate
from perdl.engines.in_process import InProcessGrid, simulation
from perdl_client.app import app as client_app
from perdl_server import strategy, tuning
from perdl_server.app import run
from perdl_server.federation import admission, site_scale, steps
from perdl_server.federation.members import Members, State
from perdl_server.federation.messages import content_of
from perdl_server.federation.rounds import Federation
from perdl_server.tuning import Tuner
from tests.perdl.mutants import HangError, Mutator, watched

TOTAL = int(os.environ.get("PERDL_MUTANTS", "5000"))
"""Mutants of answers, over all runs below."""

WHOLE = max(5, TOTAL // 800)  # of each run, so many with one mutated answer are taken to their end
PATIENCE = 60.0
LIAR = "client-2"

SMALL = [
    "n_clients=3",
    "rounds=2",
    "tolerance=0",
    "n_restarts=1",
    "warmup_steps=3",
    "local_restarts=1",
    "min_samples=2",
]
SMALL += ["synthetic.n_features=4", "synthetic.n_global=2", "synthetic.n_local=2", "data.n_samples=60"]
SMALL += ["synthetic.noise=0.02", "join_timeout=1", "round_timeout=1"]
RUNS = {
    "none": ["privacy=none", "n_global=2", "trim=0.34", "aggregation=trimmed"],
    "guarded, energy": ["n_global=2", "aggregation=energy", "dtype=float32"],
    "guarded, procrustes": ["n_global=auto", "aggregation=procrustes", "data.site_scale=agree"],
    "guarded, held out": ["n_global=2", "evaluation.held_out=0.4", "evaluation.n_nonzero=2", "aggregation=polar"],
    "guarded, some share": ["n_global=auto", "sharing=some", "aggregation=energy"],
    "aggregated": ["privacy=aggregated", "n_global=2", "aggregation=energy"],
    "masked": ["privacy=masked", "n_global=2", "aggregation=geometric-median"],
    "private": ["privacy=private", "privacy.epsilon=50", "privacy.clip=3", "n_global=2"],
    "search": ["n_global=2", "evaluation.held_out=0.4", "evaluation.n_nonzero=2"],
}
COUNTED = {"aggregated": [INITIALISE, UPDATE, OPEN, FINISH], "search": [INITIALISE, UPDATE, MEASURE, FINISH]}
COUNTED["guarded, procrustes"] = [SCALE, INITIALISE, UPDATE, FINISH]


def settings_of(folder, name, *more):
    source = []
    if name == "search":
        kind = {"n_features": 4, "n_global": 2, "n_local": 2, "sparsity": 0.4, "noise": 0.02}
        for i in range(1, 4):
            np.save(folder / f"{i}.npy", generate(0, f"client-{i}", n_samples=60, **kind).data.T)
        source = ["data.source=files", f"data.path={folder}/*.npy"]
        small = [one for one in SMALL if not one.startswith(("synthetic", "data.n_samples"))]
        return load_settings(None, [*small, *source, *RUNS[name], f"output={folder / 'out'}", *more])
    return load_settings(None, [*SMALL, *RUNS[name], f"output={folder / 'out'}", *more])


def start(name, settings, grid):
    if name == "search":
        Tuner(settings, grid, frozenset({"n_global", "n_atoms", "coder", "threshold", "aggregation"})).run()
    else:
        run(settings, grid)


def grid_of(grid_class=InProcessGrid):
    names = [f"client-{i + 1}" for i in range(3)]
    return grid_class(
        client_app, [{"partition-id": i, "num-partitions": 3, "name": name} for i, name in enumerate(names)]
    )


def reply_of(content):
    return SimpleNamespace(has_error=lambda: False, content=content)


class Bench:
    """Puts mutants of the liar's answers before each check of the server, beside the honest run."""

    def __init__(self, monkeypatch, name, n):
        self.name, self.n = name, n
        self.mutator = Mutator(np.random.default_rng(100 + list(RUNS).index(name)))
        self.counts, self.faults, self.taken, self.newcomers, self.sums = Counter(), [], [], [], []
        take, hear, match = Federation._take_answer, admission.Admission.hear, steps.match_members
        aggregate, sums_of = steps._aggregate, site_scale._sums_of

        def take_answer(federation, question, member, reply):
            if member.name == LIAR and not reply.has_error():
                for content in self.mutants(question.kind, reply.content):
                    self.try_answer(take, federation, question, member, content)
            take(federation, question, member, reply)

        def hear_all(one, node, reply, *, tell):
            if not reply.has_error() and unpack(reply.content).scalars["client"] == LIAR:
                for content in self.mutants(INITIALISE, reply.content):
                    self.try_introduction(one, node, content)
            return hear(one, node, reply, tell=tell)

        def match_all(federation):
            for member in self.newcomers:
                self.try_match(federation, member)
            self.newcomers.clear()
            return match(federation)

        def aggregate_all(server, answers):
            for payload in self.taken:
                self.try_aggregate(aggregate, server, answers, payload)
            self.taken.clear()
            aggregate(server, answers)

        def sums_with(payload):
            if payload.scalars["client"] == LIAR:
                for content in self.mutants(SCALE, self.scale):
                    self.try_sums(sums_of, content)
            return sums_of(payload)

        monkeypatch.setattr(Federation, "_take_answer", take_answer)
        monkeypatch.setattr(admission.Admission, "hear", hear_all)
        for module in (strategy, tuning):
            monkeypatch.setattr(module, "match_members", match_all)
        monkeypatch.setattr(steps, "_aggregate", aggregate_all)
        monkeypatch.setattr(site_scale, "_sums_of", sums_with)
        original = site_scale.content_of

        def scale_content(reply, kind):
            self.scale = reply.content
            return original(reply, kind)

        monkeypatch.setattr(site_scale, "content_of", scale_content)

    def mutants(self, kind, content):
        seen = self.counts[kind, "seen"]
        self.counts[kind, "seen"] += 1
        for _ in range(self.n if seen == 0 else self.n // 4 if seen < 3 else 0):
            self.kind = kind
            self.mutated = self.mutator.mutant(content)
            yield copy.deepcopy(self.mutated)

    def tried(self, what, *args):
        """Call what the server does; return its result, or None if it refused in a declared way."""
        try:
            with watched(PATIENCE), np.errstate(over="raise", divide="raise", invalid="raise"):
                return what(*args)
        except PerdlError as error:
            self.refused(str(error))
        except (Exception, HangError) as error:
            self.fault(f"{type(error).__name__}: {error}")
        return None

    def fault(self, text):
        shown = {k: repr(v)[:160] for one in self.mutated.values() for k, v in dict(one).items()}
        self.faults.append(f"{self.kind} of {self.name}: {text}: {shown}")

    def refused(self, why):
        self.counts[self.kind, "refused"] += 1
        if not why or not why.isprintable() or len(why) > 600:
            self.fault(f"refused with {why!r}")

    def try_answer(self, take, federation, question, member, content):
        one, question = replace(member, facts=dict(member.facts), state=State.ASKED), replace(question, answers={})
        self.tried(take, federation, question, one, reply_of(content))
        if one.state is State.FAILED:
            return self.refused(one.fault)
        if one.state is not State.ANSWERED:
            return None
        self.counts[self.kind, "taken"] += 1
        payload = question.answers[LIAR]
        self.check_finite(payload)
        if question.kind == UPDATE and "contribution" in payload.arrays:
            self.taken.append(payload)
        if question.kind == FINISH:
            json.dumps(question.check(payload, LIAR), allow_nan=False)
        return None

    def check_finite(self, payload):
        values = [a for a in payload.arrays.values() if a.dtype.kind == "f"]
        numbers = [value for value in payload.scalars.values() if isinstance(value, float)]
        if not all(np.isfinite(one).all() for one in [*values, *numbers]):
            self.fault("took what is not finite")

    def try_introduction(self, one, node, content):
        member = self.tried(
            lambda: admission.read_introduction(content_of(reply_of(content), INITIALISE), replace(node), one.settings)
        )
        if member is not None:
            self.counts[self.kind, "taken"] += 1
            json.dumps(member.facts, allow_nan=False)
            self.newcomers.append((member, self.mutated))

    def try_match(self, federation, newcomer):
        """Match with the newcomer in the liar's place."""
        member, self.mutated = newcomer
        self.kind = INITIALISE
        server = copy.deepcopy(federation.server)
        others = [replace(one, facts=dict(one.facts)) for one in federation.members if one.name != LIAR]
        together = Members(federation.settings, server, others)

        def match():
            if together.objection(member, {m.node for m in others}):
                return None
            together.admit(member)
            if together.remove_mismatches():
                return None
            one = SimpleNamespace(members=together, server=server)
            return steps.match_members(one)

        if self.tried(match) is not None and not (
            np.isfinite(server.global_dictionary).all() and np.isfinite(server.consensus).all()
        ):
            self.fault("matched to a D^g that is not finite")

    def try_aggregate(self, aggregate, server, answers, payload):
        """Aggregate with the mutant in the liar's place; a declared error here would not name the client."""
        server = copy.deepcopy(server)
        mixed = [(member, payload if member.name == LIAR else own) for member, own in answers]
        try:
            with np.errstate(over="raise", divide="raise", invalid="raise"), watched(PATIENCE):
                aggregate(server, mixed)
        except (Exception, HangError) as error:
            self.faults.append(f"aggregating: {type(error).__name__}: {error}: {payload.arrays}")
            return
        if not np.isfinite(server.global_dictionary).all() or server.global_dictionary.dtype != server.settings.dtype:
            self.faults.append(f"aggregated to a D^g that is not finite or of another type: {payload.arrays}")

    def try_sums(self, sums_of, content):
        told = self.tried(lambda: sums_of(content_of(reply_of(content), SCALE)))
        if told is not None:
            self.counts[self.kind, "taken"] += 1
            with np.errstate(over="raise"):
                scale = site_scale.combined_scale([told[1], (np.full(4, 60.0), np.full(4, 20.0))])
            if not all(0 < one < np.inf for one in scale):
                self.fault(f"agreed on the scale {scale}")


@pytest.mark.parametrize("name", RUNS)
def test_the_server_refuses_mutated_answers(tmp_path, monkeypatch, name):
    settings = settings_of(tmp_path, name)
    kinds = COUNTED.get(name, [INITIALISE, UPDATE, FINISH])
    bench = Bench(monkeypatch, name, max(4, TOTAL // len(RUNS) * 2 // 3 // len(kinds)))
    with simulation():
        start(name, settings, grid_of())
    assert not bench.faults, f"{len(bench.faults)}:\n" + "\n".join(bench.faults[:30])
    for kind in kinds:
        if (kind, "seen") in bench.counts:
            assert bench.counts[kind, "refused"] > 0.4 * bench.n, bench.counts


class LyingGrid(InProcessGrid):
    """One of the liar's answers is a mutant."""

    def lie(self, which, mutator):
        self.left, self.mutator, self.lied = which, mutator, ""

    def _answer(self, message):
        answer = super()._answer(message)
        if message.metadata.dst_node_id != 1001 or answer.has_error():
            return answer
        self.left -= 1
        if self.left != 0:
            return answer
        content = self.mutator.mutant(answer.content)
        shown = {k: repr(v)[:160] for one in content.values() for k, v in dict(one).items()}
        self.lied = f"{message.metadata.message_type}: {shown}"
        lie = Message(content, reply_to=message)
        lie.metadata.__dict__["_message_id"] = answer.metadata.message_id
        return lie


@pytest.mark.parametrize("quorum", [None, 2])
@pytest.mark.parametrize("name", [name for name in RUNS if name != "search"])
def test_a_run_with_a_lie_goes_on_without_the_client_or_ends_in_one_line(tmp_path, name, quorum):
    rng = np.random.default_rng(7)
    more = [f"quorum={quorum}"] if quorum and name != "aggregated" else []
    for i in range(WHOLE // 2 + 1):
        folder = tmp_path / str(i)
        folder.mkdir()
        with simulation():
            grid = grid_of(LyingGrid)
            grid.lie(1 + i % 5, Mutator(np.random.default_rng(rng.integers(2**32))))
            try:
                with watched(PATIENCE):
                    run(settings_of(folder, name, *more), grid)
                ended = ""
            except PerdlError as error:
                ended = str(error)
        where = f"{name} with {grid.lied}: {ended!r}"
        assert ended.isprintable(), where
        text = (folder / "out" / "summary.json").read_text()
        assert not re.search(r"NaN|Infinity", text), where
        summary = json.loads(text)
        assert (summary["stop_reason"] == f"failed: {ended}") == bool(ended), where
        if ended:
            named = re.search(r"client-2|1 of 3 clients|2 of 3 clients|a sum does not tell which|the sum", ended)
            assert named, where
        if (folder / "out" / "global_dictionary.npz").exists():
            with np.load(folder / "out" / "global_dictionary.npz") as file:
                assert all(np.isfinite(file[key]).all() for key in file.files), where
