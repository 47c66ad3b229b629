"""Private runs: what travels depends on the samples through noisy sums only, and no round is answered twice."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("dp_accounting", reason="dp-accounting is not installed (extra: private)")

from common.errors import SettingsError
from common.protocol import UPDATE, unpack
from common.settings import load_settings
from perdl.engines.in_process import run_in_process
from perdl_client.app import app as client_app
from perdl_client.learning.private import PrivateProduct
from perdl_server.app import app as server_app

PRIVATE = ["privacy=private", "privacy.epsilon=30", "privacy.clip=2", "n_clients=5", "rounds=8", "warmup_steps=10"]


def federate(folder, *overrides, **keywords):
    settings = load_settings(None, [f"output={folder}", *PRIVATE, *overrides])
    run_in_process(server_app, client_app, settings, **keywords)
    with np.load(folder / "global_dictionary.npz") as file:
        return json.loads((folder / "summary.json").read_text()), file["dictionary"]


@pytest.mark.parametrize("aggregation", ["mean", "energy", "procrustes", "geometric-median"])
def test_the_truth_is_found_under_noise(tmp_path, aggregation):
    told, _ = federate(tmp_path, "data.n_samples=5000", f"aggregation={aggregation}")
    assert told["final"]["global_distance"] < 0.02  # 0.002 to 0.005 on many seeds
    assert told["final"]["error"] == {}


@pytest.mark.parametrize("overrides", [("aggregation=energy",), ("learner=gradient",), ("start=svd", "n_global=auto")])
def test_messages_show_the_samples_by_noisy_sums_only(tmp_path, monkeypatch, overrides):
    """With sums of the samples' shape alone, every message is the same for other samples; so are names and sizes."""
    plain = PrivateProduct.__call__

    def of_shapes(self, A, X):
        zero = 0 * A
        return plain(self, zero, zero if A is X else 0 * X)

    monkeypatch.setattr(PrivateProduct, "__call__", of_shapes)
    sent = []
    for i, different in enumerate(([], ["synthetic.noise=1.5", "synthetic.sparsity=0.7"])):
        sent.append([])
        federate(tmp_path / str(i), "rounds=3", "tolerance=0", *overrides, *different, record=sent[i].append)
    answers = [
        sorted(
            repr([sorted((key, a.tobytes()) for key, a in payload.arrays.items()), sorted(payload.scalars.items())])
            for payload in (unpack(message.content) for message in one if message.metadata.reply_to_message_id)
            if "local_distance" not in payload.scalars  # to a synthetic truth, which is known in simulations only
        )
        for one in sent
    ]
    assert len(answers[0]) >= 5 * 4
    assert answers[0] == answers[1]


def test_order_and_workers_change_no_bit(tmp_path):
    _, one = federate(tmp_path / "one", workers=1)
    _, two = federate(tmp_path / "two", workers=3)
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    "override",
    [
        "data.center=true",
        "data.scale=client",
        "data.whiten=true",
        "data.missing=mask",
        "outliers=mask",
        "learner=projected",
        "data.site_scale=agree",
    ],
)
def test_what_looks_at_samples_in_other_ways_is_refused(override):
    with pytest.raises(SettingsError, match="looks at all samples of a client without noise"):
        load_settings(None, [*PRIVATE, override])


def test_a_round_is_answered_once_and_none_beyond_the_budget(tmp_path, monkeypatch):
    from perdl_client.terms import Terms
    from tests.perdl_client.test_app import Client, refused, same, sparse_data

    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    client = Client(tmp_path, sparse_data(), terms=Terms(epsilon=30).model_dump_json())
    assert client.start(*(one for one in PRIVATE if "n_clients" not in one), "rounds=2").has_content()

    def ask(t, D_g, **more):
        return client.ask(UPDATE, {"global_dictionary": D_g, **more}, round=t)

    D_g, indices = np.eye(6)[:, :3], {"indices": np.arange(3)}
    first = ask(1, D_g, **indices)
    assert first.has_content(), first.error
    assert same(ask(1, D_g, **indices), first)
    assert refused(ask(1, np.eye(6)[:, 1:4], **indices), "has answered round 1 for another D^g")
    second = ask(2, D_g)
    assert same(ask(2, D_g), second)
    assert refused(ask(1, np.eye(6)[:, 1:4], **indices), "has answered round 1 for another D^g")
    assert refused(ask(3, D_g), "its epsilon is for 2 rounds")
    assert (tmp_path / "own" / "noise.key").stat().st_mode & 0o777 == 0o600
    assert not set(unpack(first.content).scalars) & {"error_before_update", "nonzeros"}


def test_a_test_for_membership_gains_no_more_than_epsilon_allows():
    """The best test for one sample, on the sum that shows it best, against the bound TPR <= e^eps FPR + delta."""
    epsilon, delta, draws = 1.0, 1e-3, 4000
    from common.accounting import noise_multiplier

    y = np.zeros((3, 1))
    y[0] = 1.0

    def advantage(multiplier):
        def seen(s, i):
            return PrivateProduct(1.0, multiplier, b"k" * 32, f"{i} {s.sum()}")(s, s[:1])[0, 0]

        with_it, without = (np.array([seen(s, i) for i in range(draws)]) for s in (y, 0 * y))
        return max(
            (with_it > t).mean() - np.exp(epsilon) * (without > t).mean() for t in np.linspace(-3, 8, 200) * multiplier
        )

    z = noise_multiplier(epsilon, delta, 1)
    noise = 3 * np.sqrt(1 / draws)
    assert advantage(z) < delta + noise
    assert advantage(z / 4) > delta + noise  # with a quarter of the noise the test finds it
