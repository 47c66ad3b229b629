r"""What federating changed for a client, measured on samples that it did not learn from.

.. math:: \text{gain} = 1 - \frac{\lVert Z - D X\rVert_F}{\lVert Z - D^a X^a\rVert_F}, \qquad
          X = \operatorname{OMP}(Z, D, k), \quad X^a = \operatorname{OMP}(Z, D^a, k)

where Z are the held-out samples, D = [D^g D^l_i], and D^a is what the client would have alone: as many atoms, from the
same first dictionary, by as many rounds, with D^g empty. It costs the client all its rounds once more, at the end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from common.blocks import Columns, blocks
from common.evaluation import Evaluation, counts_of_atoms, gain
from common.rng import stream
from common.settings import Settings
from perdl_client.data.held_out import HeldOut
from perdl_client.learning.client import ClientLearner
from perdl_client.learning.missing import observed_residual, pursuit, zero_filled

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]

DRAWS = 1000
"""Draws of the bootstrap."""


def learn_alone(client: ClientLearner, rounds: int, tolerance: float) -> Floats:
    """Return the dictionary that a client has without the federation: its rounds with an empty D^g.

    Parameters
    ----------
    client : ClientLearner
        With its first dictionary.
    rounds : int
        Most rounds.
    tolerance : float
        Stop when no atom moves more than this.

    Returns
    -------
    (d, r) array
    """
    client.take_rounds(np.empty((len(client.Y), 0), dtype=client.Y.dtype), rounds, tolerance)
    return client.dictionary


def evaluate_client(
    held_out: HeldOut,
    client: ClientLearner,
    global_dictionary: Floats,
    local_dictionary: Floats,
    rounds: int,
    s: Settings,
) -> Evaluation:
    """Measure what federating changed for a client. If nothing is shared, it learnt alone.

    Parameters
    ----------
    held_out : HeldOut
        The samples, preprocessed.
    client : ClientLearner
        The client with its first dictionary. It takes its rounds alone.
    global_dictionary : (d, r_g) array
        D^g; zero where the client does not share an atom.
    local_dictionary : (d, r_l) array
        D^l_i.
    rounds : int
        Rounds of the run.
    s : Settings
        The run's settings.

    Returns
    -------
    Evaluation
    """
    alone = np.hstack([global_dictionary, local_dictionary])
    if global_dictionary.shape[1]:
        alone = learn_alone(client, rounds, s.tolerance)
    rng = stream(s.seed, client.name, "bootstrap")
    return evaluate(held_out, alone, global_dictionary, local_dictionary, s.evaluation.n_nonzero, rng)


def evaluate(
    held_out: HeldOut,
    alone: Floats,
    global_dictionary: Floats,
    local_dictionary: Floats,
    n_nonzero: int,
    rng: np.random.Generator,
) -> Evaluation:
    """Measure a client's dictionaries on its held-out samples.

    Parameters
    ----------
    held_out : HeldOut
        The samples, preprocessed, (d, m).
    alone : (d, r) array
        What the client has without the federation.
    global_dictionary : (d, r_g) array
        D^g.
    local_dictionary : (d, r - r_g) array
        D^l_i.
    n_nonzero : int
        Atoms a sample, for the gain; fewer if samples have few features.
    rng : numpy.random.Generator
        Random stream of the bootstrap.

    Returns
    -------
    Evaluation
    """
    Z, federated = held_out.Z, np.hstack([global_dictionary, local_dictionary])
    k, counts = counts_of_atoms(n_nonzero, federated.shape[1], len(Z))
    dictionaries = {"alone": alone, "federated": federated, "shared": global_dictionary}
    energies = sample_energies(Z)
    errors: dict[int, dict[str, float]] = {}
    left: dict[str, Floats] = {}
    for count in counts:
        rest = {name: residual_energies(Z, D, count) for name, D in dictionaries.items()}
        errors[count] = {name: error(one.sum(), energies.sum()) for name, one in rest.items()}
        left = rest if count == k else left
    low, high = gain_interval(left["alone"], left["federated"], energies, held_out.units, rng)
    return Evaluation(Z.shape[1], k, errors, low, high)


def held_out_error(Z: Columns, global_dictionary: Floats, local_dictionary: Floats, n_nonzero: int) -> float:
    """Return the error of held-out samples with a client's dictionary, by which settings are compared.

    Parameters
    ----------
    Z : (d, m) array or Stream
        The samples, preprocessed, in columns; NaN marks a missing entry.
    global_dictionary : (d, r_g) array
        D^g.
    local_dictionary : (d, r_l) array
        D^l_i.
    n_nonzero : int
        Atoms a sample; fewer if samples have few features.
    """
    D = np.hstack([global_dictionary, local_dictionary])
    k, _ = counts_of_atoms(n_nonzero, D.shape[1], len(Z))
    return error(residual_energies(Z, D, k).sum(), sample_energies(Z).sum())


def residual_energies(Z: Columns, D: Floats, k: int) -> Floats:
    """Return the energy (m,) that k atoms leave of each sample.

    Parameters
    ----------
    Z : (d, m) array or Stream
        Samples in columns; NaN marks a missing entry.
    D : (d, r) array
        Dictionary; it may have no atom.
    k : int
        Most atoms a sample may use (OMP).
    """
    left = [
        (observed_residual(B, D @ pursuit(B, D, k)).astype(np.float64) ** 2).sum(axis=0) for B in blocks(Z, D.shape[1])
    ]
    return np.concatenate([np.zeros(0), *left])


def sample_energies(Z: Columns) -> Floats:
    """Return the energy (m,) of the observed entries of each sample.

    Parameters
    ----------
    Z : (d, m) array or Stream
        Samples in columns; NaN marks a missing entry.
    """
    return np.concatenate([np.zeros(0), *((zero_filled(B).astype(np.float64) ** 2).sum(axis=0) for B in blocks(Z))])


def error(left: float, energy: float) -> float:
    """Return the relative error of samples; 0 if all are zero.

    Parameters
    ----------
    left : float
        Energy that is not explained.
    energy : float
        Energy of the samples.
    """
    return float(np.sqrt(left / energy)) if energy > 0 else 0.0


def gain_interval(
    alone: Floats, federated: Floats, energies: Floats, units: Ints, rng: np.random.Generator
) -> tuple[float, float]:
    """Return a 95 % interval of the gain: the percentiles of a bootstrap over units.

    Parameters
    ----------
    alone, federated : (m,) array
        Energy that each dictionary leaves of each sample.
    energies : (m,) array
        Energy of the samples.
    units : (m,) int array
        What each sample belongs to. Whole units are drawn: samples of one unit are not independent.
    rng : numpy.random.Generator
        Random stream.

    Returns
    -------
    low, high : float
        With few units the interval is rather too narrow.

    Notes
    -----
    Source: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13.
    """
    _, place = np.unique(units, return_inverse=True)
    sums = np.stack([np.bincount(place, one) for one in (alone, federated, energies)])
    n = sums.shape[1]
    gains = []
    for _ in range(DRAWS):
        a, f, energy = sums[:, rng.integers(n, size=n)].sum(axis=1)
        gains.append(gain(error(a, energy), error(f, energy)))
    low, high = np.quantile(gains, [0.025, 0.975])
    return float(low), float(high)
