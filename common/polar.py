"""The polar factor of a matrix, also where the matrix lacks full rank."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]

_MANY, _TALL = 32, 4
"""Columns, and rows for each column, from which eigenvectors of M'M cost less than singular vectors of M."""

_WORST = 1e3
"""Condition number up to which they serve."""


def polar_factor(M: Floats, prior: Floats | None = None) -> Floats:
    r"""Return the nearest matrix with orthonormal columns; among equally near ones, the one nearest to ``prior``.

    .. math:: \max_{W^\top W = I} \langle W, M \rangle + \varepsilon \lVert M\rVert_2 \langle W, P \rangle,
              \qquad \varepsilon = \sqrt{\text{machine epsilon}}

    If ``M`` has full rank, the second term is below rounding: a fixed point ``W = P`` is the same with and without it.
    If ``M`` has a null space (fewer samples than atoms, an atom that no sample uses, a feature that is always zero),
    LAPACK alone would fill it with unit vectors that are the same on every client. The second term decides instead: for
    small ``epsilon`` the null space is filled with the polar factor of the part of ``P`` that lies there.

    Parameters
    ----------
    M : (..., d, r) array, ``r <= d``
        One matrix, or a stack of matrices.
    prior : array of ``M``'s shape, optional
        Matrix to stay near to, such as the previous dictionary. Without it LAPACK completes the factor.

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
    # Scale by a power of two, which is exact, so that neither huge nor tiny data overflow.
    M = np.ldexp(M, -np.frexp(np.abs(M).max(axis=(-2, -1), keepdims=True))[1])
    if prior is not None:
        scale = np.sqrt((M * M).sum(axis=(-2, -1), keepdims=True))
        M = M + M.dtype.type(np.sqrt(np.finfo(M.dtype).eps)) * np.where(scale > 0, scale, 1) * prior
    if M.ndim == 2 and r >= _MANY and d >= _TALL * r and (by_gram := _polar_by_gram(M)) is not None:
        return by_gram
    U, _, Vt = np.linalg.svd(M, full_matrices=False)
    W: Floats = U @ Vt
    return W


def _polar_by_gram(M: Floats) -> Floats | None:
    r"""Return the polar factor by eigenvectors of M'M, at half the cost of an SVD; None if that is not exact.

    :math:`W = M (M^\top M)^{-1/2}` has an error of the condition number squared. It is refined once: with
    :math:`W^\top W = I + \Delta` and :math:`H = W^\top M`, the factor is :math:`W (I - \Delta / 2 + \Omega)` to second
    order, where :math:`\Omega` is skew and :math:`\Omega H + H \Omega = H - H^\top`.
    """
    A = M.astype(np.float64)
    squares, V = np.linalg.eigh(A.T @ A)
    if squares[0] <= squares[-1] / _WORST**2:
        return None
    sizes = np.sqrt(squares)
    W = A @ ((V / sizes) @ V.T)
    if M.dtype == np.float64:
        H = W.T @ A
        skew = V.T @ (H - H.T) @ V / (sizes[:, None] + sizes)
        W = 1.5 * W - W @ (W.T @ W / 2 - V @ skew @ V.T)
    polar: Floats = W.astype(M.dtype)
    return polar
