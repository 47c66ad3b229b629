"""Theorem 2 measured: D^g converges at most at the mean of the clients' own rates, faster than the slow ones.

The theorem lets every atom contract by itself. In an orthogonal step the atoms of a client move together, so a slow
client's own atoms feed a little of their error into D^g for ever: rates are those of whole dictionaries, and are
measured over the first four decades, before that little is all that is left.
"""

from __future__ import annotations

import numpy as np
import pytest

from common.dictionaries import dictionary_distance
from common.polar import polar_factor
from common.settings import settings_from_values
from perdl.experiments.federation import independent, perma
from perdl.experiments.synthetic_runs import changed, draw

SLACK = 0.02


def rate(errors):
    """Geometric mean of the contraction between the first error below 1e-2 and the last above 1e-6."""
    errors = np.asarray(errors)
    inside = np.flatnonzero((errors < 1e-2) & (errors > 1e-6))
    first, last = inside[0], inside[-1]
    return (errors[last] / errors[first]) ** (1 / max(last - first, 1))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weak", [0, 3])
def test_the_rate_of_the_shared_atoms_is_at_most_the_mean_of_the_clients_rates(seed, weak):
    settings = settings_from_values({"seed": seed, "rounds": 25, "tolerance": 0.0, "local_restarts": 0})
    settings = changed(settings, synthetic={"weak_clients": weak, "weak_samples": 60})
    truths, clients = draw(settings)
    rng = np.random.default_rng(seed)
    starts = []
    for t in truths:
        D = np.hstack([t.global_dictionary, t.local_dictionary])
        starts.append(polar_factor(D + 0.01 * rng.standard_normal(D.shape)))
    shared = truths[0].global_dictionary
    alone, together = [], []
    whole = [np.hstack([t.global_dictionary, t.local_dictionary]) for t in truths]
    independent(
        clients,
        starts,
        25,
        lambda t, D: alone.append([dictionary_distance(a, b) for a, b in zip(D, whole, strict=True)]),
    )
    perma(clients, starts, settings, lambda t, m: together.append(dictionary_distance(m.global_dictionary, shared)))
    rates = [rate(curve) for curve in np.transpose(alone)]
    assert rate(together) <= np.mean(rates) + SLACK
    assert rate(together) < max(rates)
