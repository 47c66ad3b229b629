"""Runs with ``privacy = "aggregated"``: the result of plain ones, sums alone at the server, and lost clients."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import ClassVar

import numpy as np
import pytest
from flwr.app import Error, Message
from flwr.common.constant import ErrorCode

from common.errors import FederationError, SettingsError
from common.protocol import FINISH, INITIALISE, OPEN, UPDATE, pack, unpack
from common.settings import load_settings
from perdl.engines.in_process import InProcessGrid, run_in_process, simulation
from perdl.monitoring.progress import describe_round
from perdl.report.page import render_report
from perdl_client.app import app as client_app
from perdl_server.app import app as server_app
from perdl_server.app import run

AGGREGATIONS = ["mean", "normalized", "polar", "energy", "procrustes"]
QUICK = ["synthetic.noise=0.1", "tolerance=0", "n_restarts=2"]


def outcome(folder):
    with np.load(folder / "global_dictionary.npz") as file:
        return json.loads((folder / "summary.json").read_text()), file["dictionary"], file["consensus"]


def federate(folder, *overrides, **keywords):
    run_in_process(server_app, client_app, load_settings(None, [f"output={folder}", *QUICK, *overrides]), **keywords)
    return outcome(folder)


def over(grid_class, folder, *overrides, record=None):
    settings = load_settings(None, [f"output={folder}", *QUICK, *overrides])
    with simulation():
        run(settings, grid_class(client_app, [{"partition-id": i} for i in range(settings.n_clients)], record))
    return outcome(folder)


def rounds(folder):
    return [json.loads(row) for row in (folder / "rounds.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("overrides", [["dtype=float32"], ["learner=gradient", "warmup_steps=100"], []], ids=str)
def test_the_same_dictionary_as_without(tmp_path, aggregation, overrides):
    if aggregation == "procrustes" and "learner=gradient" in overrides:
        pytest.skip("procrustes needs an orthonormal learner")
    told = [f"aggregation={aggregation}", "rounds=8", "n_clients=6", *overrides]
    plain, D, agreed = federate(tmp_path / "plain", *told)
    summary, found, consensus = federate(tmp_path / "sums", *told, "privacy=aggregated")
    np.testing.assert_allclose(found, D, atol=1e-5 if "dtype=float32" in overrides else 1e-9)
    assert found.dtype == D.dtype
    if aggregation in ("mean", "normalized", "polar") and not overrides:
        np.testing.assert_allclose(consensus, agreed, atol=1e-9)
    assert np.abs(consensus - agreed).max() < 0.02  # energy, procrustes: clients weighed by what they sent
    rows = map(json.loads, (tmp_path / "plain" / "metrics.jsonl").read_text().splitlines())
    mean = np.mean([row["error_before_update"] for row in rows])
    told_mean = np.mean([row["error_before_update"]["mean"] for row in rounds(tmp_path / "sums")])
    assert told_mean == pytest.approx(mean, rel=5e-3)  # of single clients three digits are told
    assert summary["final"]["error"]["max"] == pytest.approx(plain["final"]["error"]["max"], rel=1e-4)


@pytest.mark.parametrize("scale", [1e-6, 1e5])
def test_data_of_any_size(tmp_path, scale):
    rng = np.random.default_rng(0)
    for i in range(4):
        (tmp_path / "data").mkdir(exist_ok=True)
        np.save(tmp_path / "data" / f"site-{i}.npy", scale * rng.laplace(size=(80, 8)) ** 3)
    told = ["data.source=files", f"data.path={tmp_path}/data/*.npy", "n_clients=4", "threshold_unit=rms", "rounds=5"]
    told += ["aggregation=procrustes"]
    _, D, _ = federate(tmp_path / "plain", *told)
    _, found, _ = federate(tmp_path / "sums", *told, "privacy=aggregated")
    np.testing.assert_allclose(found, D, atol=1e-9)


def test_order_of_arrival_and_workers_change_no_bit(tmp_path):
    class Shuffled(InProcessGrid):
        rng = np.random.default_rng(0)

        def pull_messages(self, message_ids):
            ids = [i for i in message_ids if i in self._answers]
            return super().pull_messages(self.rng.permutation(ids)[: max(1, len(ids) // 2)].tolist())

    told = ["privacy=aggregated", "rounds=4", "n_clients=5"]
    _, one, _ = federate(tmp_path / "a", *told, workers=1)
    _, many, _ = federate(tmp_path / "b", *told, workers=4)
    _, shuffled, _ = over(Shuffled, tmp_path / "c", *told)
    np.testing.assert_array_equal(one, many)
    np.testing.assert_array_equal(one, shuffled)


@pytest.mark.parametrize("aggregation", ["mean", "energy", "procrustes"])
def test_messages_carry_what_the_page_on_privacy_allows(tmp_path, aggregation):
    sent: list[Message] = []
    d, r_g, r, n = 6, 3, 6, 5
    federate(
        tmp_path, f"aggregation={aggregation}", "rounds=3", f"n_clients={n}", "privacy=aggregated", record=sent.append
    )
    kinds = Counter(message.metadata.message_type for message in sent)
    assert kinds == {INITIALISE: 2 * n, UPDATE: 6 * n, OPEN: 6 * n, FINISH: 2 * n}
    start = {"client", "protocol", "step", "returning", "n_features", "n_samples", "n_atoms", "start_error", "nonzeros"}
    start |= {"mean_share", "largest_feature_share", "shape", "names", "card", "exponent"}
    answer = {"client", "protocol", "round"}
    length = r_g * (d + 1) + 3
    allowed = {
        (INITIALISE, False): ({"settings", "run", "protocol"}, {}),
        (INITIALISE, True): (start, {"dictionary": d * r, "usage": r}),
        (UPDATE, False): (
            {"protocol", "run", "round", "roster", "bits"},
            {"global_dictionary": d * r_g, "indices": r_g, "clients": 200 * n},
        ),
        (UPDATE, True): (answer, {"masked": length, "shares": 49 * n, "commitment": 32}),
        (OPEN, False): ({"protocol", "run", "round", "roster"}, {"present": n, "shares": 49 * n}),
        (OPEN, True): (answer, {"told": 33 * n}),
        (FINISH, False): ({"protocol", "run"}, {"global_dictionary": d * r_g}),
        (FINISH, True): ({"client", "protocol", "error", "shared", "own", "local_distance"}, {}),
    }
    for message in sent:
        payload, kind = unpack(message.content), message.metadata.message_type
        scalars, arrays = allowed[kind, bool(message.metadata.reply_to_message_id)]
        assert set(payload.scalars) <= scalars
        assert set(payload.arrays) <= set(arrays)
        assert all(array.size <= arrays[name] for name, array in payload.arrays.items())
        if kind == UPDATE and not message.metadata.reply_to_message_id:
            assert ("clients" in payload.arrays) == (payload.scalars["round"] == 1)  # later it is known


def test_what_one_client_sends_looks_like_noise(tmp_path):
    """Nothing of the atoms is in it: its words are uniform, and as near to the atoms as random ones are."""
    sent: list[Message] = []
    rounds_, n, d, r = 30, 3, 20, 8
    told = [
        f"rounds={rounds_}",
        f"n_clients={n}",
        f"synthetic.n_features={d}",
        f"synthetic.n_global={r}",
        f"n_global={r}",
    ]
    _, D, _ = federate(tmp_path, *told, "synthetic.n_local=4", "privacy=aggregated", "n_atoms=12", record=sent.append)
    answers = [
        unpack(m.content).arrays for m in sent if m.metadata.message_type == UPDATE and m.metadata.reply_to_message_id
    ]
    words = np.stack([one["masked"] for one in answers])
    assert words.shape == (n * rounds_, r * (d + 1) + 3)
    ones = np.unpackbits(words.view(np.uint8).reshape(-1, 8), axis=1)
    margin = 5 * 0.5 / np.sqrt(len(ones))
    assert np.abs(ones.mean(axis=0) - 0.5).max() < margin  # every bit, also the highest ones, which atoms leave alone
    assert len(np.unique(words)) == words.size
    A = words.view(np.int64)[:, : d * r].astype(float)
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    cosines = A @ (D.ravel() / np.linalg.norm(D))
    assert np.abs(cosines).max() < 5 / np.sqrt(d * r)  # the atoms hardly change from round to round, the words do
    assert np.abs(cosines.mean()) < 5 / np.sqrt(d * r * len(A))


class Losing(InProcessGrid):
    """Loses questions or answers: for those of (kind, round, client) in ``lost`` Flower reports that the node has gone.

    A client whose question is lost does no work; one whose answer is lost has done it.
    """

    lost: ClassVar[dict[tuple[str, int, int], str]] = {}
    asked: ClassVar[Counter] = Counter()

    def _answer(self, message):
        kind, client = message.metadata.message_type, message.metadata.dst_node_id - 1000
        t = unpack(message.content).scalars.get("round", 0)
        self.asked[kind, t, client] += 1
        what = self.lost.get((kind, t, client)) if self.asked[kind, t, client] == 1 else None
        if what == "question":
            message.metadata.__dict__["_message_id"] = f"{kind} {t} {client}"
        answer = super()._answer(message) if what != "question" else None
        if what is None:
            return answer
        gone = Message(Error(ErrorCode.NODE_UNAVAILABLE, "gone"), reply_to=message)
        gone.metadata.__dict__["_message_id"] = f"gone {kind} {t} {client}"
        return gone


def losing(**lost):
    """A grid that loses ``update_3_1="answer"``: the answer of the second client to round 3."""
    kinds = {"update": UPDATE, "open": OPEN}
    table = {}
    for key, what in lost.items():
        kind, t, client = key.split("_")
        table[kinds[kind], int(t), int(client)] = what
    return type("Lost", (Losing,), {"lost": table, "asked": Counter()})


def test_too_few_clients_end_the_run_with_their_names(tmp_path):
    told = ["n_clients=6", "quorum=5", "rounds=6", "join_timeout=0.3", "privacy=aggregated"]
    lost = losing(update_2_1="question", update_4_0="answer", update_4_2="question")
    with pytest.raises(
        FederationError, match=r"round 4: 3 of 5 clients answered \(quorum 5\): client-1, client-3: gone"
    ):
        over(lost, tmp_path, *told)
    assert [row["clients"] for row in rounds(tmp_path)] == [6, 5, 5]


def test_a_sum_without_some_is_that_of_the_others(tmp_path):
    lost = {"update_2_1": "question", "update_4_0": "answer"}
    told = ["n_clients=6", "quorum=5", "rounds=3", "aggregation=energy", "join_timeout=0.3", "local_restarts=0"]
    _, plain, _ = over(losing(**lost), tmp_path / "plain", *told)
    _, found, _ = over(losing(**lost), tmp_path / "sums", *told, "privacy=aggregated")
    np.testing.assert_allclose(found, plain, atol=1e-9)
    assert [row["clients"] for row in rounds(tmp_path / "sums")] == [6, 5, 5]


def test_clients_lost_while_a_sum_is_opened_are_not_missed_if_enough_are_left(tmp_path):
    told = ["n_clients=6", "quorum=5", "rounds=2", "join_timeout=0.3"]
    _, plain, _ = federate(tmp_path / "plain", *told)
    _, found, _ = over(losing(open_2_3="question"), tmp_path / "sums", *told, "privacy=aggregated")
    np.testing.assert_allclose(found, plain, atol=1e-9)
    assert [row["clients"] for row in rounds(tmp_path / "sums")] == [6, 6]


def test_a_round_that_cannot_be_opened_is_void_and_the_next_one_goes_on(tmp_path, caplog):
    """One is lost before it sent, another one after it: their common seed is known to the latter alone."""
    told = ["n_clients=8", "quorum=6", "rounds=4", "join_timeout=0.3", "privacy=aggregated"]
    lost = losing(update_2_1="question", open_2_3="question")
    summary, found, _ = over(lost, tmp_path, *told)
    assert summary["secure_sums"]["void_rounds"] == [2]
    assert [(row["round"], row["clients"]) for row in rounds(tmp_path)] == [(1, 8), (3, 6), (4, 6)]
    assert "round 2 is void, and its sum stays closed: opening round 2: 6 of 7 clients answered" in caplog.text
    assert np.isfinite(found).all()


def test_the_report_says_why_it_tells_less(tmp_path):
    summary, _, _ = federate(tmp_path, "n_clients=3", "rounds=3", "privacy=aggregated")
    note = "of rounds the server saw sums over clients alone"
    assert summary["secure_sums"]["note"].startswith(note)
    text = " ".join(render_report(tmp_path).split())
    assert f"O{note[1:]}" in text
    assert "each one&#39;s own is not known, for rounds are secure sums" in text
    assert "None" not in re.sub(r"<script.*?</script>|<style.*?</style>", "", text)
    row = rounds(tmp_path)[-1]
    assert describe_round(row).startswith(
        f"change {row['change']:.1e}  error {row['error_before_update']['mean']:.2g} in"
    )


def spoiling(kind, t, client, spoil):
    class Spoiling(InProcessGrid):
        """Changes one answer."""

        def _answer(self, message):
            answer = super()._answer(message)
            if (
                message.metadata.message_type == kind
                and message.metadata.dst_node_id == 1000 + client
                and unpack(message.content).scalars.get("round") in t
            ):
                payload = unpack(answer.content)
                arrays = {name: array.copy() for name, array in payload.arrays.items()}
                spoil(arrays)
                answer.content = pack(arrays, **{k: v for k, v in payload.scalars.items() if k != "protocol"})
            return answer

    return Spoiling


@pytest.mark.parametrize(
    ("kind", "spoil", "why"),
    [
        (UPDATE, lambda arrays: arrays["masked"].__iadd__(np.uint64(2**61)), "a client sent nonsense"),
        (UPDATE, lambda arrays: arrays["commitment"].__ixor__(np.uint8(1)), "seed of client-2 do not belong together"),
        (OPEN, lambda arrays: arrays["told"].__ixor__(np.uint8(1)), "do not belong together"),
        (UPDATE, lambda arrays: arrays["shares"].__ixor__(np.uint8(1)), "an encrypted share was changed on its way"),
        (UPDATE, lambda arrays: arrays.update(masked=arrays["masked"][1:]), r"masked has shape"),
        (UPDATE, lambda arrays: arrays.update(masked=arrays["masked"].astype(np.uint8)), "masked has type uint8"),
    ],
)
def test_nonsense_of_a_client_ends_in_words_and_spoils_no_dictionary(tmp_path, kind, spoil, why):
    grid = spoiling(kind, (2, 3), 1, spoil)
    with pytest.raises(FederationError, match=why):
        over(grid, tmp_path, "n_clients=4", "rounds=5", "privacy=aggregated")
    _, D, _ = outcome(tmp_path)
    assert np.abs(D).max() <= 1 + 1e-9
    assert [row["round"] for row in rounds(tmp_path)] == [1]


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (
            ["aggregation=trimmed"],
            'aggregation = "trimmed": must be one of mean, normalized, polar, energy, procrustes',
        ),
        (["aggregation=geometric-median"], 'aggregation = "geometric-median": must be one of'),
        (["sharing=some", "n_global=auto"], 'sharing = "some": must be "all" where privacy = "aggregated"'),
        (["n_clients=2"], "n_clients = 2: must be 3 or more .* tells each the other's"),
        (["n_clients=10", "quorum=6"], "quorum = 6: must be 7 or more of 10 clients"),
    ],
)
def test_what_cannot_be_summed_securely_is_refused_before_the_run(overrides, why):
    with pytest.raises(SettingsError, match=why):
        load_settings(None, ["privacy=aggregated", *overrides])
