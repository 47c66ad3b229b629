"""What no honest server sends as D^g: a guarded client refuses it before any work."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from common.protocol import ProtocolError

Floats = NDArray[np.floating]

LONGEST, SHORTEST = 100.0, 1e-6
"""Norms of D^g's atoms that are taken. Those of honest servers are near 1."""

PARALLEL, STRETCH = 1 - 1e-6, 1.1
"""Cosine of two atoms of D^g beyond which they have one direction, and the ratio of their lengths from which they are
scaled copies, which tell samples apart by a threshold. In honest runs atoms can become one, of one length."""


def check_received(D_g: Floats, who: str) -> None:
    """Refuse a D^g that no honest server sends.

    Parameters
    ----------
    D_g : (d, r_g) array
        D^g as received, all finite.
    who : str
        Name of the client, for errors.

    Raises
    ------
    ProtocolError
        If an atom is far too long or too short, or two differ in length and sign alone.
    """
    norms = np.linalg.norm(D_g, axis=0)
    if len(norms) and not SHORTEST <= norms.min() <= norms.max() <= LONGEST:
        j = int(norms.argmin() if norms.min() < SHORTEST else norms.argmax())
        raise ProtocolError(
            f"{who} was sent a D^g whose atom {j + 1} has the norm {norms[j]:.3g}, and takes {SHORTEST:g} to "
            f"{LONGEST:g}: an honest server sends none such; rescale the data (data.scale) if the run diverges"
        )
    U = D_g / norms
    cosines = np.abs(U.T @ U)
    np.fill_diagonal(cosines, 0)
    if not (parallel := cosines > PARALLEL).any():
        return
    copies = np.triu(parallel & (np.abs(np.log(norms[:, None] / norms)) > np.log(STRETCH)))
    if copies.any():
        i, j = divmod(int(copies.argmax()), len(copies))
        raise ProtocolError(
            f"{who} was sent a D^g whose atoms {i + 1} and {j + 1} are scaled copies, of the norms {norms[i]:.3g} and "
            f"{norms[j]:.3g}: an honest server sends none such; lower n_global if the run has fewer shared atoms"
        )
