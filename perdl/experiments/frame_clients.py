r"""The paper's surveillance set-up: every frame is a client, and its samples are thumbnails or blocks of the frame.

.. math:: Y_i \approx D^g X^g_i + D^l_i X^l_i

The first term is the frame's shared part, ideally the background. The second is its own part, ideally what moves. The
settings' coder finds the codes in ``[D^g D^l_i]``. For strategies that do not separate atoms, the r^g most used atoms
count as shared.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from common.learners import LEARNERS
from common.settings import Settings
from common.statistics import atom_energies
from common.threads import one_blas_thread
from perdl.experiments.federation import Client, averaged, first_dictionaries, independent, perma, pooled
from perdl.experiments.personalized_pca import personalized_pca
from perdl.experiments.workers import threads
from perdl_client.data.video_layouts import LAYOUTS

Floats = NDArray[np.floating]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Separation:
    """A video in two parts, in grey levels.

    Parameters
    ----------
    shared, own : (n, h, w, c) arrays
        The shared part and the own part of every frame.
    background : (m, h, w, c) array
        To compare with a picture of the empty scene: the shared parts, or one picture for all.
    seconds : float, optional
        CPU time of learning in seconds, without the starts.
    """

    shared: Floats
    own: Floats
    background: Floats
    seconds: float | None = None


@dataclass(frozen=True)
class _Learned:
    """Client i has ``dictionaries[i]``, shared atoms first; a single dictionary is for all. Codes may be dense."""

    dictionaries: Sequence[Floats]
    n_shared: int
    dense: bool = False
    seconds: float = 0.0


def separations(
    frames: Bytes, settings: Settings, progress: Callable[[str], object] = lambda text: None
) -> Iterator[tuple[str, Separation]]:
    """Separate a video with every strategy, all from the same starts. PerMA with the settings as they are comes first.

    Parameters
    ----------
    frames : (n, h, w, c) uint8 array
        The video.
    settings : Settings
        Settings of PerMA, and ``data.layout`` and ``data.patch``.
    progress : callable (str) -> object
        Gets a line now and then.

    Yields
    ------
    name : str
        Name of the strategy.
    separation : Separation
        The two parts of the video.
    """
    layout, patch, shape = LAYOUTS[settings.data.layout], settings.data.video_patch, frames.shape[1:]
    samples = [layout.to_samples(frame.astype(settings.dtype) / 255, patch) for frame in frames]
    clients = [Client(f"client-{i + 1}", Y, settings.for_client(f"client-{i + 1}")) for i, Y in enumerate(samples)]
    progress("starts")
    for name, learned in _strategies(clients, settings):
        shared, own = (np.empty(frames.shape, dtype=np.float32) for _ in range(2))
        for i, client in enumerate(clients):
            D = learned.dictionaries[i % len(learned.dictionaries)]
            X = D.T @ client.data if learned.dense else client.coder(client.data, D)
            g = learned.n_shared
            shared[i] = 255 * layout.to_frame(D[:, :g] @ X[:g], shape, patch)
            own[i] = 255 * layout.to_frame(D[:, g:] @ X[g:], shape, patch)
        yield name, Separation(shared, own, shared, learned.seconds)


def strategy_name(settings: Settings) -> str:
    """Return the name in tables of PerMA with these settings.

    Parameters
    ----------
    settings : Settings
        Settings of the run.
    """
    return f"PerMA, {settings.aggregation}, {settings.matching_method}"


def variants(settings: Settings) -> list[Settings]:
    """Return the settings of PerMA to compare: as they are, and with other aggregations.

    Parameters
    ----------
    settings : Settings
        Settings of the run.
    """
    joint = "procrustes" if LEARNERS[settings.learner].orthonormal else "energy"
    # "auto" would choose by aggregation: keep one matching for all.
    settings = settings.model_copy(update={"matching": settings.matching_method})
    changes: list[dict[str, str]] = [{}]
    changes += [{"aggregation": name} for name in ("mean", "geometric-median", joint) if name != settings.aggregation]
    return [settings.model_copy(update=change) for change in changes]


def _strategies(clients: Sequence[Client], settings: Settings) -> Iterator[tuple[str, _Learned]]:
    rounds, workers = settings.rounds, os.cpu_count() or 1
    # One BLAS thread per worker: more are slower for small products, above all on a busy machine.
    with one_blas_thread(), threads(workers) as pool:
        starts = list(pool.map(lambda client: first_dictionaries([client], settings.seed)[0], clients))

        def federate(own: Settings) -> _Learned:
            model = perma(clients, starts, own)
            D = [np.hstack([model.global_dictionary, D_l]) for D_l in model.local_dictionaries]
            return _Learned(D, model.global_dictionary.shape[1])

        first, *more = variants(settings)
        learned = _timed(lambda: federate(first))
        yield strategy_name(first), learned
        r_g = learned.n_shared

        def alone() -> _Learned:
            found = independent(clients, starts, rounds)
            return _Learned([most_used_first(D, [c]) for c, D in zip(clients, found, strict=True)], r_g)

        def one_for_all(D: Floats) -> _Learned:
            return _Learned([most_used_first(D, clients)], r_g)

        def dense() -> _Learned:
            n_local = max(0, min(settings.n_nonzero, len(clients[0].data) - r_g))
            pca = personalized_pca([client.data for client in clients], r_g, n_local, rounds, 1.0)
            return _Learned([np.hstack([pca.global_components, V]) for V in pca.local_components], r_g, dense=True)

        more.append(first.model_copy(update={"matching": "chain" if first.matching == "star" else "star"}))
        jobs: dict[str, Callable[[], _Learned]] = {
            strategy_name(other): functools.partial(federate, other) for other in more
        }
        jobs |= {
            "independent clients": alone,
            "pooled data": lambda: one_for_all(pooled(clients, settings)),
            "averaged without matching": lambda: one_for_all(averaged(clients, starts, rounds)),
            "personalized PCA": dense,
        }
        yield from zip(jobs, pool.map(_timed, jobs.values()), strict=True)


def _timed(job: Callable[[], _Learned]) -> _Learned:
    began = time.thread_time()
    return replace(job(), seconds=time.thread_time() - began)


def most_used_first(D: Floats, clients: Sequence[Client]) -> Floats:
    """Return a dictionary with the atoms of most energy first.

    Parameters
    ----------
    D : (d, r) array
        The dictionary.
    clients : sequence of Client
        Clients whose codes give the energies.
    """
    energies = sum(atom_energies(client.coder(client.data, D)) for client in clients)
    return D[:, np.argsort(-np.asarray(energies), kind="stable")]
