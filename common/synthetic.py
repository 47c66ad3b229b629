r"""The generative model of the paper's synthetic experiment.

.. math:: Y_i = [D^{g*}\ D^{l*}_i]\, X^*_i + \sigma E_i

Each ``[D^g, D^l_i]`` has orthonormal columns. Each entry of ``X_i`` is Gaussian with probability ``p``, else zero.
Nonzeros smaller than ``amplitude`` are enlarged to it and keep their sign.

Source: Liang, Shi, Al Kontar, Fattahi, "Personalized Dictionary Learning for Heterogeneous Datasets", 2023,
section 5.1 and its appendix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.rng import stream

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class ClientTruth:
    """One client's data, and the dictionary and codes that generated them.

    Parameters
    ----------
    data : (d, n) array
        Y_i, samples in columns.
    global_dictionary : (d, r_g) array
        Those of D^g*, which is the same for all clients, that this client has.
    local_dictionary : (d, r_l) array
        D^l*_i.
    codes : (r_g + r_l, n) array
        X*_i, global atoms first.
    """

    data: Floats
    global_dictionary: Floats
    local_dictionary: Floats
    codes: Floats


def true_global_dictionary(seed: int, n_features: int, n_global: int) -> Floats:
    """Return the global dictionary that all clients of one seed share.

    Parameters
    ----------
    seed : int
        The run's seed.
    n_features, n_global : int
        d and r^g, with ``r^g <= d``.

    Returns
    -------
    (d, r^g) array with orthonormal columns, uniform on the Stiefel manifold
    """
    return _orthonormal(stream(seed, "", "true global dictionary").standard_normal((n_features, n_global)))


def generate(
    seed: int,
    client: str,
    *,
    n_features: int,
    n_global: int,
    n_local: int,
    n_samples: int,
    sparsity: float = 0.2,
    amplitude: float = 0.3,
    noise: float = 0.0,
    absence: float = 0.0,
) -> ClientTruth:
    """Draw one client's data. It does not depend on other clients.

    Parameters
    ----------
    seed : int
        The run's seed.
    client : str
        Stable client id; it selects local dictionary and samples.
    n_features, n_global, n_local, n_samples : int
        d, r^g, r^l_i, n_i with ``r^g + r^l_i <= d``.
    sparsity : float
        p, the probability that a code is not zero.
    amplitude : float
        Smallest size of a nonzero code.
    noise : float
        sigma, the standard deviation of Gaussian noise on every entry of the data.
    absence : float
        Probability that the client lacks a shared atom. It then has one more of its own.

    Returns
    -------
    ClientTruth

    Raises
    ------
    ValueError
        If the atoms do not fit into ``n_features`` dimensions.
    """
    if n_global + n_local > n_features:
        raise ValueError(f"{n_global} + {n_local} orthonormal atoms do not fit into {n_features} dimensions")
    shared = true_global_dictionary(seed, n_features, n_global)
    if absence > 0:
        has = stream(seed, client, "shared atoms").random(n_global) >= absence
        shared, n_local, n_global = shared[:, has], n_local + n_global - int(has.sum()), int(has.sum())
    rng = stream(seed, client, "true local dictionary")
    G = rng.standard_normal((n_features, n_local))
    # One QR of both: projecting G off the shared atoms first loses digits if little of it is left.
    own = _orthonormal(np.hstack([shared, G]))[:, n_global:]
    rng = stream(seed, client, "true codes")
    X = rng.standard_normal((n_global + n_local, n_samples))
    X = np.where(np.abs(X) < amplitude, np.copysign(amplitude, X), X)
    X *= rng.random(X.shape) < sparsity
    Y = np.hstack([shared, own]) @ X
    if noise > 0:
        Y += noise * stream(seed, client, "noise").standard_normal(Y.shape)
    return ClientTruth(Y, shared, own, X)


def _orthonormal(G: Floats) -> Floats:
    """Return Q of the QR decomposition with positive diagonal: uniformly distributed if ``G`` is Gaussian."""
    Q, R = np.linalg.qr(G)
    return Q * np.where(np.diag(R) < 0, -1.0, 1.0)
