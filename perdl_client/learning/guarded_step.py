"""One step of any learner in which only atoms that pass the guard move, see :mod:`perdl_client.learning.guard`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from common.coders import Coder
from common.errors import SettingsError
from common.learners import Learner, Step
from perdl_client.learning.guard import Passed, column_energies, held, passed

Floats = NDArray[np.floating]


def guarded_step(
    learner: Learner, Y: Floats, D: Floats, coder: Coder, step_size: float, min_samples: int
) -> tuple[Step, Passed, Floats | None]:
    """Do one step of a learner in which only atoms that pass the guard move.

    Parameters
    ----------
    learner : Learner
        Whose step is done.
    Y : (d, n) array
        Samples in columns.
    D : (d, r) array
        Dictionary.
    coder : Coder
        Computes the codes.
    step_size : float
        Step size of the learner.
    min_samples : int
        Samples that must use an atom.

    Returns
    -------
    step : Step
        The atoms that may not move are the learner's for an atom that no sample uses: do not send them.
    passed : Passed
    codes : (r, n) array, optional
        The codes of all atoms in ``D``, before the guard; None if the step is not of such codes.
    """
    if learner.blocks:
        return _in_blocks(learner, Y, D, coder, step_size, min_samples)
    if learner.atom_by_atom:
        return _atom_by_atom(learner, Y, D, coder, step_size, min_samples)
    X = coder(Y, D)
    seen = passed(Y, D, X, min_samples)
    if learner.products:
        return learner.take(seen.rest, D, known(seen.codes), step_size, seen.product), seen, X
    root = np.sqrt(seen.weights).astype(X.dtype)  # a step of such samples is a step of weighted ones
    return learner.take(seen.rest * root, D, known(seen.codes * root, D), step_size), seen, X


def guarded(learner: Learner, min_samples: int) -> Learner:
    """Return a learner whose steps move only atoms that pass the guard.

    Parameters
    ----------
    learner : Learner
        The learner. Its steps then take single dictionaries, no stacks.
    min_samples : int
        Samples that must use an atom.
    """

    def step(Y: Floats, D: Floats, coder: Coder, step_size: float = 0.5) -> Step:
        return guarded_step(learner, Y, D, coder, step_size, min_samples)[0]

    return replace(learner, step=step, products=0)


@dataclass(frozen=True)
class Coded:
    """A coder that codes in another way, as with codes that are known already.

    Parameters
    ----------
    code : callable ``(Y, D) -> X``
        Returns the codes.
    number, penalty : float
        Not used.
    stacks : bool
        Not used.
    """

    code: Callable[[Floats, Floats], Floats]
    number: float = 0.0
    penalty: float = 0.0
    stacks: bool = False

    def warm(self, first: float | None, done: float) -> Coded:
        """Return itself.

        Parameters
        ----------
        first : float, optional
            Not used.
        done : float
            Not used.
        """
        return self

    def __call__(self, Y: Floats, D: Floats) -> Floats:
        """Return the codes (r, n)."""
        return self.code(Y, D)


def known(X: Floats, only: Floats | None = None) -> Coded:
    """Return a coder of samples whose codes are known already.

    Parameters
    ----------
    X : (r, n) array
        The codes.
    only : (d, r) array, optional
        The only dictionary for which they may be asked.

    Raises
    ------
    SettingsError
        When it is asked for another one.
    """

    def code(Y: Floats, D: Floats) -> Floats:
        if only is not None and D is not only:
            raise SettingsError(
                "a learner that codes in other dictionaries than it was given cannot be guarded: let it take `product` "
                'and enter how many `products` it takes (docs/extending.md), or set privacy = "none"'
            )
        return X

    return Coded(code)


def _in_blocks(
    learner: Learner, Y: Floats, D: Floats, coder: Coder, step_size: float, min_samples: int
) -> tuple[Step, Passed, Floats | None]:
    """Do a guarded step of a learner that codes and sums block by block: each block passes the guard alone."""
    moves = np.zeros(D.shape[1], dtype=bool)
    blocks: list[Passed] = []
    codes: Floats | None = None

    def code(B: Floats, D: Floats) -> Floats:
        nonlocal codes
        codes = coder(B, D)
        blocks[:] = [passed(B, D, codes, min_samples)]
        moves[blocks[0].moves] = True
        return blocks[0].codes

    def summed(A: Floats, X: Floats) -> Floats:
        return blocks[0].product(X if A is X else blocks[0].rest, X)

    step = learner.step(Y, D, Coded(code), step_size, summed)
    seen = Passed(moves, np.ones(Y.shape[1]), Y, np.zeros((0, 0), Y.dtype))
    return step, seen, None if step.codes is None else codes


def _atom_by_atom(
    learner: Learner, Y: Floats, D: Floats, coder: Coder, step_size: float, min_samples: int
) -> tuple[Step, Passed, Floats | None]:
    """Do a guarded step of a learner that codes anew for every atom, and sums with the signs of this atom's codes."""
    made, left = column_energies(Y), np.zeros(Y.shape[1])

    def code(Y: Floats, B: Floats) -> Floats:
        X = coder(Y, B)
        left[:] = column_energies(Y - B @ X)
        return X

    def summed(A: Floats, signs: Floats) -> Floats:
        may, weights = held(
            np.square(signs, dtype=np.float64), made, left, np.ones(1, dtype=bool), min_samples, A.dtype
        )
        return Passed(may, weights, Y, signs).product(A, np.where(may[:, None], signs, A.dtype.type(0)))

    step = learner.step(Y, D, Coded(code), step_size, summed)
    moves, X = (step.dictionary != D).any(axis=0), coder(Y, D) if step.codes is None else step.codes
    return step, Passed(moves, np.ones(Y.shape[1]), Y, X), X
