"""A stream is read as an array is; sums over its blocks have the bits of those over an array's."""

from __future__ import annotations

import numpy as np
import pytest

from common import blocks as module
from common.blocks import Stream, block_size, blocks, chosen, in_memory, total_norm, whole
from common.errors import SettingsError
from common.statistics import (
    feature_means,
    largest_feature_share,
    largest_size,
    mean_share,
    rms,
)

Y = np.random.default_rng(0).standard_normal((1000, 5)).T + 0.3


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(module, "NUMBERS", 300)  # 60 samples of 5 features


def streamed(A=Y):
    reads = []

    def read(i, j):
        reads.append((i, j))
        return A[:, i:j].copy()

    return Stream(A.shape, A.dtype, read), reads


@pytest.mark.parametrize(("i", "j"), [(0, 1), (0, 60), (59, 61), (50, 300), (990, 2000), (7, 7), (-10, None)])
def test_any_columns_are_those_of_the_array(i, j):
    S, _ = streamed()
    np.testing.assert_array_equal(S[:, i:j], Y[:, i:j])


def test_one_pass_reads_each_page_once_and_keeps_none():
    S, reads = streamed()
    assert sum(B.shape[1] for B in blocks(S, size=7)) == 1000
    assert reads == [(i, min(i + 60, 1000)) for i in range(0, 1000, 60)]
    assert S._page is None


def test_blocks_of_an_array_and_of_a_stream_are_alike_in_memory_too():
    for size in (None, 7):
        for A, B in zip(blocks(Y, size=size), blocks(streamed()[0], size=size), strict=True):
            np.testing.assert_array_equal(A, B)
            assert A.flags.f_contiguous == B.flags.f_contiguous


def test_what_is_done_to_a_stream_is_done_to_each_page():
    S = streamed()[0].map(lambda B: 2 * B).astype(np.float32)
    assert S.dtype == np.float32
    np.testing.assert_array_equal(S[:, 55:70], (2 * Y[:, 55:70]).astype(np.float32))
    places = np.sort(np.random.default_rng(1).choice(1000, 137, replace=False))
    np.testing.assert_array_equal(chosen(streamed()[0], places), chosen(Y, places))
    np.testing.assert_array_equal(streamed()[0].take(places)[:, 30:100], Y[:, places[30:100]])
    np.testing.assert_array_equal(streamed()[0].part(100, 900)[:, 650:], Y[:, 750:900])


def test_a_stream_does_not_become_an_array_by_chance():
    S, _ = streamed()
    for wrong in (lambda: np.asarray(S), lambda: S[0], lambda: S[:, ::2], lambda: Y.T @ S, lambda: in_memory(S)):
        with pytest.raises(SettingsError, match=r"set data.in_memory = true"):
            wrong()


def test_a_single_block_is_an_array_either_way():
    few = Y[:, :50]
    for A in (few, streamed(few)[0]):
        np.testing.assert_array_equal(whole(A), few)
        np.testing.assert_array_equal(in_memory(A), few)
    assert whole(Y) is None
    assert whole(few, r=10) is None


@pytest.mark.parametrize(("d", "r", "size"), [(5, 0, 60), (5, 10, 16), (10_000, 0, 16)])
def test_blocks_shrink_with_features_and_atoms(d, r, size):
    assert block_size(d, r) == size


@pytest.mark.parametrize("statistic", [rms, mean_share, feature_means, largest_feature_share, largest_size])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_statistics_have_the_same_bits_and_are_right(statistic, dtype, monkeypatch):
    A = Y.astype(dtype)
    by_blocks = statistic(A)
    np.testing.assert_array_equal(by_blocks, statistic(streamed(A)[0]))
    monkeypatch.setattr(module, "NUMBERS", 2**21)
    np.testing.assert_allclose(by_blocks, statistic(A), rtol=1e-5 if dtype == "f4" else 1e-12)


def test_rms_leaves_out_what_is_missing():
    A = Y.copy()
    A[0, 3], A[:, 100:200] = np.nan, np.nan
    np.testing.assert_allclose(rms(A), np.sqrt(np.nanmean(A**2)), rtol=1e-12)
    assert rms(np.full((5, 100), np.nan)) == 0


def test_a_norm_of_blocks():
    assert total_norm([]) == 0
    assert total_norm([np.float32(0.1)]) == np.float32(0.1)
    np.testing.assert_allclose(total_norm([3.0, 4.0]), 5)
