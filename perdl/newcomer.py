"""How a client that was not in the federation comes to a model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from common.settings import LearningSettings
from perdl_client.learners import LEARNERS
from perdl_client.local_update import retract
from perdl_client.round import NOTHING_SEEN, client_round
from perdl_client.start import first_dictionary
from perdl_server.matching import align

Floats = NDArray[np.floating]


def newcomer(
    Y: Floats,
    global_dictionary: Floats,
    learning: LearningSettings,
    seed: int,
    name: str,
    *,
    rounds: int,
    tolerance: float,
) -> Floats:
    """Learn the local dictionary of a client that was not in the federation, which keeps its D^g.

    It begins as every client does, gives up the atoms that are nearest to D^g, and takes rounds of its own until its
    local atoms rest. Nothing is sent.

    Parameters
    ----------
    Y : (d, n) array
    global_dictionary : (d, r_g) array
    learning : LearningSettings
        With ``n_atoms`` (default d) at least r^g.
    seed : int
    name : str
    rounds : int
        At most.
    tolerance : float
        Largest move of an atom that counts as rest.

    Returns
    -------
    (d, r_l) array
    """
    D = first_dictionary(Y, learning, seed, name)
    shared, _ = align(global_dictionary, D)
    D_l, watch = np.delete(D, shared, axis=1), NOTHING_SEEN
    orthonormal = LEARNERS[learning.learner].orthonormal
    for t in range(1, rounds + 1):
        D_l = retract(global_dictionary, D_l) if orthonormal else D_l
        new, watch = client_round(Y, global_dictionary, D_l, learning, watch, t, seed, name)
        change = np.linalg.norm(new.local_dictionary - D_l, axis=0).max(initial=0.0)
        D_l = new.local_dictionary
        if change <= tolerance:
            break
    return retract(global_dictionary, D_l) if orthonormal else D_l
