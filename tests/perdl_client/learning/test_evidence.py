"""What a client tells of its membership: standard errors that noise makes, and how near its own atoms are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common.coders import HardThreshold
from common.learners import LEARNERS
from common.settings import settings_from_values
from common.synthetic import generate
from perdl_client.learning.client import ClientLearner
from perdl_client.learning.evidence import FAR, evidence
from perdl_client.learning.local_update import local_update

LEARNER, CODER = LEARNERS["orthogonal"], HardThreshold(0.15)


def updated(seed, noise=0.05, n=2000, dtype=np.float64):
    t = generate(seed, "client-1", n_features=6, n_global=3, n_local=3, n_samples=n, noise=noise)
    Y, D_g, D_l = (M.astype(dtype) for M in (t.data, t.global_dictionary, t.local_dictionary))
    return Y, D_g, local_update(Y, D_g, D_l, LEARNER, CODER)


ALL = np.ones(3, dtype=bool)


def test_the_standard_error_is_how_far_noise_moves_an_atom():
    off, told = [], []
    for seed in range(40):
        _, D_g, new = updated(seed)
        off.append(np.linalg.norm(new.global_dictionary - D_g, axis=0))
        told.append(evidence(new, ALL, D_g)[0])
    # One step from the truth, and an orthonormal one: the order of size is what counts.
    assert 0.5 < np.sqrt(np.mean(np.square(off)) / np.mean(np.square(told))) < 1.5


def test_without_noise_it_is_nothing():
    _, D_g, new = updated(0, noise=0.0)
    spread, nearest = evidence(new, ALL, D_g)
    assert spread.max() < 1e-12
    assert not nearest.any()


def test_of_an_atom_that_it_does_not_share_it_tells_the_nearest_own_one():
    _, D_g, new = updated(0)
    near = 0.6 * new.local_dictionary[:, 1] + 0.8 * new.global_dictionary[:, 0]
    D_g = np.column_stack([D_g[:, 0], near, D_g[:, 2]])
    members = np.array([True, False, True])
    part = replace(new, energies=new.energies[[0, 2]])
    spread, nearest = evidence(part, members, D_g)
    assert nearest[1] == pytest.approx(np.sqrt(2 - 2 * 0.6), rel=1e-9)
    assert nearest[[0, 2]].tolist() == [0, 0]
    ratio = np.sqrt(part.energies[0] / new.local_energies[1])
    assert spread[1] == pytest.approx(spread[0] * ratio, rel=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_own_atoms_that_are_not_in_use_are_far(dtype):
    _, D_g, new = updated(0, dtype=dtype)
    dead = replace(new, local_energies=np.zeros(3, dtype=dtype), energies=np.empty(0, dtype=dtype))
    spread, nearest = evidence(dead, ~ALL, D_g)
    assert nearest.tolist() == [FAR] * 3
    assert spread.dtype == nearest.dtype == dtype
    unused = replace(new, energies=np.zeros(3, dtype=dtype))
    assert evidence(unused, ALL, D_g)[0].tolist() == [FAR] * 3


def test_without_atoms_there_is_nothing_to_tell():
    _, D_g, new = updated(0)
    empty = replace(new, local_dictionary=D_g[:, :0], local_energies=np.empty(0), energies=np.empty(0))
    assert evidence(empty, ~ALL, D_g)[1].tolist() == [FAR] * 3
    assert evidence(empty, ALL[:0], D_g[:, :0])[0].shape == (0,)


def test_what_is_missing_or_wild_does_not_count():
    """The same noise on fewer entries: the error is that of the entries that were learnt from."""
    Y, D_g, new = updated(0)
    t = generate(0, "client-1", n_features=6, n_global=3, n_local=3, n_samples=len(Y.T), noise=0.05)
    holes = np.random.default_rng(0).random(Y.shape) < 0.1
    part = local_update(np.where(holes, np.nan, Y), D_g, t.local_dictionary, LEARNER, CODER)
    assert 0.7 < evidence(part, ALL, D_g)[0].mean() / evidence(new, ALL, D_g)[0].mean() < 1.4
    wild = np.where(np.random.default_rng(1).random(Y.shape) < 0.02, 30.0, Y)
    learning = settings_from_values({"outliers": "mask"})
    client = ClientLearner(wild, learning, 0, "client-1", dictionary=t.local_dictionary, members=ALL)
    spread = client.evidence(client.update(D_g, 1), D_g)[0]
    assert 0.6 < spread.mean() / evidence(new, ALL, D_g)[0].mean() < 1.7
