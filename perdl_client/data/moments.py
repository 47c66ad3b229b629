"""Sums over all samples, block by block: memory holds no second copy of a client's data."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]

_BLOCK = 1 << 20
"""Numbers in a block, about."""


def blocks(Y: Floats) -> Iterator[Floats]:
    """Samples (d, n) in their order, some at a time."""
    step = max(1, _BLOCK // max(1, len(Y)))
    for start in range(0, Y.shape[1], step):
        yield Y[:, start : start + step]


def variances(Y: Floats, apply: Callable[[Floats], Floats] = lambda block: block) -> NDArray[np.float64]:
    """Return the variance of each feature of samples (d, n) to which ``apply`` was done, (d,)."""
    n = Y.shape[1]
    total = sum(apply(block).sum(axis=1, dtype=np.float64) for block in blocks(Y))
    mean = (total / n)[:, None]
    squares: NDArray[np.float64] = sum(np.square(apply(block) - mean).sum(axis=1) for block in blocks(Y)) / n
    return squares


def finite_sizes(Y: Floats) -> tuple[int, float, float]:
    """Count the finite numbers; return that, the largest size among them and their root mean square."""
    count, largest, squares = 0, 0.0, 0.0
    for block in blocks(Y):
        finite = np.isfinite(block)
        sizes = np.abs(block[finite], dtype=np.float64)
        count += sizes.size
        largest = max(largest, float(sizes.max(initial=0.0)))
        with np.errstate(over="ignore"):  # numbers too large to be squared are told by their size
            squares += float(np.square(sizes, out=sizes).sum())
    return count, largest, float(np.sqrt(squares / max(1, count)))


def root_mean_square(Y: Floats) -> float:
    """Return the root mean square of finite numbers (d, n), which may be too large to be squared."""
    largest = float(max(-Y.min(), Y.max())) or 1.0
    squares = sum(float(np.square(block / largest, dtype=np.float64).sum()) for block in blocks(Y))
    return largest * float(np.sqrt(squares / Y.size))
