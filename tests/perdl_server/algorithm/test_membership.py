"""Members of shared atoms: distances against their formulas, and who leaves and joins."""

from __future__ import annotations

import numpy as np
import pytest

from perdl_server.algorithm.membership import (
    _SETTLED,
    Membership,
    among_all,
    expected_distance,
    leave_one_out,
    noise_factor,
)

D, REACH = 8, 0.5
FAR = 2.0


def unit(A):
    return A / np.linalg.norm(A, axis=-2, keepdims=True)


def test_leave_one_out_is_the_distance_to_the_mean_of_the_others():
    rng = np.random.default_rng(0)
    A, members = rng.standard_normal((6, D, 4)), rng.random((6, 4)) < 0.7
    members[:, 3] = [True, False, False, False, False, False]
    A[~members[:, 0], :, 0] = np.nan  # columns of others are not read
    distance, inner = leave_one_out(A, members)
    for j in range(4):
        those = np.flatnonzero(members[:, j])
        for i in range(6):
            others = [A[k, :, j] for k in those if k != i]
            if i not in those or not others:
                assert distance[i, j] == np.inf
                continue
            assert distance[i, j] == pytest.approx(np.linalg.norm(A[i, :, j] - np.mean(others, axis=0)))
        if len(those) > 1:
            worst = those[distance[those, j].argmax()]
            rest = np.array([A[k, :, j] for k in those if k != worst])
            assert inner[worst, j] == pytest.approx(np.linalg.norm(rest - rest.mean(axis=0), axis=1).max())


def test_expected_distance_is_that_of_independent_errors():
    rng = np.random.default_rng(1)
    spread, members = rng.random((5, 3)), rng.random((5, 3)) < 0.7
    of_member, of_atom = expected_distance(spread, members)
    for j in range(3):
        those = np.flatnonzero(members[:, j])
        assert of_atom[j] == pytest.approx(np.sqrt((spread[those, j] ** 2).sum()) / max(len(those), 1))
        for i in those:
            others = [spread[k, j] ** 2 for k in those if k != i]
            assert of_member[i, j] == pytest.approx(np.sqrt(spread[i, j] ** 2 + sum(others) / max(len(others), 1) ** 2))


def test_expected_distance_is_what_noise_makes():
    rng = np.random.default_rng(2)
    spread, n = np.array([0.3, 0.1, 0.2]), 4000
    errors = rng.standard_normal((n, 3, 7)) * (spread / np.sqrt(7))[:, None]
    distance = np.linalg.norm(errors[:, 0] - errors[:, 1:].mean(axis=1), axis=1)
    of_member, of_atom = expected_distance(spread[:, None], np.ones((3, 1), dtype=bool))
    assert np.sqrt((distance**2).mean()) == pytest.approx(of_member[0, 0], rel=0.03)
    assert np.sqrt((errors.mean(axis=1) ** 2).sum(axis=1).mean()) == pytest.approx(of_atom[0], rel=0.03)


@pytest.mark.parametrize("d", [2, 3, 6, 50])
def test_noise_exceeds_its_factor_once_in_a_hundred_thousand(d):
    rng, n = np.random.default_rng(d), 2_000_000
    norms = np.sqrt(rng.chisquare(d - 1, n) / (d - 1))
    assert 3 <= np.count_nonzero(norms > noise_factor(d)) <= 45  # 20 expected


def test_columns_come_to_their_places():
    members = np.array([True, False, True])
    assert among_all(np.array([[1, 2], [3, 4]]), members).tolist() == [[1, 0, 2], [3, 0, 4]]
    assert among_all(np.array([5, 6]), members).tolist() == [5, 0, 6]
    part = np.ones((2, 3))
    assert among_all(part, None) is part


class Play:
    """Rounds without clients: members' atoms come nearer to the truth, wrong ones stay where they are."""

    def __init__(self, members, seed, wrong=(), noise=0.0, apart=0.4):
        self.rng, (self.N, self.r) = np.random.default_rng(seed), np.shape(members)
        self.true = np.linalg.qr(self.rng.standard_normal((D, self.r))).Q
        self.atoms = np.repeat(self.true[None], self.N, axis=0)
        for i, j in wrong:
            self.atoms[i, :, j] += apart * unit(self.rng.standard_normal((D, 1)))[:, 0]
        self.atoms = unit(self.atoms)
        self.off, self.wrong, self.noise = 0.1, set(wrong), noise
        self.fixed = noise / np.sqrt(D - 1) * self.rng.standard_normal(self.atoms.shape)
        self.some = Membership(np.array(members, dtype=bool), REACH)

    def rounds(self, n, who=None, nearest=None, dtype=np.float64):
        who = list(range(self.N)) if who is None else who
        changes = []
        for _ in range(n):
            self.off *= 0.3
            A = unit(self.atoms + self.fixed + self.off * self.rng.standard_normal(self.atoms.shape)).astype(dtype)
            spread = np.full((len(who), self.r), self.noise, dtype=dtype)
            near = np.full((self.N, self.r), FAR) if nearest is None else np.asarray(nearest)
            changes.append(self.some.update(who, A[who], spread, near[who]))
        return changes


@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("seed", range(10))
def test_a_false_member_leaves_and_no_true_one_ever(seed, noise):
    wrong = [(int(i), j) for j, i in enumerate(np.random.default_rng(seed).choice(5, 2, replace=False))]
    play = Play(np.ones((5, 3)), seed, wrong, noise)
    play.rounds(80)
    expected = np.ones((5, 3), dtype=bool)
    expected[tuple(zip(*wrong, strict=True))] = False
    np.testing.assert_array_equal(play.some.members, expected)


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("seed", range(10))
def test_among_true_members_nobody_leaves(seed, noise):
    play = Play(np.random.default_rng(seed).random((6, 4)) < 0.8, seed, noise=noise)
    before = play.some.members & play.some.shared
    play.rounds(80)
    np.testing.assert_array_equal(play.some.members, before)


def test_nobody_leaves_while_the_distance_falls_and_for_some_rounds_after():
    play = Play(np.ones((4, 1)), 0, [(2, 0)])
    assert not any(play.rounds(_SETTLED))
    assert any(play.rounds(20))
    assert play.some.members[:, 0].tolist() == [True, True, False, True]


def test_after_a_false_member_left_the_other_atoms_of_all_its_fellows_are_watched_anew():
    """D^g_j moves then, and with it all atoms of the clients that share it: their distances may stand still or grow."""
    members = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 0], [0, 0, 1], [0, 0, 1]], dtype=bool)
    play = Play(members, 3, [(0, 0)])
    play.off = 0.0
    play.rounds(_SETTLED)
    assert (play.some.settled[members] > 0).all()
    play.rounds(1)
    assert not play.some.members[0, 0]
    assert not play.some.settled[:, :2].any()
    assert play.some.settled[3:, 2].all()


def test_two_members_that_differ_both_leave():
    play = Play([[True, True], [True, True], [False, True]], 0, [(0, 0)])
    play.rounds(40)
    assert play.some.members.tolist() == [[False, True]] * 3
    assert play.some.shared.tolist() == [False, True]


def test_two_that_answer_of_three_members_do_not_part():
    """Which of the two is wrong cannot be known, and the third has no say in its absence."""
    play = Play(np.ones((3, 1)), 0, [(0, 0)])
    play.rounds(40, who=[0, 1])
    assert play.some.members.all()
    play.rounds(40)
    assert play.some.members[:, 0].tolist() == [False, True, True]


def test_who_is_near_enough_joins_and_who_is_not_does_not():
    members = np.array([[True], [True], [False], [False], [False]])
    nearest = [[0.0], [0.0], [1e-9], [0.3], [FAR]]
    play = Play(members, 0)
    assert play.rounds(1, nearest=nearest) == [True]
    assert play.some.members[:, 0].tolist() == [True, True, True, False, False]
    play = Play(members, 0, noise=0.1)  # three standard errors of a client and of the mean
    play.rounds(1, nearest=[[0.0], [0.0], [0.1], [0.6], [FAR]])
    assert play.some.members[:, 0].tolist() == [True, True, True, False, False]


def test_nobody_joins_beyond_the_reach_or_what_nobody_shares():
    play = Play([[True, False], [True, False], [False, False]], 0, noise=1.0)
    play.rounds(1, nearest=[[0, 0.0], [0, 0.0], [REACH + 0.01, 0.0]])
    assert not play.some.members[2].any()
    assert not play.some.members[:, 1].any()


def test_a_client_joins_one_atom_a_round():
    """Its nearest own atom may be the same for both."""
    play = Play([[True, True], [True, True], [False, False]], 0)
    play.rounds(1, nearest=[[0, 0], [0, 0], [2e-9, 1e-9]])
    assert play.some.members[2].tolist() == [False, True]


def test_a_client_that_comes_back_without_an_atom_leaves_nobody_alone_with_it():
    play = Play([[True, True], [True, True], [False, True]], 0)
    play.some.set_client(1, np.array([False, True]))
    assert play.some.members[0, 0]  # it may have been asked already, with this atom
    assert play.rounds(1) == [True]
    assert play.some.members.tolist() == [[False, True]] * 3


def test_a_client_after_the_last_is_added_with_nothing_known_of_it():
    play = Play(np.ones((2, 2)), 0)
    play.rounds(3)
    play.some.set_client(2, np.array([True, False]))
    assert play.some.members.tolist() == [[True, True], [True, True], [True, False]]
    assert play.some.distance.shape == play.some.settled.shape == (3, 2)
    assert np.isinf(play.some.distance[2]).all()
    assert not play.some.settled[2].any()


def test_single_precision_is_no_contradiction():
    play = Play(np.ones((4, 2)), 0)
    play.rounds(40, dtype=np.float32)
    assert play.some.members.all()


@pytest.mark.parametrize(("d", "r"), [(1, 0), (1, 1), (2, 1), (5, 0)])
def test_few_dimensions_and_no_atoms_are_fine(d, r):
    some = Membership(np.ones((3, r), dtype=bool), REACH)
    A, zeros = np.ones((3, d, r)), np.zeros((3, r))
    for _ in range(10):
        assert not some.update([0, 1, 2], A, zeros, zeros)
