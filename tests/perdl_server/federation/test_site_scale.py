"""Scales from all clients' sums: against pooled data, and hostile sums."""

import numpy as np

from perdl_client.data.site_scale import scale_sums
from perdl_server.federation.site_scale import combined_scale


def data(seed, n=50, d=4):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((d, n)) * np.array([[0.4], [15], [2], [1]]) + 100 * rng.standard_normal((d, 1))


def test_the_scale_is_that_of_pooled_samples_without_each_clients_mean():
    Ys = [data(i, n) for i, n in enumerate((20, 50, 90))]
    pooled = np.hstack([Y - Y.mean(axis=1, keepdims=True) for Y in Ys])
    np.testing.assert_allclose(combined_scale([scale_sums(Y, 4) for Y in Ys]), pooled.std(axis=1), rtol=1e-10)


def test_missing_entries_do_not_count():
    Y, Z = data(0), data(1)
    Y[0], Z[1, :7] = np.nan, np.nan
    expected = [
        np.sqrt(
            np.nanmean(
                np.concatenate([(a - np.mean(a[~np.isnan(a)])) for a in (Y[j], Z[j]) if not np.isnan(a).all()]) ** 2
            )
        )
        for j in range(4)
    ]
    np.testing.assert_allclose(combined_scale([scale_sums(Y, 4), scale_sums(Z, 4)]), expected, rtol=1e-10)


def test_windows_have_one_scale_a_channel():
    rng = np.random.default_rng(0)
    series = rng.standard_normal((60, 2)) * [1, 5]
    pieces = series.reshape(20, 6).T  # windows of three moments, moment by moment
    np.testing.assert_allclose(combined_scale([scale_sums(pieces, 2)]), series.std(axis=0), rtol=1e-10)


def test_a_constant_feature_keeps_its_unit():
    assert combined_scale([(np.array([5.0, 5.0, 0.0]), np.array([20.0, 0.0, 0.0]))]) == [2.0, 1.0, 1.0]


def test_no_sums_no_scale():
    assert combined_scale([]) == []


def test_a_client_with_another_number_of_features_does_not_count():
    one, other = (np.full(3, 4.0), np.full(3, 16.0)), (np.full(2, 4.0), np.full(2, 1e6))
    assert combined_scale([one, other, one]) == [2.0, 2.0, 2.0]
