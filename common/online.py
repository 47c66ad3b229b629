r"""The online learner: one pass over blocks of samples, each coded with the dictionary that those before it left.

A pass improves the dictionary once a block, so it is worth several steps of a learner that codes all samples first.
After block t with the samples :math:`Y_t` and their codes :math:`X_t`

.. math:: B \leftarrow \beta_t B + Y_t X_t^\top, \qquad A \leftarrow \beta_t A + X_t X_t^\top, \qquad
          \beta_t = (1 - 1 / t)^\rho ,

and one pass over the atoms lowers :math:`\operatorname{tr}(D A D^\top) - 2 \operatorname{tr}(D B^\top)`, which but for
a constant is the squared error of the samples in the sums. The codes of early blocks belong to a worse dictionary: they
fade, the faster the more samples there are. Few samples make one block.

Source: Mairal, Bach, Ponce and Sapiro 2010, "Online learning for matrix factorization and sparse coding", algorithms 1
and 2, sections 3.4.2 and 3.4.3. There, each atom is scaled to norm 1 before the next is moved; here all are after the
pass, and the sums with them, so that a pass is one product and one triangular system.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from common.coders import Coder

Floats = NDArray[np.floating]

BLOCK = 192
"""Samples of a block, and at least :data:`_SAMPLES` an atom."""

_SAMPLES = 1.5

_FEWEST = 4
"""Fewest blocks, else all samples are one: the sums of a block are of too few samples to end with."""

_BLOCKS_LEFT, _FASTEST = 8, 5.0
"""rho is the number of blocks over the first, so that about so many are left in the sums; and at most the second."""


def online_pass(
    Y: Floats, D: Floats, coder: Coder, product: Callable[[Floats, Floats], Floats]
) -> tuple[Floats, Floats | None, Floats]:
    """Do one pass over the samples.

    Parameters
    ----------
    Y : (d, n) array
        Samples, in columns.
    D : (d, r) array
        Dictionary with any ``r``.
    coder : Coder
        Computes the codes of a block.
    product : callable
        Computes ``A X'`` of a block.

    Returns
    -------
    dictionary : (d, r) array
        Atoms that no sample uses stay as they are; the others have norm 1.
    codes : (r, n) array, or None
        Codes in the old dictionary; None if there was more than one block.
    moment : (d, r) array
        The sum of ``Y X'`` over the blocks.
    """
    blocks = Y.shape[1] // max(BLOCK, int(_SAMPLES * D.shape[1]))
    blocks = blocks if blocks >= _FEWEST else 1
    rho = min(blocks / _BLOCKS_LEFT, _FASTEST)
    moment = np.zeros_like(D)
    B, A = np.zeros_like(D), np.zeros((D.shape[1], D.shape[1]), D.dtype)
    X = None
    for t in range(blocks):
        part = Y if blocks == 1 else np.ascontiguousarray(Y[:, t::blocks])  # samples may be sorted
        X = coder(part, D)
        new, left = product(part, X), D.dtype.type((t / (t + 1)) ** rho)
        moment += new
        B, A = left * B + new, left * A + product(X, X)
        D, norms = pass_over_atoms(D, B, A)
        B, A = B * norms, A * (norms[:, None] * norms)  # as if the codes had been those of the scaled atoms
    return D, X if blocks == 1 else None, moment


def pass_over_atoms(D: Floats, B: Floats, A: Floats) -> tuple[Floats, Floats]:
    r"""Move one atom after the other to the least squares for fixed codes, then scale all to norm 1.

    .. math:: D_j \leftarrow \arg\min_v \operatorname{tr}(D A D^\top) - 2 \operatorname{tr}(D B^\top)
              \text{ with } v \text{ for } D_j, \qquad j = 1, \dots, r

    With :math:`A = L + U`, L the lower triangle with the diagonal, the new atoms solve
    :math:`D^+ L^\top = B - D U^\top` (Gauss and Seidel).

    Parameters
    ----------
    D : (d, r) array
        Dictionary.
    B : (d, r) array
        Y X'.
    A : (r, r) array
        X X'.

    Returns
    -------
    dictionary : (d, r) array
        Atoms of norm 1. Those that no sample uses stay as they are.
    norms : (r,) array
        What the atoms were divided by: codes times these fit the same.
    """
    from scipy.linalg import solve_triangular  # no other learner needs scipy

    used = np.flatnonzero(np.diag(A) > 0)
    out, norms = D.copy(), np.ones(D.shape[1], D.dtype)
    S = A[np.ix_(used, used)]
    right = B[:, used] - D[:, used] @ np.tril(S, -1)  # S is symmetric: the part above the diagonal, transposed
    atoms = solve_triangular(S, right.T, trans="T", check_finite=False).T
    sizes = np.linalg.norm(atoms, axis=0)
    moved = sizes > 0
    out[:, used[moved]] = atoms[:, moved] / sizes[moved]
    norms[used[moved]] = sizes[moved]
    return out, norms
