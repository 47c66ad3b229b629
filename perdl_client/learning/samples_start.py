r"""A start from samples: each atom is one sample, or with the guard a sum of several, scaled to norm 1.

Such atoms lie where the samples do, so a learner of atoms that need not be orthogonal needs far fewer steps than from
random ones. It is the common start of dictionary learning.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from common.learners import Product, product
from perdl_client.learning.guard import made_of_many
from perdl_client.learning.missing import zero_filled

Floats = NDArray[np.floating]


def samples_start(
    Y: Floats, n_atoms: int, rng: np.random.Generator, product: Product = product, min_samples: int | None = None
) -> Floats:
    r"""Draw atoms from samples.

    .. math:: D = Y G, \qquad G_{sj} \in \{-1, 0, 1\} \text{, each column with one entry, or } \text{min\_samples}

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
    min_samples : int, optional
        If given, atoms are sums of so many samples, of which none makes up more than the guard allows.

    Returns
    -------
    (d, n_atoms) array
        Unit atoms. They are random where there are too few samples, where one makes up a sum, and where it is zero.

    Notes
    -----
    Signs keep sums of several samples from being all near to the mean.
    """
    F, each = zero_filled(Y), 1 if min_samples is None else min_samples
    n = F.shape[1]
    G = np.zeros((n_atoms, n), dtype=F.dtype)
    order = np.concatenate([rng.permutation(n) for _ in range(-(-n_atoms * each // n))]) if n else np.zeros(0, int)
    if n >= each:
        fitting = n_atoms if each > 1 else min(n_atoms, n)  # no sample is two atoms
        chosen = order[: fitting * each].reshape(fitting, each)
        G[np.arange(fitting)[:, None], chosen] = rng.choice(np.array([-1, 1], F.dtype), chosen.shape)
    D = product(F, G)
    norms = np.linalg.norm(D, axis=0)
    fine = norms > 0
    if min_samples is not None:
        fine &= made_of_many(F, G, min_samples)
    drawn = rng.standard_normal(D.shape).astype(D.dtype)
    return np.where(fine, D / np.where(fine, norms, 1), drawn / np.linalg.norm(drawn, axis=0))
