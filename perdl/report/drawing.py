"""How perdl's figures look and how they are written. Import it only to draw, because matplotlib is slow to import."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

INK, PALE = "0.15", "0.7"
SHARED, OWN, REST = "#0072b2", "#e69f00", "0.92"
"""Two of Okabe and Ito's colours, which colour-blind people can tell apart. These two also differ in grey."""
HATCH = {SHARED: "", OWN: "////", REST: ".."}
WIDTH = 5.0
"""Width in inches. Narrow figures keep their text readable on a phone."""

_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "0.4",
    "hatch.linewidth": 0.7,
    "svg.fonttype": "none",  # keep text as text: small, searchable, in the reader's own font
    "svg.hashsalt": "perdl",
    "font.sans-serif": ["DejaVu Sans", "Liberation Sans", "Arial", "sans-serif"],
}


class Picture(Figure):
    """A figure that a notebook shows even if pyplot was never imported."""

    def _repr_png_(self) -> bytes:
        return to_png(self)


@contextmanager
def style() -> Iterator[None]:
    """Draw in perdl's style inside the context."""
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # in names; a box is drawn
        yield


def new_figure(height: float) -> Picture:
    """Return an empty figure of perdl's width.

    Parameters
    ----------
    height : float
        Height in inches.
    """
    figure = Picture(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def to_png(figure: Figure, text: str = "") -> bytes:
    """Return a figure as PNG.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        What to save.
    text : str
        Description to store in the file.
    """
    return _saved(figure, "png", {"Description": text} if text else {}, dpi=150)


def to_svg(figure: Figure, text: str = "") -> str:
    """Return a figure as SVG. The same figure gives the same bytes.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        What to save.
    text : str
        Description to store in the file.
    """
    metadata: dict[str, str | None] = {"Date": None, "Creator": None}
    return _saved(figure, "svg", metadata | ({"Description": text} if text else {})).decode()


def _saved(figure: Figure, kind: str, metadata: dict[str, Any], **keywords: Any) -> bytes:
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format=kind, metadata=metadata, **keywords)
    figure.set_layout_engine("none")  # the layout is done; a second format need not compute it again
    return buffer.getvalue()


def inline(svg: str, prefix: str) -> str:
    """Return the element of an SVG file, for a page of HTML with several figures.

    Parameters
    ----------
    svg : str
        Content of the file.
    prefix : str
        Put before every id, to keep those of several figures apart.
    """
    element = svg[svg.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", element)
    return re.sub(r'^(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'^(<svg[^>]*?) height="[^"]*"', r"\1", element))


def label(name: str, most: int = 18) -> str:
    """Return a name as a label, shortened, and with ``$`` escaped so that matplotlib reads no mathematics.

    Parameters
    ----------
    name : str
        Name of a client or a feature.
    most : int
        Largest number of characters.
    """
    short = name if len(name) <= most else name[: most - 1] + "…"
    return short.replace("$", r"\$")


def whole_numbers(axis: Any) -> None:
    """Put the ticks of an axis at whole numbers only.

    Parameters
    ----------
    axis : matplotlib.axis.Axis
        The x or y axis of a plot.
    """
    axis.get_major_locator().set_params(integer=True)


def name_rows(axes: Axes, names: list[str]) -> None:
    """Label the rows 0, 1, ... of a figure, the first on top.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        The axes whose rows are labelled.
    names : list of str
        One name per row.
    """
    axes.set_yticks(range(len(names)), [label(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
