r"""Measures of a video's separation into background and what moves.

Pixels are grey levels from 0 to 255 throughout.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]

MOVES, NOT_SCORED = 255, (85, 170)
"""Labels of CDnet: moving objects; pixels out of the region of interest or of unknown motion. Others are background."""

THRESHOLD = 30.0
"""A pixel moves if a channel differs from the background by more grey levels than this. The masks did not influence
this value."""


def psnr(pictures: Floats, reference: Floats) -> float:
    r"""Peak signal-to-noise ratio in dB.

    .. math:: 10 \log_{10} \frac{255^2}{\mathrm{mean}(A - B)^2}

    Parameters
    ----------
    pictures : (..., h, w, c) array
        Pictures to compare with the reference.
    reference : (h, w, c) array
        The picture they should equal.

    Returns
    -------
    float
        Infinite for equal pictures.
    """
    # Frame by frame, to save memory.
    frames = pictures.reshape(-1, *reference.shape)
    error = float(np.mean([np.mean(np.square(frame - reference, dtype=np.float64)) for frame in frames]))
    return float(10 * np.log10(255.0**2 / error)) if error > 0 else float("inf")


def foreground(own: Floats, threshold: float = THRESHOLD) -> Mask:
    """Return where the largest channel of an own part exceeds ``threshold``.

    Parameters
    ----------
    own : (n, h, w, c) array
        Frames minus their background.
    threshold : float
        Grey levels.

    Returns
    -------
    (n, h, w) bool array
        The pixels that move.
    """
    return np.stack([np.abs(frame).max(axis=-1) > threshold for frame in own])


def majority(mask: Mask) -> Mask:
    """Return the majority among each pixel and its eight neighbours, frame by frame. It removes lone pixels.

    Parameters
    ----------
    mask : (n, h, w) bool array
        Masks to clean.

    Returns
    -------
    (n, h, w) bool array
        The cleaned masks.
    """
    padded = np.pad(mask, ((0, 0), (1, 1), (1, 1)), mode="edge").astype(np.uint8)
    _, h, w = mask.shape
    votes = sum(padded[:, i : i + h, j : j + w] for i in range(3) for j in range(3))
    return np.asarray(votes) > 4


def f1(mask: Mask, labels: Bytes) -> float:
    r"""Harmonic mean of precision and recall over all scored pixels.

    .. math:: F_1 = \frac{2\,\mathrm{TP}}{2\,\mathrm{TP} + \mathrm{FP} + \mathrm{FN}}

    Parameters
    ----------
    mask : (n, h, w) bool array
        Pixels found to move.
    labels : (n, h, w) uint8 array
        True labels, see :data:`MOVES`, :data:`NOT_SCORED`.

    Returns
    -------
    float
        1 if nothing moves and nothing was found.
    """
    scored = ~np.isin(labels, NOT_SCORED)
    said, true = mask & scored, (labels == MOVES) & scored
    total = int(said.sum()) + int(true.sum())
    return 2 * int((said & true).sum()) / total if total else 1.0
