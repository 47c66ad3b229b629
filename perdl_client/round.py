r"""One round of one client: refine, restart the local block if it is stuck, one local update.

A start in a wrong basin leaves some of a client's atoms wrong. D^g comes right with the other clients' help, and what
stays wrong is the local block: a fixed point of the learner with the objective

.. math:: \lVert Y - DX\rVert_F^2 + \text{penalty} \cdot \lVert X\rVert_0

above its least. The evidence is the client's own and leaves no trace in any message: its objective no longer falls, and
a random start of the local block in the residual :math:`(I - P_{D^g}) Y` finds a lower one. The error alone is no
evidence: a wrong block may explain every sample, with more atoms than it takes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from common.settings import LearningSettings
from common.streams import stream
from perdl_client.learners import LEARNERS
from perdl_client.local_update import LocalUpdate, local_update, refine_local_dictionary, retract
from perdl_client.start import best_warm_up, objective, rms, schedule

Floats = NDArray[np.floating]

_CLEARLY = 0.99
"""A share of the objective: to fall by less is to stand still. Noise moves it by less, a wrong basin by more."""


@dataclass(frozen=True)
class Watch:
    """What a client remembers to see that it is stuck.

    Attributes
    ----------
    objective, previous : float
        Of the last two rounds.
    next_try : int
        Round before which no restart is tried.
    wait : int
        Rounds to wait after the next restart that finds nothing better; doubles each time.
    """

    objective: float = np.inf
    previous: float = np.inf
    next_try: int = 0
    wait: int = 4

    def stalled(self, t: int) -> bool:
        """Whether the objective stands still, and it is time for another try."""
        return t >= self.next_try and 0 < self.objective < np.inf and self.objective > _CLEARLY * self.previous


NOTHING_SEEN = Watch()
"""Of a client that begins, or whose local block is new."""


def client_round(
    Y: Floats,
    global_dictionary: Floats,
    local_dictionary: Floats,
    learning: LearningSettings,
    watch: Watch,
    t: int,
    seed: int,
    name: str,
) -> tuple[LocalUpdate, Watch]:
    """Do what a client does in round ``t`` between receiving D^g and sending its own global atoms.

    Parameters
    ----------
    Y : (d, n) array
    global_dictionary : (d, r_g) array
        As received.
    local_dictionary : (d, r_l) array
        The client's own, off D^g where the learner is orthonormal.
    learning : LearningSettings
    watch : Watch
    t : int
        Round, from 1.
    seed : int
    name : str
        The client's stable id; with ``seed`` and ``t`` it names the random stream of a restart.

    Returns
    -------
    LocalUpdate, Watch
    """
    learner, coder = LEARNERS[learning.learner], learning.make_coder(rms(Y))
    D_g, D_l = global_dictionary, local_dictionary
    D_l = refine_local_dictionary(Y, D_g, D_l, learner, coder, learning.refine_steps, learning.step_size)
    if learning.local_restarts and watch.stalled(t):
        other = restart_local_dictionary(Y, D_g, D_l, learning, stream(seed, name, f"restart {t}"))
        if other is None:
            watch = replace(watch, next_try=t + watch.wait, wait=2 * watch.wait)
        else:
            D_l, watch = other, NOTHING_SEEN
    new = local_update(Y, D_g, D_l, learner, coder, learning.step_size)
    return new, replace(watch, objective=new.objective, previous=watch.objective)


def restart_local_dictionary(
    Y: Floats,
    global_dictionary: Floats,
    local_dictionary: Floats,
    learning: LearningSettings,
    rng: np.random.Generator,
) -> Floats | None:
    """Look for a better local block from random starts in what D^g leaves over.

    Parameters
    ----------
    Y : (d, n) array
    global_dictionary : (d, r_g) array
    local_dictionary : (d, r_l) array
        The present one.
    learning : LearningSettings
        ``local_restarts`` random starts, each warmed up as the client's first dictionary was.
    rng : numpy.random.Generator

    Returns
    -------
    (d, r_l) array, or None
        None if no start leads to a lower objective.
    """
    r_g, r_l = global_dictionary.shape[1], local_dictionary.shape[1]
    if r_l == 0 or r_g >= len(Y):
        return None
    learner, coder = LEARNERS[learning.learner], learning.make_coder(rms(Y))
    # The complement of D^g in coordinates of its own, so that no random atom is wasted on what D^g explains.
    basis = np.linalg.qr(global_dictionary, mode="complete").Q[:, r_g:] if r_g else np.eye(len(Y), dtype=Y.dtype)
    found = best_warm_up(
        basis.T @ Y, r_l, learner, coder, rng, n_restarts=learning.local_restarts, **schedule(learning, Y)
    )
    D = basis @ found
    if learner.orthonormal:
        D = retract(global_dictionary, D)
    present, new = (objective(Y, np.hstack([global_dictionary, block]), coder) for block in (local_dictionary, D))
    return D if new < _CLEARLY * present else None
