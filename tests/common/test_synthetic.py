"""Claims of the synthetic model, against the paper's description of it."""

import numpy as np
import pytest
import scipy.stats

from common.synthetic import generate, true_global_dictionary

PAPER = {"n_features": 6, "n_global": 3, "n_local": 3, "n_samples": 200}


def test_first_numbers_stay_what_they_were():
    truth = generate(0, "client-1", **PAPER)
    np.testing.assert_allclose(
        truth.global_dictionary[0], [0.32859186774739535, -0.18246564764627018, 0.6302216573087017], rtol=1e-12
    )
    np.testing.assert_allclose(truth.local_dictionary[0, 0], -0.40925579192702743, rtol=1e-10)
    np.testing.assert_allclose(
        truth.data[0, :4], [-0.3293497624143167, 0.8569422591949758, 0, 0.10719902237074758], rtol=1e-9
    )


@pytest.mark.parametrize(("r_g", "r_l"), [(3, 3), (0, 6), (6, 0), (2, 1), (0, 0)])
def test_dictionaries_are_orthonormal_and_data_their_product_with_codes(r_g, r_l):
    truth = generate(1, "a", n_features=6, n_global=r_g, n_local=r_l, n_samples=50)
    D = np.hstack([truth.global_dictionary, truth.local_dictionary])
    assert truth.codes.shape == (r_g + r_l, 50)
    np.testing.assert_allclose(D.T @ D, np.eye(r_g + r_l), atol=1e-12)
    np.testing.assert_array_equal(truth.data, D @ truth.codes)


def test_clients_share_the_global_dictionary_and_nothing_else():
    a, b = (generate(2, name, **PAPER) for name in ("a", "b"))
    np.testing.assert_array_equal(a.global_dictionary, b.global_dictionary)
    np.testing.assert_array_equal(a.global_dictionary, true_global_dictionary(2, 6, 3))
    assert np.abs(a.local_dictionary - b.local_dictionary).max() > 0.1
    assert abs(np.corrcoef(a.codes.ravel(), b.codes.ravel())[0, 1]) < 0.15
    assert np.abs(a.global_dictionary - generate(3, "a", **PAPER).global_dictionary).max() > 0.1


def test_a_client_draws_the_same_again():
    a, b = generate(4, "a", **PAPER, noise=0.1), generate(4, "a", **PAPER, noise=0.1)
    np.testing.assert_array_equal(a.data, b.data)


def test_codes_are_bernoulli_gaussian_with_small_ones_raised_to_the_amplitude():
    X = generate(5, "a", n_features=10, n_global=5, n_local=5, n_samples=20_000, sparsity=0.2, amplitude=0.3).codes
    share = np.mean(X != 0)
    assert abs(share - 0.2) < 5 * np.sqrt(0.2 * 0.8 / X.size)
    nonzeros = X[X != 0]
    assert np.abs(nonzeros).min() == 0.3
    raised = np.mean(np.abs(nonzeros) == 0.3)
    expected = 2 * scipy.stats.norm.cdf(0.3) - 1
    assert abs(raised - expected) < 5 * np.sqrt(expected / nonzeros.size)
    assert abs(np.mean(nonzeros > 0) - 0.5) < 5 * 0.5 / np.sqrt(nonzeros.size)
    large = np.abs(nonzeros[np.abs(nonzeros) > 0.3])
    tail = scipy.stats.truncnorm(0.3, np.inf)
    assert scipy.stats.kstest(large[:5000], tail.cdf).pvalue > 1e-4
    # Where an entry is zero tells nothing of its neighbours.
    zeros = (X != 0) - share
    assert abs(np.mean(zeros[:, 1:] * zeros[:, :-1])) < 5 * 0.16 / np.sqrt(X.size)


def test_sparsity_one_and_amplitude_zero_are_a_plain_gaussian():
    X = generate(6, "a", n_features=5, n_global=2, n_local=3, n_samples=4000, sparsity=1.0, amplitude=0.0).codes
    assert scipy.stats.kstest(X.ravel(), "norm").pvalue > 1e-4


def test_noise_has_its_standard_deviation_and_changes_nothing_else():
    plain, noisy = (generate(7, "a", **PAPER | {"n_samples": 5000}, noise=noise) for noise in (0.0, 0.25))
    E = noisy.data - plain.data
    np.testing.assert_array_equal(noisy.codes, plain.codes)
    assert E.std() == pytest.approx(0.25, rel=0.03)
    assert scipy.stats.kstest(E.ravel()[:5000] / 0.25, "norm").pvalue > 1e-4
    assert abs(np.corrcoef(E.ravel(), plain.data.ravel())[0, 1]) < 0.03


def test_dictionaries_lie_anywhere_on_the_stiefel_manifold():
    # LAPACK's own QR would give the first entry the same sign every time.
    shared = np.array([true_global_dictionary(seed, 4, 2) for seed in range(400)])
    own = np.array(
        [generate(seed, "a", n_features=4, n_global=1, n_local=2, n_samples=1).local_dictionary for seed in range(400)]
    )
    for D in (shared, own):
        assert np.abs(D.mean(axis=0)).max() < 5 * 0.5 / np.sqrt(400)
        assert np.abs((D > 0).mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(400)
    # First coordinate of a uniform direction in 4 dimensions: its square is Beta(1/2, 3/2).
    assert scipy.stats.kstest(shared[:, 0, 0] ** 2, scipy.stats.beta(0.5, 1.5).cdf).pvalue > 1e-4


def test_too_many_atoms_are_refused_with_the_numbers():
    with pytest.raises(ValueError, match=r"3 \+ 4 orthonormal atoms do not fit into 6 dimensions"):
        generate(0, "a", n_features=6, n_global=3, n_local=4, n_samples=5)
