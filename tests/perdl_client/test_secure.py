"""A client's part of secure sums, called directly: what is summed, what is refused, and what a restart survives."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from common import fixed_point, shamir
from common import secure_sum as sums
from common.protocol import ProtocolError, pack, unpack
from common.settings import changed, load_settings
from perdl.engines.in_process import simulation
from perdl_client import secure
from perdl_client.identity import Identity
from perdl_client.roster import read_roster
from perdl_client.vault import Turn, Vault
from perdl_server.federation.secure import unmasked

D_G = np.eye(4, 2)
RUN = "run-1"


@pytest.fixture(autouse=True)
def simulated():
    with simulation():
        yield


def update(i, aggregation="mean"):
    rng = np.random.default_rng(i)
    return SimpleNamespace(
        contribution=lambda aggregation: rng_atoms(i),
        energies=rng.uniform(0, 5, 2),
        error=0.1 * i,
        nonzeros=2.5,
        reassigned=i,
    )


def rng_atoms(i):
    return np.random.default_rng(100 + i).uniform(-1, 1, (4, 2))


class Clients:
    """n clients with contexts of their own, and what a server would send them."""

    def __init__(self, n, *overrides, aggregation="mean", configs=None):
        self.settings = load_settings(
            None, [f"n_clients={n}", "privacy=aggregated", f"aggregation={aggregation}", *overrides]
        )
        configs = configs or [{"name": f"client-{i + 1}"} for i in range(n)]
        self.identities = [Identity.of(config) for config in configs]
        self.names = [identity.name for identity in self.identities]
        self.restart()
        self.cards = {}
        Y = np.ones((4, 3))
        for identity, context in zip(self.identities, self.contexts, strict=True):
            told = secure.introduction(identity, self.settings, RUN, lambda: Y, context)
            self.cards[identity.name] = told["card"]
            self.bits = fixed_point.fraction_bits([told["exponent"]] * n)

    def restart(self):
        self.contexts = [
            Context(run_id=1, node_id=i, node_config={}, state=RecordDict(), run_config={})
            for i in range(len(self.names))
        ]

    def question(self, t, D_g=D_G, **changes):
        text = sums.roster_text(self.cards)
        scalars = {"run": RUN, "round": t, "roster": sums.digest(text).hex(), "bits": self.bits, **changes}
        arrays = {"global_dictionary": D_g, "clients": np.frombuffer(text.encode(), np.uint8)}
        return unpack(pack(arrays, **scalars))

    def begin(self, i, question, t=1):
        return secure.begin_round(question, self.identities[i], self.settings, t, self.contexts[i])

    def answer(self, i, t=1, question=None, new=None):
        return self.begin(i, question or self.question(t), t).answer(new or update(i), self.settings.aggregation)

    def open(self, i, present, answers, t=1, spoil=None):
        shares = np.zeros((len(self.names), sums.SEALED), np.uint8)
        for j in np.flatnonzero(present):
            if j != i:
                shares[j] = answers[self.names[j]]["shares"][i]
        if spoil:
            spoil(shares)
        roster = sums.digest(sums.roster_text(self.cards)).hex()
        question = unpack(pack({"present": present, "shares": shares}, run=RUN, round=t, roster=roster))
        return secure.open_sum(question, self.identities[i], self.settings, self.contexts[i])["told"]


def plain_sum(clients, who):
    bound = 6 if clients.settings.aggregation in ("mean", "polar") else 8
    return sum(secure.numbers(update(i), clients.settings.aggregation, clients.bits, bound) for i in who)


@pytest.mark.parametrize("aggregation", ["mean", "energy", "procrustes"])
@pytest.mark.parametrize("n", [3, 5])
def test_opened_sum_is_the_plain_sum_for_every_set_of_clients_that_may_answer(n, aggregation):
    t = sums.threshold(n)
    for k in range(t, n + 1):
        for who in combinations(range(n), k):
            clients = Clients(n, f"quorum={t}", aggregation=aggregation)
            answers = {clients.names[i]: clients.answer(i) for i in who}
            present = np.isin(np.arange(n), who)
            openers = who if k < n else who[-t:]  # if all are in the sum, enough of them open it
            told = {clients.names[i]: clients.open(i, present, answers) for i in openers}
            np.testing.assert_array_equal(unmasked(answers, told, clients.names, present), plain_sum(clients, who))


def test_the_sum_of_fewer_openers_than_needed_stays_closed():
    clients = Clients(5)
    answers = {name: clients.answer(i) for i, name in enumerate(clients.names)}
    present = np.ones(5, bool)
    told = {clients.names[i]: clients.open(i, present, answers) for i in range(4)}
    assert sums.threshold(5) == 4
    shares = {i: told[clients.names[i]][0].tobytes() for i in range(3)}
    try:
        seed = shamir.join_shares(shares)
    except shamir.SharesError:
        seed = b""
    assert sums.digest("own seed", seed) != answers["client-1"]["commitment"].tobytes()


def test_a_round_asked_again_has_the_same_bytes_and_another_round_others():
    clients = Clients(3)
    one, again, other = clients.answer(0), clients.answer(0), clients.answer(0, t=2)
    for key in one:
        np.testing.assert_array_equal(one[key], again[key])
        assert not np.array_equal(one[key], other[key])


@pytest.mark.parametrize("change", ["D^g", "clients", "bits"])
def test_a_second_vector_for_a_round_is_refused(change):
    clients = Clients(4, "quorum=4")
    clients.answer(0)
    question = clients.question(1)
    if change == "D^g":
        question = clients.question(1, D_g=D_G + 1e-12)
    elif change == "bits":
        question = clients.question(1, bits=clients.bits - 1)
    else:
        other = Clients(4, "seed=5", "quorum=4").cards["client-3"]
        clients.cards["client-3"] = other
        question = clients.question(1)
    with pytest.raises(ProtocolError, match="client-1 was asked for round 1 before, with other clients or another"):
        clients.begin(0, question)
    clients.begin(0, question, t=2)  # the next round may differ


def test_a_client_whose_data_changed_does_not_answer_a_round_otherwise():
    clients = Clients(3)
    clients.answer(0)
    with pytest.raises(ProtocolError, match="would answer round 1 otherwise than before: its data have changed"):
        clients.answer(0, new=update(7))


def test_one_sum_of_a_round_is_opened_and_again_with_the_same_bytes():
    clients = Clients(5, "quorum=4")
    answers = {name: clients.answer(i) for i, name in enumerate(clients.names)}
    present = np.array([1, 1, 1, 1, 0], bool)
    first = clients.open(0, present, answers)
    np.testing.assert_array_equal(first, clients.open(0, present, answers))
    for other in ([1, 1, 1, 1, 1], [1, 1, 1, 0, 1]):
        with pytest.raises(ProtocolError, match="client-1 has helped to open another sum of round 1"):
            clients.open(0, np.array(other, bool), answers)


@pytest.mark.parametrize("present", [[1, 1, 1, 0, 0], [0, 1, 1, 1, 1], [1, 0, 0, 0, 0]])
def test_a_sum_of_too_few_or_of_others_is_not_opened(present):
    clients = Clients(5, "quorum=4")
    answers = {name: clients.answer(i) for i, name in enumerate(clients.names)}
    with pytest.raises(ProtocolError, match="client-1 opens sums with itself and 3 others at least"):
        clients.open(0, np.array(present, bool), answers)


def test_without_a_quorum_every_client_must_be_in_the_sum():
    clients = Clients(5)
    answers = {name: clients.answer(i) for i, name in enumerate(clients.names)}
    with pytest.raises(ProtocolError, match="with itself and 4 others at least"):
        clients.open(0, np.array([1, 1, 1, 1, 0], bool), answers)


def test_a_sum_is_not_opened_by_who_sent_nothing():
    clients = Clients(3)
    answers = {name: clients.answer(i) for i, name in enumerate(clients.names)}
    with pytest.raises(ProtocolError, match="client-1 has sent nothing for round 2"):
        clients.open(0, np.ones(3, bool), answers, t=2)
    clients.begin(0, clients.question(3), t=3)  # asked, and not answered
    with pytest.raises(ProtocolError, match="client-1 has sent nothing for round 3"):
        clients.open(0, np.ones(3, bool), answers, t=3)


def test_of_each_other_client_one_kind_of_secret_is_told():
    clients = Clients(5, "quorum=4")
    answers = {name: clients.answer(i) for i, name in enumerate(clients.names)}
    present = np.array([1, 1, 1, 1, 0], bool)
    told = clients.open(0, present, answers)
    vault = secure._vault(clients.identities[0], clients.settings, RUN, clients.contexts[0])
    roster = read_roster(vault.roster, vault, "client-1", None, 5)
    pairs = roster.pair_seeds(bytes.fromhex(vault.turns[1].context))
    rows = {row.tobytes() for row in told}
    assert {j for j, seed in pairs.items() if seed + b"\0" in rows} == {4}
    private = vault.private_key
    assert not any(secret in row for row in rows for secret in (private, bytes.fromhex(vault.secret)))


def test_a_tampered_share_is_refused_and_nothing_is_told():
    clients = Clients(3)
    answers = {name: clients.answer(i) for i, name in enumerate(clients.names)}

    def spoil(shares):
        shares[1, 5] ^= 1

    with pytest.raises(ProtocolError, match="client-1 got from client-2: an encrypted share was changed on its way"):
        clients.open(0, np.ones(3, bool), answers, spoil=spoil)

    def swap(shares):
        shares[1] = shares[2]

    with pytest.raises(ProtocolError, match="client-1 got from client-2"):
        clients.open(0, np.ones(3, bool), answers, spoil=swap)
    clients.open(0, np.ones(3, bool), answers)  # what was refused binds to nothing


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda cards: cards.pop("client-1"), "holds it not"),
        (lambda cards: cards.update({"client-9": cards["client-3"]}), "list of 5 clients, and the run has 4 at most"),
        (lambda cards: cards.pop("client-2"), "sums of 4 clients at least, not 3"),
        (lambda cards: cards.update({"client-2": cards["client-3"]}), "one key twice"),
        (lambda cards: cards.update({"client-1": cards["client-3"]}), "another key of its own"),
        (lambda cards: cards.update({"client-2": "{}"}), "key of client-2 cannot be read"),
        (lambda cards: cards.update({"client-2": '{"key": "AAAA"}'}), "key of client-2 has 3 bytes"),
        (lambda cards: cards.update({"client-2": json.dumps({"key": "A" * 43 + "="})}), "a public key is none"),
        (lambda cards: cards.update({"a/b": cards.pop("client-2")}), "cannot be read|cannot be a client's name"),
    ],
)
def test_a_list_of_clients_that_cannot_be_is_refused(spoil, why):
    clients = Clients(4)
    spoil(clients.cards)
    with pytest.raises(ProtocolError, match=why):
        clients.begin(0, clients.question(1))


def test_an_announced_list_that_does_not_come_is_missed():
    clients = Clients(3)
    question = clients.question(1)
    short = replace(question, arrays={"global_dictionary": D_G})
    with pytest.raises(ProtocolError, match="was not sent the list of this round's clients"):
        clients.begin(0, short)
    clients.begin(0, question)
    clients.begin(0, short)  # now it is known


@pytest.mark.parametrize("bits", [10**30, -(10**30), 1101])
def test_digits_that_cannot_be_are_refused(bits):
    clients = Clients(3)
    clients.bits = bits
    with pytest.raises(ProtocolError, match="client-1 was asked for numbers of"):
        clients.begin(0, clients.question(1))


def test_old_rounds_are_not_taken_up_again():
    clients = Clients(3)
    for t in range(10, 19):
        clients.answer(0, t)
    with pytest.raises(ProtocolError, match="client-1 takes part in no round as old as 10 again"):
        clients.begin(0, clients.question(10), t=10)


def test_a_number_beyond_what_was_announced_fails_in_one_line():
    clients = Clients(3)
    huge = SimpleNamespace(
        contribution=lambda a: np.full((4, 2), 1e9), energies=np.ones(2), error=0.0, nonzeros=0, reassigned=0
    )
    with pytest.raises(Exception, match=r"client-1: a number of 2e\+09 does not fit a masked sum.*rescale the data"):
        clients.answer(0, new=huge)


def test_a_deployed_client_keeps_its_secret_and_what_it_did(tmp_path, monkeypatch):
    monkeypatch.delenv("PERDL_SIMULATION")
    configs = [{"name": f"client-{i + 1}", "folder": str(tmp_path / f"{i}")} for i in range(3)]
    clients = Clients(3, configs=configs)
    answers = {name: clients.answer(i) for i, name in enumerate(clients.names)}
    present = np.ones(3, bool)
    opened = clients.open(0, present, answers)
    path = tmp_path / "0" / "state" / "secure.json"
    assert path.stat().st_mode & 0o777 == 0o600
    clients.restart()
    for key, array in clients.answer(0).items():
        np.testing.assert_array_equal(array, answers["client-1"][key])
    np.testing.assert_array_equal(clients.open(0, present, answers), opened)
    with pytest.raises(ProtocolError, match="before, with other clients or another"):
        clients.begin(0, clients.question(1, D_g=2 * D_G))
    other = Clients(3, configs=[{**one, "folder": str(tmp_path / f"other {i}")} for i, one in enumerate(configs)])
    assert not set(other.cards.values()) & set(clients.cards.values())  # random, not of the run's seed
    path.write_text("{")
    clients.restart()
    with pytest.raises(ProtocolError, match="another key of its own"):
        clients.begin(0, clients.question(2), t=2)


def test_unsigned_keys_are_told_of_once_at_a_deployed_client(tmp_path, monkeypatch, caplog):
    monkeypatch.delenv("PERDL_SIMULATION")
    Clients(3, configs=[{"name": f"client-{i}", "folder": str(tmp_path / f"{i}")} for i in range(3)])
    assert caplog.text.count("keys are not signed") == 3  # one line a client


def test_exponent_bounds_atoms_and_moments():
    rng = np.random.default_rng(0)
    for scale in (1e-6, 1.0, 1e4):
        Y = scale * rng.standard_normal((8, 100))
        e = secure.exponent("procrustes", Y)
        assert 8 * np.linalg.norm(Y) ** 2 <= 2.0**e <= 64 * np.linalg.norm(Y) ** 2
    assert secure.exponent("mean", Y) == 6
    assert changed(load_settings(None), privacy="aggregated").privacy.mode == "aggregated"


def test_a_vault_forgets_the_oldest_rounds():
    vault = Vault(RUN, "00")
    for t in range(1, 20):
        vault = vault.after(t, Turn("aa"))
    assert sorted(vault.turns) == list(range(12, 20))
    assert vault.forgotten(11)
    assert not vault.forgotten(12)
