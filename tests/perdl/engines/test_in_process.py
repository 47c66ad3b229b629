"""A whole federation in one process: what it finds, what travels, and that nothing but the settings decides."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import pytest
from flwr.app import Message

from common.coders import HardThreshold
from common.dictionaries import dictionary_distance
from common.errors import DataError, FederationError
from common.learners import LEARNERS
from common.protocol import FINISH, INITIALISE, UPDATE, unpack
from common.settings import load_settings
from common.synthetic import generate
from perdl.engines.in_process import InProcessGrid, run_in_process, simulation
from perdl_client.app import app as client_app
from perdl_client.learning.alignment import retract
from perdl_client.learning.initialization import first_dictionary
from perdl_client.learning.local_update import local_update
from perdl_server.algorithm.matching import MatchingError, global_matching
from perdl_server.app import app as server_app
from perdl_server.app import run
from perdl_server.results import RunFolder
from perdl_server.strategy import PerMA


def federate(folder, *overrides, config=None, **keywords):
    """Run a federation; return its summary and D^g."""
    settings = load_settings(config, [f"output={folder}", *overrides])
    run_in_process(server_app, client_app, settings, **keywords)
    with np.load(folder / "global_dictionary.npz") as file:
        return json.loads((folder / "summary.json").read_text()), file["dictionary"]


@pytest.mark.parametrize("seed", range(5))
def test_default_recovers_the_truth_to_the_last_digits(tmp_path, seed):
    summary, _ = federate(tmp_path, f"seed={seed}")
    assert summary["final"]["global_distance"] <= 1e-10
    assert summary["final"]["local_distance_max"] <= 1e-8
    assert summary["stop_reason"] == "tolerance"


def test_equals_algorithm_1_written_out(tmp_path):
    summary, found = federate(tmp_path, "rounds=4", "tolerance=0", "privacy=none")
    settings = load_settings(None, ["rounds=4"])
    names = [f"client-{i}" for i in range(1, 11)]
    learner, coder = LEARNERS["orthogonal"], HardThreshold(0.15)
    Ys = [generate(0, n, n_features=6, n_global=3, n_local=3, n_samples=200).data for n in names]
    starts = [first_dictionary(Y, settings, 0, name) for Y, name in zip(Ys, names, strict=True)]
    matching = global_matching(starts, 3)
    D_g = matching.global_dictionary
    local = [np.delete(D, chosen, axis=1) for D, chosen in zip(starts, matching.indices, strict=True)]
    for _ in range(4):
        new = [local_update(Y, D_g, retract(D_g, D_l), learner, coder) for Y, D_l in zip(Ys, local, strict=True)]
        local = [u.local_dictionary for u in new]
        D_g = np.mean([u.global_dictionary for u in new], axis=0)
    np.testing.assert_allclose(found, D_g, atol=1e-14)
    np.testing.assert_allclose(summary["path_lengths"], matching.path_lengths, atol=1e-14)


def test_every_client_writes_its_own_model(tmp_path):
    _, D_g = federate(tmp_path)
    for i in range(1, 11):
        with np.load(tmp_path / "clients" / f"client-{i}" / "dictionary.npz") as file:
            np.testing.assert_array_equal(file["global"], D_g)
            truth = generate(0, f"client-{i}", n_features=6, n_global=3, n_local=3, n_samples=1)
            assert dictionary_distance(file["local"], truth.local_dictionary) <= 1e-8


@pytest.mark.parametrize("aggregation", ["mean", "energy", "procrustes"])
def test_messages_carry_what_the_protocol_allows_and_nothing_private(tmp_path, aggregation):
    sent: list[Message] = []
    d, r_g, r, n_clients = 6, 3, 6, 10
    # With noise no sample is a multiple of an atom.
    federate(
        tmp_path, f"aggregation={aggregation}", "rounds=5", "tolerance=0", "synthetic.noise=0.05", record=sent.append
    )
    secrets = {}
    for name in (f"client-{i}" for i in range(1, n_clients + 1)):
        samples = generate(0, name, n_features=d, n_global=3, n_local=3, n_samples=200, noise=0.05).data
        with np.load(tmp_path / "clients" / name / "dictionary.npz") as file:
            secrets[name] = np.hstack([samples, file["local"]])
    kinds = [message.metadata.message_type for message in sent]
    assert kinds.count(INITIALISE) == kinds.count(FINISH) == 2 * n_clients
    assert kinds.count(UPDATE) == 2 * n_clients * 5
    weights = {"energies"} if aggregation == "energy" else set()
    start = {"client", "protocol", "step", "returning", "n_features", "n_samples", "n_atoms"}
    start |= {"start_error", "nonzeros", "mean_share", "largest_feature_share", "shape", "names"}
    update = {"client", "protocol", "round", "error_before_update", "nonzeros", "reassigned"}
    allowed = {
        (INITIALISE, False): ({"settings", "run", "protocol"}, set(), 0),
        (INITIALISE, True): (start, {"dictionary", "usage"}, d * r + r),
        (UPDATE, False): ({"protocol", "run", "round"}, {"global_dictionary", "indices"}, d * r_g + r_g),
        (UPDATE, True): (update, {"contribution"} | weights, d * r_g + r_g),
        (FINISH, False): ({"protocol", "run"}, {"global_dictionary"}, d * r_g),
        (FINISH, True): ({"client", "protocol", "error", "shared", "own", "local_distance"}, set(), 0),
    }
    for message in sent:
        payload, kind = unpack(message.content), message.metadata.message_type
        scalars, arrays, most = allowed[kind, bool(message.metadata.reply_to_message_id)]
        assert set(payload.scalars) <= scalars
        assert set(payload.arrays) <= arrays
        assert sum(array.size for array in payload.arrays.values()) <= most
        assert not any(
            share_a_column(array, secret) for array in payload.arrays.values() for secret in secrets.values()
        )
        assert ("indices" in payload.arrays) == (
            kind == UPDATE and "client" not in payload.scalars and payload.scalars["round"] == 1
        )


def share_a_column(array, secret):
    """Whether some column of ``array`` is a multiple of some column of ``secret``."""
    if array.ndim != 2 or array.shape[1] == 0:
        return False
    units = [M / np.linalg.norm(M, axis=0) for M in (array, secret)]
    return bool((np.abs(units[0].T @ units[1]) > 1 - 1e-12).any())


def test_the_search_for_secrets_finds_one():
    secret = np.random.default_rng(0).standard_normal((6, 40))
    assert share_a_column(np.hstack([np.eye(6), -3 * secret[:, 7:8]]), secret)


class ShuffledGrid(InProcessGrid):
    """Answers come in another order, and in two lots."""

    rng = np.random.default_rng(0)

    def get_node_ids(self):
        return self.rng.permutation(list(super().get_node_ids())).tolist()

    def pull_messages(self, message_ids):
        ids = [i for i in message_ids if i in self._answers]
        return super().pull_messages(self.rng.permutation(ids)[: max(1, len(ids) // 2)].tolist())


@pytest.mark.parametrize("aggregation", ["mean", "procrustes"])
def test_order_of_arrival_and_number_of_workers_change_no_bit(tmp_path, aggregation):
    _, plain = federate(tmp_path / "a", f"aggregation={aggregation}", "synthetic.noise=0.1", workers=1)
    _, parallel = federate(tmp_path / "b", f"aggregation={aggregation}", "synthetic.noise=0.1", workers=4)
    settings = load_settings(None, [f"output={tmp_path}/c", f"aggregation={aggregation}", "synthetic.noise=0.1"])
    with simulation():
        grid = ShuffledGrid(client_app, [{"partition-id": i} for i in range(9, -1, -1)])
        run(settings, grid)
    with np.load(tmp_path / "c" / "global_dictionary.npz") as file:
        shuffled = file["dictionary"]
    np.testing.assert_array_equal(plain, parallel)
    np.testing.assert_array_equal(plain, shuffled)


def test_clients_of_different_learners_and_sample_counts_find_the_truth_together(tmp_path):
    overrides = ["clients.client-1.learner=gradient", "clients.client-1.warmup_steps=200"]
    overrides += ["clients.client-2.learner=projected", "clients.client-2.warmup_steps=60"]
    overrides += ["synthetic.weak_clients=1", "synthetic.weak_samples=150"]
    summary, _ = federate(tmp_path, "n_clients=4", "rounds=100", *overrides)
    assert [c["n_samples"] for c in summary["clients"].values()] == [150, 200, 200, 200]
    assert summary["final"]["global_distance"] <= 1e-10
    assert summary["final"]["local_distance_max"] <= 1e-8


def test_clients_of_different_coders_and_atom_counts_run_together(tmp_path):
    overrides = ["clients.client-1.coder=omp", "clients.client-1.n_nonzero=2", "clients.client-2.coder=top-k"]
    summary, D_g = federate(tmp_path, "n_clients=3", "clients.client-3.n_atoms=4", *overrides)
    assert [c["n_atoms"] for c in summary["clients"].values()] == [6, 6, 4]
    assert np.isfinite(D_g).all()


@pytest.mark.parametrize(
    "overrides",
    [
        ["n_clients=1"],
        ["n_global=0", "synthetic.n_global=0"],
        ["n_global=6", "synthetic.n_global=6", "synthetic.n_local=0"],
        ["rounds=0"],
        ["dtype=float32"],
        ["data.n_samples=40"],
        ["refine_steps=2"],
        ["local_steps=3"],
        ["start=svd"],
        ["start=random"],
        ["threshold_unit=rms", "threshold=0.3", "warmup_threshold=1.5"],
        *(
            [f"aggregation={name}"]
            for name in ("normalized", "polar", "energy", "procrustes", "trimmed", "geometric-median")
        ),
    ],
    ids=" ".join,
)
def test_every_legal_corner_runs_and_ends_finite(tmp_path, overrides):
    summary, D_g = federate(tmp_path, *overrides)
    assert np.isfinite(D_g).all()
    assert D_g.shape == (6, summary["n_global"])
    assert D_g.dtype == summary["settings"]["dtype"]
    assert len(summary["clients"]) == summary["settings"]["n_clients"]


@pytest.mark.parametrize("r_g", range(4))
@pytest.mark.parametrize("noise", [0, 0.05])
def test_auto_finds_how_many_atoms_are_shared(tmp_path, r_g, noise):
    local = 6 - r_g
    summary, _ = federate(
        tmp_path,
        "n_global=auto",
        f"synthetic.n_global={r_g}",
        f"synthetic.n_local={local}",
        f"synthetic.noise={noise}",
        "rounds=2",
    )
    assert summary["n_global"] == r_g
    assert len(summary["path_lengths"]) == 6


def test_run_stops_early_only_when_the_dictionary_rests(tmp_path):
    summary, _ = federate(tmp_path / "a", "tolerance=1e-3")
    rounds = [json.loads(line) for line in (tmp_path / "a" / "rounds.jsonl").read_text().splitlines()]
    assert summary["stop_reason"] == "tolerance"
    assert [row["change"] <= 1e-3 for row in rounds] == [False] * (len(rounds) - 1) + [True]
    assert federate(tmp_path / "b", "rounds=3", "tolerance=0")[0]["stop_reason"] == "rounds"


def test_run_folder_is_as_documented(tmp_path):
    summary, _D_g = federate(tmp_path, "rounds=3", "tolerance=0")
    assert {"settings", "versions", "rounds", "stop_reason", "clients", "final", "bytes"} <= set(summary)
    assert set(summary["bytes"]) == {"initialise", "update", "finish"}
    assert all(set(phase) == {"to_clients", "to_server"} for phase in summary["bytes"].values())
    metrics = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(row["round"], row["client"]) for row in metrics] == [
        (t, f"client-{i}") for t in (1, 2, 3) for i in range(1, 11)
    ]
    with np.load(tmp_path / "global_dictionary.npz") as file:
        assert file["consensus"].shape == (3,)
        assert set(file.files) == {"dictionary", "consensus"}


def test_dead_atoms_stay_out_of_matching(tmp_path):
    """Eight samples in twenty dimensions: most of twenty atoms are dead on each client."""
    rng = np.random.default_rng(0)
    shared = np.linalg.qr(rng.standard_normal((20, 2))).Q
    for i in range(3):
        own = rng.standard_normal((20, 3))
        np.save(tmp_path / f"{i}.npy", (np.hstack([shared, own]) @ (rng.standard_normal((5, 8)) * 3)).T)
    overrides = ["n_clients=3", "data.source=files", f"data.path={tmp_path}/*.npy", "coder=top-k", "n_nonzero=3"]
    overrides += ["privacy=none", "min_samples=2"]  # with so few samples, one has half of every atom
    summary, D_g = federate(tmp_path / "out", *overrides, "n_global=2", "aggregation=procrustes")
    assert min(summary["path_lengths"]) > 1e-6
    for i in range(3):
        Y = np.load(tmp_path / f"{i}.npy").T
        assert (np.linalg.norm(D_g.T @ Y, axis=1) > 1e-3 * np.linalg.norm(Y)).all()
    with pytest.raises(MatchingError, match=r"client-0 has \d+ usable atoms, fewer than n_global = 19: lower n_global"):
        federate(tmp_path / "out", *overrides, "n_global=19")


def test_clients_of_another_size_are_named(tmp_path):
    rng = np.random.default_rng(0)
    for i, d in enumerate((5, 5, 7)):
        np.save(tmp_path / f"{i}.npy", rng.standard_normal((50, d)))
    with pytest.raises(FederationError, match="client-2 has 7 features, client-0 has 5"):
        federate(tmp_path / "out", "n_clients=3", "data.source=files", f"data.path={tmp_path}/*.npy", "n_global=2")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert "client-2 has 7 features" in summary["stop_reason"]


def test_two_clients_of_one_name_are_refused(tmp_path):
    with pytest.raises(FederationError, match=r"1 of 2 clients joined .* left out: two clients are called ada"):
        federate(tmp_path, "n_clients=2", "join_timeout=0.3", node_configs=[{"name": "ada"}, {"name": "ada"}])


def test_missing_data_files_are_said_before_anything_runs(tmp_path):
    with pytest.raises((DataError, FederationError), match="no file matches"):
        federate(tmp_path, "n_clients=2", "data.source=files", "data.path=nowhere/*.npy")


@pytest.mark.parametrize(
    ("overrides", "word"),
    [
        (["threshold=1e-9"], "codes are not sparse"),
        (["synthetic.n_global=0", "synthetic.n_local=6"], "were no nearer across clients at the start"),
        (["synthetic.n_global=0", "synthetic.n_local=6", "n_global=auto"], "found no shared atom"),
        ([], None),
    ],
)
def test_doubtful_results_are_named(tmp_path, overrides, word):
    summary, _ = federate(tmp_path, "rounds=3", *overrides)
    text = " ".join(summary["warnings"])
    assert (word in text) if word else not text


def test_data_that_are_all_mean_are_named_until_centred(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(2):
        np.save(tmp_path / f"{i}.npy", 100 + rng.standard_normal((80, 5)))
    overrides = ["n_clients=2", "data.source=files", f"data.path={tmp_path}/*.npy", "n_global=1", "rounds=2"]
    assert "set data.center = true" in " ".join(federate(tmp_path / "a", *overrides)[0]["warnings"])
    assert "data.center" not in " ".join(federate(tmp_path / "b", "data.center=true", *overrides)[0]["warnings"])


def test_the_summary_tells_the_rounds_that_start_was_asked_for(tmp_path):
    settings = load_settings(None, [f"output={tmp_path}", "n_clients=2", "tolerance=0"])
    with simulation():
        grid = InProcessGrid(client_app, [{"partition-id": i} for i in range(2)])
        PerMA(settings, RunFolder(tmp_path)).start(grid, num_rounds=3)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["settings"]["rounds"] == summary["rounds"] == 3


@pytest.fixture
def hasty_threads():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


slow = pytest.mark.skipif(not os.environ.get("PERDL_SLOW"), reason="takes a minute; needs PERDL_SLOW=1")


@pytest.mark.parametrize("n", [300, pytest.param(3000, marks=slow)])
def test_hundreds_and_thousands_of_clients_disturb_nobody(tmp_path, hasty_threads, n):
    quick = ["warmup_steps=1", "n_restarts=1", "local_restarts=0", "data.n_samples=20", "min_samples=1", "rounds=1"]
    summary, _ = federate(tmp_path, f"n_clients={n}", *quick, workers=8)
    assert len(summary["clients"]) == n
