from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

pytest.importorskip("dp_accounting", reason="dp-accounting is not installed (extra: private)")

import dp_accounting
from dp_accounting.pld import PLDAccountant

from common.accounting import epsilon_spent, noise_multiplier


@pytest.mark.parametrize("releases", [1, 7, 130])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_noise_reaches_epsilon_by_a_second_accountant(epsilon, releases):
    """Numerical composition of privacy losses, which knows nothing of Gaussians adding up."""
    z = noise_multiplier(epsilon, 1e-5, releases)
    accountant = PLDAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(z), releases)
    assert accountant.get_epsilon(1e-5) == pytest.approx(epsilon, rel=0.01)


def test_delta_is_that_of_the_best_test():
    """Neyman and Pearson: sup over tests of P(with) - e^epsilon P(without) is reached by a threshold."""
    epsilon, delta, releases = 2.0, 1e-4, 12
    mu = np.sqrt(releases) / noise_multiplier(epsilon, delta, releases)
    thresholds = np.linspace(-20, 20, 400_001)
    best = (norm.sf(thresholds - mu) - np.exp(epsilon) * norm.sf(thresholds)).max()
    assert best == pytest.approx(delta, rel=1e-3)


def test_several_runs_spend_what_their_releases_spend_together():
    z = noise_multiplier(1.0, 1e-5, 1)
    assert epsilon_spent([], 1e-5) == 0
    assert epsilon_spent([z], 1e-5) == pytest.approx(1.0, rel=1e-6)
    accountant = PLDAccountant()
    for one in (z, z, 3 * z):
        accountant.compose(dp_accounting.GaussianDpEvent(one))
    assert epsilon_spent([z, z, 3 * z], 1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=0.01)
