"""Each warning comes from a run that deserves it, and none from one that does not."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

from common.settings import load_settings, settings_from_values
from common.statistics import largest_feature_share
from perdl import PerDL
from perdl.engines.in_process import run_in_process
from perdl_client.app import app as client_app
from perdl_server.algorithm.server import PermaServer
from perdl_server.app import app as server_app
from perdl_server.diagnostics import RunOutcome
from perdl_server.diagnostics import warnings as ended_warnings

RNG = np.random.default_rng(0)
BASIS = np.linalg.qr(RNG.standard_normal((8, 8))).Q


@pytest.fixture(autouse=True)
def _same_draws_for_each_test():
    RNG.bit_generator.state = np.random.default_rng(1).bit_generator.state


def sparse(D, n=200, p=0.3):
    """Samples in rows, each a few atoms of D."""
    size = D.shape[1], n
    return (D @ (RNG.uniform(0.5, 1, size) * RNG.choice([-1, 1], size) * (RNG.random(size) < p))).T


def alike():
    """Four clients that share eight atoms and have nothing else."""
    return {f"c{i}": sparse(BASIS) for i in range(4)}


def doubts(data, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PerDL(**parameters).fit(data).summary_["warnings"]


def the(start, found):
    """The one warning with this beginning or part."""
    (text,) = [text for text in found if start in text]
    return text


def strangers(d=20, r=6):
    return {f"c{i}": sparse(np.linalg.qr(RNG.standard_normal((d, d))).Q[:, :r]) for i in range(4)}


def own_axes(n=8):
    """Clients that have two axes each, which nobody else has, and one of them in each sample."""
    axes = {f"c{i}": (0.9 + 0.01 * i) * np.eye(20)[:, [2 * i, 2 * i + 1]] for i in range(n)}
    return {
        name: (A @ (np.eye(2)[:, RNG.integers(0, 2, 200)] * RNG.choice([-1, 1], 200))).T for name, A in axes.items()
    }


def test_a_good_run_raises_no_doubt(tmp_path):
    run_in_process(server_app, client_app, load_settings(None, [f"output={tmp_path}"]))
    assert json.loads((tmp_path / "summary.json").read_text())["warnings"] == []
    for seed in range(4):
        chosen = ["n_global=auto", f"seed={seed}", "synthetic.noise=0.05", "rounds=1", f"output={tmp_path / str(seed)}"]
        run_in_process(server_app, client_app, load_settings(None, chosen))
        assert "no jump" not in (tmp_path / str(seed) / "summary.json").read_text()
    # Not even if all atoms are global, of which the last has no choice in a space that the others fill.
    assert doubts(alike(), n_global=8) == []


def after_matching(Ds, n_global):
    """What is doubtful about a run that ended right after these dictionaries were matched."""
    settings = settings_from_values({"n_global": n_global, "n_clients": len(Ds), "data": {"source": "memory"}})
    server = PermaServer(settings)
    match = server.match({f"c{i}": D for i, D in enumerate(Ds)}, [np.ones(Ds[0].shape[1])] * len(Ds))
    facts = {f"c{i}": {"n_samples": 99, "n_atoms": 6, "nonzeros": 1, "start_error": 0} for i in range(len(Ds))}
    return ended_warnings(RunOutcome(match.report, facts, settings, server.global_dictionary, server.consensus))


def no_jump(Ds, n_global):
    return [text for text in after_matching(Ds, n_global) if "path lengths show no jump" in text]


@pytest.mark.parametrize("method", ["auto", "by hand"])
def test_paths_without_a_jump_are_told(method):
    """Three atoms are shared, each client's versions some way off them: hardly, then so far that they may be chance."""

    def start(off, seed, d=10):
        rng = np.random.default_rng(seed)
        shared = np.linalg.qr(rng.standard_normal((d, 3))).Q
        noise = off / np.sqrt(d) * np.array([0.2, 1, 1.6])
        return [
            np.linalg.qr(np.hstack([shared + noise * rng.standard_normal((d, 3)), rng.standard_normal((d, 3))])).Q
            for _ in range(6)
        ]

    n_global = 3 if method == "by hand" else "auto"
    assert [no_jump(start(0.05, seed), n_global) for seed in range(10)] == [[]] * 10
    told = [no_jump(start(0.25, seed), n_global) for seed in range(10)]
    assert sum(map(bool, told)) >= 4
    text = next(text[0] for text in told if text)
    assert ("data.divide_by" in text) == ("set n_global = auto" in text) == (method == "by hand")
    assert ("errors on held-out samples" in text) == (method == "auto")
    (text,) = no_jump(start(0.05, 0), 2)
    assert "of 2 shared paths the longest has a mean distance of 0.0" in text, "the third is as near"
    # All shared, or none: there is no path after the last, and chance is told as such.
    alike = [BASIS] * 4
    assert no_jump(alike, 8 if method == "by hand" else "auto") == []
    apart = [np.linalg.qr(RNG.standard_normal((20, 6))).Q for _ in range(5)]
    found = no_jump(apart, n_global)
    assert found == [] if n_global == "auto" else "no nearer across clients at the start" in found[0]


def test_where_paths_jump_before_the_last_it_is_said():
    shared = np.linalg.qr(RNG.standard_normal((20, 3))).Q
    Ds = [np.linalg.qr(np.hstack([shared, RNG.standard_normal((20, 3))])).Q for _ in range(5)]
    assert no_jump(Ds, 5) == []
    found = after_matching(Ds, 5)
    assert "2 of 5 global atoms" in found[0]
    assert "path lengths jump after 3 of them" in found[0]


def test_that_no_path_is_nearer_than_chance_is_told_with_the_numbers():
    for seed in range(10):
        apart = [np.linalg.qr(np.random.default_rng(10 * seed + i).standard_normal((30, 4))).Q for i in range(5)]
        (text,) = after_matching(apart, "auto")
        assert "found no shared atom: no path is nearer than chance (nearest: mean distance 1." in text
        assert "by chance down to " in text
        assert "n_atoms" in text


def test_where_nothing_is_shared_only_what_was_not_done_is_proposed():
    report = {"n_global": 0, "path_lengths": [4.8], "unrelated_edges": [1.2], "unrelated_bound": [1.1]}
    facts = {"n_samples": 99, "n_atoms": 6, "nonzeros": 1, "start_error": 0}

    def told(nonzeros=1, **settings):
        chosen = settings_from_values({"n_global": "auto", "n_clients": 5, "data": {"source": "memory"}, **settings})
        clients = {f"c{i}": facts | {"nonzeros": nonzeros} for i in range(5)}
        outcome = RunOutcome(report, clients, chosen, np.empty((30, 0)), np.empty(0))
        return the("found no shared atom", ended_warnings(outcome))

    assert "a lower threshold, more restarts (n_restarts), or n_atoms as perdl check suggests" in told()
    assert "set n_global by hand" in told()
    assert told(n_atoms=6).endswith("a lower threshold, more restarts (n_restarts)")
    assert "n_atoms" in told(clients={"c1": {"n_atoms": 6}}), "the others have not set it"
    assert "lower threshold" not in told(nonzeros=5), "codes that are not sparse want a higher one"


def test_atoms_that_still_move_are_told_if_the_rounds_are_over():
    found = doubts(strangers(), n_global=2, n_atoms=6, rounds=2)
    text = the("still moving", found)
    assert "the last of 2 rounds moved one by " in text
    assert float(text.split("moved one by ")[1].split(" ")[0]) > 1e-3
    assert "raise rounds" in text
    assert not [text for text in doubts(alike(), n_global=8, rounds=20) if "still moving" in text]


def test_a_cure_that_is_taken_already_is_not_proposed():
    dense = {f"c{i}": RNG.standard_normal((200, 4)) for i in range(3)}
    for unit in ("data", "rms"):
        text = the("codes are not sparse", doubts(dense, n_global=1, threshold=0.1, threshold_unit=unit, rounds=1))
        assert ("threshold_unit = rms" in text) == (unit == "data")


@pytest.mark.parametrize("seed", range(4))
def test_noise_shares_nothing(seed):
    RNG.bit_generator.state = np.random.default_rng(seed).bit_generator.state
    noise = {f"c{i}": RNG.standard_normal((200, 8)) for i in range(3)}
    assert "found no shared atom" in " ".join(doubts(noise, n_global="auto", threshold=1.0, rounds=1))


@pytest.mark.parametrize("aggregation", ["mean", "procrustes"])
def test_atoms_without_consensus_are_named_the_worst_first(aggregation):
    model = PerDL(n_global=3, n_atoms=6, aggregation=aggregation, rounds=2)
    with pytest.warns(UserWarning, match="clients do not agree"):
        model.fit(strangers())
    text, low = the("clients do not agree", model.summary_["warnings"]), np.flatnonzero(model.consensus_ < 0.9)
    worst = low[np.argsort(model.consensus_[low])]
    assert f"on shared atom{'s' * (len(low) > 1)} {', '.join(str(j + 1) for j in worst)}:" in text
    assert f"consensus {model.consensus_.min():.2f} in the last round" in text
    assert "lower n_global" in text
    assert model.summary_["final"]["change"] == pytest.approx(model.history_[-1]["change"], rel=0)


def test_two_atoms_that_are_one():
    line = {f"c{i}": RNG.standard_normal((200, 1)) + 0.3 * RNG.standard_normal((200, 3)) for i in range(3)}
    model = PerDL(n_global=3, learner="projected", coder="top-k", n_nonzero=1, rounds=30)
    with pytest.warns(UserWarning, match="nearly the same"):
        model.fit(line)
    units = model.global_components_ / np.linalg.norm(model.global_components_, axis=1, keepdims=True)
    cosines = np.triu(np.abs(units @ units.T), 1)
    i, j = np.unravel_index(cosines.argmax(), cosines.shape)
    assert f"shared atoms {i + 1} and {j + 1} are nearly the same (cosine {cosines.max():.2f})" in the(
        "nearly the same", model.summary_["warnings"]
    )


@pytest.mark.parametrize("aggregation", ["energy", "procrustes"])
def test_an_atom_that_nobody_uses(aggregation):
    found = doubts(own_axes(), n_global=1, n_atoms=2, aggregation=aggregation, threshold=0.6, start="svd", rounds=3)
    assert "codes use shared atom 1:" in the("no client's codes", found)
    assert not [text for text in found if "do not agree" in text], "nobody contributed: there is nothing to agree on"


def test_a_threshold_out_of_scale():
    data = {name: 0.3 * X + (RNG.random((200, 1)) < 0.03) * 3 * BASIS[:, 0] for name, X in alike().items()}
    text = the("out of scale", doubts(data, n_global=1, threshold=1.2, min_samples=2))
    assert "threshold = 1.2 data" in text
    assert "set threshold_unit = rms" in text
    assert not [t for t in doubts(data, n_global=1, threshold=0.6, threshold_unit="rms") if "out of scale" in t]


def test_one_feature_that_carries_nearly_all():
    data = alike()
    data["c1"] = data["c1"] * np.r_[np.ones(7), 30]
    share = largest_feature_share(data["c1"].T)
    text = the("one feature", doubts(data, n_global=3))
    assert f"{share:.1%} of the energy of the data of c1," in text
    assert "divide_by" in text
    assert share == pytest.approx((data["c1"][:, 7] ** 2).sum() / (data["c1"] ** 2).sum())
    assert largest_feature_share(np.zeros((3, 4))) == 0


def test_a_client_of_few_samples_and_one_that_is_badly_explained():
    data = alike()
    data["c2"] = data["c2"][:20]
    text = the("few samples", doubts(data, n_global=4))
    assert "(20 for 8) at c2:" in text
    assert "procrustes" in text
    data = alike()
    data["c3"] = data["c3"] + 0.6 * RNG.standard_normal((200, 8))
    assert "the data of c3 are" in the("explained much worse", doubts(data, n_global=8, threshold=0.4))


def outcome_of(sharing="all", **report):
    facts = {"n_samples": 90, "n_atoms": 30, "nonzeros": 2.0, "start_error": 0.1}
    known = {"n_global": 22, "path_lengths": [], "unrelated_edges": [], "unrelated_bound": [], "rounds": 1}
    settings = settings_from_values({"sharing": sharing, "n_global": "auto"})
    D = np.eye(30)[:, : report.get("n_global", 22)]
    return RunOutcome({**known, **report}, dict.fromkeys("abcd", facts), settings, D, np.ones(D.shape[1]))


def test_who_uses_fewer_atoms_than_are_shared_is_named():
    found = ended_warnings(outcome_of(absent={"b": 5}, n_edges=2))
    assert the("fewer atoms", found) == (
        "b (17 of its 30 atoms) uses fewer atoms than the 22 that are shared: it takes part in all of them, and gives "
        "up the atoms used least for those without a like; lower n_global, min_usage or min_samples, or give more "
        "samples"
    )
    found = ended_warnings(outcome_of(absent={"b": 5, "d": 21}, n_edges=1))
    assert "b (17 of its 30 atoms), d (1 of its 30 atoms) use fewer atoms" in the("fewer atoms", found)
    assert not any("fewer atoms" in text for text in ended_warnings(outcome_of(absent={})))


def test_edges_are_those_of_the_clients_on_the_paths():
    lengths = {"n_global": 1, "path_lengths": [0.6, 3.0], "unrelated_edges": [1.2, 1.1], "unrelated_bound": [1.1, 1.0]}
    assert outcome_of(**lengths).edges.tolist() == pytest.approx([0.2, 1.0])
    assert outcome_of(**lengths, n_edges=2).edges.tolist() == pytest.approx([0.3, 1.5])


def test_if_no_two_clients_share_an_atom_the_sentence_speaks_of_no_paths():
    (text,) = (text for text in ended_warnings(outcome_of("some", n_global=0)) if "shared" in text)
    assert text.startswith("no two clients have an atom that is nearer than chance, so that nothing is shared; look at")
