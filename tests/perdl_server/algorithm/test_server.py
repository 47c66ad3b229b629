"""The server's half without messages: who is on the paths, who is paired with them, who is let in late."""

from __future__ import annotations

import numpy as np
import pytest

from common.settings import settings_from_values
from perdl_server.algorithm.matching import MatchingError, global_matching
from perdl_server.algorithm.server import Evidence, PermaServer


def clients(sizes, d=10, shared=3, seed=0):
    """Dictionaries whose first atoms are the shared ones."""
    rng = np.random.default_rng(seed)
    G, made = np.linalg.qr(rng.standard_normal((d, shared))).Q, {}
    for i, m in enumerate(sizes):
        D = np.linalg.qr(np.hstack([G, rng.standard_normal((d, d - shared))])).Q
        D[:, :shared] = G
        made[f"c{i}"] = (D * rng.choice([-1.0, 1.0], d))[:, :m]
    return G, made


def matched(sizes, **values):
    G, made = clients(sizes)
    server = PermaServer(settings_from_values({"n_clients": len(sizes), **values}))
    return G, made, server, server.match(made, [np.ones(m) for m in sizes])


def test_one_with_few_atoms_is_paired_with_what_the_others_share():
    G, made, server, match = matched([6, 6, 2, 6], n_global=3)
    assert match.report["absent"] == {"c2": 1}
    assert match.report["n_edges"] == 2
    D = np.hstack([server.global_dictionary, G])
    assert np.linalg.matrix_rank(D, tol=1e-10) == 3
    assert sorted(match.indices[2]) == [-1, 0, 1]
    for i, index in enumerate(match.indices[2]):
        if index >= 0:
            assert abs(server.global_dictionary[:, i] @ made["c2"][:, index]) == pytest.approx(1)


@pytest.mark.parametrize("n_global", [3, "auto"])
def test_who_has_enough_is_matched_as_ever(n_global):
    _, made, server, match = matched([6, 5, 4, 6], n_global=n_global)
    plain = global_matching(list(made.values()), 3)
    np.testing.assert_array_equal(match.indices, plain.indices)
    np.testing.assert_array_equal(server.global_dictionary, plain.global_dictionary)
    assert match.report["absent"] == {}
    assert match.report["n_edges"] == 3


def test_with_auto_one_with_few_atoms_does_not_decide_for_all():
    _, _, _, match = matched([6, 6, 1, 6], n_global="auto")
    assert match.report["n_global"] == 3
    assert match.report["absent"] == {"c2": 2}


def test_if_only_one_has_enough_atoms_nothing_can_be_matched():
    with pytest.raises(MatchingError, match="c0 has 2 usable atoms, fewer than n_global = 3: lower n_global"):
        matched([2, 6, 2], n_global=3)


SOME = {"sharing": "some", "n_global": "auto"}


def test_a_late_client_shares_what_it_has():
    G, made, server, _ = matched([6, 6, 6], **SOME)
    order = [int(np.abs(G.T @ atom).argmax()) for atom in server.global_dictionary.T]
    lacking = made["c0"][:, [5, 0, 1]]  # all but the third
    indices = server.admit("late", lacking)
    assert indices.tolist() == [{0: 1, 1: 2, 2: -1}[j] for j in order]
    members = server.members("late")
    assert members is not None
    assert members.tolist() == [j != 2 for j in order]
    assert server.names == ["c0", "c1", "c2", "late"]
    server.admit("c1", lacking[:, :1])  # it lost its folder, and has nothing of this now
    again = server.members("c1")
    assert again is not None
    assert not again.any()
    assert server.names == ["c0", "c1", "c2", "late"]


def test_only_who_answers_is_judged_and_a_change_of_members_is_no_rest():
    _, _, server, match = matched([6, 6, 6], **SOME)
    r = server.global_dictionary.shape[1]
    A = np.repeat(server.global_dictionary[None], 2, axis=0)
    evidence = Evidence(["c0", "c2"], np.zeros((2, r)), np.zeros((2, r)))
    server.aggregate(A, np.ones((2, r)), evidence)
    assert server.at_rest
    assert server.membership is not None
    assert np.isinf(server.membership.distance[1]).all()
    server.membership.set_client(1, np.zeros(r, dtype=bool))
    server.membership.set_client(2, np.zeros(r, dtype=bool))
    server.aggregate(A, np.ones((2, r)), evidence)
    assert not server.at_rest
    assert not server.shared.size
    assert server.shared_dictionary.shape == (10, 0)
    assert match.indices.shape == (3, r)


@pytest.mark.parametrize("aggregation", ["mean", "normalized", "polar", "energy", "procrustes"])
def test_a_sum_gives_what_its_summands_give(aggregation):
    rng = np.random.default_rng(1)
    _, _, plain, _ = matched([6, 6, 6, 6], n_global=3, aggregation=aggregation)
    _, _, summed, _ = matched([6, 6, 6, 6], n_global=3, aggregation=aggregation)
    D = plain.global_dictionary
    A = np.linalg.qr(D + 0.1 * rng.standard_normal((4, *D.shape))).Q
    A *= np.sign((A * D).sum(axis=1, keepdims=True))
    w = rng.uniform(0, 5, (4, 3)) * [1, 1, 0]  # the last atom is idle
    if aggregation == "procrustes":
        A = A * w[:, None, :]
    plain.aggregate(A, w if aggregation == "energy" else np.ones((4, 3)))
    if aggregation == "energy":
        summed.aggregate_sum((A * w[:, None, :]).sum(axis=0), w.sum(axis=0), 4)
    else:
        summed.aggregate_sum(A.sum(axis=0), np.linalg.norm(A, axis=1).sum(axis=0), 4)
    np.testing.assert_allclose(summed.global_dictionary, plain.global_dictionary, atol=1e-13)
    assert summed.change == pytest.approx(plain.change, rel=1e-9)
    assert summed.idle == plain.idle == ([2] if aggregation in ("energy", "procrustes") else [])
    if aggregation in ("mean", "normalized", "polar"):
        np.testing.assert_allclose(summed.consensus, plain.consensus, atol=1e-12)
    assert (summed.consensus <= 1).all()
