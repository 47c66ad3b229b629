r"""Learning from random dictionaries, with a threshold that shrinks to its final value.

The result with the least objective is kept:

.. math:: \lVert Y - DX\rVert_F^2 + \text{penalty} \cdot \lVert X\rVert_0 .

Source: Liang et al. 2022, "Simple alternating minimization provably solves complete dictionary learning", algorithm 4.
Giving up the worse starts on the way is ours.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from common.arrays import host, namespace
from common.coders import Coder
from common.learners import Learner, Product, Step, product
from perdl_client.learning.device import CPU, Device
from perdl_client.learning.missing import codes_of, gaps, observed_residual, refill, zero_filled

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
