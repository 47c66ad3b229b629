r"""One pass over blocks of samples: the codes of a block are used while they are in the cache, and forgotten.

For codes X = coder(Y, D) that are correlations D'Y, some of them set to zero, it sums

.. math:: Y X^\top, \quad X X^\top, \quad \sum_s x_{sj}^2, \quad
          \sum_s \lVert y_s - D x_s\rVert^2
          = \sum_s \lVert y_s\rVert^2 - \lVert x_s\rVert^2 + x_s^\top (D^\top D - I) x_s

so the residual costs no third product where D is orthonormal. Where rounding is all that is left of it, as near to an
exact fit, it is computed itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.blocks import LEAST as FEWEST
from common.blocks import NUMBERS, Columns, blocks
from common.coders import SELECTING, Coder

Floats = NDArray[np.floating]

_BLOCK = 2**17
"""About how many numbers a block has, of samples and of codes: what a core's cache holds."""

_LEAST = 256
"""Fewest samples in a block: products of fewer are slow."""

_CLEAR = 1e5
"""A difference that is so many machine epsilons of its terms, or more, is known to five digits."""


@dataclass(frozen=True)
class Swept:
    """Sums over samples.

    Parameters
    ----------
    moment : (d, r) array
        Y X'.
    second_moment : (r, r) array, optional
        X X', if it was asked for.
    energies : (r,) array
        Squared norms of the rows of X.
    users : (r,) int array
        How many samples use each atom.
    energy, misfit : float
        Squared norms of Y and of Y - D X.
    made, moved : (r,) arrays
        Sums over samples of the squared code times the squared norm of the sample, and of its residual.
    most_made, most_moved : (r,) arrays
        No term of these two sums is larger.
    """

    moment: Floats
    second_moment: Floats | None
    energies: Floats
    users: NDArray[np.intp]
    energy: float
    misfit: float
    made: Floats
    moved: Floats
    most_made: Floats
    most_moved: Floats

    def passes(self, min_samples: int, share: float) -> bool:
        """Return whether all atoms in use surely pass the guard in full, see :mod:`perdl_client.learning.guard`.

        Parameters
        ----------
        min_samples : int
            Samples that must use an atom.
        share : float
            Largest share of one sample.
        """
        eps = float(np.finfo(self.moment.dtype).eps)
        idle, enough = self.users == 0, self.users >= min_samples
        spread = (self.most_made <= share * self.made) & (self.most_moved <= share * self.moved)
        known = self.moved > _CLEAR * eps * self.made
        return bool((idle | (enough & spread & known)).all())


def sweep(Y: Columns, D: Floats, coder: Coder, *, second_moment: bool = False) -> Swept:
    """Code samples block by block, and sum.

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns, complete.
    D : (d, r) array
        Dictionary.
    coder : Coder
        Computes the codes. Unless it is one of :data:`common.coders.SELECTING`, all residuals are computed themselves.
    second_moment : bool
        Whether X X' is wanted.

    Returns
    -------
    Swept
    """
    (d, r), dtype = D.shape, Y.dtype
    size = max(_BLOCK // (d + 2 * r), min(_LEAST, max(NUMBERS // (d + 2 * r), FEWEST)))
    selects = type(coder) in SELECTING
    bent, E = _bend(D) if selects else (np.empty(0, np.intp), np.empty((0, 0), dtype))
    moment, second = np.zeros((d, r), dtype), np.zeros((r, r), dtype) if second_moment else None
    sums, most_made, most_moved, users, totals = (
        np.zeros((r, 3)),
        np.zeros(r),
        np.zeros(r),
        np.zeros(r, int),
        np.zeros(2),
    )
    for B in blocks(Y, size=size):
        X = coder(B, D)
        moment += B @ X.T
        if second is not None:
            second += X @ X.T
        users += np.count_nonzero(X, axis=1)
        squares = X * X
        made = np.vecdot(B.T, B.T)
        left = made - squares.sum(axis=0)
        if len(bent):
            left += (X[bent] * (E @ X[bent])).sum(axis=0)
        if not selects or left.sum() <= _CLEAR * np.finfo(dtype).eps * made.sum():
            rest = B - D @ X
            left = np.vecdot(rest.T, rest.T)
        left = np.maximum(left, 0)
        sums += squares @ np.stack([np.ones_like(made), made, left], axis=1)
        top = squares.max(axis=1)
        most_made = np.maximum(most_made, _most(squares, made, top, sums[:, 1]))
        most_moved = np.maximum(most_moved, _most(squares, left, top, sums[:, 2]))
        totals += made.sum(dtype=np.float64), left.sum(dtype=np.float64)
    energy, misfit = totals.tolist()
    energies, made, moved = sums.T
    return Swept(moment, second, energies.astype(dtype), users, energy, misfit, made, moved, most_made, most_moved)


def _most(squares: Floats, x: Floats, most: Floats, total: Floats) -> Floats:
    """Return a bound of the largest ``squares * x`` of each row: the cheap one, unless it is large for the total."""
    bound: Floats = most * x.max()
    return bound if (bound <= total / 4).all() else (squares * x).max(axis=1)


def _bend(D: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Return the atoms that are not orthonormal to all others, and D'D - I for these."""
    E = D.T @ D
    np.einsum("jj->j", E)[:] -= 1
    bent = np.flatnonzero(np.abs(E).max(axis=0, initial=0.0) > 10 * np.sqrt(len(D)) * np.finfo(D.dtype).eps)
    return bent, E[np.ix_(bent, bent)]
