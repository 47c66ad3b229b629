"""What benchmarks/alternatives.py holds perdl to: PCA's error is that of the SVD, own and others' samples are apart."""

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
