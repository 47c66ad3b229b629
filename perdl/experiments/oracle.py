r"""What nobody can do: all clients' data in one place, and every code known with its support.

.. math:: \min_{D^g, D^l_1, \dots, D^l_N} \sum_i \lVert Y_i - [D^g\ D^l_i] X^*_i\rVert_F^2

The bound that noisy runs are held to. With the supports alone known, least squares in turn for codes and dictionaries
is no bound: noise in the codes biases it, and PerMA with orthonormal learners, which is not biased, passes below it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.synthetic import ClientTruth, Floats


def oracle_global_dictionary(truths: Sequence[ClientTruth]) -> Floats:
    """Return the oracle's D^g.

    Parameters
    ----------
    truths : sequence of ClientTruth
        Only data and codes are read.

    Returns
    -------
    (d, r_g) array
        Atoms of unit norm.
    """
    d, r = truths[0].global_dictionary.shape
    left, right = np.zeros((d, r)), np.zeros((r, r))
    for t in truths:
        # D^l_i is eliminated: what the local codes explain of the global ones is taken off them.
        basis = np.linalg.qr(t.codes[r:].T).Q
        rest = t.codes[:r] - (t.codes[:r] @ basis) @ basis.T
        left += t.data @ rest.T
        right += rest @ t.codes[:r].T
    D = np.linalg.lstsq(right.T, left.T, rcond=None)[0].T
    norms = np.linalg.norm(D, axis=0)
    return np.asarray(D / np.where(norms > 0, norms, 1))
