r"""What a client tells of its membership of shared atoms: distances, no atoms.

White noise of variance :math:`\sigma^2` on every entry moves an atom, whose codes have the energy E, by about

.. math:: s = \sqrt{(d - 1)\, \sigma^2 / E}, \qquad
          \sigma^2 = \frac{\lVert Y - DX\rVert_F^2}{\text{observed entries} - \lVert X\rVert_0} .

The server compares distances with it, see ``perdl_server.algorithm.membership``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from common.dictionaries import atom_distances
from perdl_client.learning.local_update import LocalUpdate

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]

FAR = 2.0
"""Distance that stands for: no own atom in use. Different atoms of norm one are nearer."""

_USED = 0.1
"""An own atom is in use if its energy is at least this share of the median atom's."""


def evidence(new: LocalUpdate, members: Bools, global_dictionary: Floats) -> tuple[Floats, Floats]:
    """Return what the client tells of each shared atom after a local update.

    Parameters
    ----------
    new : LocalUpdate
        Result of the update.
    members : (r_g,) bool array
        The atoms that the client shares.
    global_dictionary : (d, r_g) array
        D^g as received.

    Returns
    -------
    spread : (r_g,) array
        Standard error of the client's atom; where it is no member, of its own atom nearest to D^g_j.
    nearest : (r_g,) array
        Where the client is no member, distance of D^g_j to this own atom, :data:`FAR` if none is in use; else 0.
    """
    d = len(global_dictionary)
    spread, nearest = (np.zeros(len(members), dtype=new.energies.dtype) for _ in range(2))
    spread[members] = _standard_error(new.noise, d, new.energies)
    others = np.flatnonzero(~members)
    energies = np.concatenate([new.energies, new.local_energies])
    used = np.flatnonzero(new.local_energies > _USED * np.median(energies)) if len(energies) else np.empty(0, dtype=int)
    nearest[others] = FAR
    if len(others) and len(used):
        distances = atom_distances(global_dictionary[:, others], new.local_dictionary[:, used])
        best = distances.argmin(axis=1)
        nearest[others] = np.minimum(distances.min(axis=1), FAR)
        spread[others] = _standard_error(new.noise, d, new.local_energies[used[best]])
    return spread, nearest


def _standard_error(variance: float, d: int, energies: Floats) -> Floats:
    """Return the standard errors, at most :data:`FAR`: an atom that nothing uses says nothing."""
    error: Floats = np.sqrt((d - 1) * variance / np.maximum(energies, np.finfo(energies.dtype).tiny))
    return np.minimum(error, FAR)
