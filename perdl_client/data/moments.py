"""Sums over all samples, computed in batches so that no second copy of the data is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]

_BATCH = 1 << 20
"""Approximate number of entries in a batch."""


def batches(Y: Floats) -> Iterator[Floats]:
    """Yield the samples (d, n) in order, a batch of columns at a time.

    Parameters
    ----------
    Y : (d, n) array
        Samples, in columns.
    """
    step = max(1, _BATCH // max(1, len(Y)))
    for start in range(0, Y.shape[1], step):
        yield Y[:, start : start + step]


def variances(Y: Floats, apply: Callable[[Floats], Floats] = lambda batch: batch) -> NDArray[np.float64]:
    """Return the variance of each feature, (d,), after a transformation of the samples.

    Parameters
    ----------
    Y : (d, n) array
        Samples, in columns.
    apply : callable
        Transformation of a batch; default none.
    """
    n = Y.shape[1]
    total = sum(apply(batch).sum(axis=1, dtype=np.float64) for batch in batches(Y))
    mean = (total / n)[:, None]
    squares: NDArray[np.float64] = sum(np.square(apply(batch) - mean).sum(axis=1) for batch in batches(Y)) / n
    return squares


def finite_sizes(Y: Floats) -> tuple[int, float, float]:
    """Return the number of finite entries, the largest size among them, and their root mean square.

    Parameters
    ----------
    Y : (d, n) array
        Samples, in columns.
    """
    count, largest, squares = 0, 0.0, 0.0
    for batch in batches(Y):
        finite = np.isfinite(batch)
        sizes = np.abs(batch[finite], dtype=np.float64)
        count += sizes.size
        largest = max(largest, float(sizes.max(initial=0.0)))
        with np.errstate(over="ignore"):  # the largest size shows that squares overflow
            squares += float(np.square(sizes, out=sizes).sum())
    return count, largest, float(np.sqrt(squares / max(1, count)))


def root_mean_square(Y: Floats) -> float:
    """Return the root mean square of all numbers but NaN, without overflow of their squares.

    Parameters
    ----------
    Y : (d, n) array
        Samples, in columns.
    """
    high, low = np.fmax.reduce(Y, axis=None), np.fmin.reduce(Y, axis=None)  # without NaN
    if np.isnan(high):
        return 0.0
    largest = float(max(-low, high)) or 1.0
    add, count = (np.nansum, np.count_nonzero(~np.isnan(Y))) if np.isnan(Y.sum()) else (np.sum, Y.size)
    squares = sum(float(add(np.square(batch / largest, dtype=np.float64))) for batch in batches(Y))
    return largest * float(np.sqrt(squares / count))
