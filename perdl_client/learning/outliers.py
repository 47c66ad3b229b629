r"""Wild entries and wild samples: treat them as missing.

A coder cannot do this: the learner's step uses the samples too. So what is wild is taken out of the samples, and
:mod:`perdl_client.learning.missing` does the rest for every coder. Two passes mark it with NaN. The first,
:func:`screen`, looks at each feature alone, before anything is learnt. The second, :func:`mark`, looks for what a
dictionary does not explain. It computes

.. math:: \min_{X, E} \lVert Y - DX - E\rVert_F^2 + \text{penalty} \cdot \lVert X\rVert_0 + \mu^2 \lVert E\rVert_0

by hard thresholds that shrink from the largest number to their final values, so that what is largest is explained
first. A wild entry is larger than its correlation with any atom, so E takes it and not X.
Entries with :math:`E \ne 0` are wild.

Source: Wright, Yang, Ganesh, Sastry, Ma 2009, "Robust face recognition via sparse representation", which codes in
atoms and unit vectors together, by l1 norms; here with hard thresholds.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from common.coders import Coder, hard_threshold
from common.statistics import rms
from perdl_client.learning.missing import codes_of, observed_residual, zero_filled

Floats = NDArray[np.floating]

_NORMAL = 3.2897
"""Width of the middle 90 % of a normal distribution, in standard deviations."""

_ENTRY = 6.0
"""Distance from the median, in robust standard deviations, beyond which an entry is wild."""

_SAMPLE = 3.0
"""Median of a sample's distances beyond which the sample is wild."""

_SHARE = 1 / 3
"""Share of its entries that may be wild before the whole sample is."""

_NOISE, _LEAST = 5.0, 0.5
"""mu: robust standard deviations of the residual, and at least so many root mean squares of the data."""

_STEPS = 20
"""Steps in which the thresholds shrink."""

_SETTLE = 5
"""Steps with the final thresholds."""


def screen(Y: Floats) -> Floats:
    """Mark entries and samples that are wild by the distribution of each feature.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns; NaN marks a missing entry.

    Returns
    -------
    (d, n) array
        With NaN in wild entries, and in all entries of wild samples.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of features and samples that are all NaN
        low, middle, high = np.nanquantile(Y, (0.05, 0.5, 0.95), axis=1)
        spread = (high - low) / _NORMAL
        z = np.abs(Y - middle[:, None]) / np.where(spread > 0, spread, np.inf)[:, None]
        return _without(Y, (z > _ENTRY) | (np.nanmedian(z, axis=0) > _SAMPLE))


def mark(Y: Floats, D: Floats, coder: Coder) -> Floats:
    """Mark entries that are wild by a dictionary, and samples that have many of them.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns; NaN marks a missing entry.
    D : (d, r) array
        Dictionary.
    coder : Coder
        Computes the codes. Coders without a threshold are used unchanged in all steps.

    Returns
    -------
    (d, n) array
        With NaN in wild entries, and in all entries of wild samples. If there are none, ``Y`` itself.
    """
    known, Z = ~np.isnan(Y), zero_filled(Y)
    residual = observed_residual(Y, D @ codes_of(Y, D, coder))
    noise = 1.4826 * float(np.median(np.abs(residual[known]))) if known.any() else 0.0
    mu, first = max(_NOISE * noise, _LEAST * rms(Y)), float(np.abs(Z).max(initial=0.0))
    if not first > mu > 0:
        return Y
    estimate = np.zeros_like(Z)
    for t in range(_STEPS + _SETTLE):
        done = min(1.0, t / (_STEPS - 1))
        E = hard_threshold(np.where(known, Z - estimate, 0), first * (mu / first) ** done)
        estimate = D @ coder.warm(first, done)(np.where(known, Z - E, estimate), D)
    return _without(Y, E != 0)


def _without(Y: Floats, wild: NDArray[np.bool_]) -> Floats:
    """Return the samples with NaN in wild entries, and in samples with too large a share of them."""
    known = ~np.isnan(Y)
    wild = wild & known
    wild |= wild.sum(axis=0) > _SHARE * np.maximum(known.sum(axis=0), 1)
    return np.where(wild, Y.dtype.type(np.nan), Y) if wild.any() else Y
