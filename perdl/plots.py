"""Figures of a run or a model, for notebooks and reports.

Each function takes what :func:`perdl.simulate` or :func:`perdl.read_run` returned, a fitted :class:`perdl.PerDL`, or
a folder (of a simulation, of a server, of one client), and returns a matplotlib figure. :func:`describe` says in words
what a figure shows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.errors import PerdlError
from perdl.report.figures import FIGURES
from perdl.report.figures.atoms import draw_atoms
from perdl.results.run_result import RunResult, as_result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    return draw("convergence", source)


def path_lengths(source: Any) -> Figure:
    """Draw the mean distance of neighbours on each path, the jump after the shared atoms, and what chance gives."""
    return draw("path_lengths", source)


def variance(source: Any) -> Figure:
    """Draw, for each client, which shares of its data's energy are shared, its own, and unexplained."""
    return draw("variance", source)


def atoms(
    source: Any,
    client: str | None = None,
    *,
    shape: tuple[int, ...] | None = None,
    series: bool = False,
    unused: bool = False,
) -> Figure:
    """Draw the shared atoms, or a client's own: as images, as curves, or as bars with the features' names.

    Parameters
    ----------
    source : RunResult, PerDL or path
    client : str, optional
        Whose own atoms: those that its samples use, the one that carries most energy first. Without it the shared
        ones, in their order.
    shape : tuple of int, optional
        Of a sample, where the source cannot know it: (height, width) or (height, width, 3) of images that were given
        as rows of numbers; with ``series`` (rows of the window, channels).
    series : bool
        Whether samples are windows of a series, and no images.
    unused : bool
        Whether own atoms that next to no sample uses are drawn too, pale, as the last.

    Returns
    -------
    matplotlib.figure.Figure
        Of atoms that are many the first ones, with their numbers in the dictionary. Signs are turned so that the
        larger part of an atom is positive. Shared atoms that no sample uses are pale.
    """
    name = "atoms" if client is None else "own_atoms"
    result = _shaped(as_result(source), shape, series)
    if not (unused and client in result.local_dictionaries and result.local_dictionaries[str(client)].size):
        _check(name, result, client)
    from perdl.report.drawing import style

    with style():
        return draw_atoms(result, client, unused)


def usage(source: Any) -> Figure:
    """Draw how much of each client's data each shared atom carries, and all own atoms of a client together."""
    return draw("usage", source)


def participation(source: Any) -> Figure:
    """Draw which client answered which round."""
    return draw("participation", source)


def draw(figure: str, source: Any, client: str | None = None) -> Figure:
    """Draw any figure by its name, those added to `perdl.report.figures.FIGURES` too.

    Parameters
    ----------
    figure : str
        ``"convergence"``, ``"own_atoms"``, ...
    source : RunResult, PerDL or path
    client : str, optional
        Of figures that each client has.

    Returns
    -------
    matplotlib.figure.Figure
    """
    result = as_result(source)
    _check(figure, result, client)
    from perdl.report.drawing import style

    with style():
        return FIGURES[figure].draw(result, client)


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
        As in :func:`atoms`.
    series : bool
        As in :func:`atoms`.

    Returns
    -------
    str
        Two or three sentences with the numbers.
    """
    name = "own_atoms" if figure == "atoms" and client is not None else figure
    result = _shaped(as_result(source), shape, series)
    _check(name, result, client)
    return FIGURES[name].caption(result, client)


def draw_figures(folder: str | Path, kinds: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write the figures of a run into ``figures/``, each as PNG and as SVG; the same run gives the same bytes.

    Parameters
    ----------
    folder : str or Path
        A run's folder.
    kinds : sequence of {"png", "svg"}
        Formats to write.

    Returns
    -------
    list of Path
        What was drawn. A figure for which there is nothing to draw is left out; of figures that each client has there
        is the first that can be drawn.
    """
    from common.files import write_bytes, write_text
    from perdl.report.drawing import to_png, to_svg

    folder, drawn = Path(folder), []
    result = as_result(folder)
    for name, kind in FIGURES.items():
        clients: list[str | None] = [*result.local_dictionaries] if kind.per_client else [None]
        client = next((one for one in clients if not kind.why_not(result, one)), None)
        if kind.why_not(result, client):
            continue
        figure, text = draw(name, result, client), kind.caption(result, client)
        for suffix in kinds:
            path = folder / "figures" / f"{name}.{suffix}"
            if suffix == "svg":
                write_text(path, to_svg(figure, text))
            else:
                write_bytes(path, to_png(figure, text))
            drawn.append(path)
    return drawn


def _check(figure: str, result: RunResult, client: str | None) -> None:
    """Raise if there is no such figure, or nothing to draw."""
    if figure not in FIGURES:
        raise PerdlError(f"there is no figure {figure!r}; there are {', '.join(FIGURES)}")
    if reason := FIGURES[figure].why_not(result, client):
        raise PerdlError(f"{result.title}: {reason}")


def _shaped(result: RunResult, shape: tuple[int, ...] | None, series: bool) -> RunResult:
    if shape is None:
        return result
    d = len(result.global_dictionary) or max(len(D) for D in result.local_dictionaries.values())
    if math.prod(shape) != d or (series and len(shape) != 2):
        raise PerdlError(f"shape = {shape}: must be {'(rows, channels)' if series else 'numbers'} whose product is {d}")
    return dataclasses.replace(result, shape=tuple(shape), is_series=series)
