"""Personalized PCA against what is known in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from common.errors import DataError, SettingsError
from perdl.experiments.personalized_pca import personalized_pca

D, R_G, R_L, N, SAMPLES = 12, 3, 2, 4, 80


def model(noise=0.0, seed=0):
    """Data of the model, its true U and V_i."""
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.standard_normal((D, R_G))).Q
    V, data = [], []
    for _ in range(N):
        v = rng.standard_normal((D, R_L))
        V.append(np.linalg.qr(v - U @ (U.T @ v)).Q)
        codes = rng.standard_normal((R_G + R_L, SAMPLES)) * np.array([[1.0, 0.9, 0.8, 2.0, 1.9]]).T
        data.append(np.hstack([U, V[-1]]) @ codes + noise * rng.standard_normal((D, SAMPLES)))
    return data, U, V


def span_distance(A, B):
    return np.linalg.norm(A @ A.T - B @ B.T, 2)


def leading(S, r):
    return np.linalg.eigh(S)[1][:, ::-1][:, :r]


def test_recovers_shared_and_own_subspaces_of_the_model():
    data, U, V = model()
    fit = personalized_pca(data, R_G, R_L, n_rounds=200, step_size=0.5)
    assert span_distance(fit.global_components, U) < 1e-7
    assert max(span_distance(v, true) for v, true in zip(fit.local_components, V, strict=True)) < 1e-7


def test_noise_moves_shared_components_less_than_one_client_alone():
    data, U, _ = model(noise=0.3)
    together = personalized_pca(data, R_G, R_L, n_rounds=300, step_size=0.5)
    by_variance = leading(data[0] @ data[0].T, R_G)
    assert span_distance(together.global_components, U) < 0.2 < span_distance(by_variance, U)


def test_without_local_components_it_is_pca_of_the_summed_covariance():
    data, _, _ = model(noise=0.3)
    fit = personalized_pca(data, R_G, 0, n_rounds=3000, step_size=0.9)
    total = sum(Y @ Y.T / Y.shape[1] for Y in data)
    assert span_distance(fit.global_components, leading(total, R_G)) < 1e-7
    assert fit.explained[-1] == pytest.approx(np.linalg.eigvalsh(total)[::-1][:R_G].sum(), rel=1e-12)
    assert [v.shape for v in fit.local_components] == [(D, 0)] * N


def test_without_global_components_it_is_pca_of_each_client():
    data, _, _ = model(noise=0.3)
    fit = personalized_pca(data, 0, R_L, n_rounds=3, step_size=0.5)
    for Y, v in zip(data, fit.local_components, strict=True):
        assert span_distance(v, leading(Y @ Y.T, R_L)) < 1e-7


def test_one_client_gets_its_pca():
    data, _, _ = model(noise=0.3)
    fit = personalized_pca(data[:1], R_G, R_L, n_rounds=50, step_size=0.5)
    both = np.hstack([fit.global_components, *fit.local_components])
    assert span_distance(both, leading(data[0] @ data[0].T, R_G + R_L)) < 1e-7


@pytest.mark.parametrize("seed", range(3))
def test_objective_never_falls_and_rests_where_the_gradient_vanishes(seed):
    data, _, _ = model(noise=0.5, seed=seed)
    fit = personalized_pca(data, R_G, R_L, n_rounds=2000, step_size=0.5)
    steps = np.diff(fit.explained)
    assert (steps >= -1e-12 * fit.explained[-1]).all()
    assert fit.explained[-1] > fit.explained[0]
    slope = np.zeros((D, R_G))
    for Y, v in zip(data, fit.local_components, strict=True):
        W, S = np.hstack([fit.global_components, v]), Y @ Y.T / Y.shape[1]
        G = S @ W - W @ (W.T @ S @ W)
        slope += G[:, :R_G]
        assert np.linalg.norm(G[:, R_G:]) < 1e-5
    assert np.linalg.norm(slope) < 1e-5


def test_components_are_orthonormal_in_the_type_of_the_data():
    data, _, _ = model(noise=0.3)
    fit = personalized_pca([Y.astype(np.float32) for Y in data], R_G, R_L, n_rounds=20, step_size=0.5)
    for v in fit.local_components:
        W = np.hstack([fit.global_components, v])
        assert W.dtype == np.float32
        np.testing.assert_allclose(W.T @ W, np.eye(R_G + R_L), atol=1e-5)


def test_a_rotation_of_the_features_rotates_the_components():
    data, _, _ = model(noise=0.3)
    Q = np.linalg.qr(np.random.default_rng(1).standard_normal((D, D))).Q
    plain = personalized_pca(data, R_G, R_L, n_rounds=30, step_size=0.5)
    rotated = personalized_pca([Q @ Y for Y in data], R_G, R_L, n_rounds=30, step_size=0.5)
    assert span_distance(Q @ plain.global_components, rotated.global_components) < 1e-9
    for v, w in zip(plain.local_components, rotated.local_components, strict=True):
        assert span_distance(Q @ v, w) < 1e-9
    np.testing.assert_allclose(plain.explained, rotated.explained, rtol=1e-12)


def test_scaling_the_data_changes_nothing_but_the_variance():
    data, _, _ = model(noise=0.3)
    plain = personalized_pca(data, R_G, R_L, n_rounds=10, step_size=0.5)
    scaled = personalized_pca([100 * Y for Y in data], R_G, R_L, n_rounds=10, step_size=0.5)
    assert span_distance(plain.global_components, scaled.global_components) < 1e-9
    np.testing.assert_allclose(scaled.explained, np.multiply(plain.explained, 1e4))


def test_more_components_than_samples_and_data_of_zeros_are_legal():
    data = [np.eye(6)[:, :2], np.zeros((6, 3))]
    fit = personalized_pca(data, 2, 3, n_rounds=5, step_size=0.5)
    W = np.hstack([fit.global_components, fit.local_components[0]])
    np.testing.assert_allclose(W.T @ W, np.eye(5), atol=1e-12)
    assert fit.explained[-1] == pytest.approx(1.0)


def test_bad_input_is_named():
    data, _, _ = model()
    with pytest.raises(SettingsError, match=r"n_global = 8, n_local = 5: .* at most 12 features"):
        personalized_pca(data, 8, 5, n_rounds=1, step_size=0.5)
    with pytest.raises(SettingsError, match="step_size = 0"):
        personalized_pca(data, 1, 1, n_rounds=1, step_size=0)
    with pytest.raises(DataError, match=r"\[11, 12\] features"):
        personalized_pca([data[0], data[1][:-1]], 1, 1, n_rounds=1, step_size=0.5)
