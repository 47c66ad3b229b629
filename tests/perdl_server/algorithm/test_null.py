"""How near unrelated atoms come: against dictionaries that are drawn and matched, and against known laws."""

from __future__ import annotations

import numpy as np
import pytest

from perdl_server.algorithm.matching import global_matching, suggest_n_global
from perdl_server.algorithm.null import best_paths, inner_products, lower_quantile, path_null


def unrelated(rng, d, sizes, orthonormal):
    draws = [rng.standard_normal((d, r)) for r in sizes]
    return [np.linalg.qr(G).Q if orthonormal else G / np.linalg.norm(G, axis=0) for G in draws]


@pytest.mark.parametrize(("d", "m", "k"), [(6, 6, 6), (6, 5, 2), (9, 4, 4), (40, 3, 5), (7, 1, 1)])
def test_inner_products_are_those_of_random_frames(d, m, k):
    rng = np.random.default_rng(0)
    drawn = inner_products(rng, 4000, d, m, k, True)
    frames = [unrelated(rng, d, (m, k), True) for _ in range(4000)]
    direct = np.array([A.T @ B for A, B in frames])
    for measure in (
        lambda G: (G**2).mean(axis=(1, 2)),
        lambda G: np.abs(G).max(axis=(1, 2)),
        lambda G: G[:, 0, 0] ** 4,
    ):
        ours, theirs = measure(drawn), measure(direct)
        error = np.sqrt((ours.var() + theirs.var()) / 4000)
        assert abs(ours.mean() - theirs.mean()) < 4 * error + 1e-12
    assert np.linalg.norm(drawn, 2, axis=(1, 2)).max() < 1 + 1e-6
    if d == m:
        np.testing.assert_allclose(drawn.mT @ drawn, np.broadcast_to(np.eye(k), (4000, k, k)), atol=1e-6)


@pytest.mark.parametrize("method", ["chain", "star"])
@pytest.mark.parametrize(
    ("d", "sizes", "orthonormal"),
    [(6, (6,) * 10, True), (6, (6, 6), True), (12, (3, 8, 5, 4), True), (20, (20,) * 4, True), (5, (9, 7, 8), False)],
)
def test_best_paths_are_those_that_matching_finds_among_unrelated_dictionaries(d, sizes, orthonormal, method):
    rng = np.random.default_rng(1)
    drawn = best_paths(rng, d, sizes, orthonormal, method, n_draws=4000)
    matched = [global_matching(unrelated(rng, d, sizes, orthonormal), 1, method=method) for _ in range(400)]
    direct = np.array([one.path_lengths[0] for one in matched]) / (len(sizes) - 1)
    assert abs(drawn.mean() - direct.mean()) < 0.01 + 4 * direct.std() / 20
    assert abs(drawn.std() / direct.std() - 1) < 0.2


def test_a_small_quantile_is_right_for_a_power_law_and_cautious_where_draws_are_few():
    rng = np.random.default_rng(2)
    for power in (1, 3, 20):
        found = [lower_quantile(rng.random(5000) ** (1 / power), 1e-4) for _ in range(50)]
        assert np.median(found) == pytest.approx(1e-4 ** (1 / power), rel=0.15)
    minima = rng.standard_normal((50, 60, 1000)).min(axis=2) + 10
    true = np.quantile(rng.standard_normal((20000, 1000)).min(axis=1) + 10, 1e-3)
    assert np.median([lower_quantile(one, 1e-3) for one in minima]) < true
    assert lower_quantile(np.zeros(5000), 1e-4) == 0
    assert lower_quantile(np.full(60, 0.5), 1e-4) == 0.5


@pytest.mark.parametrize("method", ["chain", "star"])
@pytest.mark.parametrize(
    ("d", "sizes"), [(6, (6,) * 10), (6, (6,) * 2), (6, (3,) * 3), (20, (10,) * 10), (30, (12, 9, 10)), (10, (30,) * 3)]
)
def test_clients_that_share_nothing_are_said_to_share_nothing(d, sizes, method):
    for orthonormal in (True, False)[max(sizes) > d :]:
        rng = np.random.default_rng(3)
        found = [suggest_n_global(unrelated(rng, d, sizes, orthonormal), method=method)[0] for _ in range(100)]
        assert np.count_nonzero(found) <= 1, "by construction 1 in 10,000"


def test_what_cannot_differ_and_who_is_alone_has_no_null():
    null = path_null(6, (6,) * 4)
    assert null.mean[-1] == null.bound[-1] == 0
    assert (null.bound[:-1] < null.mean[:-1]).all()
    assert (null.bound[:-1] > 0).all()
    for sizes in ((4,), (4, 0)):
        assert not path_null(6, sizes).mean.any()
        assert len(path_null(6, sizes).bound) == min(sizes)
    with pytest.raises(ValueError, match="read-only"):
        null.bound[0] = 1
    np.testing.assert_array_equal(null.nearness(np.full(6, null.mean[0] / 2))[[0, -1]], [0.5, 0])
