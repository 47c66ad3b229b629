"""What a file of samples held."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples and what is known of their features.

    Attributes
    ----------
    data : (d, n) array
        Columns are samples.
    shape : tuple of int
        Of a sample, row-major: (h, w) or (h, w, c) of images, else (d,).
    names : tuple of str
        The features' names; empty if they have none.
    rate : int
        Samples a second; 0 if it is not known.
    notes : tuple of str
        What of the file was left out, and what may have been misunderstood.
    """

    data: NDArray[np.floating]
    shape: tuple[int, ...]
    names: tuple[str, ...] = ()
    rate: int = 0
    notes: tuple[str, ...] = ()


def plainly(names: tuple[str, ...]) -> list[str]:
    """Return names as they are compared: capitals and spaces around them do not count.

    Parameters
    ----------
    names : tuple of str
        The features' names.
    """
    return [name.strip().casefold() for name in names]


def names_mark(names: tuple[str, ...]) -> str:
    """Return a short mark by which a server can tell whether clients' features have the same names; empty for none.

    Parameters
    ----------
    names : tuple of str
        The features' names.
    """
    text = "\0".join(plainly(names))
    return hashlib.sha256(text.encode()).hexdigest()[:16] if names else ""
