"""Claims of layouts: exact inverses, the shapes of the paper, and which pixel lies where."""

import numpy as np
import pytest

from common.errors import DataError
from perdl_client.data.video_layouts import LAYOUTS, crop


def frame_of(shape, dtype=np.float32):
    return np.random.default_rng(0).random(shape).astype(dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape", "patch"), [((480, 640, 3), 40), ((240, 320, 3), 8), ((6, 10, 1), 2), ((4, 4, 3), 4)])
def test_the_inverse_gives_every_pixel_back(layout, shape, patch):
    frame = frame_of(shape)
    one = LAYOUTS[layout]
    back = one.to_frame(one.to_samples(frame, patch), shape, patch)
    assert back.dtype == frame.dtype
    np.testing.assert_array_equal(back, frame)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_inverse_of_the_inverse_gives_every_sample_back(layout):
    shape, patch, one = (12, 20, 3), 4, LAYOUTS[layout]
    Y = frame_of(one.to_samples(np.zeros(shape), patch).shape)
    np.testing.assert_array_equal(one.to_samples(one.to_frame(Y, shape, patch), patch), Y)


@pytest.mark.parametrize("layout", ["thumbnails", "blocks"])
def test_the_papers_frames_give_the_papers_matrices(layout):
    assert LAYOUTS[layout].to_samples(np.zeros((480, 640, 3), np.float32), 40).shape == (576, 1600)


def test_a_thumbnail_is_the_frame_at_one_offset():
    frame = frame_of((480, 640, 3))
    Y = LAYOUTS["thumbnails"].to_samples(frame, 40)
    for u, v in ((0, 0), (3, 17), (39, 39)):
        np.testing.assert_array_equal(Y[:, 40 * u + v].reshape(12, 16, 3), frame[u::40, v::40])


def test_a_block_is_contiguous():
    frame = frame_of((480, 640, 3))
    Y = LAYOUTS["blocks"].to_samples(frame, 40)
    for i, j in ((0, 0), (3, 17), (39, 39)):
        np.testing.assert_array_equal(
            Y[:, 40 * i + j].reshape(12, 16, 3), frame[12 * i : 12 * i + 12, 16 * j : 16 * j + 16]
        )


def test_the_same_column_of_a_fixed_camera_is_the_same_place():
    frame = frame_of((24, 40, 3))
    Y = LAYOUTS["fixed-camera"].to_samples(frame, 8)
    assert Y.shape == (192, 15)
    np.testing.assert_array_equal(Y[:, 5 * 2 + 3].reshape(8, 8, 3), frame[16:24, 24:32])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strided_and_read_only_frames_work(layout):
    whole = frame_of((16, 24, 6))
    whole.setflags(write=False)
    frame = whole[::2, ::-1, ::2]
    one = LAYOUTS[layout]
    np.testing.assert_array_equal(one.to_frame(one.to_samples(frame, 4), frame.shape, 4), frame)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_frame_that_does_not_divide_is_refused_with_the_size_that_would(layout):
    with pytest.raises(DataError, match=r"50 x 64 .* patch = 8: crop it to 48 x 64"):
        LAYOUTS[layout].to_samples(np.zeros((50, 64, 3)), 8)


def test_crop_keeps_the_upper_left_corner_and_masks_alike():
    frames = frame_of((2, 50, 67, 3))
    np.testing.assert_array_equal(crop(frames, 8), frames[:, :48, :64])
    np.testing.assert_array_equal(crop(frames[..., 0], 8), frames[:, :48, :64, 0])


def test_frames_smaller_than_a_patch_are_refused_with_the_cure():
    with pytest.raises(DataError, match=r"frames are 30 x 64 .* data.patch = 40: lower data.patch to at most 30"):
        crop(np.zeros((1, 30, 64, 3)), 40)
