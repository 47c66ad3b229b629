r"""Sparse coders: given samples and a dictionary, find codes with few nonzeros.

.. math:: Y \approx D X, \qquad X \text{ sparse}

A coder is a small frozen object: calling it with ``(Y, D)`` returns ``X``. Its ``penalty`` is the cost of one nonzero
in its objective, by which starts are compared. For a hard threshold it is ``zeta**2``, because HT is the exact
minimiser of :math:`\lVert Y - DX\rVert_F^2 + \zeta^2 \lVert X\rVert_0` for orthonormal ``D``. To add a coder, write
such a class and enter it in :data:`CODERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from common.arrays import namespace, places_of_largest, put_along
from common.pursuit import ols, omp

__all__ = [
    "CODERS",
    "OLS",
    "OMP",
    "SELECTING",
    "Coder",
    "CoderKind",
    "HardThreshold",
    "ThresholdOMP",
    "TopK",
    "hard_threshold",
    "ols",
    "omp",
    "top_k",
]

Floats = NDArray[np.floating]


class Coder(Protocol):  # numpydoc ignore=PR01
    """Interface of a coder.

    Attributes
    ----------
    number : float
        Its one parameter: a threshold, or a number of atoms.
    penalty : float
        Cost of one nonzero in its objective.
    stacks : bool
        Whether it accepts stacks of dictionaries, (..., d, r).
    """

    @property
    def number(self) -> float: ...  # noqa: D102

    @property
    def penalty(self) -> float: ...  # noqa: D102

    @property
    def stacks(self) -> bool: ...  # noqa: D102

    def warm(self, first: float | None, done: float) -> Self:
        """Return the coder of a warm-up step.

        Parameters
        ----------
        first : float, optional
            Threshold of the first step, in the data's units. Default: 5 times the coder's own.
        done : float
            Finished share of the warm-up, 0 to 1. At 1 the coder itself is returned.
        """
        ...

    def __call__(self, Y: Floats, D: Floats) -> Floats:
        """Return codes (r, n) for samples (d, n) and a dictionary (d, r)."""
        ...


@dataclass(frozen=True)
class HardThreshold:
    """``X = HT_threshold(D'Y)``: keeps the correlations whose size is at least the threshold.

    Parameters
    ----------
    number : float
        The threshold, in the data's units.
    stacks : bool
        Whether it accepts stacks of dictionaries, (..., d, r).
    """

    number: float
    stacks: bool = True

    @property
    def penalty(self) -> float:
        """``threshold**2`` for each nonzero."""
        return self.number**2

    def warm(self, first: float | None, done: float) -> Self:
        """Return a coder whose threshold lies between ``first`` and its own, on a geometric schedule.

        Parameters
        ----------
        first : float, optional
            Threshold of the first step; default 5 times the coder's own.
        done : float
            Finished share of the warm-up, 0 to 1.
        """
        if self.number == 0:
            return self
        ratio = 5.0 if first is None else first / self.number
        return replace(self, number=self.number * max(ratio, 1.0) ** (1 - done))

    def __call__(self, Y: Floats, D: Floats) -> Floats:
        """Return codes (r, n)."""
        return hard_threshold(D.mT @ Y, self.number)


@dataclass(frozen=True)
class TopK:
    """Keeps the ``k`` largest correlations of each sample.

    Parameters
    ----------
    number : int
        k, the most atoms a sample may use.
    penalty : float
        Cost of one nonzero in the objective.
    stacks : bool
        Whether it accepts stacks of dictionaries, (..., d, r).
    """

    number: int
    penalty: float = 0.0
    stacks: bool = True

    def warm(self, first: float | None, done: float) -> Self:
        """Return itself: there is no threshold to shrink.

        Parameters
        ----------
        first : float, optional
            Not used.
        done : float
            Not used.
        """
        return self

    def __call__(self, Y: Floats, D: Floats) -> Floats:
        """Return codes (r, n)."""
        return top_k(D.mT @ Y, self.number)


@dataclass(frozen=True)
class OMP:
    """Orthogonal matching pursuit with at most ``k`` atoms a sample.

    Parameters
    ----------
    number : int
        k, the most atoms a sample may use.
    penalty : float
        Cost of one nonzero in the objective.
    stacks : bool
        Whether it accepts stacks of dictionaries, (..., d, r).
    """

    number: int
    penalty: float = 0.0
    stacks: bool = False

    def warm(self, first: float | None, done: float) -> Self:
        """Return itself: there is no threshold to shrink.

        Parameters
        ----------
        first : float, optional
            Not used.
        done : float
            Not used.
        """
        return self

    def __call__(self, Y: Floats, D: Floats) -> Floats:
        """Return codes (r, n)."""
        return omp(Y, D, self.number)


@dataclass(frozen=True)
class OLS(OMP):
    """Orthogonal least squares with at most ``k`` atoms a sample: each atom taken lowers the error most.

    Parameters
    ----------
    number : int
        k, the most atoms a sample may use.
    penalty : float
        Cost of one nonzero in the objective.
    stacks : bool
        Whether it accepts stacks of dictionaries, (..., d, r).
    """

    def __call__(self, Y: Floats, D: Floats) -> Floats:
        """Return codes (r, n)."""
        return ols(Y, D, self.number)


@dataclass(frozen=True)
class ThresholdOMP(HardThreshold):
    """Orthogonal matching pursuit until no atom is correlated with the residual by more than the threshold.

    For atoms that are not orthogonal it is what `HardThreshold` is for others: a sample uses as many atoms as it needs.

    Parameters
    ----------
    number : float
        The threshold, in the data's units.
    stacks : bool
        Whether it accepts stacks of dictionaries, (..., d, r).
    """

    stacks: bool = False

    def __call__(self, Y: Floats, D: Floats) -> Floats:
        """Return codes (r, n)."""
        return omp(Y, D, len(Y), self.number)


@dataclass(frozen=True)
class CoderKind:
    """A coder and the setting that gives its number.

    Parameters
    ----------
    make : callable ``number -> Coder``
        Builds the coder.
    setting : {"threshold", "n_nonzero"}
        ``threshold`` is in the units of ``threshold_unit``; ``n_nonzero`` is at most the number of atoms.
    """

    make: Callable[[float], Coder]
    setting: Literal["threshold", "n_nonzero"]


CODERS: dict[str, CoderKind] = {
    "hard-threshold": CoderKind(HardThreshold, "threshold"),
    "top-k": CoderKind(lambda k: TopK(int(k)), "n_nonzero"),
    "omp": CoderKind(lambda k: OMP(int(k)), "n_nonzero"),
    "ols": CoderKind(lambda k: OLS(int(k)), "n_nonzero"),
    "omp-threshold": CoderKind(ThresholdOMP, "threshold"),
}
"""Coders by name, as in the setting ``coder``."""

SELECTING = (HardThreshold, TopK)
"""Coders whose codes are the correlations D'Y, some of them set to zero. (Their subclasses need not do so.)"""


def hard_threshold(A: Floats, threshold: float) -> Floats:
    """Keep the entries of size ``threshold`` or more, set the others to zero.

    Parameters
    ----------
    A : array
        Correlations, of any shape.
    threshold : float
        Smallest size that is kept, in the units of ``A``.

    Returns
    -------
    array of ``A``'s shape and type
    """
    xp = namespace(A)
    kept: Floats = xp.where(xp.abs(A) >= threshold, A, 0)
    return kept


def top_k(A: Floats, k: int) -> Floats:
    """Keep the ``k`` entries of largest size in each column, set the others to zero.

    Parameters
    ----------
    A : (..., r, n) array
        Correlations; each column belongs to one sample.
    k : int
        How many entries of each column are kept, at least 0; ``r`` or more keeps everything.

    Returns
    -------
    array of ``A``'s shape
    """
    xp, r = namespace(A), A.shape[-2]
    if k >= r:
        whole: Floats = xp.asarray(A, copy=True)
        return whole
    if xp is np and A.ndim == 2 and k > 0:
        sizes = np.abs(A.T, order="C")  # a sample's codes side by side
        least = np.partition(sizes, r - k, axis=1)[:, r - k]
        large = (sizes >= least[:, None]).T
        if np.count_nonzero(large) == k * A.shape[1]:  # no two are of one size, of which one is kept
            return np.where(large, A, A.dtype.type(0))
    out: Floats = xp.zeros_like(A)
    if k > 0:
        kept = places_of_largest(xp.abs(A), k)
        put_along(out, kept, xp.take_along_axis(A, kept, axis=-2))
    return out
