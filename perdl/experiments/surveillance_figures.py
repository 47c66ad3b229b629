"""Pictures of a separated video: the parts of four frames, and an animation of all frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perdl.experiments.frame_clients import Separation

Bytes = NDArray[np.uint8]

WIDTH = 240
"""Largest width of a frame in the animation, in pixels."""


def draw(frames: Bytes, separation: Separation, folder: Path, name: str) -> list[Path]:
    """Draw ``separation.png`` (four frames) and ``separation.gif`` (all).

    Parameters
    ----------
    frames : (n, h, w, c) array
        The video.
    separation : Separation
        Its two parts.
    folder : Path
        Folder of the pictures, made if missing.
    name : str
        Name of the strategy.

    Returns
    -------
    list of Path
        The files written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    still, moving = folder / "separation.png", folder / "separation.gif"
    _draw_frames(frames, separation, still, name)
    _animate(frames, separation, moving)
    return [still, moving]


def _draw_frames(frames: Bytes, separation: Separation, path: Path, name: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    chosen = np.unique(np.linspace(0, len(frames) - 1, 4).round().astype(int))
    h, w = frames.shape[1:3]
    figure = Figure(figsize=(9, 9 / 3 * len(chosen) * h / w + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(chosen), 3, squeeze=False)
    for axes, i in zip(grid, chosen, strict=True):
        for place, picture in zip(axes, _parts(frames, separation, int(i)), strict=True):
            place.imshow(_picture(picture), cmap="gray", vmin=0, vmax=255)
            place.axis("off")
        axes[0].set_title(f"frame {i + 1}", fontsize=8, loc="left")
    grid[0][1].set_title("shared part", fontsize=8)
    grid[0][2].set_title("own part (grey is zero)", fontsize=8)
    figure.suptitle(name, fontsize=9)
    figure.savefig(path, dpi=120)


def _animate(frames: Bytes, separation: Separation, path: Path) -> None:
    from PIL import Image

    step = -(-frames.shape[2] // WIDTH)  # skip pixels rather than interpolate, so that all are real
    pictures = []
    for i in range(len(frames)):
        parts = np.concatenate([part[::step, ::step] for part in _parts(frames, separation, i)], axis=1)
        pictures.append(Image.fromarray(_picture(parts)).quantize(64))
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=150, loop=0)


def _picture(frame: Bytes) -> Bytes:
    """Return a frame for matplotlib and Pillow: grey ones without an axis of channels."""
    return frame[..., 0] if frame.shape[-1] == 1 else frame


def _parts(frames: Bytes, separation: Separation, i: int) -> tuple[Bytes, Bytes, Bytes]:
    shared, own = (
        np.clip(part[i] + zero, 0, 255).astype(np.uint8)
        for part, zero in zip((separation.shared, separation.own), (0, 128), strict=True)
    )
    return frames[i], shared, own
