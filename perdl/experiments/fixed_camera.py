r"""A layout for fixed cameras: each place of the frame has a federation of its own, with one shared atom.

A client holds a window of frames. At each place (a block of pixels) it codes its few samples with one atom each,

.. math:: \min_{D_i, X_i} \lVert Y_i - D_i X_i\rVert_F^2 \quad\text{so that } \lVert x\rVert_0 \le 1
          \text{ for every column } x \text{ of } X_i,

so that frames in which something covers the place get their own atoms. Matching takes the atom of each client that is
most alike in all windows: the background. Aggregation, best by geometric median, resists windows in which the place was
always covered. PerMA's steps do not change.

Scalars turn the atoms into pictures. The *brightness* of a place is the median of all frames' codes on its shared atom,
among frames that use it. The *exposure* of a frame is the median over places of its codes relative to brightness; a
client computes it alone. The *noise* of a place is what the background leaves over in the calmest frame of a window,
the lower quartile over clients. Own parts of at most ``GATE`` times the noise are set to zero. So for every place, a
client sends its atom, at most one number per frame, and one more number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from common.learners import LEARNERS
from common.learning_settings import LearningSettings
from common.settings import Settings
from common.statistics import rms
from common.threads import one_blas_thread
from perdl.experiments.federation import Client, averaged, independent, perma
from perdl.experiments.frame_clients import Separation, most_used_first, strategy_name, variants
from perdl.experiments.personalized_pca import personalized_pca
from perdl_client.data.video_layouts import from_places, places
from perdl_client.learning.initialization import check_fit, warm_up

Floats = NDArray[np.floating]
Bytes = NDArray[np.uint8]
Backgrounds = dict[str, list[Floats]]
"""Backgrounds by strategy: one for each client, or one for all."""

GATE = 2.0
"""An own part must exceed this many times the noise of its place."""


def separations(
    frames: Bytes, settings: Settings, progress: Callable[[str], object] = lambda text: None
) -> Iterator[tuple[str, Separation]]:
    """Separate a video with every strategy, all from the same starts. PerMA with the settings as they are comes first.

    Parameters
    ----------
    frames : (n, h, w, c) uint8 array
        The video.
    settings : Settings
        Settings of PerMA with ``n_global = 1``, and ``data.patch`` and ``data.window``.
    progress : callable (str) -> object
        Gets a line now and then.

    Yields
    ------
    name : str
        Name of the strategy.
    separation : Separation
        The two parts of the video.
    """
    patch, shape = settings.data.video_patch, frames.shape[1:]
    P = np.stack([places(frame.astype(settings.dtype) / 255, patch) for frame in frames])
    n, d, m = P.shape
    check_fit(settings, d, "a place")
    windows = windows_of(n, settings.data.video_window)
    found: dict[str, Floats] = {}
    with one_blas_thread():
        for b in range(m):
            if b % 100 == 0:
                progress(f"place {b} of {m}")
            for name, atoms in _at_one_place([P[w, :, b].T for w in windows], settings).items():
                found.setdefault(name, np.zeros((len(atoms), d, m), dtype=P.dtype))[:, :, b] = atoms
    for name, background in found.items():
        yield name, separate(P, background, windows, shape, patch)


def windows_of(n: int, window: int) -> list[slice]:
    """Return the frames of each client; the last client gets the rest.

    Parameters
    ----------
    n : int
        Number of frames.
    window : int
        Number of consecutive frames of a client.
    """
    return [slice(i, min(i + window, n)) for i in range(0, n, window)]


def separate(
    P: Floats, background: Floats, windows: Sequence[slice], shape: tuple[int, int, int], patch: int
) -> Separation:
    """Subtract the background from frames, using exposure and noise.

    Parameters
    ----------
    P : (n, d, m) array
        Frames, see :func:`perdl_client.data.video_layouts.places`.
    background : (n_clients or 1, d, m) array
        Background of each client, or one for all.
    windows : sequence of slice
        Frames of each client.
    shape : tuple of int
        Height, width and channels of a frame.
    patch : int
        Pixels per side of a place.

    Returns
    -------
    Separation
        The two parts; ``background`` has mean exposure.
    """
    shared, own = np.empty_like(P), np.empty_like(P)
    left = np.empty((len(P), P.shape[2]), dtype=P.dtype)
    for i, window in enumerate(windows):
        B = background[i % len(background)]
        energy = (B * B).sum(axis=0)
        lit = energy > 0
        for t in range(*window.indices(len(P))):
            codes = (P[t][:, lit] * B[:, lit]).sum(axis=0) / energy[lit]
            shared[t] = B * np.median(codes) if codes.size else 0.0
            own[t] = P[t] - shared[t]
            left[t] = np.linalg.norm(own[t], axis=0)
    calmest = np.stack([left[window].min(axis=0) for window in windows])
    for i, window in enumerate(windows):
        noise = np.quantile(calmest, 0.25, axis=0) if len(background) == 1 else calmest[i]
        own[window] *= (left[window] > GATE * noise)[:, None]

    def pictures(Q: Floats) -> Floats:
        return np.stack([255 * from_places(q, shape, patch) for q in Q])

    return Separation(pictures(shared), pictures(own), pictures(background))


def sample_start(Y: Floats, learning: LearningSettings) -> Floats:
    """Return a client's first dictionary at one place: samples that differ most from each other, then warm-up.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns, none of them zero.
    learning : LearningSettings
        How the client learns; at most n of its ``n_atoms`` are made.

    Returns
    -------
    (d, r) array
        The first dictionary.
    """
    U = Y / np.linalg.norm(Y, axis=0)
    cosines = np.abs(U.T @ U)
    chosen = [int(cosines.sum(axis=0).argmax())]
    while len(chosen) < min(learning.n_atoms or 1, Y.shape[1]):
        chosen.append(int(cosines[chosen].max(axis=0).argmin()))
    learner, coder = LEARNERS[learning.learner], learning.make_coder(rms(Y))
    return warm_up(Y, U[:, chosen], learner, coder, n_steps=learning.warmup_steps, step_size=learning.step_size)


def _at_one_place(samples: Sequence[Floats], settings: Settings) -> Backgrounds:
    """Return the background at one place by strategy, (d,) for each client or once for all."""
    learning = settings.for_client("")
    kept = [(i, Y[:, np.any(Y, axis=0)]) for i, Y in enumerate(samples)]
    clients = [Client(f"client-{i + 1}", Y, learning) for i, Y in kept if Y.shape[1]]  # without black samples
    if not clients:
        return {}
    starts = [sample_start(client.data, learning) for client in clients]
    rounds, out = settings.rounds, Backgrounds()
    for variant in variants(settings):
        model = perma(clients, starts, variant)
        D = [np.hstack([model.global_dictionary, D_l]) for D_l in model.local_dictionaries]
        out[strategy_name(variant)] = [_shared_atom(clients, D)]
    alone = independent(clients, starts, rounds)
    own = {c.name: _shared_atom([c], [most_used_first(D, [c])]) for c, D in zip(clients, alone, strict=True)}
    out["independent clients"] = [
        own.get(f"client-{i + 1}", np.zeros(len(Y), dtype=Y.dtype)) for i, Y in enumerate(samples)
    ]
    everything = Client("pooled", np.hstack([client.data for client in clients]), learning)
    D_pooled = independent([everything], [sample_start(everything.data, learning)], rounds)[0]
    out["pooled data"] = [_shared_atom([everything], [most_used_first(D_pooled, [everything])])]
    r = min(start.shape[1] for start in starts)
    D_mean = averaged(clients, [start[:, :r] for start in starts], rounds)
    out["averaged without matching"] = [_shared_atom(clients, [most_used_first(D_mean, clients)] * len(clients))]
    pca = personalized_pca([c.data for c in clients], 1, min(1, len(clients[0].data) - 1), rounds, 1.0)
    codes = np.concatenate([(pca.global_components.T @ c.data)[0] for c in clients])
    out["personalized PCA"] = [pca.global_components[:, 0] * np.median(codes)]
    return out


def _shared_atom(clients: Sequence[Client], dictionaries: Sequence[Floats]) -> Floats:
    """Return the first atom, which all clients share, times its brightness."""
    atom = dictionaries[0][:, 0]
    codes = [c.coder(c.data, D)[0] for c, D in zip(clients, dictionaries, strict=True)]
    used = np.concatenate(codes)
    used = used[used != 0]
    if not used.size:  # no sample uses this atom
        used = np.concatenate([atom @ client.data for client in clients]) / (atom @ atom)
    return np.asarray(atom * np.median(used), dtype=atom.dtype)
