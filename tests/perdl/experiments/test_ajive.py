"""AJIVE finds a planted joint space, and no other."""

from __future__ import annotations

import numpy as np
import pytest

from perdl.experiments.ajive import ajive


def blocks(rng, joint):
    """Three sites in 20 dimensions: the joint directions, two own ones at right angles to them, and noise."""
    made = {}
    for name in "abc":
        G = rng.standard_normal((20, 2))
        own = np.linalg.qr(G - joint.T @ (joint @ G)).Q.T
        signal = rng.standard_normal((100, len(joint) + 2)) @ np.concatenate([joint, own])
        made[name] = signal + 0.05 * rng.standard_normal((100, 20)), own
    return made


@pytest.mark.parametrize("n_joint", [0, 3])
def test_ajive_finds_the_planted_joint_space_and_no_other(n_joint):
    rng = np.random.default_rng(0)
    joint = np.linalg.qr(rng.standard_normal((20, 3))).Q.T[:n_joint]
    made = blocks(rng, joint)
    found, own = ajive({name: X.T for name, (X, _) in made.items()}, n_joint + 2)
    assert found.shape == (20, n_joint)
    np.testing.assert_allclose(found @ found.T, joint.T @ joint, atol=0.02)
    for name, (_, truth) in made.items():
        np.testing.assert_allclose(own[name] @ own[name].T, truth.T @ truth, atol=0.03)
        np.testing.assert_allclose(own[name].T @ found, 0, atol=1e-10)
