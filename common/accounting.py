r"""How much noise reaches an epsilon, and what several runs spend together.

A run releases K sums over a client's samples, each with Gaussian noise of z times its sensitivity. K such releases are
one Gaussian mechanism of multiplier :math:`z / \sqrt K`, exactly: the losses are normal and add up. Releases of other
runs add in the same way: the inverse squares of the multipliers do.

Sources: Balle and Wang 2018, "Improving the Gaussian mechanism for differential privacy"; Dong, Roth and Su 2022,
"Gaussian differential privacy", corollary 2 (composition). Both conversions are those of Google's ``dp-accounting``.
"""

from __future__ import annotations

import functools
import math
from types import ModuleType

from common.errors import SettingsError


@functools.cache
def noise_multiplier(epsilon: float, delta: float, releases: int) -> float:
    """Return the least noise multiplier with which so many releases are (epsilon, delta)-private.

    Parameters
    ----------
    epsilon, delta : float
        Budget of all releases together.
    releases : int
        K, how many sums are released.

    Raises
    ------
    SettingsError
        If the package ``dp-accounting`` is missing.
    """
    return float(_library().get_sigma_gaussian(epsilon, delta)) * math.sqrt(releases)


def epsilon_spent(multipliers: list[float], delta: float) -> float:
    """Return the epsilon of several Gaussian mechanisms on the same samples.

    Parameters
    ----------
    multipliers : list of float
        Noise multiplier of each; that of a run is the one of all its releases together.
    delta : float
        The delta of the result.

    Raises
    ------
    SettingsError
        If the package ``dp-accounting`` is missing.
    """
    if not multipliers:
        return 0.0
    together = 1 / math.sqrt(sum(1 / z**2 for z in multipliers))
    return float(_library().get_epsilon_gaussian(together, delta))


def _library() -> ModuleType:
    try:
        import dp_accounting  # type: ignore[import-untyped]
    except ImportError:
        raise SettingsError('privacy = "private" needs dp-accounting: pip install "perdl[private]"') from None
    module: ModuleType = dp_accounting
    return module
