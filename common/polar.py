"""The polar factor of a matrix, also where the matrix lacks full rank."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from common.arrays import host, ldexp, like, namespace, wide

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
    xp = namespace(M)
    if 0 in M.shape:
        empty: Floats = xp.zeros_like(M)
        return empty
    # Scale by a power of two, which is exact, so that neither huge nor tiny data overflow.
    M = ldexp(M, -np.frexp(host(xp.max(xp.abs(M), axis=(-2, -1), keepdims=True)))[1])
    if prior is not None:
        scale = xp.sqrt(xp.sum(M * M, axis=(-2, -1), keepdims=True))
        M = M + float(xp.finfo(M.dtype).eps) ** 0.5 * xp.where(scale > 0, scale, 1) * prior
    stacks = xp is not np  # a device decomposes many small matrices slowly one by one
    if (M.ndim == 2 or stacks) and r >= _MANY and d >= _TALL * r and (by_gram := _polar_by_gram(M)) is not None:
        return by_gram
    U, _, Vt = xp.linalg.svd(M, full_matrices=False)
    W: Floats = U @ Vt
    return W


def _polar_by_gram(M: Floats) -> Floats | None:
    r"""Return the polar factor by eigenvectors of M'M, at half the cost of an SVD; None if that is not exact.

    :math:`W = M (M^\top M)^{-1/2}` has an error of the condition number squared. It is refined once: with
    :math:`W^\top W = I + \Delta` and :math:`H = W^\top M`, the factor is :math:`W (I - \Delta / 2 + \Omega)` to second
    order, where :math:`\Omega` is skew and :math:`\Omega H + H \Omega = H - H^\top`.
    """
    A = wide(M)
    xp = namespace(A)
    squares, V = xp.linalg.eigh(A.mT @ A)
    if xp.any(squares[..., 0] <= squares[..., -1] / _WORST**2):
        return None
    sizes = xp.sqrt(squares)[..., None, :]
    W = A @ ((V / sizes) @ V.mT)
    if M.dtype == xp.float64:
        H = W.mT @ A
        skew = V.mT @ (H - H.mT) @ V / (sizes.mT + sizes)
        W = 1.5 * W - W @ (W.mT @ W / 2 - V @ skew @ V.mT)
    polar: Floats = like(W, M)
    return polar
