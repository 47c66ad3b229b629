r"""The paper's surveillance set-up: every frame is a client, whose samples are thumbnails or blocks of it.

.. math:: Y_i \approx D^g X^g_i + D^l_i X^l_i

The first term is the frame's shared part, meant to be the background, the second its own part, meant to be what moves.
Codes are those of the settings' coder in ``[D^g D^l_i]``. Strategies that do not separate atoms themselves count their
r^g most used atoms as shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.coders import Coder
from common.settings import Settings
from perdl.experiments.federation import Client, averaged, first_dictionaries, independent, perma, pooled
from perdl.experiments.personalized_pca import personalized_pca
from perdl_client.layouts import LAYOUTS
from perdl_client.learners import LEARNERS
from perdl_client.start import rms, usage

Floats = NDArray[np.floating]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Separation:
    """A video in two parts, in grey levels.

    Attributes
    ----------
    shared, own : (n, h, w, c) arrays
    background : (m, h, w, c) array
        What to compare with a picture of the empty scene: the shared parts, or one picture for all.
    """

    shared: Floats
    own: Floats
    background: Floats


@dataclass(frozen=True)
class _Learned:
    """``dictionaries[i]`` is client i's, shared atoms first; one is everybody's. Without a coder codes are dense."""

    dictionaries: Sequence[Floats]
    n_shared: int
    coder: Callable[[Client], Coder] | None


def separations(
    frames: Bytes, settings: Settings, progress: Callable[[str], object] = lambda text: None
) -> Iterator[tuple[str, Separation]]:
    """Separate a video with every strategy, all from the same starts; what the settings name comes first.

    Parameters
    ----------
    frames : (n, h, w, c) uint8 array
    settings : Settings
        ``data.layout``, ``data.patch``, and all of PerMA's.
    progress : callable

    Yields
    ------
    name : str
    Separation
    """
    layout, patch, shape = LAYOUTS[settings.data.layout], settings.data.patch, frames.shape[1:]
    samples = [layout.to_samples(frame.astype(settings.dtype) / 255, patch) for frame in frames]
    clients = [Client(f"client-{i + 1}", Y, settings.for_client(f"client-{i + 1}")) for i, Y in enumerate(samples)]
    progress("starts")
    for name, learned in _strategies(clients, settings):
        shared, own = (np.empty(frames.shape, dtype=np.float32) for _ in range(2))
        for i, client in enumerate(clients):
            D = learned.dictionaries[i % len(learned.dictionaries)]
            X = learned.coder(client)(client.data, D) if learned.coder else D.T @ client.data
            g = learned.n_shared
            shared[i] = 255 * layout.to_frame(D[:, :g] @ X[:g], shape, patch)
            own[i] = 255 * layout.to_frame(D[:, g:] @ X[g:], shape, patch)
        yield name, Separation(shared, own, shared)


def strategy_name(settings: Settings) -> str:
    """Return what tables call PerMA with these settings."""
    return f"PerMA, {settings.aggregation}, {settings.matching}"


def variants(settings: Settings) -> list[Settings]:
    """Return the settings of PerMA to compare: as they are, and with the other aggregations."""
    joint = "procrustes" if LEARNERS[settings.learner].orthonormal else "energy"
    changes: list[dict[str, str]] = [{}]
    changes += [{"aggregation": name} for name in ("mean", "geometric-median", joint) if name != settings.aggregation]
    return [settings.model_copy(update=change) for change in changes]


def _strategies(clients: Sequence[Client], settings: Settings) -> Iterator[tuple[str, _Learned]]:
    starts = first_dictionaries(clients, settings.seed)
    r_g = 0
    other = settings.model_copy(update={"matching": "chain" if settings.matching == "star" else "star"})
    for variant in (*variants(settings), other):
        model = perma(clients, starts, variant)
        r_g = r_g or model.global_dictionary.shape[1]
        D = [np.hstack([model.global_dictionary, D_l]) for D_l in model.local_dictionaries]
        yield strategy_name(variant), _Learned(D, model.global_dictionary.shape[1], _coder)
    alone = independent(clients, starts, settings.rounds)
    yield (
        "independent clients",
        _Learned([_most_used_first(D, [client]) for client, D in zip(clients, alone, strict=True)], r_g, _coder),
    )
    for name, one in (
        ("pooled data", pooled(clients, settings)),
        ("averaged without matching", averaged(clients, starts, settings.rounds)),
    ):
        yield name, _Learned([_most_used_first(one, clients)], r_g, _coder)
    n_local = max(0, min(settings.n_nonzero, len(clients[0].data) - r_g))
    pca = personalized_pca([client.data for client in clients], r_g, n_local, settings.rounds, 1.0)
    D = [np.hstack([pca.global_components, V]) for V in pca.local_components]
    yield "personalized PCA", _Learned(D, r_g, None)


def _coder(client: Client) -> Coder:
    return client.learning.make_coder(rms(client.data))


def _most_used_first(D: Floats, clients: Sequence[Client]) -> Floats:
    energies = sum(usage(_coder(client)(client.data, D)) for client in clients)
    return D[:, np.argsort(-np.asarray(energies), kind="stable")]
