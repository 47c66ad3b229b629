"""Pieces hold what slices hold, and come together again."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from common.errors import DataError
from perdl_client.data.windows_patches import Cut, cut_patches, cut_windows, join_patches, join_windows, starts

rng = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("length", "size", "stride"), [(10, 3, 3), (10, 3, 1), (12, 4, 4), (5, 5, 2), (9, 1, 4), (7, 2, 5)]
)
def test_pieces_begin_every_stride_and_reach_the_end(length, size, stride):
    begins = starts(length, size, stride).tolist()
    assert begins[0] == 0
    assert begins[-1] == length - size
    assert begins[:-1] == [i * stride for i in range(len(begins) - 1)]
    assert all(0 < b - a <= stride for a, b in itertools.pairwise(begins))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("window", "stride"), [(4, None), (4, 1), (5, 3), (17, None), (1, 1)])
def test_windows_are_slices_and_join_to_the_series(channels, window, stride):
    series = rng.standard_normal((17, channels))
    cut = cut_windows(series, window, stride)
    for row, begin in zip(cut, starts(17, window, stride or window), strict=True):
        assert np.array_equal(row.reshape(window, channels), series[begin : begin + window])
    assert np.allclose(join_windows(cut, 17, window, stride), series, rtol=1e-14)


@pytest.mark.parametrize("shape", [(7, 9), (7, 9, 3), (5, 5, 1)])
@pytest.mark.parametrize(("patch", "stride"), [(3, None), (3, 1), (5, 2)])
def test_patches_are_slices_and_join_to_the_images(shape, patch, stride):
    images = rng.standard_normal((2, *shape))
    cut = cut_patches(images, patch, stride)
    rows, columns = (starts(side, patch, stride or patch) for side in shape[:2])
    slices = [image[i : i + patch, j : j + patch].ravel() for image in images for i in rows for j in columns]
    assert np.array_equal(cut, np.array(slices))
    assert np.allclose(join_patches(cut, shape, patch, stride), images, rtol=1e-14)


def test_of_what_no_piece_held_nothing_is_claimed():
    joined = join_windows(cut_windows(np.arange(10.0), 2, 4), 10, 2, 4).ravel()
    assert np.flatnonzero(np.isnan(joined)).tolist() == [2, 3, 6, 7]
    assert np.array_equal(joined[[0, 1, 4, 5, 8, 9]], [0, 1, 4, 5, 8, 9])
    cut = Cut("window", 2, 4, (1,)).on((1,))
    assert np.array_equal(cut.undo(cut.apply(np.arange(10.0)[None]), 10).ravel(), np.arange(10))


def test_what_cannot_be_cut_is_said_with_the_numbers():
    with pytest.raises(DataError, match=r"a window of 20 rows does not fit into a series of 17: lower data.window"):
        cut_windows(np.zeros((17, 2)), 20)
    with pytest.raises(DataError, match=r"8 x 8 pixels does not fit into images of 7 x 9: .* at most 7"):
        cut_patches(np.zeros((1, 7, 9)), 8)
    with pytest.raises(DataError, match=r"data.patch = 3: needs images .* but a sample is 49 plain numbers"):
        Cut("patch", 3, 3, (49,)).apply(np.zeros((2, 49)))
