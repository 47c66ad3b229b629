r"""The guard over blocks of samples: what :mod:`perdl_client.learning.guard` finds, without the codes of all samples.

It looks for weights in the same way. Of each atom it needs the sum of its samples' squared terms and the largest of
them, and of each sample its weight and two squared norms, so codes are computed anew in every pass, a block at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.blocks import Columns, blocks
from common.coders import Coder
from perdl_client.learning.guard import (
    N_LARGEST,
    PASSES,
    ROUNDING,
    SHARE,
    column_energies,
    cut_levels,
    n_largest,
)

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Movable:
    """What the guard lets into a step.

    Parameters
    ----------
    moves : (r,) bool array
        The atoms that may move.
    weights : (n,) array
        Weights of the samples, at most 1.
    """

    moves: Bools
    weights: Floats


def movable(Y: Columns, D: Floats, coder: Coder, min_samples: int) -> Movable:
    """Return what the guard lets into a step from dictionary ``D``.

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns, complete.
    D : (d, r) array
        Dictionary.
    coder : Coder
        Computes the codes.
    min_samples : int
        Samples that must use an atom.

    Returns
    -------
    Movable
    """
    moves = np.ones(D.shape[1], bool)
    while True:
        left, weights = _held(Y, D, coder, moves, min_samples)
        if np.array_equal(left, moves):
            return Movable(moves, weights)
        moves = left  # without an atom's part, samples are shorter, so shares are others


def weighted_sums(Y: Columns, D: Floats, coder: Coder, seen: Movable) -> tuple[Floats, Floats]:
    """Return Y X' and X X' of what the guard lets into a step.

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns, complete.
    D : (d, r) array
        Dictionary.
    coder : Coder
        Computes the codes.
    seen : Movable
        What the guard found.

    Returns
    -------
    (d, r) array, (r, r) array
    """
    (d, r), dtype = D.shape, Y.dtype
    moment, second = np.zeros((d, r), dtype), np.zeros((r, r), dtype)
    for places, B, X in _coded(Y, D, coder):
        rest, codes = _without(B, D, X, seen.moves)
        weighted = codes * seen.weights[places].astype(dtype)
        moment += rest @ weighted.T
        second += codes @ weighted.T
    return moment, second


def _coded(Y: Columns, D: Floats, coder: Coder) -> Iterator[tuple[slice, Floats, Floats]]:
    begin = 0
    for B in blocks(Y, D.shape[1]):
        end = begin + B.shape[1]
        yield slice(begin, end), B, coder(B, D)
        begin = end


def _without(B: Floats, D: Floats, X: Floats, moves: Bools) -> tuple[Floats, Floats]:
    """Return a block of samples without the parts of atoms that may not move, and its codes."""
    if moves.all():
        return B, X
    return B - D[:, ~moves] @ X[~moves], np.where(moves[:, None], X, X.dtype.type(0))


def _held(Y: Columns, D: Floats, coder: Coder, before: Bools, min_samples: int) -> tuple[Bools, Floats]:
    """Return which of the atoms that moved ``before`` still do, and the samples' weights.

    The atoms that did not move before have no part in the samples.
    """
    n, r = Y.shape[1], D.shape[1]
    made, residuals, users, kept = np.empty(n), np.empty(n), np.zeros(r, np.intp), np.ones(n)  # squares of the weights
    sizes, terms, known = (made, residuals), [_Terms(r, n) for _ in range(2)], kept
    for places, B, X in _coded(Y, D, coder):
        made[places], residuals[places] = column_energies(_without(B, D, X, before)[0]), column_energies(B - D @ X)
        users += np.count_nonzero(X, axis=1)
        squares = np.square(X, dtype=np.float64)
        for one, size in zip(terms, sizes, strict=True):
            one.add(squares * size[places])
    moves = before & (users >= max(min_samples, 1))
    resting = terms[1].total <= (ROUNDING * float(np.finfo(Y.dtype).eps)) ** 2 * terms[0].total
    for k in range(PASSES + 1):
        start = kept
        for kind, size in enumerate(sizes):
            if known is not kept:
                terms, known = _terms(Y, D, coder, sizes, kept), kept
            one = terms[kind]
            bad = moves & (one.largest[:, 0] > SHARE * one.total)
            if kind == 1:
                bad &= ~resting
            if not bad.any():
                continue
            levels = cut_levels(one.largest[bad], one.total[bad]) if k < PASSES else np.zeros(np.count_nonzero(bad))
            moves = moves.copy()
            moves[bad] = levels > 0
            if k < PASSES:
                levels = np.where(levels > 0, levels, np.inf)[:, None]
                over = np.empty(Y.shape[1])
                for places, _, X in _coded(Y, D, coder):
                    E = np.square(X[bad], dtype=np.float64) * (size * kept)[places]
                    over[places] = (E / levels).max(axis=0, initial=1.0)
                kept = kept / over
        if kept is start:
            break
    return moves, np.sqrt(kept)


class _Terms:
    """Sums (r,) of the atoms' squared terms over blocks, and the largest of them (r, m), falling."""

    def __init__(self, r: int, n: int) -> None:
        self.total, self.largest = np.zeros(r), np.full((r, min(N_LARGEST, n)), -np.inf)

    def add(self, E: Floats) -> None:
        self.total += E.sum(axis=1)
        rows = np.flatnonzero(E.max(axis=1) > self.largest[:, -1])
        self.largest[rows] = n_largest(np.hstack([self.largest[rows], E[rows]]), self.largest.shape[1])


def _terms(Y: Columns, D: Floats, coder: Coder, sizes: tuple[Floats, ...], kept: Floats) -> list[_Terms]:
    """Return the squared terms for each kind of size of the samples, in one pass."""
    found = [_Terms(D.shape[1], Y.shape[1]) for _ in sizes]
    for places, _, X in _coded(Y, D, coder):
        squares = np.square(X, dtype=np.float64) * kept[places]
        for one, size in zip(found, sizes, strict=True):
            one.add(squares * size[places])
    return found
