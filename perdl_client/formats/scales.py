"""Turn a file's numbers into floats: bytes of an image to [0, 1], whole numbers of sound to [-1, 1)."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from common.settings import Dtype

_WHITE = {"idx": (np.uint8,), "video": (np.uint8,), "images": (np.uint8, np.uint16)}
"""Types whose largest number is full white, by format. The numbers of others stay as they are."""


def as_floats(array: NDArray[Any], file_format: str, dtype: Dtype, order: Literal["C", "F"]) -> NDArray[np.floating]:
    """Return numbers as floats, in this order in memory; no copy is made where they are so already.

    Parameters
    ----------
    array : array
        As the file has it.
    file_format : str
    dtype : {"float64", "float32"}
        What whole numbers become. float32 and float64 stay.
    order : {"C", "F"}
    """
    target: type[np.floating] = np.dtype(dtype).type
    if array.dtype.kind == "f" and array.dtype.itemsize >= 4:
        target = np.float32 if array.dtype.itemsize == 4 else np.float64
    full = _full_scale(file_format, array.dtype)
    if full == 1.0:
        return np.asarray(array, dtype=target, order=order)
    scaled: NDArray[np.floating] = np.divide(array, full, dtype=target, order=order)
    return scaled


def _full_scale(file_format: str, dtype: np.dtype[Any]) -> float:
    """Return the number that becomes 1."""
    if file_format == "wav" and dtype.kind == "i":
        return -float(np.iinfo(dtype).min)
    return float(np.iinfo(dtype).max) if dtype in _WHITE.get(file_format, ()) else 1.0
