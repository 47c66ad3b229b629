"""Rows of files that are read one after the other, such as those of a compressed table or the frames of a video."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class InOrder:
    """Reads rows from where it stopped before; it begins anew only where others are asked for.

    Parameters
    ----------
    n : int
        Number of rows.
    begin : callable ``(k) -> iterator of arrays``
        Yields the rows from the k-th place on, some at a time.
    places : sequence of int
        Rows at which reading can begin, ascending, the first of them 0.
    """

    def __init__(self, n: int, begin: Callable[[int], Iterator[Array]], places: Sequence[int] = (0,)) -> None:
        self._n, self._begin, self._places = n, begin, places
        self._rows: Iterator[Array] | None = None
        self._next, self._left = 0, np.empty(0)
        """The next row, and rows from there on that were read already."""

    def read(self, i: int, j: int) -> Array:
        """Return rows i to j - 1.

        Parameters
        ----------
        i, j : int
            First row, and the one after the last.
        """
        if self._rows is None or i != self._next:
            k = bisect_right(self._places, i) - 1
            self._rows, self._next, self._left = self._begin(k), self._places[k], np.empty(0)
            while self._next < i:
                self._take(i - self._next)
        parts = []
        while self._next < j:
            parts.append(self._take(j - self._next))
        if j >= self._n:  # free what is buffered
            self._rows, self._left = None, np.empty(0)
        return np.concatenate(parts)

    def _take(self, most: int) -> Array:
        """Return up to so many rows, and at least one."""
        assert self._rows is not None
        while not len(self._left):
            try:
                self._left = next(self._rows)
            except StopIteration:
                self._rows = None
                raise EOFError from None
        part, self._left = self._left[:most], self._left[most:]
        self._next += len(part)
        return part
