"""Samples from which random starts are learnt. Where a client has very many, some tell enough of where to begin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from common.blocks import Columns, Stream, chosen

Floats = NDArray[np.floating]

MOST = 2**21
"""Most numbers that starts are learnt from, if that is not less than :data:`EACH` samples an atom."""

EACH = 10
"""Samples an atom that are taken all the same."""


def at_most(d: int, r: int) -> int:
    """Return how many samples starts are learnt from at most.

    Parameters
    ----------
    d : int
        Number of features.
    r : int
        Number of atoms.
    """
    return max(MOST // max(d, 1), EACH * r)


def few(Y: Columns, r: int, rng: np.random.Generator) -> Floats:
    """Return all samples, or of very many some that are drawn at random, in their order.

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns.
    r : int
        Number of atoms that are to be learnt.
    rng : numpy.random.Generator
        Random stream of the draw.

    Returns
    -------
    (d, m) array
    """
    n, most = Y.shape[1], at_most(len(Y), r)
    if n <= most:
        return Y[:, :] if isinstance(Y, Stream) else Y
    return chosen(Y, np.sort(rng.choice(n, most, replace=False, shuffle=False)))
