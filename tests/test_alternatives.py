"""What benchmarks/alternatives.py holds perdl to: AJIVE finds a planted joint space, PCA's error is that of the SVD."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look their annotations up
    spec.loader.exec_module(module)
    return module


alternatives = load("alternatives")


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
    found, own = alternatives.ajive({name: X for name, (X, _) in made.items()}, n_joint + 2)
    assert len(found) == n_joint
    np.testing.assert_allclose(found.T @ found, joint.T @ joint, atol=0.02)
    for name, (_, truth) in made.items():
        np.testing.assert_allclose(own[name].T @ own[name], truth.T @ truth, atol=0.03)
        np.testing.assert_allclose(own[name] @ found.T, 0, atol=1e-10)


def test_the_error_of_pca_is_that_of_the_singular_values():
    X = np.random.default_rng(0).standard_normal((40, 8)) + 3
    problem = alternatives.Problem({"a": X}, {"a": X}, 3, 8, 0, {})
    basis = alternatives.pca_basis(X, 3)
    s = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    expected = np.sqrt((s[3:] ** 2).sum() / (s**2).sum())
    error = np.linalg.norm(X - basis.write(X, 3)) / np.linalg.norm(X - problem.mean)
    assert error == pytest.approx(expected, rel=1e-10)


def test_held_out_samples_of_a_site_and_of_the_others_are_kept_apart():
    rng = np.random.default_rng(0)
    test = {"a": rng.standard_normal((5, 4)), "b": rng.standard_normal((7, 4))}
    problem = alternatives.Problem(test, test, 1, 1, 0, {})
    seen = []
    alternatives.errors(problem, lambda site, X, k: seen.append((site, len(X))) or X)
    assert seen == [("a", 5), ("a", 7), ("b", 7), ("b", 5)]
