"""Features in different units: compare their spreads, and suggest constants that bring them to one size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from common.data_settings import DataSettings
from common.words import listed

Floats = NDArray[np.floating]

FACTOR = 10.0
"""Ratio of features' spreads above which their units probably differ."""
MOST = 50
"""Most features (or channels) whose units are compared: more are of one kind, such as pixels or genes."""

_ENOUGH = 20_000
_NORMAL = 3.2897
"""Width of the middle 90 % of a normal distribution, in standard deviations."""


def spreads(Y: Floats) -> Floats:
    """Return the robust standard deviation of each feature, from the middle 90 % of its numbers.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns, finite or NaN, which marks what is missing.

    Returns
    -------
    (d,) array
        For a feature that is the same in 90 % of the samples: its largest distance from that value.
    """
    Y = Y[:, :: max(1, Y.shape[1] // _ENOUGH)].astype(np.float64)
    largest = float(np.fmax.reduce(np.abs(Y), axis=None, initial=0.0)) or 1.0  # avoids overflow
    Y = Y / largest
    if np.isnan(Y).any():
        Y = np.where(np.isnan(Y).all(axis=1, keepdims=True), 0, Y)  # a feature that was never measured
        low, high = np.nanquantile(Y, (0.05, 0.95), axis=1)
    else:
        low, high = np.quantile(Y, (0.05, 0.95), axis=1)
    events = np.fmax.reduce(np.abs(Y - low[:, None]), axis=1)
    robust: Floats = np.where(high > low, (high - low) / _NORMAL, events)
    return robust * largest


def pooled(clients: Sequence[Floats]) -> Floats:
    """Return the spread of each feature at the median client, over clients where it varies; else 0.

    Parameters
    ----------
    clients : sequence of (d,) arrays
        Results of :func:`spreads`. If there are none, or their lengths differ, the result is empty.
    """
    if not clients or len({len(one) for one in clients}) > 1:
        return np.zeros(0)
    middle = [np.median(sizes[sizes > 0]) if (sizes > 0).any() else 0.0 for sizes in np.stack(clients).T]
    return np.array(middle)


def differ(sizes: Floats) -> bool:
    """Return whether the spreads of features suggest different units.

    Parameters
    ----------
    sizes : (d,) array
        Spreads of the features.
    """
    moving = sizes[sizes > 0]
    return bool(len(moving) > 1 and moving.max() > FACTOR * moving.min())


def how_they_differ(sizes: Floats, names: Sequence[str] = ()) -> str:
    """Describe the ratio of the features' spreads, with the smallest and the largest.

    Parameters
    ----------
    sizes : (d,) array
        Spreads of the features.
    names : sequence of str
        The features' names; empty if they have none.
    """
    order = [int(j) for j in np.argsort(sizes, kind="stable") if sizes[j] > 0]
    ratio = float(f"{sizes[order[-1]] / sizes[order[0]]:.2g}")
    ends = (f"{feature(j, names)}: {sizes[j]:.2g}" for j in (order[0], order[-1]))
    return f"the spreads of the features differ by a factor of {ratio:g} ({', '.join(ends)})"


def feature(j: int, names: Sequence[str] = ()) -> str:
    """Return the name of feature ``j`` in messages: its number from 1, and its name if it has one.

    Parameters
    ----------
    j : int
        Number of the feature, from 0.
    names : sequence of str
        The features' names; empty if they have none.
    """
    return f"feature {labels([j], names)}"


def labels(which: Sequence[int], names: Sequence[str] = ()) -> str:
    """Return the numbers of features from 1, with their names: "1 ('age'), 4 ('mass') and 3 more".

    Parameters
    ----------
    which : sequence of int
        Numbers of features, from 0.
    names : sequence of str
        The features' names; empty if they have none.
    """
    return listed(f"{j + 1}" + (f" ({names[j]!r})" if j < len(names) else "") for j in which)


def suggested_divide_by(sizes: Floats) -> str:
    """Return ``data.divide_by`` that brings features to about one size: two digits of each spread, 1 if constant.

    Parameters
    ----------
    sizes : (d,) array
        Spreads of the features.
    """
    return ", ".join(f"{float(f'{size:.1e}'):g}" if size > 0 else "1" for size in sizes)


def untouched(data: DataSettings) -> bool:
    """Return whether features keep the units of the files during learning.

    Parameters
    ----------
    data : DataSettings
        The table ``data`` of the settings.
    """
    return not data.bends and data.patch is None
