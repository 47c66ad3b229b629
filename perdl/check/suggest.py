r"""Settings that fit the data: the number of atoms, the threshold of codes, and how clients are matched.

The rules use the singular values of the centred data, from at most 2,000 samples of each client.

**n_atoms.** Too few atoms cannot hold what is shared. Too many cost time and little else, as long as the threshold
keeps noise out of them. So a direction is left out only on clear evidence: it lies beyond the rank, beyond 99 % of the
energy, or in a *noise floor*. A noise floor is a tail of at least a quarter of the variances. It is no more spread than
the variances of pure noise with as many samples (Marchenko and Pastur), and it begins after a drop by a factor of two
(1.5 if the tail has twelve directions or more). If there are about as many samples as directions, the smallest
variances of noise are near zero: the tail is then compared by its median, and the drop must be by a factor of four. The
client that needs the most atoms decides, up to the smallest rank of any client.

**threshold.** The learner keeps codes :math:`|a| \ge \zeta` in an orthonormal basis. White noise of standard deviation
:math:`\sigma` is also white noise of :math:`\sigma` in that basis, so :math:`\zeta = 3\sigma` keeps one code of pure
noise in 370. :math:`\sigma` is the level of the noise floor. If the atoms fill the space and there is no floor,
:math:`\sigma` is the robust level of the small codes in a dictionary learnt from the samples: their median size over
0.6745, without sizes beyond 3 sigma. The threshold is at least 0.4 times the root mean square of a code, the middle of
the broad range that recovers synthetic dictionaries without noise. It is at most that root mean square: a larger one
would drop all of the data if they are not sparse. The median over the clients is suggested.

**matching.** The star, where a client has fewer than ten samples an atom. Its first dictionary is then off, and along a
chain every later client is matched through it; around the medoid each is matched by itself. On synthetic data of 3.3 to
8 samples an atom the chain was right on 5 to 20 of 20 seeds, the star on 9 to 20; of ten and more both were always
right (``benchmarks/few_samples.py``).

``tests/perdl/check/test_check.py`` compares the rules with the best of a grid, on data of known truth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from common.coders import HardThreshold
from common.learners import LEARNERS
from common.rng import stream
from perdl_client.learning.warm_up import best_warm_up

Floats = NDArray[np.floating]

MAX_SAMPLES = 2000
FEW = 10
"""With fewer samples an atom the star is suggested."""
_LEARNT_SAMPLES, _LEARNT_FEATURES = 500, 100


@dataclass(frozen=True)
class Spectrum:
    """Summary of the singular values of one client's centred samples.

    Parameters
    ----------
    rank : int
        Numerical rank.
    n_atoms : int
        Number of directions without noise and without the last hundredth of the energy.
    code_rms : float
        Root mean square of a code in an orthonormal basis of these directions, relative to that of the data.
    noise : float
        Standard deviation of the noise, relative to the root mean square of the data.
    n_samples : int
        Number of samples.
    """

    rank: int
    n_atoms: int
    code_rms: float
    noise: float
    n_samples: int


def spectrum(Y: Floats, apply: Callable[[Floats], Floats] = lambda block: block) -> Spectrum:
    """Compute the spectrum of one client's samples.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns, all finite.
    apply : callable, optional
        Preprocessing; applied only to the samples that are chosen.
    """
    rng, n_samples = stream(0, "", "check"), Y.shape[1]
    if Y.shape[1] > MAX_SAMPLES:
        Y = Y[:, np.sort(rng.choice(Y.shape[1], MAX_SAMPLES, replace=False))]
    done = apply(Y)
    Y = done.astype(np.float64, copy=np.may_share_memory(done, Y))  # overwritten below
    Y -= Y[:, :1].copy()  # makes constant features exactly zero
    Y -= Y.mean(axis=1, keepdims=True)
    d, n = Y.shape
    s, Z = _principal_codes(Y)
    rank = int(np.count_nonzero(s > s.max(initial=0) * max(d, n) * np.finfo(np.float64).eps))
    if rank == 0:
        return Spectrum(0, 0, 0.0, 0.0, n_samples)
    energies = s[:rank] ** 2
    total = float(energies.sum())
    rms = np.sqrt(total / (d * n))
    floor = _noise_floor(energies, d, n)
    r = int(np.searchsorted(np.cumsum(energies), 0.99 * total) + 1)
    r = min(r, floor, rank)
    if floor < rank:
        spread_over = (rank if d < n else d) - floor
        noise = np.sqrt(energies[floor:].sum() / (n * spread_over))
    else:
        kept = min(r, _LEARNT_FEATURES)
        noise = _small_codes(Z[:kept, rng.permutation(n)[:_LEARNT_SAMPLES]], rng)
    return Spectrum(rank, r, float(np.sqrt(energies[:r].sum() / (r * n)) / rms), float(noise / rms), n_samples)


def suggest(spectra: Sequence[Spectrum]) -> dict[str, float | int | str]:
    """Return the suggested settings by name.

    Parameters
    ----------
    spectra : sequence of Spectrum
        One per client; those of rank 0 are ignored.
    """
    seen = [one for one in spectra if one.rank]
    if not seen:
        return {}
    r = min(max(one.n_atoms for one in seen), min(one.rank for one in seen))
    fewest = min(one.n_samples for one in seen)
    wanted = [min(max(3 * one.noise, 0.4 * one.code_rms), one.code_rms) for one in seen]
    middle = float(np.quantile(wanted, 0.5, method="lower"))
    threshold = float(f"{max(middle, 0.1):.2g}")
    return {
        "n_atoms": r,
        "threshold_unit": "rms",
        "threshold": threshold,
        "warmup_threshold": float(f"{4 * threshold:.2g}"),  # the ratio in the presets
        **({"matching": "star"} if len(seen) > 2 and fewest < FEW * r else {}),
    }


def _principal_codes(Y: Floats) -> tuple[Floats, Floats]:
    """Return the singular values of ``Y`` and its codes in the left singular vectors. ``Y`` is overwritten."""
    if Y.shape[0] > Y.shape[1]:
        R = scipy.linalg.qr(Y, mode="raw", overwrite_a=True, check_finite=False)[1]  # in place
        _, s, Vt = np.linalg.svd(R)
        return s, s[:, None] * Vt
    U, s, _ = np.linalg.svd(np.transpose(np.linalg.qr(Y.T, mode="r")))
    return s, U.T @ Y


def _noise_floor(energies: Floats, d: int, n: int) -> int:
    """Number of directions above the flat tail of noise; all if there is none."""
    rank = len(energies)
    for k in range(1, rank - max(rank // 4, 3) + 1):
        noisy = (rank if d < n else d) - k
        share = min(noisy, n) / max(noisy, n)
        largest = (1 + np.sqrt(share)) ** 2
        if share > 0.64:  # the smallest variances of noise are then near zero
            drop, most = 4.0, largest / _median_of_noise(share) * np.median(energies[k:])
        else:
            drop, most = 2.0 if rank - k < 12 else 1.5, largest / (1 - np.sqrt(share)) ** 2 * energies[-1]
        # The factor is larger for few directions: there a signal may drop by chance.
        if energies[k - 1] > drop * energies[k] and energies[k] <= 1.2 * most:
            return k
    return rank


@cache
def _median_of_noise(share: float) -> float:
    """Median of Marchenko and Pastur's law: variances of noise of variance 1, directions over samples = ``share``."""
    low, high = (1 - np.sqrt(share)) ** 2, (1 + np.sqrt(share)) ** 2
    x = low + (high - low) * np.sin(np.linspace(0, np.pi / 2, 2001)) ** 2  # more points where the density is large
    density = np.sqrt(np.maximum((high - x) * (x - low), 0)) / np.maximum(x, np.finfo(float).tiny)
    mass = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(x))])
    return float(np.interp(0.5 * mass[-1], mass, x))


def _small_codes(Z: Floats, rng: np.random.Generator) -> float:
    """Level of the noise among the codes, in a dictionary learnt from ``Z`` (r, m)."""
    rms = float(np.sqrt(np.mean(Z * Z)))
    coder = HardThreshold(0.3 * rms)
    D = best_warm_up(Z, len(Z), LEARNERS["orthogonal"], coder, rng, n_restarts=3, n_steps=20, first_threshold=1.2 * rms)
    sizes = np.abs(D.T @ Z).ravel()
    level = float(np.median(sizes)) / 0.6745
    for _ in range(20):
        level = float(np.median(sizes[sizes <= 3 * level])) / 0.6745 if level > 0 else 0.0
    return level
