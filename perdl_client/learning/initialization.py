"""Starts: a client's first dictionary, from its own samples alone.

``warm-up`` learns from several random dictionaries, see :mod:`perdl_client.learning.warm_up`. ``l4``, ``svd``,
``identity`` and ``samples`` warm up atoms of large fourth powers, the left singular vectors, the first unit vectors, or
samples. ``random`` is a random dictionary without warm-up. ``auto`` is ``l4`` for ten orthonormal atoms or more of four
samples each, or of so many that ten starts take long, else ``warm-up``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from common.coders import Coder
from common.errors import SettingsError
from common.learners import LEARNERS, Learner, Product, Step, product
from common.learning_settings import LearningSettings
from common.rng import stream
from common.statistics import rms
from perdl_client.learning.device import CPU, Device
from perdl_client.learning.guard import made_of_many, passed
from perdl_client.learning.guarded_step import guarded, guarded_step
from perdl_client.learning.l4_start import l4_start
from perdl_client.learning.missing import zero_filled
from perdl_client.learning.samples_start import samples_start
from perdl_client.learning.warm_up import LastStep, best_warm_up, plain_product, random_dictionary, warm_up

Floats = NDArray[np.floating]

_FEW_ATOMS, _FEW_SAMPLES, _LARGE = 10, 4, 20_000
"""Of fewer atoms, or of fewer samples an atom, ten random starts find more. So they do for atoms of any angle, where
steps that refit codes are not stuck. From so many codes on ten starts take long. See benchmarks/starts.py."""

_GUARD_PASSES = 8
"""Shortening samples turns singular vectors. After so many passes, those that one sample makes up are left out."""


class Schedule(TypedDict):
    """Keywords of :func:`.warm_up.warm_up`."""

    n_steps: int
    first_threshold: float
    step_size: float


def first_dictionary(
    Y: Floats,
    learning: LearningSettings,
    seed: int,
    name: str,
    *,
    size: float | None = None,
    product: Product = product,
    min_samples: int | None = None,
    device: Device = CPU,
) -> Floats:
    """Return D_i^(0) for a client's settings.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns.
    learning : LearningSettings
        How the client learns.
    seed : int
        The run's seed.
    name : str
        Stable client id. It selects the random stream, and names the client in errors.
    size : float, optional
        Root mean square of the samples; default their own.
    product : callable
        Computes ``A X'`` for the learner.
    min_samples : int, optional
        If given, all that atoms are made of passes the guard, see :mod:`perdl_client.learning.guard`: in every step,
        or in the last one if the learner forgets the others. There, atoms that do not pass become random ones.
    device : Device
        As in :func:`.local_update.local_update`. Steps that pass the guard are numpy's all the same.

    Returns
    -------
    (d, r_i) array

    Raises
    ------
    SettingsError
        If the settings do not fit the data.
    """
    d, n = Y.shape
    r, size = check_fit(learning, d, name), rms(Y) if size is None else size
    learner, coder = LEARNERS[learning.learner], learning.make_coder(size)
    rng = stream(seed, name, "start")
    last: LastStep | None = None
    if min_samples is not None and learner.forgets:
        last = _guarded_last_step(learner, learning.step_size, min_samples, rng)
    elif min_samples is not None:
        learner, device = guarded(learner, min_samples), CPU
    start = learning.start
    if start == "auto":
        may = r >= _FEW_ATOMS and LEARNERS[learning.learner].orthonormal and product is plain_product
        start = "l4" if may and (n >= _FEW_SAMPLES * r or n * r > _LARGE) else "warm-up"
    if start == "random":
        return random_dictionary(rng, d, r, Y.dtype)
    if start == "warm-up":
        restarts, how = learning.n_restarts, schedule(learning, size)
        return best_warm_up(
            Y, r, learner, coder, rng, n_restarts=restarts, last=last, product=product, device=device, **how
        )
    if start == "l4":
        if product is not plain_product:
            raise SettingsError(
                f'start = "l4": takes sums of fourth powers, which privacy = "private" has no noise for; {name} must '
                "choose another start"
            )
        D = l4_start(Y, random_dictionary(rng, d, r, Y.dtype), learning.warmup_steps, device)
        if min_samples is not None and last is None:  # the learner's steps would keep what the fourth powers found
            D = _guarded_last_step(LEARNERS["orthogonal"], 1.0, min_samples, rng)(zero_filled(Y), D, coder).dictionary
    elif start == "svd":
        D = svd_start(Y, r, product)
        if min_samples is not None:
            D = _guarded_start(Y, D, rng, min_samples)
    elif start == "identity":
        D = np.eye(d, r, dtype=Y.dtype)
    else:
        if min_samples is not None:
            raise SettingsError(
                f'start = "samples": shows samples of {name}, which the guard is there to hide; choose another start, '
                'or set privacy = "none"'
            )
        D = samples_start(Y, r, rng, product)
    return warm_up(Y, D, learner, coder, product=product, last=last, device=device, **schedule(learning, size))


def schedule(learning: LearningSettings, size: float) -> Schedule:
    """Return the keywords of :func:`.warm_up.warm_up`, with thresholds in the data's units.

    Parameters
    ----------
    learning : LearningSettings
        How the client learns.
    size : float
        Root mean square of the samples.
    """
    return {
        "n_steps": learning.warmup_steps,
        "first_threshold": learning.warmup_threshold * learning.threshold_scale(size),
        "step_size": learning.step_size,
    }


def check_fit(learning: LearningSettings, d: int, name: str) -> int:
    """Return r_i after checking it against the number of features.

    Parameters
    ----------
    learning : LearningSettings
        How the client learns.
    d : int
        Number of features.
    name : str
        The client's name, for errors.

    Raises
    ------
    SettingsError
        If the numbers of atoms do not fit.
    """
    r, learner = learning.n_atoms or d, LEARNERS[learning.learner]
    if r > d and (learner.orthonormal or learning.start in ("l4", "svd", "identity")):
        what = f"the {learning.learner} learner" if learner.orthonormal else f'start = "{learning.start}"'
        raise SettingsError(f"n_atoms = {r}: must be at most the {d} features of {name} for {what}")
    if learning.counts_atoms and learning.n_nonzero > r:
        raise SettingsError(f"n_nonzero = {learning.n_nonzero}: must be at most n_atoms = {r} of {name}")
    return r


def svd_start(Y: Floats, r: int, product: Product = product) -> Floats:
    """Return the ``r`` leading left singular vectors of the samples.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns.
    r : int
        Number of atoms, ``r <= d``. Beyond the rank of ``Y`` the vectors are LAPACK's choice.
    product : callable
        If it is not the plain product, they are the leading eigenvectors of its ``Y Y'``.

    Returns
    -------
    (d, r) array
    """
    if product is not plain_product:
        return np.linalg.eigh(product(Y, Y)).eigenvectors[:, ::-1][:, :r]
    return np.linalg.svd(zero_filled(Y), full_matrices=r > min(Y.shape)).U[:, :r]


def _guarded_start(Y: Floats, D: Floats, rng: np.random.Generator, min_samples: int) -> Floats:
    """Return singular vectors of which no sample makes one up, beginning with those of all samples, ``D``.

    The server chooses the steps that follow, so they need not hold these vectors to the guard. Samples that make one up
    are shortened. Vectors that are of too few samples all the same are replaced by random ones.
    """
    F = zero_filled(Y)
    for _ in range(_GUARD_PASSES):
        X = D.T @ F
        X[np.abs(X) <= 64 * np.finfo(X.dtype).eps * np.linalg.norm(F)] = 0  # beyond the rank of the samples
        fine = made_of_many(F, X, min_samples)
        if fine.all():
            return D
        weights = passed(F, D, X, min_samples).weights
        if (weights == 1).all():
            break
        F = F * np.sqrt(weights).astype(F.dtype)
        D = svd_start(F, D.shape[1])
    else:
        fine = made_of_many(F, D.T @ F, min_samples)
    return _with_random(D, ~fine, rng)


def _guarded_last_step(learner: Learner, step_size: float, min_samples: int, rng: np.random.Generator) -> LastStep:
    """Return a step after which all atoms are of sums that pass the guard, or random."""

    def step(Y: Floats, D: Floats, coder: Coder) -> Step:
        step, seen, _ = guarded_step(learner, Y, D, coder, step_size, min_samples)
        return replace(step, dictionary=_with_random(step.dictionary, ~seen.moves, rng))

    return step


def _with_random(D: Floats, atoms: NDArray[np.bool_], rng: np.random.Generator) -> Floats:
    """Replace atoms of an orthonormal dictionary by random ones, orthonormal to the others."""
    if not atoms.any():
        return D
    kept = D[:, ~atoms]
    drawn = rng.standard_normal((len(D), np.count_nonzero(atoms))).astype(D.dtype)
    out = D.copy()
    out[:, atoms] = np.linalg.qr(np.hstack([kept, drawn])).Q[:, kept.shape[1] :]
    return out
