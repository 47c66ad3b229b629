"""Hostile and absent clients: what they cannot do, that they are named, and that others are as they were."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
from flwr.app import Error, Message
from flwr.common.constant import ErrorCode

from common.dictionaries import dictionary_distance
from common.protocol import INITIALISE, UPDATE, pack, unpack
from common.settings import changed, settings_from_values
from perdl.engines.in_process import InProcessGrid, simulation
from perdl.experiments.attacks import ATTACKS, Absent, Hostile
from perdl.experiments.federation import first_dictionaries, perma, used
from perdl.experiments.synthetic_runs import draw
from perdl.perma import Channel
from perdl_client.app import app as client_app
from perdl_server.algorithm.matching import global_matching, suggest_n_global
from perdl_server.app import run

LIARS = (0, 4, 7)  # the first of the chain is one
ROBUST = ("trimmed", "geometric-median")
FIT = ("copy, permuted", "a little is enough", "turned by 45 degrees")  # made of one honest client's atoms, its own too


class ChannelGrid(InProcessGrid):
    """A Flower grid whose clients' answers reach the server over a channel of the experiments."""

    channel = Channel()

    def push_messages(self, messages):
        ids = list(super().push_messages(messages))
        answers = [self._answers[i] for i in ids]
        kind, there = answers[0].metadata.message_type, [a for a in answers if a.has_content()]
        payloads = [unpack(answer.content) for answer in there]
        if kind == INITIALISE:
            sent = self.channel.starts(*([p.arrays[key] for p in payloads] for key in ("dictionary", "usage")))
            changes = [{"dictionary": D, "usage": e} for D, e in zip(*sent, strict=True)]
        elif kind == UPDATE:
            who = [answer.metadata.src_node_id - 1000 for answer in there]
            A = np.stack([p.arrays["contribution"] for p in payloads])
            w = np.stack([p.arrays.get("energies", np.ones(A.shape[2])) for p in payloads])
            A, w = self.channel.updates(payloads[0].scalars["round"], who, A, w)
            weighted = "energies" in payloads[0].arrays
            changes = [{"contribution": a} | ({"energies": e} if weighted else {}) for a, e in zip(A, w, strict=True)]
        else:
            return ids
        for answer, payload, change in zip(there, payloads, changes, strict=True):
            scalars = {key: value for key, value in payload.scalars.items() if key != "protocol"}
            answer.content = pack({**payload.arrays, **change}, **scalars)
        return ids

    def _answer(self, message):
        if message.metadata.message_type == UPDATE:
            t = unpack(message.content).scalars["round"]
            if message.metadata.dst_node_id - 1000 not in self.channel.present(t, len(self._contexts)):
                message.metadata.__dict__["_message_id"] = f"{message.object_id}-asked"
                answer = Message(Error(ErrorCode.UNKNOWN, "absent"), reply_to=message)
                answer.metadata.__dict__["_message_id"] = f"{message.object_id}-absent"
                return answer
        return super()._answer(message)


def over_flower(settings, channel, folder):
    grid_class = type("Grid", (ChannelGrid,), {"channel": channel})
    with simulation():
        grid = grid_class(client_app, [{"partition-id": i} for i in range(settings.n_clients)])
        run(changed(settings, output=str(folder)), grid)
    return json.loads((folder / "summary.json").read_text()), np.load(folder / "global_dictionary.npz")["dictionary"]


SETTINGS = settings_from_values({"n_restarts": 3, "rounds": 30, "privacy": "none"})


@functools.cache
def drawn(seed=0):
    truths, clients = draw(changed(SETTINGS, seed=seed))
    return truths[0].global_dictionary, clients, first_dictionaries(clients, seed)


def end(channel=None, seed=0, **changes):
    """Final distance to the truth on arrays."""
    truth, clients, starts = drawn(seed)
    model = perma(clients, starts, changed(SETTINGS, seed=seed, **changes), channel=channel)
    return dictionary_distance(model.global_dictionary, truth)


# What hostile clients cannot do


@pytest.mark.parametrize("aggregation", ROBUST)
@pytest.mark.parametrize("attack", ATTACKS)
def test_three_hostile_clients_of_ten_do_no_harm_to_a_robust_aggregation(attack, aggregation):
    assert end(Hostile(attack, LIARS, 0), aggregation=aggregation) <= 1e-10


@pytest.mark.parametrize("attack", ["random", "colluding", "one atom many times"])
def test_they_ruin_the_mean_behind_a_chain(attack):
    assert end(Hostile(attack, LIARS, 0), aggregation="mean", matching="chain") > 0.1


@pytest.mark.parametrize("aggregation", ["mean", "normalized", "polar", "energy", "trimmed", "geometric-median"])
def test_flipped_signs_are_turned_back_by_every_aggregation_of_plain_atoms(aggregation):
    assert end(Hostile("sign-flip", (0, 1, 4, 7, 8), 0), aggregation=aggregation) <= 1e-10


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("seed", range(2))
def test_a_star_gives_honest_clients_the_atoms_that_they_have_without_the_hostile(attack, seed):
    _, clients, starts = drawn(seed)
    kept, energies = zip(*(used(client, D) for client, D in zip(clients, starts, strict=True)), strict=True)
    dictionaries = [D[:, mine] for D, mine in zip(starts, kept, strict=True)]
    honest = [i for i in range(10) if i not in LIARS]
    attacked, _ = Hostile(attack, LIARS, seed).starts(dictionaries, list(energies))
    without = global_matching([dictionaries[i] for i in honest], 3, method="star").indices
    found = global_matching(attacked, 3, method="star").indices[honest]
    assert {tuple(path) for path in found.T} == {tuple(path) for path in without.T}
    if attack not in FIT:
        assert suggest_n_global(attacked, method="star")[0] == 3


# The server does with all this what the loop on arrays does


@pytest.mark.parametrize(
    ("attack", "aggregation"), [("random", "trimmed"), ("colluding", "mean"), ("one atom many times", "energy")]
)
def test_the_flower_run_under_attack_equals_the_loop_on_arrays(tmp_path, attack, aggregation):
    settings = changed(SETTINGS, aggregation=aggregation, rounds=8)
    _, clients, starts = drawn()
    summary, D_g = over_flower(settings, Hostile(attack, LIARS, 0), tmp_path)
    model = perma(clients, starts, settings, channel=Hostile(attack, LIARS, 0))
    np.testing.assert_array_equal(D_g, model.global_dictionary)
    assert summary["misfits"] == ["client-1", "client-5", "client-8"]
    (warning,) = (text for text in summary["warnings"] if "client-1, client-5, client-8" in text)
    assert ("aggregation = trimmed" in warning) == (aggregation != "trimmed")


@pytest.mark.parametrize("matching", ["chain", "star"])
def test_of_honest_clients_none_is_named(tmp_path, matching):
    settings = changed(SETTINGS, rounds=1, matching=matching, synthetic={"noise": 0.1})
    assert over_flower(settings, Channel(), tmp_path)[0]["misfits"] == []


# Absent clients


@pytest.mark.parametrize("aggregation", ["mean", "procrustes", "trimmed"])
def test_a_third_absent_each_round_ends_at_the_same_limit(aggregation):
    assert end(Absent(0.3, 0), aggregation=aggregation, rounds=60) <= 1e-10


def test_absent_clients_over_flower_are_those_of_the_loop_on_arrays(tmp_path):
    settings = changed(SETTINGS, quorum=7, rounds=8)
    _, clients, starts = drawn()
    _, D_g = over_flower(settings, Absent(0.3, 0), tmp_path)
    np.testing.assert_array_equal(D_g, perma(clients, starts, settings, channel=Absent(0.3, 0)).global_dictionary)
    rows = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    assert {row["clients"] for row in rows} == {7}
