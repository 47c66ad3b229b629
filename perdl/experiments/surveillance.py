"""The paper's surveillance experiment: separate the background of a video from what moves.

In the paper's set-up every frame is a client, and its samples are patches (:mod:`perdl.experiments.frame_clients`). For
fixed cameras there is a layout in which a client holds a window of frames (:mod:`perdl.experiments.fixed_camera`).
Backgrounds are compared with the temporal median of all frames, which no client could compute. The moving pixels found
are compared with masks, if there are any. One fixed rule serves all strategies: a pixel moves if the largest channel of
its own part exceeds 30 grey levels. The masks did not influence this rule.

Source: Liang, Shi, Al Kontar, Fattahi, "Personalized Dictionary Learning for Heterogeneous Datasets", 2023, section 5.3
and its details.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import DataError, SettingsError
from common.settings import Settings
from perdl.experiments import fixed_camera, frame_clients
from perdl.experiments.frame_clients import Separation, strategy_name
from perdl.experiments.video_measures import f1, foreground, majority, psnr
from perdl_client.data.sources import video_frames
from perdl_client.data.video_layouts import crop, places
from perdl_client.formats.video import frame_folder, masks_beside, read_masks

Floats = NDArray[np.floating]
Bytes = NDArray[np.uint8]
Row = dict[str, Any]
Progress = Callable[[str], object]

MEDIAN = "temporal median"
MEDIAN_GATED = "temporal median, by exposure and noise"

PSNR, F1 = "background PSNR, dB", "F1"
F1_MAJORITY, F1_LESS_MEDIAN = "F1, lone pixels off", "F1, own part less its median"

QUICK_FRAMES, QUICK_SIDE = 8, 160


def run(
    settings: Settings, folder: Path, *, quick: bool = False, progress: Progress = lambda text: None
) -> dict[str, Any]:
    """Separate a video with every strategy, measure and draw.

    Parameters
    ----------
    settings : Settings
        Settings of the run, with ``data.source = "video"``; ``data.layout`` chooses the set-up.
    folder : Path
        Folder of the results; figures go to ``figures/`` in it.
    quick : bool
        Whether to use only the middle of a few frames.
    progress : callable (str) -> object
        Gets a line now and then.

    Returns
    -------
    dict
        ``experiment``, ``settings``, ``tables``, ``sentences``, ``seconds``.

    Raises
    ------
    SettingsError, DataError
        If settings do not fit the video, or it cannot be read.
    """
    from perdl.experiments import surveillance_figures

    began = time.monotonic()
    _check(settings)
    frames = video_frames(settings)
    labels = _masks(settings, frames)
    if quick:
        frames, labels, settings = _quick(frames, labels, settings)
    if not frames.any():
        raise DataError(f"{settings.data.path}: all frames are black: give frames that show something")
    (folder / "figures").mkdir(parents=True, exist_ok=True)  # fails now, not after hours of work
    if labels is None:
        progress("no masks beside the frames: F1 is left out")
    fixed = settings.data.layout == "fixed-camera"
    module = fixed_camera if fixed else frame_clients
    median = np.median(frames, axis=0).astype(np.float32)
    rows = [_row(name, one, median, labels, fixed) for name, one in _baselines(frames, median, settings)]
    main = ""
    for name, one in module.separations(frames, settings, progress):
        progress(name)
        rows.append(_row(name, one, median, labels, fixed))
        if one.seconds is not None:
            rows[-1]["CPU seconds"] = one.seconds
        if not main:
            main = name
            surveillance_figures.draw(frames, one, folder / "figures", name)
    title = f"{len(frames)} frames of {frames.shape[1]} x {frames.shape[2]}, {settings.data.layout}"
    seconds = time.monotonic() - began
    return {
        "experiment": "surveillance",
        "settings": settings.model_dump(mode="json"),
        "tables": {title: rows},
        "sentences": sentences(rows, settings, frames.shape, seconds),
        "seconds": seconds,
    }


def sentences(rows: Sequence[Row], settings: Settings, shape: tuple[int, ...], seconds: float) -> list[str]:
    """Return three sentences on what the table shows.

    Parameters
    ----------
    rows : sequence of dict
        Rows of the table.
    settings : Settings
        Settings of the run.
    shape : tuple of int
        Number, height, width and channels of the frames.
    seconds : float
        Time of the whole experiment in seconds.

    Returns
    -------
    list of str
        The sentences.
    """
    of, (n, h, w, c) = {row["strategy"]: row for row in rows}, shape
    name, window, patch = strategy_name(settings), settings.data.video_window, settings.data.video_patch
    fixed = settings.data.layout == "fixed-camera"
    who = f"{math.ceil(n / window)} clients of up to {window} frames" if fixed else f"{n} clients of a frame each"
    found = f"{who} share a background {_db(of[name])} from the temporal median of all frames ({name})"
    if F1 in of[name]:
        found += f"; what moves is found with F1 {of[name][F1]:.3f}, by the temporal median with {of[MEDIAN][F1]:.3f}"
    if F1_LESS_MEDIAN in of[name]:
        found += f", or {of[name][F1_LESS_MEDIAN]:.3f} once own parts are rid of each pixel's median"
    if F1 in of[name] and fixed:
        found += f", or {of[MEDIAN_GATED][F1]:.3f} where it is told exposure and noise as the clients are"
    others = [row for row in rows if not row["strategy"].startswith(("PerMA", MEDIAN))]
    figures = "; ".join(
        f"{row['strategy']} {_db(row)}" + (f", F1 {row[F1]:.3f}" if F1 in row else "") for row in others
    )
    atoms = 1 if fixed else settings.n_global
    features = h * w * c if fixed else h // patch * (w // patch) * c
    pixels = h * w * c * (window if fixed else 1)
    sent = f"{atoms * features:,}" if atoms != "auto" else f"{features:,} for each shared atom"
    return [
        f"{found}.",
        f"In the same run from the same starts: {figures}.",
        f"A client sends {sent} numbers of its atoms a round, where it has {pixels:,} of pixels; the whole comparison "
        f"took {seconds:.0f} s.",
    ]


def _check(settings: Settings) -> None:
    if settings.data.source != "video":
        raise SettingsError(f'data.source = "{settings.data.source}": the surveillance experiment needs "video"')
    if settings.data.layout == "fixed-camera" and settings.n_global != 1:
        raise SettingsError(
            f'n_global = {settings.n_global}: must be 1 with data.layout = "fixed-camera", one background a place'
        )


def _masks(settings: Settings, frames: Bytes) -> Bytes | None:
    data = settings.data
    folder = data.masks or masks_beside(frame_folder(data.path or ""))
    if folder is None:
        return None
    # The frames were cropped in the same way.
    masks = crop(read_masks(folder, len(frames), data.every), data.video_patch, f"{folder}: masks")
    if masks.shape != frames.shape[:3]:
        raise DataError(
            f"{folder}: masks are {masks.shape[1]} x {masks.shape[2]} pixels, frames {frames.shape[1]} x "
            f"{frames.shape[2]} (height x width): give masks of the frames' size"
        )
    return masks


def _quick(frames: Bytes, labels: Bytes | None, settings: Settings) -> tuple[Bytes, Bytes | None, Settings]:
    """Take the middle of a few frames; in the paper's set-up, use smaller patches too."""
    fixed = settings.data.layout == "fixed-camera"
    n, h, w, _ = frames.shape
    side = min(QUICK_SIDE // 2 if fixed else QUICK_SIDE, h, w)
    patch = settings.data.video_patch if fixed else max(1, side // 8)
    side -= side % patch
    top, left = (h - side) // 2, (w - side) // 2
    some = np.s_[:: max(1, n // QUICK_FRAMES)]
    window = np.s_[:, top : top + side, left : left + side]
    frames = frames[some][:QUICK_FRAMES][window]
    data = settings.data.model_copy(update={"patch": patch, "window": min(2, settings.data.video_window)})
    changes: dict[str, Any] = {"data": data, "rounds": min(settings.rounds, 1), "n_clients": len(frames)}
    if not fixed:
        changes["refine_steps"] = min(settings.refine_steps, 1)
        changes["n_global"] = settings.n_global if settings.n_global == "auto" else min(settings.n_global, 20)
        changes |= {"min_usage": 0.0, "min_samples": 1}  # in such small frames few atoms may be used
    return frames, None if labels is None else labels[some][:QUICK_FRAMES][window], settings.model_copy(update=changes)


def _baselines(frames: Bytes, median: Floats, settings: Settings) -> Iterator[tuple[str, Separation]]:
    difference = frames - median
    yield MEDIAN, Separation(np.broadcast_to(median, frames.shape), difference, median[None])
    if settings.data.layout == "fixed-camera":
        patch = settings.data.video_patch
        P = np.stack([places(frame.astype(np.float32) / 255, patch) for frame in frames])
        windows = fixed_camera.windows_of(len(frames), settings.data.video_window)
        background = places(median / 255, patch)[None]
        yield MEDIAN_GATED, fixed_camera.separate(P, background, windows, frames.shape[1:], patch)


def _db(row: Row) -> str:
    return "without difference" if row[PSNR] is None else f"{row[PSNR]:.1f} dB"


def _row(name: str, one: Separation, median: Floats, labels: Bytes | None, fixed: bool) -> Row:
    ratio = psnr(one.background, median)
    row: Row = {"strategy": name, PSNR: ratio if math.isfinite(ratio) else None}
    if labels is not None:
        mask = foreground(one.own)
        row[F1] = f1(mask, labels)
        row[F1_MAJORITY] = f1(majority(mask), labels)
        if not fixed:
            row[F1_LESS_MEDIAN] = f1(foreground(one.own - np.median(one.own, axis=0)), labels)
    return row
