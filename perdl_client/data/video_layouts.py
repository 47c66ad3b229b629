r"""Layouts: from a frame of a video to a matrix of samples and back, exactly.

A frame is an (h, w, c) array. A matrix (d, n) holds one sample per column. With ``patch`` = p:

================  ===================================  ===============  ======================================
layout            a column is                          d                n
================  ===================================  ===============  ======================================
``thumbnails``    every p-th pixel of every p-th row   (h/p)(w/p) c     p p, one for each offset of the first
``blocks``        a contiguous block of pixels         (h/p)(w/p) c     p p, p along each side of the frame
``fixed-camera``  a contiguous block of p x p pixels   p p c            (h/p)(w/p), one for each place
================  ===================================  ===============  ======================================

The first two are readings of the paper's "dividing each frame into 40 x 40 patches"; both give its 576 x 1600 for
480 x 640 x 3. ``thumbnails`` follows the published code: patches of 40 x 40 *pixels*, transposed. ``blocks`` are
40 x 40 *blocks*. In ``fixed-camera`` column j shows the same place in all frames.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from common.errors import DataError

Floats = NDArray[np.floating]
Shape = tuple[int, int, int]
Number = TypeVar("Number", bound=np.generic)


def thumbnails(frame: Floats, patch: int) -> Floats:
    """Return one column per pixel offset (u, v) in a patch: that pixel of all patches.

    Parameters
    ----------
    frame : (h, w, c) array
        ``h`` and ``w`` multiples of ``patch``.
    patch : int
        Side of a patch, in pixels.

    Returns
    -------
    (h/patch * w/patch * c, patch * patch) array
        Rows go over patches and then channels, columns over offsets, all row by row.
    """
    rows, columns, c = _grid(frame.shape, patch)
    cut = frame.reshape(rows, patch, columns, patch, c)
    return cut.transpose(0, 2, 4, 1, 3).reshape(rows * columns * c, patch * patch)


def from_thumbnails(Y: Floats, shape: Shape, patch: int) -> Floats:
    """Return the frame whose :func:`thumbnails` are given.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns.
    shape : tuple of int
        Shape (h, w, c) of the frame.
    patch : int
        Side of a patch, in pixels.

    Returns
    -------
    (h, w, c) array
    """
    rows, columns, c = _grid(shape, patch)
    return Y.reshape(rows, columns, c, patch, patch).transpose(0, 3, 1, 4, 2).reshape(shape)


def blocks(frame: Floats, patch: int) -> Floats:
    """Return one column per block: ``patch`` x ``patch`` contiguous blocks tile the frame.

    Parameters
    ----------
    frame : (h, w, c) array
        ``h`` and ``w`` multiples of ``patch``.
    patch : int
        Number of blocks along each side of the frame.

    Returns
    -------
    (h/patch * w/patch * c, patch * patch) array
        Rows go over a block's pixels and then channels, columns over blocks, all row by row.
    """
    height, width, _ = _grid(frame.shape, patch)
    return _tiles(frame, height, width)


def from_blocks(Y: Floats, shape: Shape, patch: int) -> Floats:
    """Return the frame whose :func:`blocks` are given.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns.
    shape : tuple of int
        Shape (h, w, c) of the frame.
    patch : int
        Number of blocks along each side.
    """
    height, width, _ = _grid(shape, patch)
    return _from_tiles(Y, shape, height, width)


def places(frame: Floats, patch: int) -> Floats:
    """Return one column per place: the block of ``patch`` x ``patch`` pixels there.

    Parameters
    ----------
    frame : (h, w, c) array
        ``h`` and ``w`` multiples of ``patch``.
    patch : int
        Side of a block, in pixels.

    Returns
    -------
    (patch * patch * c, h/patch * w/patch) array
        Rows go over a block's pixels and then channels, columns over places, all row by row.
    """
    _grid(frame.shape, patch)
    return _tiles(frame, patch, patch)


def from_places(Y: Floats, shape: Shape, patch: int) -> Floats:
    """Return the frame whose :func:`places` are given.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns.
    shape : tuple of int
        Shape (h, w, c) of the frame.
    patch : int
        Side of a block, in pixels.
    """
    _grid(shape, patch)
    return _from_tiles(Y, shape, patch, patch)


@dataclass(frozen=True)
class Layout:
    """A layout and its inverse.

    Parameters
    ----------
    to_samples : callable ``(frame, patch) -> Y``
        Turns a frame into samples.
    to_frame : callable ``(Y, shape, patch) -> frame``
        Turns samples back into a frame.
    """

    to_samples: Callable[[Floats, int], Floats]
    to_frame: Callable[[Floats, Shape, int], Floats]


LAYOUTS: dict[str, Layout] = {
    "thumbnails": Layout(thumbnails, from_thumbnails),
    "blocks": Layout(blocks, from_blocks),
    "fixed-camera": Layout(places, from_places),
}


def crop(frames: NDArray[Number], patch: int, what: str = "frames") -> NDArray[Number]:
    """Crop frames at the bottom and the right to a multiple of the patch.

    Parameters
    ----------
    frames : (n, h, w, ...) array
        Frames of one size.
    patch : int
        Side of a patch, in pixels, or the number of blocks.
    what : str
        Name of the frames in the error.

    Returns
    -------
    (n, h', w', ...) view with ``h'`` and ``w'`` the largest multiples of ``patch``

    Raises
    ------
    DataError
        If a frame is smaller than one patch.
    """
    h, w = frames.shape[1:3]
    if min(h, w) < patch:
        raise DataError(
            f"{what} are {h} x {w} pixels (height x width), smaller than data.patch = {patch}: lower data.patch to at "
            f"most {min(h, w)}"
        )
    return frames[:, : h - h % patch, : w - w % patch]


def _tiles(frame: Floats, height: int, width: int) -> Floats:
    """Return one column per contiguous block of ``height`` x ``width`` pixels."""
    h, w, c = frame.shape
    cut = frame.reshape(h // height, height, w // width, width, c)
    return cut.transpose(1, 3, 4, 0, 2).reshape(height * width * c, -1)


def _from_tiles(Y: Floats, shape: Shape, height: int, width: int) -> Floats:
    h, w, c = shape
    return Y.reshape(height, width, c, h // height, w // width).transpose(3, 0, 4, 1, 2).reshape(shape)


def _grid(shape: tuple[int, ...], patch: int) -> Shape:
    """Return the number of patches along each side, and of channels."""
    h, w, c = shape
    if patch < 1 or h % patch or w % patch or not h or not w:
        raise DataError(
            f"a frame of {h} x {w} pixels (height x width) does not divide into patch = {patch}: crop it to "
            f"{h - h % max(patch, 1)} x {w - w % max(patch, 1)}, or choose a common divisor of {h} and {w}"
        )
    return h // patch, w // patch, c
