"""Claims of the start from singular vectors, and of which atoms are used."""

import numpy as np
import pytest

from common.coders import HardThreshold, TopK
from common.learners import LEARNERS
from common.statistics import atom_energies, used_atoms
from perdl_client.learning.initialization import svd_start

ORTHOGONAL, CODER = LEARNERS["orthogonal"], HardThreshold(0.15)


@pytest.mark.parametrize("shape", [(6, 20), (6, 3), (6, 6), (3, 1)])
@pytest.mark.parametrize("r", [0, 1, 3])
def test_svd_start_spans_the_directions_of_largest_energy(shape, r):
    Y = np.random.default_rng(7).standard_normal(shape)
    D = svd_start(Y, r)
    np.testing.assert_allclose(D.T @ D, np.eye(r), atol=1e-12)
    eigenvalues, eigenvectors = np.linalg.eigh(Y @ Y.T)
    kept = min(r, *shape)
    for j in range(kept):
        assert abs(D[:, j] @ eigenvectors[:, -1 - j]) == pytest.approx(1, abs=1e-8)
    assert np.linalg.norm(D.T @ Y) ** 2 == pytest.approx(eigenvalues[::-1][:r].sum())


# Usage


def test_usage_is_the_energy_of_each_code_row():
    X = np.random.default_rng(8).standard_normal((4, 9))
    np.testing.assert_allclose(atom_energies(X), [sum(x * x for x in row) for row in X])


@pytest.mark.parametrize(
    ("energies", "min_usage", "kept"),
    [
        ([4.0, 1.0, 0.0, 2.0], 0.0, [0, 1, 3]),
        ([4.0, 1.0, 0.0, 2.0], 0.25, [0, 1, 3]),
        ([4.0, 1.0, 0.0, 2.0], 0.26, [0, 3]),
        ([4.0, 1.0, 0.0, 2.0], 0.999, [0]),
        ([0.0, 0.0], 0.0, []),
        ([0.0, 0.0], 0.5, []),
        ([], 0.5, []),
        ([1e-290, 1e-295], 1e-4, [0]),
    ],
)
def test_used_atoms_carry_their_share_of_the_most_used_one(energies, min_usage, kept):
    X = np.sqrt(np.array(energies).reshape(-1, 1) / 2) * np.ones((1, 2))
    assert used_atoms(X, min_usage).tolist() == kept


def test_an_atom_that_one_sample_makes_up_is_not_sent():
    X = np.array([[0, 5.0, 0, 0], [1, 1, 0, 0], [9, 1, 1, 1], [3, 1, 1, 1]])  # 84 of 84 + 3, then 9 of 12
    assert used_atoms(X, 0.0).tolist() == [1, 3]
    assert used_atoms(X, 0.0, min_samples=1).tolist() == [0, 1, 2, 3]
    assert used_atoms(X, 0.0, min_samples=3).tolist() == [3]


@pytest.mark.parametrize("coder", [CODER, TopK(6)], ids=repr)
def test_atoms_that_no_sample_reaches_are_not_used(coder):
    Y = np.random.default_rng(9).standard_normal((6, 3))
    D = np.linalg.svd(Y)[0]  # three atoms in the span of the samples, three off it
    assert used_atoms(coder(Y, D), 1e-4, min_samples=1).tolist() == [0, 1, 2]
