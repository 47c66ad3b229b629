"""Figures of a run or a model, for notebooks and reports.

Each function takes what :func:`perdl.simulate` or :func:`perdl.read_run` returned, a fitted :class:`perdl.PerDL`, or
a folder (of a simulation, of a server, of one client), and returns a matplotlib figure. :func:`describe` says in words
what a figure shows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from common.errors import PerdlError
from perdl.report.captions import FIGURES, MOST_CLIENTS, MOST_USAGE, participants, sentences, shares, why_not
from perdl.results.readings import Reading, read

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.floating]


def convergence(source: Any) -> Figure:
    """Draw each round's error (the range over the clients and the median), change of D^g and consensus.

    Parameters
    ----------
    source : RunResult, PerDL or path

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    PerdlError
        Here and below, if there is nothing to draw; it says why.
    """
    reading = _readable("convergence", source)
    from perdl.report.drawing import INK, PALE, new_figure, style, whole_numbers

    def column(*keys: str) -> Floats:
        values = []
        for row in reading.rounds:
            value: Any = row
            for key in keys:
                value = value.get(key) if isinstance(value, dict) else None
            values.append(np.nan if value is None else float(value))
        return np.array(values)

    with style():
        figure = new_figure(5.2)
        top, middle, bottom = figure.subplots(3, 1, sharex=True)
        t = column("round")
        mark = "o" if len(t) < 30 else ""
        low, median, high = (column("error_before_update", key) for key in ("min", "median", "max"))
        top.fill_between(t, low, high, color=PALE, linewidth=0, label="all clients")
        top.plot(t, median, color=INK, marker=mark, markersize=3, label="median client")
        top.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
        change, least, most = column("change"), column("consensus", "min"), column("consensus", "median")
        middle.plot(t, np.where(change > 0, change, np.nan), color=INK, marker=mark, markersize=3)
        bottom.plot(t, least, color=INK, marker=mark, markersize=3, label="least agreed atom")
        bottom.plot(t, most, "--", color=INK, linewidth=1, label="median atom")
        bottom.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
        for axes, values, name in ((top, low, "relative error"), (middle, change, "largest move\nof a shared atom")):
            positive = values[values > 0]
            decades = bool(len(positive)) and positive.max() > 30 * positive.min()
            axes.set(ylabel=name, **({"yscale": "log"} if decades else {"ylim": (0, None)}))
        bottom.set(xlabel="round", ylabel="consensus", ylim=(0, 1.06))
        whole_numbers(bottom.xaxis)
        return figure


def path_lengths(source: Any) -> Figure:
    """Draw the mean distance of neighbours on each path, the jump after the shared atoms, and what chance gives."""
    reading = _readable("path_lengths", source)
    from perdl.report.drawing import INK, OWN, SHARED, new_figure, style, whole_numbers

    with style():
        figure = new_figure(3.0)
        axes = figure.subplots()
        edges, n_global = reading.path_edges, int(reading.summary["n_global"])
        places = np.arange(1, len(edges) + 1)
        size = float(np.clip(300 / max(len(edges), 1), 1.5, 7))
        for part, colour, face, name in (
            (slice(0, n_global), SHARED, SHARED, "shared"),
            (slice(n_global, None), OWN, "white", "not shared"),
        ):
            if len(places[part]):
                axes.vlines(places[part], 0, edges[part], color=colour, linewidth=size / 3)
                dots: Any = {"markersize": size, "markerfacecolor": face, "label": name, "clip_on": False}
                axes.plot(places[part], edges[part], "o", color=colour, **dots)
        unrelated = np.asarray(reading.summary.get("unrelated_edges") or [])[: len(edges)]
        if len(unrelated):
            axes.plot(places[: len(unrelated)], unrelated, "k--", linewidth=1, label="unrelated atoms")
        if 0 < n_global < len(edges):
            axes.axvline(n_global + 0.5, color=INK, linestyle=":", linewidth=1)
        top = max(edges.max(), unrelated.max(initial=0.0))
        axes.set(xlabel="path, in the order found", ylabel="mean edge between neighbours", ylim=(0, 1.08 * top or 1))
        axes.set_xlim(0.4, len(edges) + 0.6)
        whole_numbers(axes.xaxis)
        axes.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
        return figure


def variance(source: Any) -> Figure:
    """Draw, for each client, which shares of its data's energy are shared, its own, and unexplained."""
    reading = _readable("variance", source)
    from perdl.report.drawing import HATCH, OWN, REST, SHARED, name_rows, new_figure, style

    with style():
        parts = dict(list(shares(reading).items())[:MOST_CLIENTS])
        figure = new_figure(0.9 + 0.2 * len(parts))
        axes = figure.subplots()
        values = np.clip(list(parts.values()), 0, 1)
        left = np.zeros(len(parts))
        for width, colour, name in zip(values.T, (SHARED, OWN, REST), ("shared", "own", "unexplained"), strict=True):
            look: Any = {
                "facecolor": colour,
                "hatch": HATCH[colour],
                "edgecolor": "white" if colour == SHARED else "0.3",
            }
            axes.barh(range(len(parts)), width, left=left, height=0.75, linewidth=0.5, label=name, **look)
            left += width
        name_rows(axes, list(parts))
        axes.set(xlabel="share of the energy of the client's data", xlim=(0, 1))
        axes.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
        return figure


def atoms(
    source: Any, client: str | None = None, *, shape: tuple[int, ...] | None = None, series: bool = False
) -> Figure:
    """Draw the shared atoms, or a client's own: as images, as curves, or as bars with the features' names.

    Parameters
    ----------
    source : RunResult, PerDL or path
    client : str, optional
        Whose own atoms; without it the shared ones.
    shape : tuple of int, optional
        Of a sample, where the source cannot know it: (height, width) or (height, width, 3) of images that were given
        as rows of numbers; with ``series`` (rows of the window, channels).
    series : bool
        Whether samples are windows of a series, and no images.

    Returns
    -------
    matplotlib.figure.Figure
        Of atoms that are many the first ones. Signs are turned so that the larger part of an atom is positive. Atoms
        that no sample uses are pale.
    """
    reading = _shaped(_readable("atoms" if client is None else "own_atoms", source, client), shape, series)
    from perdl.report.atom_drawing import draw_atoms
    from perdl.report.drawing import style

    with style():
        return draw_atoms(reading.atoms(client), reading, reading.unused(client))


def usage(source: Any) -> Figure:
    """Draw which atoms carry how much of each client's data: shared atoms above, own atoms below."""
    reading = _readable("usage", source)
    from perdl.report.drawing import label, new_figure, style

    shown, shown_own = MOST_USAGE
    with style():
        names = list(reading.usage)[:MOST_CLIENTS]
        r_g = reading.global_dictionary.shape[1]
        shared = np.array([reading.usage[name][:r_g] for name in names]).T[:shown]
        own = [reading.usage[name][r_g:][:shown_own] for name in names]
        height = max(map(len, own))
        own_rows = np.array([np.pad(u.astype(float), (0, height - len(u)), constant_values=np.nan) for u in own]).T
        table = np.vstack([shared, own_rows.reshape(height, len(names))])
        figure = new_figure(min(1.3 + 0.16 * len(table), 9.5))
        axes = figure.subplots()
        image = axes.imshow(np.cbrt(table), cmap="Blues", vmin=0, aspect="auto", interpolation="nearest")
        rows, columns = np.nonzero(table == 0)
        axes.plot(columns, rows, "x", color="0.3", markersize=4)
        axes.axhline(len(shared) - 0.5, color="k", linewidth=1.2)
        step = -(-len(table) // 25)
        labels = [f"shared {k + 1}" for k in range(len(shared))] + [f"own {k + 1}" for k in range(height)]
        axes.set_yticks(range(0, len(table), step), labels[::step])
        every = -(-len(names) // 20)
        axes.set_xticks(range(0, len(names), every), [label(name) for name in names[::every]], rotation=90)
        bar = figure.colorbar(image, ax=axes, label="share of the energy", aspect=40, pad=0.02)
        marks = [mark for mark in (0, 0.001, 0.01, 0.1, 0.3, 1) if mark <= np.nanmax(table)]
        bar.set_ticks(np.cbrt(marks).tolist(), labels=[f"{mark:g}" for mark in marks])
        return figure


def participation(source: Any) -> Figure:
    """Draw which client answered which round."""
    reading = _readable("participation", source)
    from perdl.report.drawing import SHARED, name_rows, new_figure, style, whole_numbers

    with style():
        answered = participants(reading)
        last = max(row["round"] for row in reading.metrics)
        names = list(answered)[:MOST_CLIENTS]
        figure = new_figure(0.8 + 0.2 * len(names))
        axes = figure.subplots()
        for row, name in enumerate(names):
            begin, end = _spans(answered[name])
            axes.hlines(np.full(len(begin), row), begin - 0.4, end + 0.4, color=SHARED, linewidth=6)
            axes.text(last + 0.6, row, f" {len(answered[name])} of {last}", va="center", color="0.3", fontsize=8)
        name_rows(axes, names)
        axes.set(xlabel="round", xlim=(0.4, last + 0.6))
        whole_numbers(axes.xaxis)
        return figure


def describe(
    figure: str,
    source: Any,
    client: str | None = None,
    *,
    shape: tuple[int, ...] | None = None,
    series: bool = False,
) -> str:
    """Say in words what a figure shows.

    Parameters
    ----------
    figure : str
        The name of a function of this module: ``"convergence"``, ``"atoms"``, ...
    source : RunResult, PerDL or path
    client : str, optional
        For ``"atoms"``: whose own atoms.
    shape : tuple of int, optional
    series : bool
        As in :func:`atoms`.

    Returns
    -------
    str
        Two or three sentences with the numbers.
    """
    name = "own_atoms" if figure == "atoms" and client is not None else figure
    if name not in FIGURES:
        raise PerdlError(f"there is no figure {figure!r}; there are {', '.join(FIGURES)}")
    return sentences(name, _shaped(_readable(name, source, client), shape, series), client)


def draw_figures(folder: str | Path, kinds: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write the figures of a run into ``figures/``, each as PNG and as SVG; the same run gives the same bytes.

    Parameters
    ----------
    folder : str or Path
        A run's folder.
    kinds : sequence of {"png", "svg"}

    Returns
    -------
    list of Path
        What was drawn. A figure for which there is nothing to draw is left out.
    """
    from common.files import write_bytes, write_text
    from perdl.report.drawing import to_png, to_svg

    folder, drawn = Path(folder), []
    for name, figure, text in draw_all(read(folder)):
        for kind in kinds:
            path = folder / "figures" / f"{name}.{kind}"
            if kind == "svg":
                write_text(path, to_svg(figure, text))
            else:
                write_bytes(path, to_png(figure, text))
            drawn.append(path)
    return drawn


def draw_all(reading: Reading) -> list[tuple[str, Figure, str]]:
    """Return name, figure and words of all that there is to draw; of clients' own atoms those of the first."""
    functions: dict[str, Callable[[], Figure]] = {
        "convergence": lambda: convergence(reading),
        "path_lengths": lambda: path_lengths(reading),
        "variance": lambda: variance(reading),
        "atoms": lambda: atoms(reading),
        "own_atoms": lambda: atoms(reading, next(iter(reading.own))),
        "usage": lambda: usage(reading),
        "participation": lambda: participation(reading),
    }
    client = next(iter(reading.own), None)
    return [
        (name, draw(), sentences(name, reading, client))
        for name, draw in functions.items()
        if not why_not(name, reading, client)
    ]


def _readable(figure: str, source: Any, client: str | None = None) -> Reading:
    reading = read(source)
    if reason := why_not(figure, reading, client):
        raise PerdlError(f"{reading.title}: {reason}")
    return reading


def _shaped(reading: Reading, shape: tuple[int, ...] | None, series: bool) -> Reading:
    if shape is None:
        return reading
    d = len(reading.global_dictionary) or max(len(D) for D in reading.own.values())
    if math.prod(shape) != d or (series and len(shape) != 2):
        raise PerdlError(f"shape = {shape}: must be {'(rows, channels)' if series else 'numbers'} whose product is {d}")
    return dataclasses.replace(reading, shape=tuple(shape), is_series=series)


def _spans(rounds: Sequence[int]) -> tuple[Floats, Floats]:
    """First and last of each run of consecutive rounds."""
    t = np.array(sorted(rounds), dtype=float)
    breaks = np.flatnonzero(np.diff(t) > 1)
    return t[np.r_[0, breaks + 1]] if len(t) else t, t[np.r_[breaks, len(t) - 1]] if len(t) else t
