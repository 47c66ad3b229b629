r"""A client's sums for scales that all agree on (``data.site_scale = "agree"``).

From all clients' sums the server computes the pooled standard deviation within clients of every feature,

.. math:: s_a = \sqrt{\frac{\sum_i \sum_n (y_{i,an} - \bar y_{i,a})^2}{\sum_i n_{i,a}}},

and every client divides by it. Differences between the clients' means do not enter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from common.blocks import Columns, blocks, in_memory, whole
from perdl_client.learning.missing import gaps

Floats = NDArray[np.floating]


def scale_sums(Y: Columns, channels: int) -> tuple[Floats, Floats]:
    """Return how many numbers each feature has, and the sum of their squared distances from their mean.

    Parameters
    ----------
    Y : (d, n) array or Stream
        Pieces after cutting. NaN marks what is missing.
    channels : int
        Number c of channels, which the features of windows and patches repeat; d if there are none.

    Returns
    -------
    counts, squares : (c,) arrays
        Of float64; for each channel over all features that repeat it.
    """
    if gaps(Y) is None and whole(Y) is None:
        return _of_blocks(Y, channels)
    Y = in_memory(Y)
    one = Y.reshape(-1, channels, Y.shape[1]).transpose(1, 0, 2).reshape(channels, -1).astype(np.float64)
    missing = gaps(one)
    known = np.ones(one.shape, bool) if missing is None else ~missing
    counts = known.sum(axis=1).astype(np.float64)
    means = np.where(known, one, 0).sum(axis=1) / np.maximum(counts, 1)
    squares: Floats = np.square(np.where(known, one - means[:, None], 0)).sum(axis=1)
    return counts, squares


def _of_blocks(Y: Columns, channels: int) -> tuple[Floats, Floats]:
    """Return what :func:`scale_sums` does, for complete samples of more than one block."""

    def summed(A: Floats) -> Floats:
        total: Floats = A.reshape(-1, channels, A.shape[1]).sum(axis=(0, 2))
        return total

    counts = np.full(channels, len(Y) // channels * Y.shape[1], np.float64)
    means: Floats = np.sum([summed(B.astype(np.float64)) for B in blocks(Y)], axis=0) / counts
    each = np.tile(means, len(Y) // channels)[:, None]
    squares: Floats = np.sum([summed(np.square(B - each)) for B in blocks(Y)], axis=0)
    return counts, squares
