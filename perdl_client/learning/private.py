r"""Differential privacy: every sum over samples from which a dictionary is made is clipped and made noisy.

A learner's step sees the samples only through :math:`\sum_s y_s x_s^\top` and :math:`\sum_s x_s x_s^\top`
(:mod:`common.learners`). Each is released as

.. math:: \sum_s \bar a_s \bar x_s^\top + z C^2 G, \qquad \bar v = v \min(1, C / \lVert v\rVert),
          \qquad G_{ij} \sim \mathcal N(0, 1)

with the clip C. If one sample is replaced by zero, the sum changes by :math:`\bar a_s \bar x_s^\top`, whose Frobenius
norm is at most :math:`C^2`: codes of a sample depend on this sample and on the dictionary only. So each release is a
Gaussian mechanism of multiplier z. First dictionary, rounds, what is sent and the client's own dictionary follow from
these releases and from what the server sends: post-processing. :func:`releases` counts them.

A learner that sums block by block would need noise for each block: the coordinate learner takes its place. What would
look at samples in another way is off: restarts chosen by their objective, the search for atoms in use, wild entries,
means and scales of a client's own data, and all measured scalars in messages.

Source: Dwork and Roth 2014, "The algorithmic foundations of differential privacy", appendix A and proposition 2.1;
Kairouz et al. 2021, "Practical and private (deep) learning without sampling or shuffling", definition 1.1 (a sample
replaced by zero).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from common.keystream import derived, normal
from common.learners import LEARNERS
from common.learning_settings import LearningSettings

Floats = NDArray[np.floating]


class PrivateProduct:
    """Computes ``A X'`` with clipped columns and noise, instead of :func:`common.learners.product`.

    Parameters
    ----------
    clip : float
        C, the longest sample and the longest code, in the data's units.
    multiplier : float
        z, the noise in units of the sensitivity of one release.
    key : bytes
        Known to the client alone.
    purpose : str
        What the releases are for, as "run ab12, round 3": the same purpose draws the same noise.
    """

    def __init__(self, clip: float, multiplier: float, key: bytes, purpose: str) -> None:
        self.clip, self.multiplier = clip, multiplier
        self._key, self._purpose, self.released = key, purpose, 0

    def __call__(self, A: Floats, X: Floats) -> Floats:
        """Return the noisy sum.

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
        self.released += 1
        total = clipped(A, self.clip) @ clipped(X, self.clip).T
        G = normal(derived(self._key, f"noise {self._purpose} {self.released}"), total.shape)
        if A is X:  # a symmetric sum: the lower half repeats the upper
            G = np.triu(G) + np.triu(G, 1).T
        return total + (self.multiplier * self.clip**2 * G).astype(total.dtype)


def clipped(A: Floats, clip: float) -> Floats:
    """Return columns, those that are longer than the clip shortened to it.

    Parameters
    ----------
    A : (d, n) array
        Columns.
    clip : float
        Longest column.
    """
    norms = np.linalg.norm(A, axis=0)
    return A * np.minimum(1, clip / np.where(norms > 0, norms, 1)).astype(A.dtype)


def private_learning(learning: LearningSettings) -> LearningSettings:
    """Return settings without the choices that look at all samples in other ways than by noisy sums.

    Parameters
    ----------
    learning : LearningSettings
        The client's settings.
    """
    learner = "coordinate" if LEARNERS[learning.learner].blocks else learning.learner
    return learning.model_copy(update={"n_restarts": 1, "local_restarts": 0, "outliers": "keep", "learner": learner})


def releases(learning: LearningSettings, rounds: int) -> int:
    """Return K, how many noisy sums a run needs at most.

    Parameters
    ----------
    learning : LearningSettings
        The client's settings.
    rounds : int
        Rounds of the run.
    """
    a_step = LEARNERS[learning.learner].products
    warmup = 0 if learning.start == "random" else learning.warmup_steps * a_step
    first = 1 if learning.start in ("svd", "samples") else 0
    return first + warmup + rounds * (learning.local_steps + learning.refine_steps) * a_step
