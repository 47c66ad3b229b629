"""Figures of a run or a model, for notebooks and reports.

Each function takes a result of :func:`perdl.simulate` or :func:`perdl.read_run`, a fitted :class:`perdl.PerDL`, or a
folder (of a simulation, a server or one client). It returns a matplotlib figure. :func:`describe` says in words what a
figure shows.
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
        The run or model; a path is a folder of results.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    PerdlError
        If there is nothing to draw. The other functions here raise it too.
    """
    return draw("convergence", source)


def path_lengths(source: Any) -> Figure:
    """Draw the mean edge of each path, where shared atoms end, and how near unrelated atoms come.

    Parameters
    ----------
    source : RunResult, PerDL or path
        The run or model; a path is a folder of results.
    """
    return draw("path_lengths", source)


def gain(source: Any) -> Figure:
    """Draw how much lower each client's error on held-out samples is than it would be alone, with its interval.

    Parameters
    ----------
    source : RunResult, PerDL or path
        The run or model; a path is a folder of results.
    """
    return draw("gain", source)


def shared_atoms(source: Any) -> Figure:
    """Draw the error on held-out samples over the number of shared atoms, where ``perdl tune`` found the settings.

    Parameters
    ----------
    source : RunResult, PerDL or path
        The run or model; a path is a folder of results.
    """
    return draw("shared_atoms", source)


def variance(source: Any) -> Figure:
    """Draw the shares of each client's energy that are shared, its own, and unexplained.

    Parameters
    ----------
    source : RunResult, PerDL or path
        The run or model; a path is a folder of results.
    """
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
        The run or model; a path is a folder of results.
    client : str, optional
        Draw the own atoms of this client that its samples use, the one with most energy first. By default the shared
        atoms are drawn, in their order.
    shape : tuple of int, optional
        Shape of a sample, needed where images or windows were given as rows of numbers: (height, width), (height,
        width, 3), or with ``series`` (rows of the window, channels).
    series : bool
        Whether samples are windows of a series rather than images.
    unused : bool
        Whether to draw unused own atoms too, pale and last.

    Returns
    -------
    matplotlib.figure.Figure
        The atoms with their numbers in the dictionary; the first ones if there are many. Signs are turned so that the
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
    """Draw the share of each client's energy that each shared atom carries, and that all its own atoms carry.

    Parameters
    ----------
    source : RunResult, PerDL or path
        The run or model; a path is a folder of results.
    """
    return draw("usage", source)


def membership(source: Any) -> Figure:
    """Draw which client shares which atom, of a run with ``sharing = "some"``.

    Parameters
    ----------
    source : RunResult, PerDL or path
        The run or model; a path is a folder of results.
    """
    return draw("membership", source)


def participation(source: Any) -> Figure:
    """Draw which client answered which round.

    Parameters
    ----------
    source : RunResult, PerDL or path
        The run or model; a path is a folder of results.
    """
    return draw("participation", source)


def draw(figure: str, source: Any, client: str | None = None) -> Figure:
    """Draw any figure by its name, also those added to `perdl.report.figures.FIGURES`.

    Parameters
    ----------
    figure : str
        A key of `FIGURES`: ``"convergence"``, ``"own_atoms"``, ...
    source : RunResult, PerDL or path
        The run or model; a path is a folder of results.
    client : str, optional
        The client, for figures that each client has.

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
        The run or model; a path is a folder of results.
    client : str, optional
        For ``"atoms"``: the client whose own atoms are described.
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


def draw_figures(run: RunResult | str | Path, kinds: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write the figures of a run into ``figures/``, as PNG and SVG. The same run gives the same bytes.

    Parameters
    ----------
    run : RunResult, str or Path
        A run's folder, or what was read from it.
    kinds : sequence of {"png", "svg"}
        Formats to write.

    Returns
    -------
    list of Path
        The files written. Figures with nothing to draw are left out. Of figures that each client has, only the first
        that can be drawn is written.
    """
    from common.files import write_bytes, write_text
    from perdl.report.drawing import to_png, to_svg

    result, drawn = as_result(run), []
    folder = result.folder
    if folder is None:
        raise PerdlError("a fitted PerDL has no folder for figures: draw them one by one")
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
