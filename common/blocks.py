r"""Samples that are read block by block, and sums over blocks of samples.

A :class:`Stream` stands for a matrix (d, n) of samples that need not fit into memory. It is read by columns,
``Y[:, i:j]``, as an array is. Computations go over the same blocks for an array and for a stream, so that both give the
same bits. An array of one block is computed on as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import SettingsError

Floats = NDArray[np.floating]
Ints = NDArray[np.integer]

NUMBERS = 2**21
"""About how many numbers of samples and codes a block has: 16 MB in double precision."""

LEAST = 16
"""Fewest samples in a block."""


class Stream:
    """A matrix (d, n) of samples in columns, of which one page is in memory.

    Parameters
    ----------
    shape : (int, int)
        d and n.
    dtype : numpy.dtype
        Float type of the samples.
    read : callable ``(i, j) -> (d, j - i) array``
        Reads samples i to j - 1. The array may be overwritten.
    """

    def __init__(self, shape: tuple[int, int], dtype: Any, read: Callable[[int, int], Floats]) -> None:
        self.shape, self.dtype, self.read = shape, np.dtype(dtype), read
        self._page: tuple[int, Floats] | None = None
        self.known: dict[str, Any] = {}
        """What was computed of all samples, to be kept: computing it anew would take another pass."""

    @property
    def size(self) -> int:
        """Number of numbers, d * n."""
        return self.shape[0] * self.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: tuple[slice, slice]) -> Floats:
        """Return samples ``[:, i:j]``."""
        if not isinstance(key, tuple) or len(key) != 2 or key[0] != slice(None) or not isinstance(key[1], slice):
            raise _whole()
        i, j, step = key[1].indices(self.shape[1])
        if step != 1:
            raise _whole()
        width = block_size(self.shape[0])
        parts = []
        while i < j:
            page, begin = self._at(i // width), i // width * width
            parts.append(page[:, i - begin : j - begin])
            i = begin + width
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([part.T for part in parts]).T if parts else np.empty((len(self), 0), self.dtype)

    def _at(self, k: int) -> Floats:
        if self._page is None or self._page[0] != k:
            self._page = None  # free it before the next is read
            width, n = block_size(self.shape[0]), self.shape[1]
            page = self.read(k * width, min((k + 1) * width, n))
            # A sample's numbers side by side, as in an array of samples: another layout may change last digits.
            self._page = (k, np.asfortranarray(page) if n > width else page)
        return self._page[1]

    def forget(self) -> None:
        """Free the page that is in memory."""
        self._page = None

    def map(self, change: Callable[[Floats], Floats], dtype: Any = None) -> Stream:
        """Return the stream of changed samples.

        Parameters
        ----------
        change : callable ``(d, m) array -> (d, m) array``
            Changes each sample by itself. It may overwrite what it is given.
        dtype : numpy.dtype, optional
            Type of the result; default the same.
        """
        return Stream(self.shape, self.dtype if dtype is None else dtype, lambda i, j: change(self.read(i, j)))

    def astype(self, dtype: Any, copy: bool = True) -> Stream:
        """Return the stream in another float type.

        Parameters
        ----------
        dtype : numpy.dtype
            Float type.
        copy : bool
            Not used; as for arrays.
        """
        return self if self.dtype == dtype else self.map(lambda B: B.astype(dtype), dtype)

    def take(self, places: Ints) -> Stream:
        """Return the stream of some samples.

        Parameters
        ----------
        places : (m,) int array
            Which samples, ascending.
        """
        width = block_size(self.shape[0])

        def read(i: int, j: int) -> Floats:
            wanted, rows = places[i:j], np.empty((j - i, len(self)), self.dtype)
            begin = 0
            while begin < len(wanted):
                first = int(wanted[begin])
                end = int(np.searchsorted(wanted, first + width))
                rows[begin:end] = self.read(first, int(wanted[end - 1]) + 1).T[wanted[begin:end] - first]
                begin = end
            return rows.T

        return Stream((len(self), len(places)), self.dtype, read)

    def part(self, begin: int, end: int) -> Stream:
        """Return the stream of samples ``begin`` to ``end - 1``.

        Parameters
        ----------
        begin, end : int
            First sample, and the one after the last.
        """
        return Stream((len(self), end - begin), self.dtype, lambda i, j: self.read(begin + i, begin + j))

    def __array__(self, *args: Any, **kwargs: Any) -> Floats:
        """Refuse to become an array: it may not fit into memory."""
        raise _whole()


Columns = Floats | Stream
"""Samples in columns, in memory or not."""


def _whole() -> SettingsError:
    return SettingsError(
        "data.in_memory: a part of the run needs all samples of a client at once, which are read block by block: set "
        "data.in_memory = true"
    )


def block_size(d: int, r: int = 0) -> int:
    """Return how many samples a block has.

    Parameters
    ----------
    d : int
        Number of features.
    r : int
        Number of atoms, if the samples are coded.
    """
    return max(NUMBERS // max(d + 2 * r, 1), LEAST)


def whole(Y: Columns, r: int = 0) -> Floats | None:
    """Return the samples as an array if they are one block, else None.

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns.
    r : int
        Number of atoms, if the samples are coded.
    """
    if Y.shape[1] > block_size(len(Y), r):
        return None
    return Y[:, :] if isinstance(Y, Stream) else Y


def in_memory(Y: Columns) -> Floats:
    """Return the samples as an array.

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns.

    Raises
    ------
    SettingsError
        If they are a stream of more than one block.
    """
    if not isinstance(Y, Stream):
        return Y
    if (found := whole(Y)) is None:
        raise _whole()
    return found


def blocks(Y: Columns, r: int = 0, size: int | None = None) -> Iterator[Floats]:
    """Yield the samples in order, a block of columns at a time.

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns.
    r : int
        Number of atoms, if the samples are coded.
    size : int, optional
        Samples in a block; default :func:`block_size`.
    """
    size = size or block_size(len(Y), r)
    try:
        for i in range(0, Y.shape[1], size):
            yield Y[:, i : i + size]
    finally:
        if isinstance(Y, Stream):
            Y.forget()


def chosen(Y: Columns, places: Ints) -> Floats:
    """Return some samples as an array.

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns.
    places : (m,) int array
        Which samples, ascending.
    """
    rows: Floats = Y.take(places).read(0, len(places)).T if isinstance(Y, Stream) else Y.T[places]
    return rows.T


def total_norm(norms: Sequence[Any]) -> Any:
    """Return the Frobenius norm of a matrix from those of its blocks; that of a single block stays as it is.

    Parameters
    ----------
    norms : sequence of float
        Norms of the blocks.
    """
    return norms[0] if len(norms) == 1 else 0.0 if not norms else np.sqrt(np.square(np.array(norms, np.float64)).sum())
