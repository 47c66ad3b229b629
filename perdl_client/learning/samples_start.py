r"""A start from samples: each atom is one sample, scaled to norm 1.

Such atoms lie where the samples do, so a learner of atoms that need not be orthogonal needs far fewer steps than from
random ones. It is the common start of dictionary learning. But it tells samples, and which of them a server that knows
the seed could compute: so sums of several would not hide them either, and the guard rules this start out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from common.learners import Product, product
from perdl_client.learning.missing import zero_filled

Floats = NDArray[np.floating]


def samples_start(Y: Floats, n_atoms: int, rng: np.random.Generator, product: Product = product) -> Floats:
    r"""Draw atoms from samples.

    .. math:: D = Y G, \qquad G \text{ with one } 1 \text{ in each column, and at most one in each row}

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns; NaN marks a missing entry, which counts as zero.
    n_atoms : int
        Number of atoms.
    rng : numpy.random.Generator
        Random stream.
    product : callable
        Computes ``A X'``.

    Returns
    -------
    (d, n_atoms) array
        Unit atoms. They are random where there are too few samples, and where a sample is zero.
    """
    F = zero_filled(Y)
    chosen = rng.permutation(F.shape[1])[:n_atoms]
    G = np.zeros((n_atoms, F.shape[1]), dtype=F.dtype)
    G[np.arange(len(chosen)), chosen] = 1
    D = product(F, G)
    norms = np.linalg.norm(D, axis=0)
    drawn = rng.standard_normal(D.shape).astype(D.dtype)
    return np.where(norms > 0, D / np.where(norms > 0, norms, 1), drawn / np.linalg.norm(drawn, axis=0))
