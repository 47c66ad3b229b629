"""Cut streams of samples into windows and patches, a block of pieces at a time. The pieces are those of arrays."""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from common.blocks import Stream, block_size
from common.errors import DataError
from perdl_client.data.windows_patches import patches_at, starts

Floats = NDArray[np.floating]


def windows_of(Y: Stream, size: int, stride: int) -> Stream:
    """Cut a series into windows.

    Parameters
    ----------
    Y : Stream, (c, n)
        One column per moment.
    size, stride : int
        Moments in a window, and from one window to the next.

    Raises
    ------
    DataError
        If the series is shorter than a window.
    """
    c, n = Y.shape
    if not 1 <= size <= n:
        raise DataError(f"a window of {size} rows does not fit into a series of {n}: lower data.window")
    last = n - size
    count = last // stride + 1 + (last % stride > 0)
    at_once = max((block_size(c) - size) // stride + 1, 1)  # windows in what is read of the series at once

    def read(i: int, j: int) -> Floats:
        out = np.empty((j - i, size * c), Y.dtype)
        for k in range(i, j, at_once):
            places = np.minimum(np.arange(k, min(k + at_once, j)) * stride, last)
            rows = Y.read(int(places[0]), int(places[-1]) + size).T
            cut = sliding_window_view(rows, size, axis=0)[places - places[0]]
            out[k - i : k - i + len(places)] = cut.transpose(0, 2, 1).reshape(len(places), -1)
        return out.T

    return Stream((size * c, count), Y.dtype, read)


def patches_of(Y: Stream, shape: tuple[int, ...], size: int, stride: int) -> Stream:
    """Cut images into square patches.

    Parameters
    ----------
    Y : Stream, (h * w [* c], n)
        One image per column.
    shape : tuple of int
        (h, w) or (h, w, c).
    size, stride : int
        Side of a patch, and pixels from one to the next.

    Raises
    ------
    DataError
        If a patch does not fit into the images.
    """
    h, w = shape[:2]
    if not 1 <= size <= min(h, w):
        raise DataError(
            f"a patch of {size} x {size} pixels does not fit into images of {h} x {w}: lower data.patch to at most "
            f"{min(h, w)}"
        )
    rows, columns = starts(h, size, stride), starts(w, size, stride)
    across, each, d = len(columns), len(rows) * len(columns), size * size * math.prod(shape[2:])

    def read(i: int, j: int) -> Floats:
        out = np.empty((j - i, d), Y.dtype)
        at_once = max(min(block_size(len(Y)), (j - i) // each), 1)  # images
        first, end = i // each, (j - 1) // each + 1
        for k in range(first, end, at_once):
            images = Y.read(k, min(k + at_once, end)).T.reshape(-1, *shape)
            begin, stop = max(i - k * each, 0), min(j - k * each, len(images) * each)
            if len(images) > 1:
                cut, skip = patches_at(images, size, rows, columns), begin
            else:  # only the rows of patches that are wanted: there may be very many
                top, below = begin // across, -(-stop // across)
                cut, skip = patches_at(images, size, rows[top:below], columns), begin - top * across
            place = k * each + begin - i
            out[place : place + stop - begin] = cut[skip : skip + stop - begin]
        return out.T

    return Stream((d, Y.shape[1] * each), Y.dtype, read)
