"""The samples of a file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples, and what is known of their features.

    Parameters
    ----------
    data : (d, n) array
        Samples in columns.
    shape : tuple of int
        Shape of a sample, row-major: (h, w) or (h, w, c) for images, else (d,).
    names : tuple of str
        The features' names; empty if they have none.
    rate : int
        Samples a second; 0 if unknown.
    notes : tuple of str
        What was left out of the file, and what may be misunderstood.
    files : tuple of int
        Number of samples from each file of a folder of files; empty for a single file.
    in_time : bool
        Whether samples follow each other in time or in place, as moments of a sound or frames of a video do, so that
        neighbours are alike.
    """

    data: NDArray[np.floating]
    shape: tuple[int, ...]
    names: tuple[str, ...] = ()
    rate: int = 0
    notes: tuple[str, ...] = ()
    files: tuple[int, ...] = ()
    in_time: bool = False


def plainly(names: tuple[str, ...]) -> list[str]:
    """Return names in the form in which they are compared: without capitals and outer spaces.

    Parameters
    ----------
    names : tuple of str
        The features' names.
    """
    return [name.strip().casefold() for name in names]


def names_mark(names: tuple[str, ...]) -> str:
    """Return a short hash by which the server compares clients' feature names; empty if there are none.

    Parameters
    ----------
    names : tuple of str
        The features' names.
    """
    text = "\0".join(plainly(names))
    return hashlib.sha256(text.encode()).hexdigest()[:16] if names else ""
