"""Set samples aside before learning, so that what was learnt can be measured on samples that nobody learnt from.

What belongs together stays together, because neighbours are alike: a sample that has a near copy among those that were
learnt from would say nothing. So a series gives its end, and images and recordings are set aside whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from common.blocks import Columns, Stream
from perdl_client.data.samples import Samples
from perdl_client.data.windows_patches import Cut

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]

FEWEST = 5
"""Fewest pieces that are worth holding out, and fewest units (images, recordings) that a bootstrap draws from."""

LEAST_LEFT = 2
"""Pieces an atom that must be left to learn from. With fewer, a client needs all that it has."""

BLOCKS = 20
"""Number of blocks of neighbours that a bootstrap draws from, where pieces of few units are held out."""


@dataclass(frozen=True)
class HeldOut:
    """Pieces that a client does not learn from.

    Parameters
    ----------
    Z : (d, m) array or Stream
        Preprocessed pieces, in columns.
    units : (m,) int array
        For each piece, what it belongs to. Pieces of one image, recording or block are not independent.
    """

    Z: Columns
    units: Ints


@dataclass(frozen=True)
class Parts:
    """Samples to learn from, and samples that are held out.

    Parameters
    ----------
    training, held_out : Samples
        Both in the order of the file. Images may be cut in two, so that the parts have other shapes.
    units : (m,) int array, or None
        What each held-out sample belongs to; None if neighbours are alike, and only blocks are independent.
    """

    training: Samples
    held_out: Samples
    units: Ints | None


def set_aside(samples: Samples, cut: Cut, share: float, rng: np.random.Generator) -> Parts | None:
    """Divide samples before they are cut.

    A folder with at least `FEWEST` files gives whole files at random. Else a series (windows, sounds, videos) gives its
    end, images that are cut into patches are given whole or, if there are too few, by their lowest rows, and other
    samples are drawn at random.

    Parameters
    ----------
    samples : Samples
        All samples of the client.
    cut : Cut
        How they will be cut.
    share : float
        Share of the samples to hold out, in (0, 1).
    rng : numpy.random.Generator
        Random stream of the division.

    Returns
    -------
    Parts, or None
        None if a part would be empty, or too small to be cut.
    """
    n = samples.data.shape[1]
    if len(samples.files) >= FEWEST:
        owner = np.repeat(np.arange(len(samples.files)), samples.files)
        held = np.isin(owner, _drawn(len(samples.files), share, rng))
        return _parts(samples, cut, held, owner)
    if cut.kind == "window" or samples.in_time:
        return _parts(samples, cut, np.arange(n) >= n - round(share * n), None)
    if cut.kind == "patch" and len(samples.shape) > 1 and round(share * n) < 1:
        return _lowest_rows(samples, cut, share)
    return _parts(samples, cut, np.isin(np.arange(n), _drawn(n, share, rng)), np.arange(n))


def units_of_pieces(units: Ints | None, n_pieces: int) -> Ints:
    """Return what each piece belongs to.

    Parameters
    ----------
    units : (m,) int array, or None
        What each sample belongs to before it is cut into equally many pieces, see `Parts`.
    n_pieces : int
        Number of pieces.

    Returns
    -------
    (n_pieces,) int array
        Blocks of neighbours, `BLOCKS` at most, where ``units`` is None or has fewer than `FEWEST` units.
    """
    if units is not None and len(np.unique(units)) >= FEWEST:
        return np.repeat(units, n_pieces // len(units))
    return np.arange(n_pieces) * min(BLOCKS, n_pieces) // max(n_pieces, 1)


def _drawn(n: int, share: float, rng: np.random.Generator) -> Ints:
    """Return which of n are held out. Few change sides when more are added at the end."""
    return np.argsort(rng.random(n), kind="stable")[: round(share * n)]


def _parts(samples: Samples, cut: Cut, held: NDArray[np.bool_], owner: Ints | None) -> Parts | None:
    least = cut.size if cut.kind == "window" else 1
    if min(np.count_nonzero(held), np.count_nonzero(~held)) < least:
        return None
    units = None if owner is None or cut.kind == "window" else owner[held]  # windows may reach over two files
    return Parts(_some(samples, ~held), _some(samples, held), units)


def _some(samples: Samples, chosen: NDArray[np.bool_]) -> Samples:
    """Return the chosen samples; without a copy if they are neighbours."""
    places = np.flatnonzero(chosen)
    neighbours = places[-1] - places[0] + 1 == len(places)
    if isinstance(Y := samples.data, Stream):
        data = Y.part(int(places[0]), int(places[-1]) + 1) if neighbours else Y.take(places)
        return replace(samples, data=data, files=())
    rows = Y.T
    some = np.ascontiguousarray(rows[places[0] : places[-1] + 1]) if neighbours else rows[places]
    return replace(samples, data=some.T, files=())


def _lowest_rows(samples: Samples, cut: Cut, share: float) -> Parts | None:
    """Divide each image between two rows of pixels."""
    height = samples.shape[0]
    begin = height - round(share * height)
    if min(begin, height - begin) < cut.size:
        return None
    if isinstance(Y := samples.data, Stream):
        return Parts(_rows_of(samples, Y, slice(begin)), _rows_of(samples, Y, slice(begin, height)), None)
    images = Y.T.reshape(-1, *samples.shape)
    upper, lower = (
        replace(samples, data=np.ascontiguousarray(part).reshape(len(part), -1).T, shape=part.shape[1:], files=())
        for part in (images[:, :begin], images[:, begin:])
    )
    return Parts(upper, lower, None)


def _rows_of(samples: Samples, Y: Stream, rows: slice) -> Samples:
    """Return a part of each image of a stream."""
    shape = (rows.stop - (rows.start or 0), *samples.shape[1:])

    def read(i: int, j: int) -> Floats:
        images = Y.read(i, j).T.reshape(-1, *samples.shape)
        return np.ascontiguousarray(images[:, rows]).reshape(j - i, -1).T

    return replace(samples, data=Stream((math.prod(shape), Y.shape[1]), Y.dtype, read), shape=shape, files=())
