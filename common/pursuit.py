r"""Greedy pursuit of all samples at once, on the Gram matrix of the atoms.

.. math:: \min_x \lVert y - D x\rVert^2, \qquad \lVert x\rVert_0 \le k, \qquad \text{one atom more in each step}

A step takes one atom for every sample. Let :math:`q` be the part of this atom off those taken before, scaled to unit
norm, and :math:`z = q^\top y`. Least squares on all atoms taken change by :math:`z q`, so the correlations
:math:`D^\top r` with the residual fall by :math:`z D^\top q`. As a combination of atoms :math:`q = D c`, so
:math:`D^\top q = (D^\top D)\, c`: one matrix product for all samples, and no residual is formed. Which atom is taken:

- *orthogonal matching pursuit* (OMP): the one that is most correlated with the residual;
- *orthogonal least squares* (OLS): the one that lowers the error most. The part of atom j off those taken has the
  squared norm :math:`1 - \sum (D_j^\top q)^2`; the error falls by :math:`(D_j^\top r)^2` over it. With k atoms it
  is some percent below that of OMP, at a fifth more time.

Samples go by blocks that a core's cache holds.

Sources: Pati, Rezaiifar and Krishnaprasad 1993 (OMP); Chen, Billings and Luo 1989 (OLS); Rubinstein, Zibulevsky and
Elad 2008, "Efficient implementation of the K-SVD algorithm using batch orthogonal matching pursuit".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Ints = NDArray[np.integer]

_BLOCK = 2**18
"""About how many bytes the codes of a block of samples take: a core's second cache holds some such arrays."""

_FEWEST, _MOST = 64, 1024
"""Fewest and most samples of a block."""

_BUFFERS = 5
"""Arrays of a block's codes that are written anew in each step."""

_ROOM = 16
"""Atoms a sample for which there is room at first. It doubles when a block needs more."""

_FEW = 10
"""A sparse product is quicker than a dense one if so many times fewer atoms are taken than there are."""


def omp(Y: Floats, D: Floats, k: int, threshold: float = 0.0) -> Floats:
    """Orthogonal matching pursuit, all samples at once.

    For each sample, ``k`` times: take the atom most correlated with the residual (atoms scaled to unit norm), then
    refit all atoms taken by least squares.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns.
    D : (d, r) array
        Atoms of any norm; zero atoms are never taken.
    k : int
        Most atoms a sample may use; a sample stops early when its residual is zero.
    threshold : float
        A sample also stops when no atom, scaled to unit norm, has this correlation with its residual.

    Returns
    -------
    (r, n) array
    """
    return _pursuit(Y, D, k, threshold, best_fit=False)


def ols(Y: Floats, D: Floats, k: int) -> Floats:
    """Orthogonal least squares, all samples at once.

    For each sample, ``k`` times: take the atom with which least squares on all atoms taken have the smallest error.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns.
    D : (d, r) array
        Atoms of any norm; zero atoms are never taken, nor atoms in the span of those taken.
    k : int
        Most atoms a sample may use; a sample stops early when its residual is zero.

    Returns
    -------
    (r, n) array
    """
    return _pursuit(Y, D, k, 0.0, best_fit=True)


def _pursuit(Y: Floats, D: Floats, k: int, threshold: float, *, best_fit: bool) -> Floats:
    dtype = np.result_type(Y, D)
    r, n = D.shape[1], Y.shape[1]
    norms = np.linalg.norm(D, axis=0)
    norms = np.where(norms > 0, norms, 1).astype(dtype)
    U = D / norms
    gram = U.T @ U
    floor = np.maximum(100 * np.finfo(dtype).eps * np.linalg.norm(Y, axis=0), threshold)
    X = np.zeros((n, r), dtype=dtype)
    size = min(max(_BLOCK // max(r * dtype.itemsize, 1), _FEWEST), _MOST, max(n, 1))
    work = np.empty((_BUFFERS, size, r), dtype=dtype)  # new memory for each block would take as long as a product
    for i in range(0, n if k > 0 and r > 0 else 0, size):
        block = slice(i, i + size)
        _pursue(gram, Y[:, block].T @ U, floor[block], min(k, r), X[block], work, best_fit=best_fit)
    X /= norms
    return X.T


def _pursue(
    gram: Floats, correlation: Floats, floor: Floats, k: int, out: Floats, work: Floats, *, best_fit: bool
) -> None:
    """Write the codes of a block of samples, in rows, into ``out``; ``correlation`` (n, r) is overwritten."""
    (n, r), dtype = correlation.shape, correlation.dtype
    exact = gram.astype(np.float64).ravel()  # the small systems are solved in double precision
    rows, first = np.arange(n), np.arange(0, n * r, r)
    room, s = min(_ROOM, k), 0
    support, weights = np.zeros((room, n), dtype=np.int32), np.zeros((room, n))
    directions = np.zeros(
        (room, room, n)
    )  # of a sample: q is a combination of atoms i, with weights [i, j] for its j-th
    score, dense, spare, sparse, free = work[:, :n]
    sparse.fill(0)
    # Squared norms of the atoms' parts off those taken, and a little more: not zero for atoms in their span.
    free.fill(1 + 100 * np.finfo(dtype).eps)
    np.abs(correlation, out=score)
    for s in range(k):
        best = score.argmax(axis=1)
        z = correlation.ravel()[first + best].astype(np.float64)
        alive = (np.abs(z) > floor) & (score.ravel()[first + best] > 0)  # of atoms taken the score is below or zero
        left = np.count_nonzero(alive)
        if left == 0:
            break
        if 2 * left < len(rows):  # most samples are done
            done = ~alive
            _write(out, rows[done], support[:s, done], weights[:, done])
            rows, first, floor, best, z = rows[alive], first[:left], floor[alive], best[alive], z[alive]
            support, weights, directions = support[:, alive], weights[:, alive], directions[:, :, alive]
            correlation, free = correlation[alive], free[alive]
            score, dense, spare, sparse = work[: _BUFFERS - 1, :left]
            sparse.fill(0)
            alive = np.ones(left, dtype=bool)
        if s == room:
            more = min(room, k - room)
            room += more
            support, weights = np.pad(support, ((0, more), (0, 0))), np.pad(weights, ((0, more), (0, 0)))
            directions = np.pad(directions, ((0, more), (0, more), (0, 0)))
        c = _direction(exact, directions[:s, :s], support[:s], best, r)
        if left < len(rows):
            c[:, ~alive] = 0
        z *= c[s]
        directions[: s + 1, s], support[s] = c, best
        weights[: s + 1] += c * z
        if s + 1 == k:
            break
        taken = first + support[: s + 1]
        if _FEW * (s + 1) <= r:
            product = _sparse_product(support[: s + 1], c, gram)
        else:
            sparse.reshape(-1)[taken] = c
            product = np.matmul(sparse, gram, out=dense)
        np.multiply(product, z.astype(dtype)[:, None], out=spare)
        correlation -= spare
        if best_fit:
            np.square(product, out=product)
            free -= product
            free.reshape(-1)[taken] = np.inf
            np.square(correlation, out=score)
            score /= free
        else:
            np.abs(correlation, out=score)
            score.reshape(-1)[taken] = -1
    _write(out, rows, support[: s + 1], weights)


def _direction(gram: Floats, directions: Floats, support: Ints, best: Ints, r: int) -> Floats:
    """Return the next direction of each sample, (s + 1, n): the atom ``best`` off the directions before, of norm 1."""
    inner = np.einsum("ijn,in->jn", directions, gram[support * r + best])
    c = np.ones((len(support) + 1, len(best)))
    np.einsum("ijn,jn->in", directions, inner, out=c[:-1])
    c[:-1] *= -1
    # Of atoms that are parallel to the last digit nothing is left; the smallest number keeps their weights finite.
    c /= np.sqrt(np.maximum(1 - np.einsum("jn,jn->n", inner, inner), 1e-14))
    return c


def _sparse_product(support: Ints, c: Floats, gram: Floats) -> Floats:
    """Return for each sample ``sum_i c_i gram[support_i]``, (n, r)."""
    from scipy.sparse import csr_array  # no other coder needs scipy

    s, n = support.shape
    ends = np.arange(0, s * n + 1, s, dtype=np.int32)
    weights = c.T.astype(gram.dtype, order="C").ravel()
    return csr_array((weights, support.T.ravel(), ends), shape=(n, len(gram))) @ gram


def _write(out: Floats, rows: Ints, support: Ints, weights: Floats) -> None:
    """Add the weights to the rows of ``out``. A sample that is done has weight 0 at any atom, perhaps twice."""
    for atoms, values in zip(support, weights, strict=False):
        out[rows, atoms] += values.astype(out.dtype)
