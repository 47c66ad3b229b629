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
    M : (d, r) array, ``r <= d``
    prior : (d, r) array, optional
        What to stay near to, such as the previous dictionary. Without it the completion is LAPACK's.

    Returns
    -------
    (d, r) array of ``M``'s floating type with orthonormal columns

    Raises
    ------
    ValueError
        If there are more columns than rows.
    """
    d, r = M.shape
    if r > d:
        raise ValueError(f"{r} columns in {d} dimensions cannot be orthonormal; use at most {d} atoms")
    if r == 0:
        return M.copy()
    # Powers of two scale without rounding, so that neither huge nor tiny data overflow.
    peak = np.abs(M).max()
    if peak > 0:
        M = np.ldexp(M, -int(np.frexp(peak)[1]))
    if prior is not None:
        scale = np.linalg.norm(M) if peak > 0 else 1.0
        M = M + M.dtype.type(np.sqrt(np.finfo(M.dtype).eps) * scale) * prior
    U, _, Vt = np.linalg.svd(M, full_matrices=False)
    W: Floats = U @ Vt
    return W
