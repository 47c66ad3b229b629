r"""An oracle: least squares with all clients' data in one place and all true codes known, which nobody can have.

.. math:: \min_{D^g, D^l_1, \dots, D^l_N} \sum_i \lVert Y_i - [D^g\ D^l_i] X^*_i\rVert_F^2

Noisy runs are compared with this bound. If only the supports were known, alternating least squares for codes and
dictionaries would be no bound: noise in the codes biases it. PerMA with orthonormal learners has no such bias and can
be better.
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
        Truth of each client; data, codes and r^g are used.

    Returns
    -------
    (d, r_g) array
        Atoms of unit norm.
    """
    d, r = truths[0].global_dictionary.shape
    left, right = np.zeros((d, r)), np.zeros((r, r))
    for t in truths:
        # Eliminate D^l_i: subtract from the global codes what the local codes explain of them.
        basis = np.linalg.qr(t.codes[r:].T).Q
        rest = t.codes[:r] - (t.codes[:r] @ basis) @ basis.T
        left += t.data @ rest.T
        right += rest @ t.codes[:r].T
    D = np.linalg.lstsq(right.T, left.T, rcond=None)[0].T
    norms = np.linalg.norm(D, axis=0)
    return np.asarray(D / np.where(norms > 0, norms, 1))
