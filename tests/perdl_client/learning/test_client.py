"""A client that is stuck finds out by itself, gets out, and bothers nobody who is not stuck."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common.coders import HardThreshold
from common.dictionaries import dictionary_distance
from common.learners import LEARNERS
from common.settings import settings_from_values
from common.synthetic import generate
from perdl_client.learning.alignment import retract
from perdl_client.learning.client import ClientLearner
from perdl_client.learning.restart import NOTHING_SEEN, Watch, restart_local_dictionary
from perdl_client.learning.warm_up import objective, warm_up

CODER = HardThreshold(0.15)


def learning(**values):
    return settings_from_values(values).for_client("client-1")


def truth(seed, noise=0.0):
    return generate(seed, "client-1", n_features=6, n_global=3, n_local=3, n_samples=200, noise=noise)


def stuck_block(t, rng):
    """A local block in a wrong basin: a fixed point of the learner, beside the true D^g."""
    for _ in range(200):
        start = retract(t.global_dictionary, rng.standard_normal((6, 3)))
        residual = t.data - t.global_dictionary @ (t.global_dictionary.T @ t.data)
        D = warm_up(residual, start, LEARNERS["orthogonal"], CODER, n_steps=60, first_threshold=0.15)
        D = retract(t.global_dictionary, D)
        if dictionary_distance(D, t.local_dictionary) > 0.1:
            return D
    pytest.fail("no wrong basin found")


def rounds_of(t, D_l, one, n=29):
    """The local block after rounds in which D^g is the truth."""
    client = ClientLearner(t.data, one, 0, "client-1", dictionary=D_l)
    for step in range(1, n + 1):
        client.update(t.global_dictionary, step)
    return client.finish(t.global_dictionary)


@pytest.mark.parametrize("seed", range(4))
def test_a_stuck_block_is_found_out_and_replaced(seed):
    t = truth(seed)
    D_l = stuck_block(t, np.random.default_rng(seed))
    assert dictionary_distance(rounds_of(t, D_l, learning()), t.local_dictionary) < 1e-12


def test_without_restarts_it_stays_stuck():
    t = truth(0)
    D_l = stuck_block(t, np.random.default_rng(0))
    assert dictionary_distance(rounds_of(t, D_l, learning(local_restarts=0)), t.local_dictionary) > 0.1


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.05])
def test_a_block_in_the_right_basin_is_left_alone_at_noise_below_the_threshold(noise):
    for seed in range(10):
        t = truth(seed, noise)
        rng = np.random.default_rng(seed)
        assert restart_local_dictionary(t.data, t.global_dictionary, t.local_dictionary, learning(), rng) is None


@pytest.mark.parametrize("learner", sorted(LEARNERS))
def test_a_restart_lowers_the_objective_and_keeps_the_learners_form(learner):
    t = truth(1)
    D_l = stuck_block(t, np.random.default_rng(1))
    found = restart_local_dictionary(
        t.data, t.global_dictionary, D_l, learning(learner=learner), np.random.default_rng(2)
    )
    assert found is not None
    before, after = (objective(t.data, np.hstack([t.global_dictionary, D]), CODER) for D in (D_l, found))
    assert after < before
    if LEARNERS[learner].orthonormal:
        D = np.hstack([t.global_dictionary, found])
        np.testing.assert_allclose(D.T @ D, np.eye(6), atol=1e-12)


@pytest.mark.parametrize(("r_g", "r_l"), [(0, 3), (6, 0), (3, 0), (0, 6)])
def test_no_global_or_no_local_atoms_are_no_trouble(r_g, r_l):
    t = truth(2)
    D = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6))).Q
    found = restart_local_dictionary(t.data, D[:, :r_g], D[:, r_g : r_g + r_l], learning(), np.random.default_rng(0))
    assert found is None if r_l == 0 else found.shape == (6, r_l)


def test_the_evidence_is_an_objective_that_stands_still():
    assert not NOTHING_SEEN.stalled(1)
    assert not Watch(0.1, 0.2).stalled(1), "it falls"
    assert Watch(0.199, 0.2).stalled(1)
    assert not Watch(0.199, 0.2, next_try=5).stalled(4)
    assert not Watch(0.0, 0.0).stalled(1), "it is exact"


def test_a_wrong_block_that_explains_every_sample_is_found_out_too():
    """With one local atom a sample, atoms turned by 45 degrees leave no error: only the objective tells."""
    t = truth(5)
    rng = np.random.default_rng(5)
    X = np.eye(3)[rng.integers(0, 2, 200)].T * rng.choice([-1, 1], 200) * (0.5 + rng.random(200))
    Y = t.local_dictionary @ X + t.global_dictionary @ t.codes[:3]
    a, b, c = t.local_dictionary.T
    turned = np.column_stack([(a + b) / np.sqrt(2), (a - b) / np.sqrt(2), c])
    client = ClientLearner(Y, learning(), 0, "client-1", dictionary=turned)
    assert client.update(t.global_dictionary, 1).error < 1e-12
    assert client.watch.objective > 0
    found = restart_local_dictionary(Y, t.global_dictionary, turned, learning(), rng)
    assert found is not None
    assert dictionary_distance(_used(Y, found), np.column_stack([a, b])) < 1e-9


def _used(Y, D):
    energies = (np.where(np.abs(D.T @ Y) > 0.15, D.T @ Y, 0) ** 2).sum(axis=1)
    return D[:, np.argsort(energies)[-2:]]


def test_tries_that_find_nothing_become_rare():
    t, tries = truth(3, noise=0.05), 0
    client = ClientLearner(t.data, learning(local_restarts=1), 0, "a", dictionary=t.local_dictionary)
    for step in range(1, 200):
        before = client.watch.wait
        client.update(t.global_dictionary, step)
        tries += client.watch.wait != before
    assert 1 <= tries <= 7


def test_data_keep_their_float_type():
    t = truth(4)
    D_l = stuck_block(t, np.random.default_rng(4)).astype("f4")
    watch = replace(NOTHING_SEEN, objective=0.2, previous=0.2)
    client = ClientLearner(t.data.astype("f4"), learning(), 0, "client-1", dictionary=D_l, watch=watch)
    new = client.update(t.global_dictionary.astype("f4"), 3)
    assert new.local_dictionary.dtype == new.global_dictionary.dtype == np.float32


# split and share


def whole(Y, D):
    return ClientLearner(Y, learning(), 0, "client-1", dictionary=D)


def test_who_lacks_atoms_gives_up_those_that_it_uses_least():
    t = truth(0)
    D = np.hstack([t.global_dictionary, t.local_dictionary])
    energies = (CODER(t.data, D) ** 2).sum(axis=1)
    client = whole(t.data, D)
    client.split(np.array([-1, 4, -1]))
    least = [j for j in np.argsort(energies) if j != 4][:2]
    np.testing.assert_array_equal(client.dictionary, np.delete(D, [4, *least], axis=1))
    assert client.members is None


def test_who_shares_some_atoms_keeps_all_others():
    t = truth(0)
    D = np.hstack([t.global_dictionary, t.local_dictionary])
    client = whole(t.data, D)
    client.split(np.array([-1, 1, -1]), "some")
    np.testing.assert_array_equal(client.dictionary, np.delete(D, 1, axis=1))
    assert client.members is not None
    assert client.members.tolist() == [False, True, False]
    new = client.update(t.global_dictionary, 1)
    assert new.global_dictionary.shape == (6, 1)
    assert client.finish(t.global_dictionary).shape == (6, 5)


def test_an_atom_that_it_leaves_becomes_its_own_and_one_that_it_joins_takes_the_nearest_ones_place():
    t = truth(0)
    D = np.hstack([t.global_dictionary, t.local_dictionary])
    client = whole(t.data, D)
    client.split(np.array([0, -1, -1]), "some")
    client.watch = Watch(objective=1.0)
    client.share(np.array([True, False, True]), -t.global_dictionary)
    np.testing.assert_array_equal(client.dictionary, D[:, [1, 3, 4, 5]])
    assert client.watch == NOTHING_SEEN
    client.share(np.array([False, False, True]), t.global_dictionary)
    np.testing.assert_array_equal(client.dictionary, D[:, [1, 3, 4, 5, 0]])
    client.watch = Watch(objective=1.0)
    client.share(np.array([False, False, True]), t.global_dictionary)
    assert client.watch == Watch(objective=1.0)
    client.keep(np.array([1, 2]))
    assert client.members is not None
    assert client.members.tolist() == [False, True]


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("learner", [name for name in LEARNERS if LEARNERS[name].orthonormal])
def test_local_steps_are_rounds_in_which_no_one_else_takes_part(learner, guarded):
    """With local_steps = 3 a client answers what it would answer to its own two answers before."""
    t = truth(1, noise=0.1)
    rng = np.random.default_rng(0)
    D_g, D_l = np.split(np.linalg.qr(rng.standard_normal((6, 6))).Q, [3], axis=1)

    def client(**values):
        one = learning(learner=learner, local_restarts=0, **values)
        return ClientLearner(t.data, one, 0, "client-1", dictionary=D_l, guarded=guarded)

    several, single, received = client(local_steps=3), client(), D_g
    for step in (1, 2, 3):
        last = single.update(received, step)
        received = last.global_dictionary
    found = several.update(D_g, 1)
    np.testing.assert_allclose(found.global_dictionary, last.global_dictionary, atol=1e-12)
    np.testing.assert_allclose(several.dictionary, single.dictionary, atol=1e-12)
    assert found.error == pytest.approx(last.error, rel=1e-9)
