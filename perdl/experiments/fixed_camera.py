r"""A layout for fixed cameras: a federation for every place of the frame, and one shared atom at each.

A client holds a window of frames. At each place (a block of pixels) its few samples are coded with one atom each,

.. math:: \min_{D_i, X_i} \lVert Y_i - D_i X_i\rVert_F^2 \quad\text{so that } \lVert x\rVert_0 \le 1
          \text{ for every column } x \text{ of } X_i,

which puts frames in which something covers the place on atoms of their own. Matching takes from every client the atom
that is most alike in all windows: the background. Aggregation, best by geometric median, leaves out windows in which
the place was never free. PerMA's steps are not changed in any way.

Scalars join the atoms to pictures: the *brightness* of a place, the median of all frames' codes on its shared atom,
where they use it; the *exposure* of a frame, the median over places of its codes relative to brightness, which a client
finds alone; and the *noise* of a place, the lower quartile over clients of what the background leaves over in the
calmest frame of a window. An own part that does not exceed ``GATE`` times the noise is none. So a client sends for
every place, beside its atom, at most one number a frame and one more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from common.learners import LEARNERS
from common.learning_settings import LearningSettings
from common.settings import Settings
from common.threads import one_blas_thread
from perdl.experiments.federation import Client, averaged, independent, perma
from perdl.experiments.frame_clients import Separation, most_used_first, strategy_name, variants
from perdl.experiments.personalized_pca import personalized_pca
from perdl_client.data.video_layouts import from_places, places
from perdl_client.learning.initialization import check_fit, rms, warm_up

Floats = NDArray[np.floating]
Bytes = NDArray[np.uint8]
Backgrounds = dict[str, list[Floats]]
"""By strategy: the background of each client, or one for all."""

GATE = 2.0
"""How many times the noise of its place an own part must be."""


def separations(
    frames: Bytes, settings: Settings, progress: Callable[[str], object] = lambda text: None
) -> Iterator[tuple[str, Separation]]:
    """Separate a video with every strategy, all from the same starts; what the settings name comes first.

    Parameters
    ----------
    frames : (n, h, w, c) uint8 array
    settings : Settings
        ``data.patch`` and ``data.window``, and all of PerMA's with ``n_global = 1``.
    progress : callable

    Yields
    ------
    name : str
    Separation
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
    """Return each client's frames of ``n``: ``window`` in a row, the last client what is left."""
    return [slice(i, min(i + window, n)) for i in range(0, n, window)]


def separate(
    P: Floats, background: Floats, windows: Sequence[slice], shape: tuple[int, int, int], patch: int
) -> Separation:
    """Take the background off frames, by exposure and noise.

    Parameters
    ----------
    P : (n, d, m) array
        Frames, see :func:`perdl_client.data.video_layouts.places`.
    background : (n_clients or 1, d, m) array
    windows : sequence of slice
        Each client's frames.
    shape : (h, w, c)
    patch : int

    Returns
    -------
    Separation
        ``background`` is at mean exposure.
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
    """Return a client's first dictionary at one place: samples that are most unlike each other, then warm-up.

    Parameters
    ----------
    Y : (d, n) array
        No column is zero.
    learning : LearningSettings
        ``n_atoms``, at most the samples; ``warmup_steps``.

    Returns
    -------
    (d, r) array
    """
    U = Y / np.linalg.norm(Y, axis=0)
    cosines = np.abs(U.T @ U)
    chosen = [int(cosines.sum(axis=0).argmax())]
    while len(chosen) < min(learning.n_atoms or 1, Y.shape[1]):
        chosen.append(int(cosines[chosen].max(axis=0).argmin()))
    learner, coder = LEARNERS[learning.learner], learning.make_coder(rms(Y))
    return warm_up(Y, U[:, chosen], learner, coder, n_steps=learning.warmup_steps, step_size=learning.step_size)


def _at_one_place(samples: Sequence[Floats], settings: Settings) -> Backgrounds:
    """Return by strategy the background at one place, (d,) for each client or once."""
    learning = settings.for_client("")
    kept = [(i, Y[:, np.any(Y, axis=0)]) for i, Y in enumerate(samples)]
    clients = [Client(f"client-{i + 1}", Y, learning) for i, Y in kept if Y.shape[1]]  # black samples say nothing
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
    """Return the first atom, which is everybody's, at its brightness."""
    atom = dictionaries[0][:, 0]
    codes = [c.coder(c.data, D)[0] for c, D in zip(clients, dictionaries, strict=True)]
    used = np.concatenate(codes)
    used = used[used != 0]
    if not used.size:  # no sample is nearest to this atom
        used = np.concatenate([atom @ client.data for client in clients]) / (atom @ atom)
    return np.asarray(atom * np.median(used), dtype=atom.dtype)
