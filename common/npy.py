"""Arrays as bytes, in NumPy's ``.npy`` format, never pickled. Headers are remembered: messages repeat them."""

from __future__ import annotations

import functools
import io
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.threads import READING_NPY

_MOST_DIMENSIONS = 4
_KINDS = "bifu"  # NumPy's letters of the types that arrays have
_START = 10
"""Bytes before the header's text: a mark, the version, and the text's length."""

_SHORT = 128
"""Headers of so many bytes are remembered. No array that we send has a longer one."""


def to_npy(array: NDArray[Any]) -> bytes:
    """Return an array in ``.npy`` format.

    Parameters
    ----------
    array : array
        Booleans or numbers.

    Raises
    ------
    ValueError
        If it holds Python objects.
    """
    if array.dtype.hasobject:
        raise ValueError("arrays of Python objects cannot be sent")
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    return _header(array.shape, array.dtype, fortran) + array.tobytes("F" if fortran else "C")


def from_npy(content: bytes) -> NDArray[Any]:
    """Return an array, if its header announces as many bytes as there are: no memory is taken on its word alone.

    Parameters
    ----------
    content : bytes
        What :func:`to_npy` returned, perhaps on another machine.

    Raises
    ------
    ValueError
        If it is not readable; the text says why in a word or two.
    TypeError
        If it is readable, and does not hold booleans or numbers of 8 bytes at most; the text is its type.
    """
    start = _START + int.from_bytes(content[_START - 2 : _START], "little")
    read = _parsed if start <= _SHORT else _parsed.__wrapped__
    try:
        shape, fortran, dtype = read(content[:start])
    except Exception as error:  # NumPy's header parser raises many kinds
        raise ValueError(error if type(error) is ValueError else type(error).__name__) from None
    have, size = len(content) - start, math.prod(shape) * dtype.itemsize
    if dtype.hasobject or min(shape, default=0) < 0 or len(shape) > _MOST_DIMENSIONS or have != size:
        raise ValueError(f"{have} bytes for {shape} of {dtype}")
    if dtype.kind not in _KINDS or dtype.itemsize > 8:
        raise TypeError(str(dtype))
    flat = np.frombuffer(content, dtype=dtype, offset=start).copy()
    return flat.reshape(shape, order="F" if fortran else "C")


@functools.lru_cache(1024)
def _header(shape: tuple[int, ...], dtype: np.dtype[Any], fortran: bool) -> bytes:
    file = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": fortran, "shape": shape}
    np.lib.format.write_array_header_1_0(file, described)
    return file.getvalue()


@functools.lru_cache(1024)
def _parsed(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    file = io.BytesIO(header)
    with READING_NPY:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"format {version}")
        return np.lib.format.read_array_header_1_0(file)
