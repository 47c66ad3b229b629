"""The polar factor of a matrix, also where the matrix lacks full rank."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from common.arrays import host, ldexp, like, namespace, wide

Floats = NDArray[np.floating]

_MANY = 64
"""Columns from which eigenvectors of M'M cost less than singular vectors of M."""

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
    if (M.ndim == 2 or stacks) and r >= _MANY and (by_gram := _polar_by_gram(M)) is not None:
        return by_gram
    U, _, Vt = xp.linalg.svd(M, full_matrices=False)
    W: Floats = U @ Vt
    return W


def _polar_by_gram(M: Floats) -> Floats | None:
    r"""Return the polar factor by eigenvectors of M'M, at half to two thirds of the cost of an SVD.

    With :math:`M^\top M = V \Lambda V^\top`, the columns of :math:`M V` are orthogonal but for an error of the
    condition number squared. Let :math:`M V = U \Sigma` with columns of norm 1 in U, and
    :math:`U^\top U = I + \Delta`. To second order the factor is :math:`U (I - \Delta / 2 + \Omega) V^\top`, where
    :math:`\Omega` is skew: :math:`\Omega_{ij} = \Delta_{ij} (\sigma_j - \sigma_i) / (\sigma_i + \sigma_j)`.

    Returns
    -------
    array of ``M``'s shape and type, or None
        None if the condition number is beyond what that corrects.
    """
    A = wide(M)
    xp = namespace(A)
    gram = A.mT @ A
    if xp is np and _is_singular(gram):
        return None
    V = xp.linalg.eigh(gram)[1]
    U = A @ V
    sizes = xp.linalg.vector_norm(U, axis=-2, keepdims=True)
    if xp.any(xp.min(sizes, axis=-1) <= xp.max(sizes, axis=-1) / _WORST):
        return None
    U = U / sizes
    if M.dtype == xp.float64:  # of single precision all digits are right
        C, across = U.mT @ U, sizes.mT
        eye = xp.eye(C.shape[-1], dtype=C.dtype, device=C.device)
        U = U @ (eye + (C - eye) * ((sizes - across) / (sizes + across) - 0.5))
    polar: Floats = like(U @ V.mT, M)
    return polar


def _is_singular(gram: Floats) -> bool:
    """Return whether the pivots of M'M show that M is ill-conditioned: a thirtieth of the cost of eigenvectors."""
    try:
        pivots = np.diagonal(np.linalg.cholesky(gram))
    except np.linalg.LinAlgError:
        return True
    return bool(pivots.min() <= pivots.max() / _WORST)
