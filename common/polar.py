"""The polar factor of a matrix, defined also where the matrix has no full rank."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


def polar_factor(M: Floats, prior: Floats | None = None) -> Floats:
    r"""Nearest matrix with orthonormal columns; among equally near ones, that which is nearest to ``prior``.

    .. math:: \max_{W^\top W = I} \langle W, M \rangle + \varepsilon \lVert M\rVert_2 \langle W, P \rangle,
              \qquad \varepsilon = \sqrt{\text{machine epsilon}}

    Where ``M`` has full rank the second term is below the rounding that matters: a fixed point ``W = P`` is the same
    with and without it. Where ``M`` has a null space (fewer samples than atoms, an atom that no sample uses, a feature
    that is always zero) LAPACK alone would fill it with unit vectors that are the same on every client. The second
    term decides instead: in the limit of small ``epsilon`` the null space is filled by the polar factor of what
    ``P`` has there.

    Parameters
    ----------
    M : (..., d, r) array, ``r <= d``
        One matrix, or a stack of them.
    prior : array of ``M``'s shape, optional
        What to stay near to, such as the previous dictionary. Without it the completion is LAPACK's.

    Returns
    -------
    array of ``M``'s shape and floating type with orthonormal columns

    Raises
    ------
    ValueError
        If there are more columns than rows.
    """
    d, r = M.shape[-2:]
    if r > d:
        raise ValueError(f"{r} columns in {d} dimensions cannot be orthonormal; use at most {d} atoms")
    if M.size == 0:
        return M.copy()
    # Powers of two scale without rounding, so that neither huge nor tiny data overflow.
    M = np.ldexp(M, -np.frexp(np.abs(M).max(axis=(-2, -1), keepdims=True))[1])
    if prior is not None:
        scale = np.sqrt((M * M).sum(axis=(-2, -1), keepdims=True))
        M = M + M.dtype.type(np.sqrt(np.finfo(M.dtype).eps)) * np.where(scale > 0, scale, 1) * prior
    U, _, Vt = np.linalg.svd(M, full_matrices=False)
    W: Floats = U @ Vt
    return W
