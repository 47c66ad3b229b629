r"""A layout for fixed cameras: each place of the frame has a federation of its own, with one shared atom.

A client holds a window of frames. At each place (a block of pixels) it codes its few samples with one atom each,

.. math:: \min_{D_i, X_i} \lVert Y_i - D_i X_i\rVert_F^2 \quad\text{so that } \lVert x\rVert_0 \le 1
          \text{ for every column } x \text{ of } X_i,

so that frames in which something covers the place get their own atoms. Matching takes the atom of each client that is
most alike in all windows: the background. Aggregation, best by geometric median, resists windows in which the place was
always covered. PerMA's steps do not change.

Scalars turn the atoms into pictures. A frame's *code* at a place is that of least absolute deviation
(:func:`absolute_codes`), so that what covers a part of the place does not change it. The *brightness* of a place is the
median of all frames' codes on its shared atom. The *exposure* of a frame is the median over places of its codes
relative to brightness; a client computes it alone. The *noise* of a place is what the background leaves over in the
calmest frame of a window, the lower quartile over clients. Own parts of at most ``GATE`` times the noise are set to
zero, but for pixels that differ by more than ``CERTAIN`` grey levels: where no frame is calm, noise is overrated. So
for every place, a client sends its atom, one number per frame, and one more number. ``benchmarks/cameras.py`` chose
the two constants.
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
from perdl_client.learning.initialization import check_fit
from perdl_client.learning.warm_up import warm_up

Floats = NDArray[np.floating]
Bytes = NDArray[np.uint8]
Backgrounds = dict[str, list[Floats]]
"""Backgrounds by strategy: one for each client, or one for all."""

GATE = 2.0
"""An own part must exceed this many times the noise of its place."""

CERTAIN = 45.0
"""A pixel whose largest channel differs by more grey levels than this moves, whatever the noise."""


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
    shared = expose(P, background, windows)
    own = P - shared
    gate(own, windows, shape[2], common=len(background) == 1)

    def pictures(Q: Floats) -> Floats:
        return np.stack([255 * from_places(q, shape, patch) for q in Q])

    return Separation(pictures(shared), pictures(own), pictures(background))


def expose(P: Floats, background: Floats, windows: Sequence[slice]) -> Floats:
    """Return the background of every frame, as bright as the frame.

    Parameters
    ----------
    P : (n, d, m) array
        Frames, see :func:`perdl_client.data.video_layouts.places`.
    background : (n_clients or 1, d, m) array
        Background of each client, or one for all.
    windows : sequence of slice
        Frames of each client.

    Returns
    -------
    (n, d, m) array
    """
    shared = np.empty_like(P)
    for i, window in enumerate(windows):
        B = background[i % len(background)]
        lit = np.any(B, axis=0)
        for t in range(*window.indices(len(P))):
            shared[t] = B * np.median(absolute_codes(P[t][:, lit], B[:, lit])) if lit.any() else 0.0
    return shared


def gate(
    own: Floats,
    windows: Sequence[slice],
    channels: int,
    *,
    common: bool = True,
    times: float = GATE,
    certain: float = CERTAIN,
) -> None:
    """Set own parts to zero that are noise, in place.

    Parameters
    ----------
    own : (n, d, m) array
        Frames minus their background, in which 1 is white.
    windows : sequence of slice
        Frames of each client.
    channels : int
        Number of channels, next to each other in d.
    common : bool
        Whether clients agree on the noise of a place, or each takes its own.
    times : float
        An own part must exceed this many times the noise of its place.
    certain : float
        Pixels whose largest channel differs by more grey levels than this are kept.
    """
    left = np.linalg.norm(own, axis=1)
    calmest = np.stack([left[window].min(axis=0) for window in windows])
    for i, window in enumerate(windows):
        noise = np.quantile(calmest, 0.25, axis=0) if common else calmest[i]
        largest = np.abs(own[window]).reshape(-1, own.shape[1] // channels, channels, own.shape[2]).max(axis=2)
        kept = (left[window] > times * noise)[:, None] | (largest > certain / 255)
        own[window] *= np.repeat(kept, channels, axis=1)


def absolute_codes(Y: Floats, D: Floats) -> Floats:
    r"""Return each sample's code of least absolute deviation on one atom.

    .. math:: x_j = \arg\min_x \lVert y_j - x d_j\rVert_1

    It is the median of :math:`y_{kj} / d_{kj}` with weights :math:`|d_{kj}|`; of several solutions, the least. Entries
    that are off do not change it, however far, if they have less than half of the weight.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns.
    D : (d, n) or (d, 1) array
        The atom of each sample, or one for all.

    Returns
    -------
    (n,) array
        Zero on atoms that are zero.
    """
    weights = np.abs(D)
    ratios = np.divide(Y, D, out=np.zeros_like(Y), where=np.broadcast_to(weights > 0, Y.shape))
    order = np.argsort(ratios, axis=0)
    sums = np.cumsum(np.take_along_axis(np.broadcast_to(weights, Y.shape), order, axis=0), axis=0)
    middle = (sums < sums[-1] / 2).sum(axis=0)
    codes: Floats = np.take_along_axis(ratios, np.take_along_axis(order, middle[None], axis=0), axis=0)[0]
    return codes


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
        out[strategy_name(variant)] = [brightened(clients, model.global_dictionary[:, 0])]
    alone = independent(clients, starts, rounds)
    own = {c.name: brightened([c], most_used_first(D, [c])[:, 0]) for c, D in zip(clients, alone, strict=True)}
    out["independent clients"] = [
        own.get(f"client-{i + 1}", np.zeros(len(Y), dtype=Y.dtype)) for i, Y in enumerate(samples)
    ]
    everything = Client("pooled", np.hstack([client.data for client in clients]), learning)
    D_pooled = independent([everything], [sample_start(everything.data, learning)], rounds)[0]
    out["pooled data"] = [brightened(clients, most_used_first(D_pooled, [everything])[:, 0])]
    r = min(start.shape[1] for start in starts)
    D_mean = averaged(clients, [start[:, :r] for start in starts], rounds)
    out["averaged without matching"] = [brightened(clients, most_used_first(D_mean, clients)[:, 0])]
    pca = personalized_pca([c.data for c in clients], 1, min(1, len(clients[0].data) - 1), rounds, 1.0)
    out["personalized PCA"] = [brightened(clients, pca.global_components[:, 0])]
    return out


def brightened(clients: Sequence[Client], atom: Floats) -> Floats:
    """Return the shared atom of a place times its brightness.

    Parameters
    ----------
    clients : sequence of Client
        Clients with their samples of the place.
    atom : (d,) array
        The shared atom.

    Returns
    -------
    (d,) array
        The background of the place.
    """
    codes = np.concatenate([absolute_codes(client.data, atom[:, None]) for client in clients])
    return np.asarray(atom * np.median(codes), dtype=atom.dtype)
