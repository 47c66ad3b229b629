"""Atoms as what their features are: images, curves, or bars with names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perdl.report.drawing import INK, PALE, SHARED, label, new_figure
from perdl.results.readings import MOST, Reading, kind_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.floating]

_CHANNELS = ("-", "--", ":", "-.")


def turned(D: Floats) -> Floats:
    """Return atoms (d, r) with signs turned so that the part of more energy is positive."""
    signs = np.where((D * np.abs(D)).sum(axis=0) < 0, -1.0, 1.0)
    out: Floats = D * signs
    return out


def draw_atoms(D: Floats, reading: Reading, unused: Sequence[int] = ()) -> Figure:
    """Return a figure of atoms (d, r); those that are ``unused`` are pale, or crossed out."""
    kind = kind_of(reading)
    shown = turned(D[:, : MOST[kind]].astype(float))
    return {"images": _images, "curves": _curves, "bars": _bars}[kind](shown, reading, set(unused))


def _images(D: Floats, reading: Reading, unused: set[int]) -> Figure:
    """One image an atom, in rows; grey is zero."""
    height, width, *channels = reading.shape
    n = D.shape[1]
    across = min(n, 5 if n <= 20 else 10)
    down = -(-n // across)
    gap = max(1, width // 14)
    colour = channels == [3]
    page = np.ones((down * (height + gap) - gap, across * (width + gap) - gap, 3))
    for k, atom in enumerate(D.T):
        peak = np.abs(atom).max() or 1.0
        image = atom.reshape(height, width, -1) / (2 * peak) + 0.5
        if not colour:
            image = image.mean(axis=2, keepdims=True)
        top, left = (k // across) * (height + gap), (k % across) * (width + gap)
        page[top : top + height, left : left + width] = image
    figure = new_figure(min(4.9 * page.shape[0] / page.shape[1] + 0.2, 9.0))
    axes = figure.subplots()
    axes.imshow(page, interpolation="nearest")
    for k in sorted(unused & set(range(n))):
        top, left = (k // across) * (height + gap) - 0.5, (k % across) * (width + gap) - 0.5
        for ends in ((top, top + height), (top + height, top)):
            axes.plot((left, left + width), ends, color="0.3", linewidth=0.8)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.set_yticks([k * (height + gap) + height / 2 for k in range(down)], [str(k * across + 1) for k in range(down)])
    return figure


def _curves(D: Floats, reading: Reading, unused: set[int]) -> Figure:
    """One line an atom, each about its own zero; channels of a series differ in their dashes."""
    n = D.shape[1]
    figure = new_figure(min(0.8 + 0.42 * n, 9.0))
    axes = figure.subplots()
    length = reading.shape[0] if reading.is_series else len(D)
    channels = min(len(D) // length, len(_CHANNELS))
    for k, atom in enumerate(D.T):
        curves = atom.reshape(length, -1)[:, :channels] / (2.1 * (np.abs(atom).max() or 1.0))
        axes.axhline(k, color=PALE, linewidth=0.5)
        for curve, dashes in zip(curves.T, _CHANNELS, strict=False):
            colour = PALE if k in unused else INK
            axes.plot(np.arange(1, length + 1), k - curve, dashes, color=colour, linewidth=0.9)
    if channels > 1:
        names = [f"channel {c + 1}" for c in range(channels)]
        axes.legend(
            axes.lines[1 : 1 + channels], names, ncols=4, frameon=False, loc="lower left", bbox_to_anchor=(0, 1)
        )
    axes.set_yticks(range(n), [str(k + 1) + " unused" * (k in unused) for k in range(n)])
    axes.set(xlabel="row of the window" if reading.is_series else "feature", ylabel="atom", ylim=(n - 0.4, -0.6))
    return figure


def _bars(D: Floats, reading: Reading, unused: set[int]) -> Figure:
    """A row a feature, a column an atom; all bars on one scale."""
    d, n = D.shape
    figure = new_figure(0.7 + 0.2 * d)
    axes: Axes = figure.subplots()
    peak = np.abs(D).max() or 1.0
    for k in range(n):
        axes.axvline(k, color=PALE, linewidth=0.5)
        look: Any = {"color": "white", "edgecolor": "0.6", "hatch": "////"} if k in unused else {"color": SHARED}
        axes.barh(range(d), D[:, k] / (2.1 * peak), left=k, height=0.7, **look)
    axes.set_xticks(range(n), [f"{k + 1}" + "\nunused" * (k in unused) for k in range(n)])
    axes.set(xlabel="atom (each about its own zero line)", ylim=(d - 0.5, -0.5), xlim=(-0.55, n - 0.45))
    named = len(reading.names) == d
    axes.set_yticks(range(d), [label(name) for name in reading.names] if named else [str(j + 1) for j in range(d)])
    axes.set_ylabel("" if named else "feature")
    return figure
