r"""The guard: an atom moves only if enough samples use it and none makes up too much of what it becomes.

A server chooses D^g, learner and coder, so it can choose atoms that one sample alone moves. For atom j and sample s let

.. math:: t_s = (y_s - D x_s)\, x_{sj}, \qquad m_s = y_s\, x_{sj} .

:math:`\sum_s t_s` is what moves the atom, :math:`\sum_s m_s` what it is made of: every learner's step is a function of
these sums. (The projected learner has :math:`\mathrm{sign}(x_{sj})` in place of :math:`x_{sj}`, and its own codes
:math:`x_s` for every atom. The online learner sums block by block; each block passes alone, so sums of blocks do.)
The guard replaces them by :math:`\sum_s w_s t_s` and :math:`\sum_s w_s m_s`, with one weight for each sample in all its
terms, so that for each atom that moves

1. at least ``min_samples`` samples use it, and
2. no sample has more than the share :data:`SHARE` of :math:`\sum_s \lVert w_s t_s\rVert^2`, nor of
   :math:`\sum_s \lVert w_s m_s\rVert^2`.

The weights are found by lowering samples that dominate an atom, from 1. So an atom of many samples moves even if one of
them is large. An atom for which no weights are found does not move at all: its part of the samples, D_j x_j, is taken
off them, and the other atoms are fitted to the rest. For a global atom the client sends D^g's own column, for
``procrustes`` zero, and zero energy. No other atom goes on as this one (in algorithm 3 of the paper the nearest does).

**What it bounds.** If a sample's term is uncorrelated with the sum of the others, and these with each other, then

.. math:: \cos^2\Bigl(w_s t_s, \sum_u w_u t_u\Bigr) = \frac{\lVert w_s t_s\rVert^2}{\lVert w_s t_s\rVert^2
          + \lVert\sum_{u \ne s} w_u t_u\rVert^2} = \frac{\lVert w_s t_s\rVert^2}{\sum_u \lVert w_u t_u\rVert^2}
          \le \text{SHARE} ,

and likewise for :math:`m_s`. Samples that are alike have correlated terms: their sum is near to each of them, however
many they are, and near to other samples of their kind. The bound is of one message, and of the whole space: it says
nothing of differences between messages, nor of the part of a message off a subspace that the server knows.

**What it costs.** If all weights are 1 and all atoms move, all bits are as without it. Otherwise the sums are those of
samples that count less, as of :math:`\sqrt{w_s}\, y_s`, so without noise the true dictionary stays a fixed point.

If :math:`\sum \lVert t_s\rVert^2 \le (64\, \varepsilon)^2 \sum \lVert m_s\rVert^2` with the machine epsilon, an atom is
at rest but for rounding, and the shares of :math:`t_s` do not count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.learners import product

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]

SHARE = 0.5
"""Largest share of an atom's squared terms that one sample may have."""

_AIM = 0.98 * SHARE
"""Share to which the terms of a sample that has too much are lowered: less, so that few passes are needed."""

N_LARGEST = int(np.ceil(1 / _AIM))
"""Of how many terms of an atom it matters how large they are: more cannot have too much."""

PASSES = 8
"""Lowering a sample for one atom raises the others' shares in the rest. After so many passes, atoms for which a sample
still has too much do not move."""

ROUNDING = 64.0
"""Relative size of moves, in units of the machine epsilon, that are rounding."""


@dataclass(frozen=True)
class Passed:
    """What the guard lets into a step.

    Parameters
    ----------
    moves : (r,) bool array
        The atoms that may move.
    weights : (n,) array
        Weights of the samples, at most 1.
    rest : (d, n) array
        The samples without the parts of atoms that may not move.
    codes : (r, n) array
        The codes, zero for atoms that may not move.
    """

    moves: Bools
    weights: Floats
    rest: Floats
    codes: Floats

    @property
    def untouched(self) -> bool:
        """Whether all atoms may move, and all samples count in full."""
        return bool(self.moves.all() and (self.weights == 1).all())

    def product(self, A: Floats, X: Floats) -> Floats:
        """Return the sum over samples of ``weight * A[:, s] X[:, s]'``.

        Parameters
        ----------
        A : (d, n) array
            Samples, or codes.
        X : (r, n) array
            Codes.

        Returns
        -------
        (d, r) array
        """
        return product(A, X if (self.weights == 1).all() else X * self.weights.astype(X.dtype))


def passed(Y: Floats, D: Floats, X: Floats, min_samples: int) -> Passed:
    """Return what the guard lets into a step from dictionary ``D`` with codes ``X``.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns.
    D : (d, r) array
        Dictionary.
    X : (r, n) array
        Codes.
    min_samples : int
        Samples that must use an atom.

    Returns
    -------
    Passed
    """
    size = float(np.abs(X).max(initial=0.0))
    squares = np.square(X / (size if size > 0 else 1), dtype=np.float64)
    residuals = column_energies(Y - D @ X)
    moves, rest, codes = np.ones(len(X), dtype=bool), Y, X
    while True:
        left, weights = held(squares, column_energies(rest), residuals, moves, min_samples, X.dtype)
        if np.array_equal(left, moves):
            return Passed(moves, weights, rest, codes)
        # Without an atom's part, samples are shorter, so shares are others. The residuals stay.
        moves = left
        rest, codes = Y - D[:, ~moves] @ X[~moves], np.where(moves[:, None], X, X.dtype.type(0))


def made_of_many(Y: Floats, X: Floats, min_samples: int) -> Bools:
    """Return which atoms enough samples use, and none makes up, each counting in full.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns.
    X : (r, n) array
        Codes.
    min_samples : int
        Samples that must use an atom.

    Returns
    -------
    (r,) bool array
    """
    made = np.square(X, dtype=np.float64) * column_energies(Y)
    enough = np.count_nonzero(X, axis=1) >= max(min_samples, 1)
    return np.asarray(enough & (made.max(axis=1, initial=0.0) <= SHARE * made.sum(axis=1)))


def rounded(value: float) -> float:
    """Return a number rounded to three significant digits: exact ones tell how many samples crossed a threshold.

    Parameters
    ----------
    value : float
        What is sent.
    """
    return float(f"{value:.3g}")


def held(
    squares: Floats, made: Floats, moved: Floats, moves: Bools, min_samples: int, dtype: np.dtype[np.floating]
) -> tuple[Bools, Floats]:
    """Return which of the atoms that move still do, and the samples' weights.

    Parameters
    ----------
    squares : (r, n) array
        Squared codes, in any unit.
    made, moved : (n,) array
        Squared norms of the samples, and of what their codes leave of them.
    moves : (r,) bool array
        The atoms that move.
    min_samples : int
        Samples that must use an atom.
    dtype : numpy.dtype
        Type of the samples: its rounding is no move.

    Returns
    -------
    (r,) bool array, (n,) array
    """
    moves = moves & (np.count_nonzero(squares, axis=1) >= max(min_samples, 1))
    kinds = [squares * made]
    terms = squares * moved
    resting = terms.sum(axis=1) <= (ROUNDING * float(np.finfo(dtype).eps)) ** 2 * kinds[0].sum(axis=1)
    if not resting.all():
        terms[resting] = 0
        kinds.append(terms)
    kept = np.ones(squares.shape[1])  # squares of the weights
    for k in range(PASSES + 1):
        before = kept
        for one in kinds:
            E = one * kept
            bad = moves & (E.max(axis=1, initial=0.0) > SHARE * E.sum(axis=1))
            if not bad.any():
                continue
            levels = _levels_of(E[bad]) if k < PASSES else np.zeros(np.count_nonzero(bad))
            moves = moves.copy()
            moves[bad] = levels > 0
            if k < PASSES:
                over = E[bad] / np.where(levels > 0, levels, np.inf)[:, None]
                kept = kept / over.max(axis=0, initial=1.0)
        if kept is before:
            break
    return moves, np.sqrt(kept)


def _levels_of(E: Floats) -> Floats:
    return cut_levels(n_largest(E, min(N_LARGEST, E.shape[1])), E.sum(axis=1))


def cut_levels(top: Floats, total: Floats) -> Floats:
    """Return for each atom the level to which its largest terms must be cut; 0 if that cannot help.

    It is the a with ``a = share * sum(min(E, a))``: with the m largest cut, ``a = share * (m a + rest)``.

    Parameters
    ----------
    top : (r, m) array
        The largest squared terms of each atom, falling: :data:`N_LARGEST` of them, or all if there are fewer.
    total : (r,) array
        Sum of all its terms.
    """
    rest, levels = total, np.zeros(len(top))
    for m in range(1, top.shape[1]):
        rest = np.maximum(rest - top[:, m - 1], 0)
        level = _AIM * rest / (1 - m * _AIM)
        levels = np.where((levels == 0) & (level >= top[:, m]) & (top[:, m] > 0), level, levels)
    return levels


def n_largest(E: Floats, m: int) -> Floats:
    """Return the m largest numbers of each row, falling.

    Parameters
    ----------
    E : (r, n) array
        Numbers, n of which are m or more.
    m : int
        How many.
    """
    part = np.partition(E, E.shape[1] - m, axis=1)[:, E.shape[1] - m :]
    top: Floats = -np.sort(-part, axis=1)
    return top


def column_energies(A: Floats) -> Floats:
    """Return the squared norms of the columns, (n,).

    Parameters
    ----------
    A : (d, n) array
        Columns.
    """
    return np.asarray(np.einsum("ij,ij->j", A, A, dtype=np.float64))
