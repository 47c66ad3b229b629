"""Numbers in fixed point modulo 2^64, whose sums are exact, so that masks modulo 2^64 come off without a trace."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from common.errors import PerdlError

Floats = NDArray[np.floating]
Words = NDArray[np.uint64]

_USED = 58
"""Bits of the 64 that the sum of all clients' largest numbers may fill. A wrong mask is seen by the others."""

METRIC_BITS = 32
"""Binary digits after the point of the last three numbers, which tell how a client fared: at most 2^20 each."""


class TooLargeError(PerdlError):
    """A number does not fit."""


def fraction_bits(exponents: Iterable[int]) -> int:
    """Return the number of binary digits after the point with which the sum of all clients fits.

    Parameters
    ----------
    exponents : iterable of int
        For each client e, where its numbers are at most 2^e.
    """
    known = list(exponents)
    top = max(known)
    return _USED - top - math.ceil(math.log2(sum(2.0 ** (e - top) for e in known)))


def encode(values: Floats, bits: int, exponent: int) -> Words:
    """Return numbers in fixed point, modulo 2^64. Each is rounded by at most 2^-(bits + 1).

    Parameters
    ----------
    values : array
        Numbers.
    bits : int
        Binary digits after the point.
    exponent : int
        Numbers must be at most 2^exponent.

    Raises
    ------
    TooLargeError
        If a number is larger.
    """
    largest = float(np.abs(values).max(initial=0.0))
    if not largest <= 2.0**exponent or not exponent + bits <= _USED:
        raise TooLargeError(f"a number of {largest:.3g} does not fit a masked sum, whose bound is {2.0**exponent:.3g}")
    return np.rint(np.ldexp(values.astype(np.float64), bits)).astype(np.int64).view(np.uint64)


def decode(words: Words, bits: int) -> NDArray[np.float64]:
    """Return the numbers of a sum in fixed point.

    Parameters
    ----------
    words : array
        Sum modulo 2^64.
    bits : int
        Binary digits after the point.
    """
    return np.ldexp(words.view(np.int64).astype(np.float64), -bits)
