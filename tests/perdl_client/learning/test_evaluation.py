"""Errors on held-out samples against direct computation, and what a client has alone."""

import numpy as np
import pytest

from common.coders import omp
from common.evaluation import gain
from common.learning_settings import LearningSettings
from common.settings import load_settings
from perdl.perma import perma
from perdl_client.data.held_out import HeldOut
from perdl_client.learning.client import ClientLearner
from perdl_client.learning.evaluation import error, evaluate, gain_interval, learn_alone, residual_energies
from perdl_client.learning.measures import relative_error


def drawn(seed=0, d=12, r=8, m=60):
    rng = np.random.default_rng(seed)
    D = [np.linalg.qr(rng.standard_normal((d, r))).Q for _ in range(2)]
    Z = D[0] @ (rng.standard_normal((r, m)) * (rng.random((r, m)) < 0.4)) + 0.1 * rng.standard_normal((d, m))
    return Z, D[0], D[1]


def test_errors_are_those_of_direct_computation():
    Z, good, bad = drawn()
    found = evaluate(HeldOut(Z, np.arange(60)), bad, good[:, :3], good[:, 3:], 3, np.random.default_rng(0))
    assert (found.n, found.k, list(found.errors)) == (60, 3, [1, 3, 5])
    for k, row in found.errors.items():
        for name, D in (("alone", bad), ("federated", good), ("shared", good[:, :3])):
            left = 0.0
            for z in Z.T:  # least squares on the atoms that OMP takes, one sample at a time
                atoms = D[:, np.flatnonzero(omp(z[:, None], D, k)[:, 0])]
                left += np.linalg.norm(z - atoms @ np.linalg.lstsq(atoms, z, rcond=None)[0]) ** 2
            assert row[name] == pytest.approx(np.sqrt(left) / np.linalg.norm(Z), rel=1e-10)
            assert row[name] == pytest.approx(relative_error(Z, D, omp(Z, D, k)), rel=1e-10)
    assert found.gain == pytest.approx(1 - found.errors[3]["federated"] / found.errors[3]["alone"])
    assert found.verdict == "gained"
    swapped = evaluate(HeldOut(Z, np.arange(60)), good, bad[:, :3], bad[:, 3:], 3, np.random.default_rng(0))
    assert swapped.verdict == "better alone"


def test_without_shared_atoms_they_explain_nothing():
    Z, D, _ = drawn()
    found = evaluate(HeldOut(Z, np.arange(60)), D, D[:, :0], D, 3, np.random.default_rng(0))
    assert found.errors[3]["shared"] == 1
    assert (found.gain, found.low, found.high, found.verdict) == (0, 0, 0, "undecided")


def test_samples_that_are_zero_have_no_error():
    assert error(0.0, 0.0) == 0
    found = evaluate(
        HeldOut(np.zeros((6, 5)), np.arange(5)),
        np.eye(6),
        np.eye(6)[:, :2],
        np.eye(6)[:, 2:],
        2,
        np.random.default_rng(0),
    )
    assert set(found.errors[2].values()) == {0.0}


def test_the_interval_covers_the_gain_of_new_samples():
    """Of 200 sets of samples, the interval of 40 of them holds the gain over all of them in about 95 %."""
    rng = np.random.default_rng(0)
    population = rng.gamma(2.0, size=(2, 100_000)) * np.array([[1.0], [0.9]])
    truth = gain(*(error(one.sum(), 3e5) for one in population))
    covered = 0
    for _ in range(200):
        a, f = population[:, rng.integers(100_000, size=40)]
        low, high = gain_interval(a, f, np.full(40, 3.0), np.arange(40), rng)
        covered += low <= truth <= high
    assert 0.88 <= covered / 200 <= 0.99


def test_copies_of_samples_do_not_narrow_the_interval():
    Z, good, bad = drawn(m=20)
    alone, federated = residual_energies(Z, bad, 2), residual_energies(Z, good, 2)
    energies = (Z * Z).sum(axis=0)
    one = gain_interval(alone, federated, energies, np.arange(20), np.random.default_rng(1))
    copied = [np.repeat(part, 7) for part in (alone, federated, energies)]
    many = gain_interval(*copied, np.repeat(np.arange(20), 7), np.random.default_rng(1))
    np.testing.assert_allclose(many, one, rtol=1e-12)


@pytest.mark.parametrize("learner", ["orthogonal", "gradient"])
def test_alone_is_the_federation_of_one_that_shares_nothing(learner):
    """With its rest, refinement and restarts: all that a client does in rounds, but D^g is empty."""
    Y = drawn(m=200)[0]
    told = ["n_clients=1", "n_global=0", "rounds=12", f"learner={learner}", "threshold=0.3", "n_restarts=2"]
    settings = load_settings(None, ["synthetic.n_features=12", "refine_steps=1", *told])
    learning = settings.for_client("ada")
    federated = ClientLearner(Y, learning, 0, "ada")
    perma([federated], settings)
    alone = learn_alone(ClientLearner(Y, learning, 0, "ada"), 12, 0.0)
    np.testing.assert_array_equal(alone, federated.dictionary)


def test_alone_ends_at_rest():
    Y = drawn(m=200)[0]
    taken = []

    class Counted(ClientLearner):
        def update(self, global_dictionary, t):
            taken.append(t)
            return super().update(global_dictionary, t)

    learn_alone(Counted(Y, LearningSettings(threshold=0.3), 0, "ada"), 500, 1e-6)
    assert 1 < len(taken) < 500
