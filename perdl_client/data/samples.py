"""The samples of a file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from common.blocks import Columns, Stream, chosen


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples, and what is known of their features.

    Parameters
    ----------
    data : (d, n) array or Stream
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

    data: Columns
    shape: tuple[int, ...]
    names: tuple[str, ...] = ()
    rate: int = 0
    notes: tuple[str, ...] = ()
    files: tuple[int, ...] = ()
    in_time: bool = False


_LOOKED_AT = 2**22
"""Most numbers of a stream that are looked at before a run."""


def looked_at(samples: Samples, in_order: bool = False) -> Samples:
    """Return samples in memory: all, or of a stream that is large some of them, and a note that says so.

    Parameters
    ----------
    samples : Samples
        The samples of a file.
    in_order : bool
        Whether neighbours are needed, as for windows. Then the first samples are taken, else every so many-th.
    """
    if not isinstance(Y := samples.data, Stream):
        return samples
    d, n = Y.shape
    most = max(_LOOKED_AT // max(d, 1), 1)
    if n <= most:
        return replace(samples, data=chosen(Y, np.arange(n)))
    step = 1 if in_order or samples.in_time else -(-n // most)
    places = np.arange(0, n, step)[:most]
    which = "the first" if step == 1 else f"every {step}th, in all"
    note = f"read block by block: of {n} samples {which} {len(places)} were looked at"
    return replace(samples, data=chosen(Y, places), files=(), notes=(*samples.notes, note))


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
