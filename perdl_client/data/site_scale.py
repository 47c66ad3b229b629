r"""A client's sums for scales that all agree on (``data.site_scale = "agree"``).

From all clients' sums the server computes the pooled standard deviation within clients of every feature,

.. math:: s_a = \sqrt{\frac{\sum_i \sum_n (y_{i,an} - \bar y_{i,a})^2}{\sum_i n_{i,a}}},

and every client divides by it. Differences between the clients' means do not enter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perdl_client.learning.missing import gaps

Floats = NDArray[np.floating]


def scale_sums(Y: Floats, channels: int) -> tuple[Floats, Floats]:
    """Return how many numbers each feature has, and the sum of their squared distances from their mean.

    Parameters
    ----------
    Y : (d, n) array
        Pieces after cutting. NaN marks what is missing.
    channels : int
        Number c of channels, which the features of windows and patches repeat; d if there are none.

    Returns
    -------
    counts, squares : (c,) arrays
        Of float64; for each channel over all features that repeat it.
    """
    one = Y.reshape(-1, channels, Y.shape[1]).transpose(1, 0, 2).reshape(channels, -1).astype(np.float64)
    missing = gaps(one)
    known = np.ones(one.shape, bool) if missing is None else ~missing
    counts = known.sum(axis=1).astype(np.float64)
    means = np.where(known, one, 0).sum(axis=1) / np.maximum(counts, 1)
    squares: Floats = np.square(np.where(known, one - means[:, None], 0)).sum(axis=1)
    return counts, squares
