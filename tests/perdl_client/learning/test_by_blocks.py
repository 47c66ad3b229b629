"""What is learnt block by block is what is learnt from all samples at once; a stream gives the bits of an array."""

from __future__ import annotations

import itertools
from dataclasses import fields

import numpy as np
import pytest

from common import blocks as module
from common.blocks import Stream
from common.coders import OMP, HardThreshold, ThresholdOMP, TopK
from common.learners import LEARNERS
from common.learning_settings import LearningSettings
from common.statistics import used_atoms
from perdl_client.learning import subset
from perdl_client.learning.client import ClientLearner
from perdl_client.learning.evaluation import residual_energies, sample_energies
from perdl_client.learning.guard import passed
from perdl_client.learning.guard_blocks import movable, weighted_sums
from perdl_client.learning.local_update import local_update, refine_local_dictionary
from perdl_client.learning.measures import measured
from perdl_client.learning.subset import few
from perdl_client.learning.sweep import sweep

D, R_G, R_L, N = 8, 4, 3, 900
BY_SUMS = [name for name, learner in LEARNERS.items() if learner.of_sums is not None]
CODERS = [HardThreshold(0.6), TopK(2), OMP(2), ThresholdOMP(0.6)]


def samples(seed=0, dtype="f8", huge=1000):
    """Sparse samples with heavy tails, some huge, and atoms of few samples."""
    rng = np.random.default_rng(seed)
    atoms = np.linalg.qr(rng.standard_normal((D, D))).Q
    X = rng.standard_t(3, (D, N)) * (rng.random((D, N)) < 0.3)
    X[5, 6:] = 0  # used by at most six samples
    Y = atoms @ X + 0.01 * rng.standard_normal((D, N))
    Y[:, :4] *= huge
    return np.asfortranarray(Y.astype(dtype)), atoms[:, :R_G].astype(dtype), atoms[:, R_G : R_G + R_L].astype(dtype)


def streamed(Y):
    return Stream(Y.shape, Y.dtype, lambda i, j: Y[:, i:j].copy())


@pytest.fixture
def by_blocks(monkeypatch):
    """Return a function that makes blocks small from then on."""
    return lambda: monkeypatch.setattr(module, "NUMBERS", 1000)


def same(one, other):
    for field in fields(one):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), field.name)


def alike(one, other, rtol):
    for field in fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        np.testing.assert_allclose(a, b, rtol, rtol * np.abs(b).max(initial=0), err_msg=field.name)


@pytest.mark.parametrize(("coder", "least"), itertools.product(CODERS, (1, 5, 40)), ids=str)
def test_the_guard_lets_the_same_through(by_blocks, coder, least):
    Y, D_g, D_l = samples()
    D = np.hstack([D_g, D_l])
    X = coder(Y, D)
    seen = passed(Y, D, X, least)
    moment, second = seen.product(seen.rest, seen.codes), seen.product(seen.codes, seen.codes)
    by_blocks()
    found = movable(Y, D, coder, least)
    assert (seen.weights < 1).any()  # the guard has something to do
    np.testing.assert_array_equal(found.moves, seen.moves)
    np.testing.assert_allclose(found.weights, seen.weights, rtol=1e-6)
    for got, wanted in zip(weighted_sums(Y, D, coder, found), (moment, second), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-7 * np.abs(wanted).max())
    other = movable(streamed(Y), D, coder, least)
    same(other, found)


@pytest.mark.parametrize("name", BY_SUMS)
@pytest.mark.parametrize("coder", CODERS, ids=str)
@pytest.mark.parametrize("least", [None, 1, 5, 40])
def test_an_update_by_blocks_is_that_of_all_samples(by_blocks, name, coder, least):
    Y, D_g, D_l = samples()
    at_once = local_update(Y, D_g, D_l, LEARNERS[name], coder, min_samples=least)
    by_blocks()
    found = local_update(Y, D_g, D_l, LEARNERS[name], coder, min_samples=least)
    alike(found, at_once, 1e-9 if least is None else 1e-6)  # weights of long samples are found to seven digits
    same(local_update(streamed(Y), D_g, D_l, LEARNERS[name], coder, min_samples=least), found)


@pytest.mark.parametrize("name", BY_SUMS)
def test_an_update_in_single_precision_has_the_same_bits(by_blocks, name):
    Y, D_g, D_l = samples(dtype="f4")
    by_blocks()
    one, other = (local_update(A, D_g, D_l, LEARNERS[name], CODERS[0], min_samples=5) for A in (Y, streamed(Y)))
    assert other.global_dictionary.dtype == other.local_dictionary.dtype == np.float32
    same(one, other)


@pytest.mark.parametrize("name", BY_SUMS)
@pytest.mark.parametrize("coder", CODERS[:3], ids=str)
def test_refinement_by_blocks(by_blocks, name, coder):
    Y, D_g, D_l = samples()
    at_once = refine_local_dictionary(Y, D_g, D_l, LEARNERS[name], coder, 3)
    by_blocks()
    found = refine_local_dictionary(Y, D_g, D_l, LEARNERS[name], coder, 3)
    np.testing.assert_allclose(found, at_once, atol=1e-9)
    np.testing.assert_array_equal(refine_local_dictionary(streamed(Y), D_g, D_l, LEARNERS[name], coder, 3), found)


@pytest.mark.parametrize("coder", CODERS, ids=str)
def test_measures_are_those_of_all_codes(by_blocks, coder):
    Y, D_g, D_l = samples()
    dictionary = np.hstack([D_g, D_l])
    X = coder(Y, dictionary)
    size, rest = np.linalg.norm(Y), Y - dictionary @ X
    by_blocks()
    found = measured(Y, dictionary, coder, R_G)
    same(measured(streamed(Y), dictionary, coder, R_G), found)
    np.testing.assert_allclose(found.error, np.linalg.norm(rest) / size)
    np.testing.assert_allclose(found.carried, (X * X).sum(axis=1) / size**2)
    np.testing.assert_allclose(found.shared, 1 - np.linalg.norm(Y - D_g @ X[:R_G]) ** 2 / size**2)
    np.testing.assert_allclose(found.shared + found.own, 1 - np.linalg.norm(rest) ** 2 / size**2)
    assert found.nonzeros == np.count_nonzero(X) / N
    for least in (1, 5, 40):
        np.testing.assert_array_equal(found.used(1e-4, least), used_atoms(X, 1e-4, least))


@pytest.mark.parametrize("coder", CODERS[2:], ids=str)
def test_a_sweep_takes_any_coder(coder):
    Y, D_g, D_l = samples()
    dictionary = np.hstack([D_g, D_l])
    X = coder(Y, dictionary)
    found = sweep(Y, dictionary, coder, second_moment=True)
    np.testing.assert_allclose(found.moment, Y @ X.T, atol=1e-9 * np.abs(Y @ X.T).max())
    np.testing.assert_allclose(found.second_moment, X @ X.T, atol=1e-9 * np.abs(X @ X.T).max())
    np.testing.assert_allclose(found.misfit, np.linalg.norm(Y - dictionary @ X) ** 2)


def test_energies_of_held_out_samples(by_blocks):
    Y, D_g, _ = samples()
    left, energies = residual_energies(Y, D_g, 2), sample_energies(Y)
    by_blocks()
    np.testing.assert_allclose(residual_energies(Y, D_g, 2), left, rtol=1e-9)
    np.testing.assert_array_equal(residual_energies(streamed(Y), D_g, 2), residual_energies(Y, D_g, 2))
    np.testing.assert_array_equal(sample_energies(streamed(Y)), energies)


def test_starts_take_few_of_many_samples(monkeypatch):
    Y, _, _ = samples()

    def draw():
        return np.random.default_rng(3)

    assert few(Y, 7, draw()) is Y
    monkeypatch.setattr(subset, "MOST", 100 * D)
    some = few(Y, 7, draw())
    assert some.shape == (D, 100)
    places = [int(np.flatnonzero((one[:, None] == Y).all(axis=0))[0]) for one in some.T]
    assert places == sorted(set(places))  # in order, none twice
    assert max(places) > 0.9 * N
    np.testing.assert_array_equal(few(streamed(Y), 7, draw()), some)
    assert few(Y, 50, draw()).shape == (D, 500)  # ten samples an atom


WAYS = [{}, {"start": "svd"}, {"start": "random"}, {"learner": "gradient"}, {"coder": "omp", "n_nonzero": 2}]


@pytest.mark.parametrize("more", WAYS, ids=str)
@pytest.mark.parametrize("guarded", [True, False])
def test_a_client_of_a_stream_has_the_bits_of_one_in_memory(by_blocks, monkeypatch, more, guarded):
    Y, D_g, _ = samples(huge=3)
    monkeypatch.setattr(subset, "MOST", 100 * D)
    by_blocks()
    learning = LearningSettings(n_atoms=7, n_restarts=2, local_restarts=2, threshold=0.6, **more)
    clients = [ClientLearner(A, learning, 0, "ada", guarded=guarded) for A in (Y, streamed(Y))]
    one, other = (client.start() for client in clients)
    assert one.takes_part
    for name in ("used", "atoms", "usage"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for client in clients:
        client.split(np.array([0, -1, 1, -1]))
    for t in range(1, 6):
        same(*(client.update(D_g, t) for client in clients))
        np.testing.assert_array_equal(clients[0].dictionary, clients[1].dictionary)
