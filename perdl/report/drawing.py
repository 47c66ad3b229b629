"""How perdl's figures look and how they are written. Imported only by who draws, for matplotlib is slow to import."""

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
"""Of Okabe and Ito's colours, which differ for everybody, two that differ in grey as well."""
HATCH = {SHARED: "", OWN: "////", REST: ".."}
WIDTH = 5.0
"""Inches. Narrow, so that text is large enough where the figure fills a phone."""

_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "0.4",
    "hatch.linewidth": 0.7,
    "svg.fonttype": "none",  # text stays text: small, searchable, in the reader's own font
    "svg.hashsalt": "perdl",
    "font.sans-serif": ["DejaVu Sans", "Liberation Sans", "Arial", "sans-serif"],
}


class Picture(Figure):
    """A figure that a notebook shows, also where pyplot was never imported."""

    def _repr_png_(self) -> bytes:
        return to_png(self)


@contextmanager
def style() -> Iterator[None]:
    """Draw as perdl's figures are drawn."""
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # of a client's name: a box is drawn
        yield


def new_figure(height: float) -> Picture:
    """Return an empty figure of perdl's width."""
    figure = Picture(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def to_png(figure: Figure, text: str = "") -> bytes:
    """Return a figure as PNG, with a description inside."""
    return _saved(figure, "png", {"Description": text} if text else {}, dpi=150)


def to_svg(figure: Figure, text: str = "") -> str:
    """Return a figure as SVG: the same figure, the same bytes."""
    metadata: dict[str, str | None] = {"Date": None, "Creator": None}
    return _saved(figure, "svg", metadata | ({"Description": text} if text else {})).decode()


def _saved(figure: Figure, kind: str, metadata: dict[str, Any], **keywords: Any) -> bytes:
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format=kind, metadata=metadata, **keywords)
    figure.set_layout_engine("none")  # all is in its place now; a second format need not find it again
    return buffer.getvalue()


def inline(svg: str, prefix: str) -> str:
    """Return an SVG file's element for a page of HTML, its ids marked as those of one of several figures."""
    element = svg[svg.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", element)
    return re.sub(r'^(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'^(<svg[^>]*?) height="[^"]*"', r"\1", element))


def label(name: str, most: int = 18) -> str:
    """Return a client's or feature's name as a label: not too long, and no mathematics."""
    short = name if len(name) <= most else name[: most - 1] + "…"
    return short.replace("$", r"\$")


def whole_numbers(axis: Any) -> None:
    """Let an axis have ticks at whole numbers only."""
    axis.get_major_locator().set_params(integer=True)


def name_rows(axes: Axes, names: list[str]) -> None:
    """Put names at the rows 0, 1, ... of a figure, the first on top."""
    axes.set_yticks(range(len(names)), [label(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
