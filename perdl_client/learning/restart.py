r"""Restart of a local block that is stuck.

A start in a wrong basin leaves some of a client's atoms wrong. The other clients correct D^g, but the local block can
stay wrong: it is a fixed point of the learner, and its objective

.. math:: \lVert Y - DX\rVert_F^2 + \text{penalty} \cdot \lVert X\rVert_0

is not minimal. The client detects this alone, without messages: its objective no longer falls, and a random start of
the local block in the residual :math:`(I - P_{D^g}) Y` finds a lower one. The error alone does not show it: a wrong
block may explain every sample, but with more atoms than needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.learners import LEARNERS
from common.learning_settings import LearningSettings
from common.statistics import rms
from perdl_client.learning.alignment import retract
from perdl_client.learning.device import CPU, Device
from perdl_client.learning.initialization import schedule
from perdl_client.learning.missing import complete
from perdl_client.learning.warm_up import best_warm_up, objective

Floats = NDArray[np.floating]

_CLEARLY = 0.99
"""An objective above this share of the former one has not fallen. Noise changes it by less, a wrong basin by more."""


@dataclass(frozen=True)
class Watch:
    """What a client remembers to notice that it is stuck.

    Parameters
    ----------
    objective, previous : float
        Objectives of the last two rounds.
    next_try : int
        Round before which no restart is tried.
    wait : int
        Rounds to wait after the next restart that finds nothing better; it doubles each time.
    """

    objective: float = np.inf
    previous: float = np.inf
    next_try: int = 0
    wait: int = 4

    def stalled(self, t: int) -> bool:
        """Return whether the objective no longer falls and a restart may be tried.

        Parameters
        ----------
        t : int
            Round, from 1.
        """
        return t >= self.next_try and 0 < self.objective < np.inf and self.objective > _CLEARLY * self.previous


NOTHING_SEEN = Watch()
"""The watch of a client that begins, or whose local block is new."""


def restart_local_dictionary(
    Y: Floats,
    global_dictionary: Floats,
    local_dictionary: Floats,
    learning: LearningSettings,
    rng: np.random.Generator,
    device: Device = CPU,
) -> Floats | None:
    """Look for a better local block, from random starts in the residual of D^g.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns.
    global_dictionary : (d, r_g) array
        D^g as received.
    local_dictionary : (d, r_l) array
        The present local block.
    learning : LearningSettings
        Gives the number of starts, ``local_restarts``; each is warmed up like a first dictionary.
    rng : numpy.random.Generator
        Random stream of this restart.
    device : Device
        As in :func:`.local_update.local_update`.

    Returns
    -------
    (d, r_l) array, or None
        None if no start leads to a lower objective.
    """
    r_g, r_l = global_dictionary.shape[1], local_dictionary.shape[1]
    if r_l == 0 or r_g >= len(Y):
        return None
    learner, coder = LEARNERS[learning.learner], learning.make_coder(rms(Y))
    # Work in coordinates of D^g's complement, so that random atoms do not overlap with D^g.
    basis = np.linalg.qr(global_dictionary, mode="complete").Q[:, r_g:] if r_g else np.eye(len(Y), dtype=Y.dtype)
    found = best_warm_up(
        basis.T @ complete(Y, np.hstack([global_dictionary, local_dictionary]), coder),
        r_l,
        learner,
        coder,
        rng,
        n_restarts=learning.local_restarts,
        device=device,
        **schedule(learning, rms(Y)),
    )
    D = basis @ found
    if learner.orthonormal:
        D = retract(global_dictionary, D)
    present, new = (objective(Y, np.hstack([global_dictionary, block]), coder) for block in (local_dictionary, D))
    return D if new < _CLEARLY * present else None
