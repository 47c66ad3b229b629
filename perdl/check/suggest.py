r"""Settings that fit some data: how many atoms, and from which size on a code counts.

The rules, and why. All are of centred data, from singular values of at most 2,000 samples of a client.

**n_atoms.** Too few atoms cannot hold what is shared; too many cost time and little else, as long as the threshold
keeps noise out of them. So a direction is left out only on clear evidence: it is beyond the rank, beyond 99 % of the
energy, or part of a *noise floor*: a tail of variances, at least a quarter of all, no more spread than those of pure
noise of as many samples (Marchenko and Pastur), below a drop by a factor of two (1.5 where it is of twelve directions
or more). Where samples and directions are about as many, the least variances of noise are near zero: the tail is then
compared by its median, and the drop must be by a factor of four. The client that needs most decides, the rank of the
weakest bounds it.

**threshold.** The learner keeps codes :math:`|a| \ge \zeta` in an orthonormal basis, in which white noise of standard
deviation :math:`\sigma` stays such noise; with :math:`\zeta = 3\sigma` one code of pure noise in 370 is kept.
:math:`\sigma` is the level of the noise floor, or, where there is none since atoms fill the space, the robust level of
the small codes in a dictionary that is learnt from the samples: their median size over 0.6745, sizes beyond 3 sigma
left out. The least threshold is 0.4 times the root mean square of a code: without noise the middle of a broad range
that recovers synthetic dictionaries. The most is one root mean square of a code: beyond it, data that are not sparse
would be left out altogether. The median over the clients is taken.

``tests/perdl/check/test_check.py`` holds the rules to the best of a grid on data of known truth.
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
from perdl_client.learning.initialization import best_warm_up

Floats = NDArray[np.floating]

MAX_SAMPLES = 2000
_LEARNT_SAMPLES, _LEARNT_FEATURES = 500, 100


@dataclass(frozen=True)
class Spectrum:
    """What the directions of one client's centred samples say.

    Attributes
    ----------
    rank : int
        Numerical rank.
    n_atoms : int
        Directions that neither noise nor the last hundredth of the energy make up.
    code_rms : float
        Root mean square of a code in an orthonormal basis of these, relative to that of the data.
    noise : float
        Standard deviation of the noise, relative to the root mean square of the data.
    """

    rank: int
    n_atoms: int
    code_rms: float
    noise: float


def spectrum(Y: Floats, apply: Callable[[Floats], Floats] = lambda block: block) -> Spectrum:
    """Look at one client's samples.

    Parameters
    ----------
    Y : (d, n) array
        Finite.
    apply : callable, optional
        What is done to samples before they are looked at; done to those alone that are chosen.
    """
    rng = stream(0, "", "check")
    if Y.shape[1] > MAX_SAMPLES:
        Y = Y[:, np.sort(rng.choice(Y.shape[1], MAX_SAMPLES, replace=False))]
    done = apply(Y)
    Y = done.astype(np.float64, copy=np.may_share_memory(done, Y))  # one's own: it is overwritten
    Y -= Y[:, :1].copy()  # what is constant is then zero, and its mean leaves no rounding
    Y -= Y.mean(axis=1, keepdims=True)
    d, n = Y.shape
    s, Z = _principal_codes(Y)
    rank = int(np.count_nonzero(s > s.max(initial=0) * max(d, n) * np.finfo(np.float64).eps))
    if rank == 0:
        return Spectrum(0, 0, 0.0, 0.0)
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
    return Spectrum(rank, r, float(np.sqrt(energies[:r].sum() / (r * n)) / rms), float(noise / rms))


def suggest(spectra: Sequence[Spectrum]) -> dict[str, float | int | str]:
    """Return settings by name.

    Parameters
    ----------
    spectra : sequence of Spectrum
        One a client; those of rank 0 say nothing.
    """
    seen = [one for one in spectra if one.rank]
    if not seen:
        return {}
    r = min(max(one.n_atoms for one in seen), min(one.rank for one in seen))
    wanted = [min(max(3 * one.noise, 0.4 * one.code_rms), one.code_rms) for one in seen]
    middle = float(np.quantile(wanted, 0.5, method="lower"))
    threshold = float(f"{max(middle, 0.1):.2g}")
    return {
        "n_atoms": r,
        "threshold_unit": "rms",
        "threshold": threshold,
        "warmup_threshold": float(f"{4 * threshold:.2g}"),  # so do the presets
    }


def _principal_codes(Y: Floats) -> tuple[Floats, Floats]:
    """Singular values of ``Y`` and its codes in the left singular vectors, which may be long; ``Y`` is overwritten."""
    if Y.shape[0] > Y.shape[1]:
        R = scipy.linalg.qr(Y, mode="raw", overwrite_a=True, check_finite=False)[1]  # in place
        _, s, Vt = np.linalg.svd(R)
        return s, s[:, None] * Vt
    U, s, _ = np.linalg.svd(np.transpose(np.linalg.qr(Y.T, mode="r")))
    return s, U.T @ Y


def _noise_floor(energies: Floats, d: int, n: int) -> int:
    """Directions above the flat tail of noise; all if there is none."""
    rank = len(energies)
    for k in range(1, rank - max(rank // 4, 3) + 1):
        noisy = (rank if d < n else d) - k
        share = min(noisy, n) / max(noisy, n)
        largest = (1 + np.sqrt(share)) ** 2
        if share > 0.64:  # the least variances of such noise are near zero
            drop, most = 4.0, largest / _median_of_noise(share) * np.median(energies[k:])
        else:
            drop, most = 2.0 if rank - k < 12 else 1.5, largest / (1 - np.sqrt(share)) ** 2 * energies[-1]
        # In few directions a signal may drop by chance.
        if energies[k - 1] > drop * energies[k] and energies[k] <= 1.2 * most:
            return k
    return rank


@cache
def _median_of_noise(share: float) -> float:
    """Median of Marchenko and Pastur's law: variances of noise of variance 1, directions over samples = ``share``."""
    low, high = (1 - np.sqrt(share)) ** 2, (1 + np.sqrt(share)) ** 2
    x = low + (high - low) * np.sin(np.linspace(0, np.pi / 2, 2001)) ** 2  # dense where the density is
    density = np.sqrt(np.maximum((high - x) * (x - low), 0)) / np.maximum(x, np.finfo(float).tiny)
    mass = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(x))])
    return float(np.interp(0.5 * mass[-1], mass, x))


def _small_codes(Z: Floats, rng: np.random.Generator) -> float:
    """Level of the codes that are noise rather than signal, in a dictionary learnt from ``Z`` (r, m)."""
    rms = float(np.sqrt(np.mean(Z * Z)))
    coder = HardThreshold(0.3 * rms)
    D = best_warm_up(Z, len(Z), LEARNERS["orthogonal"], coder, rng, n_restarts=3, n_steps=20, first_threshold=1.2 * rms)
    sizes = np.abs(D.T @ Z).ravel()
    level = float(np.median(sizes)) / 0.6745
    for _ in range(20):
        level = float(np.median(sizes[sizes <= 3 * level])) / 0.6745 if level > 0 else 0.0
    return level
