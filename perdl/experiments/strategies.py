"""PerMA with every aggregation, and the alternatives to it, all from the same starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import cast

import numpy as np
from numpy.typing import NDArray

from common.coders import OMP
from common.errors import SettingsError
from common.learners import LEARNERS
from common.settings import Settings, changed
from common.threads import one_blas_thread
from perdl.experiments.federation import Client, averaged, first_dictionaries, independent, match, perma, pooled, used
from perdl.experiments.personalized_pca import personalized_pca
from perdl.experiments.workers import threads
from perdl_client.learning.local_update import local_update

Floats = NDArray[np.floating]
Progress = Callable[[str], object]

_FINISH_STEP = 1.9  # steps are stable below 2; with 1.0 it takes about twice the rounds


@dataclass(frozen=True)
class Learned:
    """The result of a strategy.

    Parameters
    ----------
    dictionaries : list of (d, r_i) arrays
        One dictionary per data set.
    n_shared : int
        The first atoms of all dictionaries are the same, this many; 0 for clients alone.
    """

    dictionaries: list[Floats]
    n_shared: int

    @property
    def shared(self) -> Floats:
        """The shared atoms D^g; client 1's own dictionary if there are none."""
        return self.dictionaries[0][:, : self.n_shared or None]


def main_strategy(settings: Settings) -> str:
    """Return the name of PerMA with the settings' own aggregation.

    Parameters
    ----------
    settings : Settings
        Settings of the run.
    """
    return f"PerMA, {settings.aggregation}"


def learn(
    clients: Sequence[Client],
    settings: Settings,
    aggregations: Sequence[str],
    finish_rounds: int,
    progress: Progress,
) -> dict[str, tuple[Learned, float]]:
    """Run every strategy from the same starts, two at a time.

    Parameters
    ----------
    clients : sequence of Client
        Clients with their data, in the order of their names.
    settings : Settings
        Settings of the run.
    aggregations : sequence of str
        Aggregations of PerMA to run; the settings' own is one of them.
    finish_rounds : int
        Number of final rounds of the main strategies, see :func:`finish`. They are results of their own.
    progress : callable (str) -> object
        Gets each strategy's name when it is done.

    Returns
    -------
    dict
        For each strategy what it learned, and its time in seconds.

    Raises
    ------
    SettingsError
        If a client uses no atom.

    Notes
    -----
    If a client uses fewer atoms than ``n_global``, it lowers ``n_global`` for all. This happens if an image may use
    only few atoms.
    """
    data = [client.data for client in clients]
    starts = first_dictionaries(clients, settings.seed)
    n_used = min(len(used(client, D)[0]) for client, D in zip(clients, starts, strict=True))
    if n_used == 0:
        raise SettingsError("there is a client that uses none of its atoms: lower threshold or min_samples")
    n_global = min(n_used, _n_global(clients, starts, settings))
    # "auto" would choose by aggregation: keep one matching for all.
    settings = changed(settings, n_global=n_global, matching=settings.matching_method)
    r, r_g = starts[0].shape[1], cast(int, settings.n_global)

    def federated(aggregation: str) -> Learned:
        model = perma(clients, starts, changed(settings, aggregation=aggregation))
        return _learned(model.global_dictionary, model.local_dictionaries)

    def principal() -> Learned:
        # At most as many own components as shared ones: r = d would explain everything with any U.
        fit = personalized_pca(data, r_g, min(r_g, r - r_g), settings.rounds, step_size=1.0)
        return _learned(fit.global_components, fit.local_components)

    strategies: dict[str, Callable[[], Learned]] = {
        "alone": lambda: Learned(independent(clients, starts, settings.rounds), 0),
        "pooled": lambda: Learned([pooled(clients, settings)], r),
        "averaged": lambda: Learned([averaged(clients, starts, settings.rounds)] * len(data), r),
        **{f"PerMA, {name}": partial(federated, name) for name in aggregations},
        "personalized PCA": principal,
    }
    k, out = settings.evaluation.n_nonzero, {}
    with one_blas_thread(), threads(min(2, os.cpu_count() or 1)) as pool:
        for name, result in zip(strategies, pool.map(_timed, strategies.values()), strict=True):
            out[name] = result
            progress(name)
        ends = {
            name: partial(finish, [np.hstack(data)] if name == "pooled" else data, out[name][0], k, finish_rounds)
            for name in ("alone", "pooled", "averaged", main_strategy(settings))
        }
        for name, (learned, seconds) in zip(ends, pool.map(_timed, ends.values()), strict=True):
            out[f"{name}, finished"] = learned, out[name][1] + seconds
            progress(f"{name}, finished")
    return out


def finish(data: Sequence[Floats], learned: Learned, k: int, rounds: int) -> Learned:
    """Add PerMA's rounds to any strategy: gradient learner, codes by OMP, plain mean of the shared atoms.

    Parameters
    ----------
    data : sequence of (d, n_i) arrays
        Samples for each dictionary; one array for pooled data.
    learned : Learned
        Result of the strategy.
    k : int
        Atoms per sample.
    rounds : int
        Number of rounds.

    Returns
    -------
    Learned
        The atoms need not be orthogonal any more, so few of them can explain more of a sample.
    """
    s, learner, coder = learned.n_shared, LEARNERS["gradient"], OMP(k)
    D_g, local = learned.dictionaries[0][:, :s], [D[:, s:] for D in learned.dictionaries]
    for _ in range(rounds):
        new = [local_update(Y, D_g, D_l, learner, coder, _FINISH_STEP) for Y, D_l in zip(data, local, strict=True)]
        D_g, local = np.mean([u.global_dictionary for u in new], axis=0), [u.local_dictionary for u in new]
    return _learned(D_g, local)


def _learned(D_g: Floats, local: Sequence[Floats]) -> Learned:
    return Learned([np.hstack([D_g, D_l]) for D_l in local], D_g.shape[1])


def _n_global(clients: Sequence[Client], starts: Sequence[Floats], settings: Settings) -> int:
    if isinstance(settings.n_global, int):
        return settings.n_global
    return int(match(clients, starts, settings)[0].shape[1])


def _timed(job: Callable[[], Learned]) -> tuple[Learned, float]:
    began = monotonic()
    return job(), monotonic() - began
