r"""Personalized PCA: principal components that all clients share, and each client's own.

.. math:: \max_{U, V_1, \dots, V_N} \sum_i \operatorname{tr}(U^\top S_i U) + \operatorname{tr}(V_i^\top S_i V_i)
          \quad\text{so that } [U\ V_i]^\top [U\ V_i] = I, \qquad S_i = Y_i Y_i^\top / n_i

Its model is :math:`Y_i = U A_i + V_i B_i` with dense codes: personalized dictionary learning without sparsity.

Source: Shi and Al Kontar, "Personalized PCA: Decoupling Shared and Unique Features", JMLR 25, 2024: distributed
gradient ascent on the Stiefel manifold with a polar retraction, and the correction of every V_i off the new U.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.errors import DataError, SettingsError
from common.polar import polar_factor

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class PersonalizedPCA:
    """Shared components, and each client's own.

    Parameters
    ----------
    global_components : (d, r_g) array
        U, orthonormal. Only its span is determined.
    local_components : list of (d, r_l) arrays
        V_i, orthonormal and orthogonal to U.
    explained : list of float
        The objective at the start and after every round.
    """

    global_components: Floats
    local_components: list[Floats]
    explained: list[float]


def personalized_pca(
    datasets: Sequence[Floats], n_global: int, n_local: int, n_rounds: int, step_size: float
) -> PersonalizedPCA:
    r"""Find shared and own principal components by distributed gradient ascent.

    With :math:`W_i = [U\ V_i]` and :math:`[G^U_i\ G^V_i] = (I - W_i W_i^\top) S_i W_i`, a round is

    .. math:: V_i \leftarrow \mathrm{Polar}(V_i + \eta G^V_i), \qquad
              U \leftarrow \mathrm{Polar}\Bigl(\frac1N \sum_i (U + \eta G^U_i)\Bigr), \qquad
              V_i \leftarrow \mathrm{Polar}((I - U U^\top) V_i)

    Parameters
    ----------
    datasets : sequence of (d, n_i) arrays
        Columns are samples; they are not centred here.
    n_global, n_local : int
        r_g and r_l, together at most d.
    n_rounds : int
        Number of rounds.
    step_size : float
        :math:`\eta` times the largest eigenvalue of any S_i.

    Returns
    -------
    PersonalizedPCA

    Raises
    ------
    SettingsError, DataError
        If there are more components than features, or data sets differ in their features.

    Notes
    -----
    Clients send ``U + eta G`` without retraction, so the fixed points are exactly where the gradient of the common
    objective vanishes. U starts with the directions that clients' leading subspaces have most in common: the leading
    eigenvectors of the mean of their projectors. V_i starts with the leading components of what U leaves over.
    """
    d = _check(datasets, n_global, n_local, step_size)
    roots = [Y / Y.dtype.type(np.sqrt(max(Y.shape[1], 1))) for Y in datasets]
    U = _common_directions([_leading(Y, n_global + n_local) for Y in roots], n_global)
    V = _off(U, [_leading(Y - U @ (U.T @ Y), n_local) for Y in roots])
    largest = max(float(np.linalg.norm(Y, 2)) ** 2 for Y in roots)
    eta = roots[0].dtype.type(step_size / largest if largest > 0 else 0.0)
    explained = []
    for t in range(n_rounds + 1):
        total, sent = 0.0, np.zeros((d, n_global), dtype=roots[0].dtype)
        for i, Y in enumerate(roots):
            W = np.hstack([U, V[i]])
            projected = Y.T @ W
            total += float(np.sum(np.square(projected, dtype=np.float64)))
            SW = Y @ projected
            G = SW - W @ (W.T @ SW)
            sent += U + eta * G[:, :n_global]
            V[i] = V[i] if t == n_rounds else polar_factor(V[i] + eta * G[:, n_global:])
        explained.append(total)
        if t < n_rounds:
            U = polar_factor(sent / len(roots))
            V = _off(U, V)
    return PersonalizedPCA(U, V, explained)


def _leading(Y: Floats, r: int) -> Floats:
    """Return the ``r`` leading left singular vectors, completed where ``Y`` has fewer columns."""
    U: Floats = np.linalg.svd(Y, full_matrices=r > min(Y.shape)).U
    return U[:, :r]


def _common_directions(bases: Sequence[Floats], r: int) -> Floats:
    return _leading(np.hstack(bases), r)  # left singular vectors of [W_1 ... W_N] are those of the sum of W_i W_i'


def _off(U: Floats, V: Sequence[Floats]) -> list[Floats]:
    # In coordinates of the complement, the result is orthogonal to U even if v lies in the span of U.
    complement = np.linalg.qr(U, mode="complete").Q[:, U.shape[1] :]
    return [complement @ polar_factor(complement.T @ v) for v in V]


def _check(datasets: Sequence[Floats], n_global: int, n_local: int, step_size: float) -> int:
    features = sorted({int(Y.shape[0]) for Y in datasets})
    if len(features) != 1:
        raise DataError(f"datasets have {features} features: all must have the same, and there must be one at least")
    if n_global < 0 or n_local < 0 or n_global + n_local > features[0]:
        raise SettingsError(
            f"n_global = {n_global}, n_local = {n_local}: must be 0 or more, together at most {features[0]} features"
        )
    if step_size <= 0:
        raise SettingsError(f"step_size = {step_size}: must be more than 0")
    return features[0]
