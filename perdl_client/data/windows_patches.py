r"""Cut long series into windows and large images into patches, and join them again. Overlaps are averaged.

Pieces begin every ``stride`` places. The last one ends at the end of the whole, so that nothing is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import overload

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from common.blocks import Columns, Stream
from common.data_settings import DataSettings
from common.errors import DataError

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]


def starts(length: int, size: int, stride: int) -> Ints:
    """Return where pieces begin: every ``stride`` places, plus one piece that ends at the end.

    Parameters
    ----------
    length : int
        Length of the whole.
    size : int
        Length of a piece.
    stride : int
        Distance from one piece to the next.
    """
    places = np.arange(0, length - size + 1, stride)
    return places if places[-1] == length - size else np.append(places, length - size)


def cut_windows(series: Floats, window: int, stride: int | None = None) -> Floats:
    """Cut a time series into windows.

    Parameters
    ----------
    series : (T, c) or (T,) array
        One row per moment, one column per channel.
    window : int
        Rows in a window.
    stride : int, optional
        Rows from the start of one window to the next; default ``window``, so no overlap.

    Returns
    -------
    (n, window * c) array
        One window per row: all channels of its first moment, then of the next.

    Raises
    ------
    DataError
        If the series is shorter than a window.
    """
    rows = np.reshape(series, (len(series), -1))
    if not 1 <= window <= len(rows):
        raise DataError(f"a window of {window} rows does not fit into a series of {len(rows)}: lower data.window")
    cut = sliding_window_view(rows, window, axis=0)[starts(len(rows), window, stride or window)]
    return np.ascontiguousarray(cut.transpose(0, 2, 1)).reshape(len(cut), -1)


def join_windows(windows: Floats, length: int, window: int, stride: int | None = None) -> Floats:
    """Return the series (``length``, c) that :func:`cut_windows` cut. Overlaps are averaged, gaps are NaN.

    Parameters
    ----------
    windows : (n, window * c) array
        One window per row.
    length : int
        Rows of the series.
    window : int
        Rows in a window.
    stride : int, optional
        Rows from the start of one window to the next; default no overlap.
    """
    pieces = windows.reshape(len(windows), window, -1)
    total = np.zeros((length, pieces.shape[2]), dtype=windows.dtype)
    count = np.zeros((length, 1), dtype=windows.dtype)
    for piece, begin in zip(pieces, starts(length, window, stride or window), strict=True):
        total[begin : begin + window] += piece
        count[begin : begin + window] += 1
    return _mean(total, count)


def cut_patches(images: Floats, patch: int, stride: int | None = None) -> Floats:
    """Cut images into square patches.

    Parameters
    ----------
    images : (n, h, w) or (n, h, w, c) array
        Images of one size.
    patch : int
        Side of a patch, in pixels.
    stride : int, optional
        Pixels from one patch to the next, in both directions; default ``patch``, so no overlap.

    Returns
    -------
    (n * k, patch * patch * c) array
        One patch per row, its pixels row by row. The k patches of the first image come first, row by row.

    Raises
    ------
    DataError
        If a patch does not fit into the images.
    """
    h, w = images.shape[1:3]
    if not 1 <= patch <= min(h, w):
        raise DataError(
            f"a patch of {patch} x {patch} pixels does not fit into images of {h} x {w}: lower data.patch to at most "
            f"{min(h, w)}"
        )
    return patches_at(images, patch, starts(h, patch, stride or patch), starts(w, patch, stride or patch))


def patches_at(images: Floats, patch: int, rows: Ints, columns: Ints) -> Floats:
    """Return the patches that begin in these rows and columns, as :func:`cut_patches` orders them.

    Parameters
    ----------
    images : (n, h, w) or (n, h, w, c) array
        Images of one size.
    patch : int
        Side of a patch, in pixels.
    rows, columns : int arrays
        Where patches begin.
    """
    n = len(images)
    cut = sliding_window_view(images, (patch, patch), axis=(1, 2))  # (n, h', w', [c,] patch, patch)
    cut = cut[:, rows][:, :, columns]
    if images.ndim == 4:
        cut = np.moveaxis(cut, 3, -1)
    return np.ascontiguousarray(cut).reshape(n * cut.shape[1] * cut.shape[2], -1)


def join_patches(patches: Floats, shape: tuple[int, ...], patch: int, stride: int | None = None) -> Floats:
    """Return the images, (n,) and ``shape``, that :func:`cut_patches` cut. Overlaps are averaged, gaps are NaN.

    Parameters
    ----------
    patches : (n * k, patch * patch * c) array
        One patch per row.
    shape : tuple of int
        Shape of an image.
    patch : int
        Side of a patch, in pixels.
    stride : int, optional
        Pixels from one patch to the next; default no overlap.
    """
    rows, columns = (starts(side, patch, stride or patch) for side in shape[:2])
    channels = shape[2:]
    pieces = patches.reshape(-1, len(rows), len(columns), patch, patch, *channels)
    total = np.zeros((len(pieces), *shape), dtype=patches.dtype)
    count = np.zeros((*shape[:2], *(1 for _ in channels)), dtype=patches.dtype)
    for i, top in enumerate(rows):
        for j, left in enumerate(columns):
            total[:, top : top + patch, left : left + patch] += pieces[:, i, j]
            count[top : top + patch, left : left + patch] += 1
    return _mean(total, count)


def _mean(total: Floats, count: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        mean: Floats = total / count
    return mean


@dataclass(frozen=True)
class Cut:
    """How samples are cut before preprocessing.

    Parameters
    ----------
    kind : {"", "window", "patch"}
        ``""`` leaves samples whole.
    size, stride : int
        Size of a piece, and distance to the next: rows of a window, pixels of a patch.
    shape : tuple of int
        Shape of a sample in the file: channels of a moment, or (h, w[, c]).
    """

    kind: str
    size: int
    stride: int
    shape: tuple[int, ...]

    @property
    def piece(self) -> tuple[int, ...]:
        """Shape of a piece: (window, channels), (patch, patch[, c]), or the sample's own."""
        if self.kind == "window":
            return (self.size, int(np.prod(self.shape)))
        return (self.size, self.size, *self.shape[2:]) if self.kind == "patch" else self.shape

    @property
    def channels(self) -> int:
        """Numbers measured at each place of a piece; plain numbers are one channel each."""
        if self.kind == "window" or len(self.piece) != 2:
            return self.piece[-1]
        return 1

    @overload
    def apply(self, Y: Floats) -> Floats: ...
    @overload
    def apply(self, Y: Stream) -> Stream: ...
    def apply(self, Y: Columns) -> Columns:
        """Return the pieces (d', n') of samples (d, n).

        Parameters
        ----------
        Y : (d, n) array or Stream
            Samples, in columns.

        Raises
        ------
        DataError
            If they are too small, or patches are to be cut from samples that are not images.
        """
        if self.kind == "window":
            if len(self.shape) > 1:
                raise DataError(
                    f"data.window = {self.size}: needs a time series, but a sample is an image of "
                    f"{' x '.join(map(str, self.shape))}; cut images with data.patch"
                )
            if isinstance(Y, Stream):
                series: Stream = _streaming().windows_of(Y, self.size, self.stride)
                return series
            return cut_windows(Y.T, self.size, self.stride).T
        if self.kind == "patch":
            if len(self.shape) not in (2, 3):
                raise DataError(
                    f"data.patch = {self.size}: needs images (a folder of them, IDX, or an array n x height x width), "
                    f"but a sample is {self.shape[0]} plain numbers; save the array before it was flattened"
                )
            if isinstance(Y, Stream):
                patches: Stream = _streaming().patches_of(Y, self.shape, self.size, self.stride)
                return patches
            return cut_patches(Y.T.reshape(-1, *self.shape), self.size, self.stride).T
        return Y

    def count(self, n: int) -> int:
        """Return how many pieces `apply` makes of n samples; 0 if they are too small.

        Parameters
        ----------
        n : int
            Number of samples.
        """
        if self.kind == "window":
            last = n - self.size
            return last // self.stride + 1 + (last % self.stride > 0) if last >= 0 else 0
        if self.kind == "patch" and len(self.shape) > 1:
            h, w = (len(starts(side, self.size, self.stride)) if self.size <= side else 0 for side in self.shape[:2])
            return n * h * w
        return n

    def undo(self, pieces: Floats, n: int) -> Floats:
        """Return the samples (d, n) that were cut. Overlaps are averaged, gaps are NaN.

        Parameters
        ----------
        pieces : (d', n') array
            Pieces, in columns.
        n : int
            Number of samples before they were cut.
        """
        if self.kind == "window":
            return join_windows(pieces.T, n, self.size, self.stride).T
        if self.kind == "patch":
            return join_patches(pieces.T, self.shape, self.size, self.stride).reshape(n, -1).T
        return pieces

    def on(self, shape: tuple[int, ...]) -> Cut:
        """Return this cut for samples of another shape, without gaps between pieces, so that it can be undone.

        Parameters
        ----------
        shape : tuple of int
            Shape of a sample.
        """
        return Cut(self.kind, self.size, min(self.stride, self.size), shape)


def _streaming() -> ModuleType:
    from perdl_client.data import cut_stream  # it builds on this module

    return cut_stream


def cut_of(data: DataSettings, shape: tuple[int, ...]) -> Cut:
    """Return the cut that the settings ask for.

    Parameters
    ----------
    data : DataSettings
        The table ``data`` of the settings.
    shape : tuple of int
        Shape of a sample.
    """
    if data.source == "video":  # for videos, window and patch define the clients
        return Cut("", 0, 0, shape)
    size = data.window or data.patch or 0
    kind = "window" if data.window else "patch" if data.patch else ""
    return Cut(kind, size, data.stride or size, shape)
