r"""A start from fourth powers: atoms of which most samples need none or little, and a few much.

.. math:: \max_{D^\top D = I} \; \sum_{js} (D^\top Y)_{js}^4, \qquad
          D \leftarrow \mathrm{Polar}(Y (X \circ X \circ X)^\top), \quad X = D^\top Y

Among directions of one energy, sparse codes have the largest fourth powers. The sum is convex, so each step maximises
its tangent, and it never falls; near a maximum the error is cubed from step to step. Of a planted dictionary it finds
the atoms where thresholds leave random starts stuck, from about twenty atoms on.

The fourth power of a long sample is all that counts, so samples longer than the median are shortened to it.

Source: Zhai, Yang, Liao, Wright and Ma 2020, "Complete dictionary learning via l4-norm maximization over the
orthogonal group", algorithm 2. Shortening is ours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from common.arrays import host, namespace
from common.polar import polar_factor
from perdl_client.learning.device import CPU, Device
from perdl_client.learning.missing import zero_filled

Floats = NDArray[np.floating]


def l4_start(Y: Floats, D: Floats, n_steps: int, device: Device = CPU) -> Floats:
    """Turn a dictionary to where the fourth powers of its codes are large.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns; NaN marks a missing entry, which counts as zero.
    D : (d, r) array
        Dictionary with orthonormal columns.
    n_steps : int
        Number of steps.
    device : Device
        Where it is computed.

    Returns
    -------
    (d, r) array with orthonormal columns
    """
    F, D = zero_filled(device.samples(Y)), device.put(D)
    xp = namespace(D)
    norms = xp.linalg.vector_norm(F, axis=0)
    median = float(np.median(host(norms)[host(norms) > 0])) if xp.any(norms > 0) else 1.0
    F = F * (median / xp.where(norms > median, norms, median))
    for _ in range(n_steps):
        X = D.mT @ F
        X = X / (float(xp.max(xp.abs(X))) or 1.0) if 0 not in X.shape else X
        D = polar_factor(F @ (X * X * X).mT, D)
    return host(D)
