r"""Starts: a client's first dictionary, from its own samples alone.

``warm-up`` runs the learner from several random dictionaries, with a threshold that shrinks to its final value (Liang
et al. 2022, algorithm 4). It keeps the result with the least objective

.. math:: \lVert Y - DX\rVert_F^2 + \text{penalty} \cdot \lVert X\rVert_0 .

``l4``, ``svd``, ``identity`` and ``samples`` warm up atoms of large fourth powers, the left singular vectors, the first
unit vectors, or samples. ``random`` is a random dictionary without warm-up. ``auto`` is ``l4`` for ten orthonormal
atoms or more, else ``warm-up``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from common.arrays import host, namespace
from common.coders import Coder
from common.errors import SettingsError
from common.learners import LEARNERS, Learner, Product, Step, product
from common.learning_settings import LearningSettings
from common.rng import stream
from common.statistics import rms
from perdl_client.learning.device import CPU, Device
from perdl_client.learning.guard import guarded, guarded_step, made_of_many, passed
from perdl_client.learning.l4_start import l4_start
from perdl_client.learning.missing import codes_of, gaps, observed_residual, refill, zero_filled
from perdl_client.learning.samples_start import samples_start

Floats = NDArray[np.floating]

plain_product = product

LastStep = Callable[[Floats, Floats, Coder], Step]
"""One step of samples, dictionary and coder."""

_STACK = 200_000
"""Most codes in a stack of starts: about what fits into a cache."""

_ON_DEVICE = 2**25
"""The same where codes are on another device, which small stacks leave idle."""

_CUTS = (0.5, 0.75)
"""After these shares of the steps the worse half of large starts is given up. Sooner, the best one is too often among
them: see benchmarks/starts.py."""

_FEW = 10
"""Of fewer atoms ten random starts find more with few samples. So they do for atoms of any angle, where steps that
refit codes are not stuck. See benchmarks/starts.py."""

_GUARD_PASSES = 8
"""Shortening samples turns singular vectors. After so many passes, those that one sample makes up are left out."""


class Schedule(TypedDict):
    """Keywords of :func:`warm_up`."""

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
    d = Y.shape[0]
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
        start = "l4" if LEARNERS[learning.learner].orthonormal and r >= _FEW and product is plain_product else "warm-up"
    if start == "random":
        return random_dictionary(rng, d, r, Y.dtype)
    if start == "l4":
        if product is not plain_product:
            raise SettingsError(
                f'start = "l4": takes sums of fourth powers, which privacy = "private" has no noise for; {name} must '
                "choose another start"
            )
        D = l4_start(Y, random_dictionary(rng, d, r, Y.dtype), learning.warmup_steps, device)
        if min_samples is not None and last is None:  # the learner's steps would keep what the fourth powers found
            D = _guarded_last_step(LEARNERS["orthogonal"], 1.0, min_samples, rng)(zero_filled(Y), D, coder).dictionary
        return warm_up(Y, D, learner, coder, product=product, last=last, device=device, **schedule(learning, size))
    if start in ("svd", "identity"):
        D = svd_start(Y, r, product) if start == "svd" else np.eye(d, r, dtype=Y.dtype)
        if min_samples is not None and start == "svd":
            D = _guarded_start(Y, D, rng, min_samples)
        return warm_up(Y, D, learner, coder, product=product, last=last, device=device, **schedule(learning, size))
    if start == "samples":
        if min_samples is not None:
            raise SettingsError(
                f'start = "samples": shows samples of {name}, which the guard is there to hide; choose another start, '
                'or set privacy = "none"'
            )
        D = samples_start(Y, r, rng, product)
        return warm_up(Y, D, learner, coder, product=product, device=device, **schedule(learning, size))
    return best_warm_up(
        Y,
        r,
        learner,
        coder,
        rng,
        n_restarts=learning.n_restarts,
        last=last,
        product=product,
        device=device,
        **schedule(learning, size),
    )


def schedule(learning: LearningSettings, size: float) -> Schedule:
    """Return the keywords of :func:`warm_up`, with thresholds in the data's units.

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


def random_dictionary(rng: np.random.Generator, d: int, r: int, dtype: np.dtype[np.floating]) -> Floats:
    """Return ``r`` random unit atoms in ``d`` dimensions, orthonormal if ``r <= d``.

    Parameters
    ----------
    rng : numpy.random.Generator
        Random stream.
    d, r : int
        Number of features and of atoms.
    dtype : numpy.dtype
        Float type of the result.

    Returns
    -------
    (d, r) array
    """
    G = rng.standard_normal((d, r))
    D = np.linalg.qr(G).Q if r <= d else G / np.linalg.norm(G, axis=0)
    return D.astype(dtype)


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


def warm_up(
    Y: Floats,
    D: Floats,
    learner: Learner,
    coder: Coder,
    *,
    n_steps: int,
    first_threshold: float | None = None,
    step_size: float = 0.5,
    product: Product = product,
    last: LastStep | None = None,
    steps: range | None = None,
    device: Device = CPU,
) -> Floats:
    """Run a learner from ``D`` while the threshold shrinks geometrically to the coder's own.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns.
    D : (d, r) array
        Dictionary to start from.
    learner : Learner
        Whose step is repeated.
    coder : Coder
        Coders without a threshold are used unchanged.
    n_steps : int
        Number of steps.
    first_threshold : float, optional
        Threshold of the first step, in the data's units; default 5 times the coder's.
    step_size : float
        Step size of the learner.
    product : callable
        Computes ``A X'`` for the learner.
    last : callable ``(Y, D, coder) -> Step``, optional
        Does the last step in the learner's place.
    steps : range, optional
        The steps to do, of the ``n_steps``; by default all.
    device : Device
        Where steps but for the ``last`` are computed, see :func:`.local_update.local_update`.

    Returns
    -------
    (d, r) array
    """
    Z, D = device.samples(Y), device.put(D)
    holes = gaps(Z) is not None
    F = zero_filled(Z)
    for t in range(n_steps) if steps is None else steps:
        warm = coder.warm(first_threshold, t / (n_steps - 1) if n_steps > 1 else 1.0)
        is_last = last is not None and t == n_steps - 1
        if last and is_last:
            step = last(F if device.is_host else Y, host(D), warm)
        else:
            step = learner.take(F, D, warm, step_size, product)
        D = step.dictionary
        if holes:
            F = refill(Y, D @ (warm(F, D) if step.codes is None else step.codes))
    return host(D)


def best_warm_up(
    Y: Floats,
    n_atoms: int,
    learner: Learner,
    coder: Coder,
    rng: np.random.Generator,
    *,
    n_restarts: int,
    n_steps: int,
    first_threshold: float | None = None,
    step_size: float = 0.5,
    product: Product = product,
    last: LastStep | None = None,
    device: Device = CPU,
) -> Floats:
    """Run :func:`warm_up` from ``n_restarts`` random dictionaries, and return the one with the least objective.

    If the starts are too large to be stacked, the worse half of them is given up after half of the steps, and
    again after three quarters.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns.
    n_atoms : int
        Number of atoms.
    learner : Learner
        Whose step is repeated.
    coder : Coder
        Computes codes and gives the penalty.
    rng : numpy.random.Generator
        Random stream of the starts.
    n_restarts : int
        Number of random dictionaries, at least 1.
    n_steps : int
        As in :func:`warm_up`.
    first_threshold, step_size : float, optional
        As in :func:`warm_up`.
    product : callable
        As in :func:`warm_up`.
    last : callable, optional
        If given, it does the last step of the best start.
    device : Device
        As in :func:`warm_up`.

    Returns
    -------
    (d, n_atoms) array
    """
    D = np.stack([random_dictionary(rng, Y.shape[0], n_atoms, Y.dtype) for _ in range(n_restarts)])
    run = functools.partial(
        warm_up,
        Y,
        learner=learner,
        coder=coder,
        n_steps=n_steps,
        first_threshold=first_threshold,
        step_size=step_size,
        product=product,
        device=device,
    )
    if gaps(device.samples(Y)) is not None or n_steps == 0:  # samples are refilled from step to step
        ends = [run(one) for one in D]
        best = _best(Y, ends, coder, device)
        return ends[best] if last is None else run(D[best], last=last)
    stacks = learner.orthonormal and coder.stacks and product is plain_product
    small = max(1, _STACK // (n_atoms * Y.shape[1])) if stacks else 1
    at_once = small if device.is_host or not stacks else max(1, _ON_DEVICE // (n_atoms * Y.shape[1]))

    def go(D: Floats, first: int, end: int) -> Floats:
        if not stacks:
            return np.stack([run(one, steps=range(first, end)) for one in D])
        return np.concatenate([run(D[i : i + at_once], steps=range(first, end)) for i in range(0, len(D), at_once)])

    t = 0
    if small < n_restarts and n_steps >= 4:
        for share in _CUTS:
            D, t = go(D, t, int(share * n_steps)), int(share * n_steps)
            values = [objective(Y, one, coder, device) for one in D]
            D = D[np.sort(np.argsort(values, kind="stable")[: (len(D) + 1) // 2])]
    D = go(D, t, n_steps - 1)
    ends = list(go(D, n_steps - 1, n_steps))
    best = _best(Y, ends, coder, device)
    return ends[best] if last is None else run(D[best], steps=range(n_steps - 1, n_steps), last=last)


def _best(Y: Floats, candidates: Sequence[Floats], coder: Coder, device: Device) -> int:
    """Return the number of the first candidate with the least objective."""
    if len(candidates) == 1:
        return 0
    return int(np.argmin([objective(Y, D, coder, device) for D in candidates]))


def objective(Y: Floats, D: Floats, coder: Coder, device: Device = CPU) -> float:
    """Return ``||Y - DX||_F^2 + penalty ||X||_0`` for the coder's codes and penalty.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns.
    D : (d, r) array
        Dictionary.
    coder : Coder
        Computes the codes and gives the penalty.
    device : Device
        As in :func:`warm_up`.

    Returns
    -------
    float
    """
    Z, D = device.samples(Y), device.put(D)
    xp, X = namespace(D), codes_of(Z, D, coder)
    return float(xp.linalg.norm(observed_residual(Z, D @ X)) ** 2 + coder.penalty * xp.count_nonzero(X))
