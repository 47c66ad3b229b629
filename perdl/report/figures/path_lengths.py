"""Figure: distances of matched atoms before the first round, compared with those of unrelated atoms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perdl.report.figure import FigureKind, Row
from perdl.report.words import between, counted
from perdl.results.run_result import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def mean_edges(result: RunResult) -> NDArray[np.floating]:
    """Return the mean edge of each path: its length in ``path_lengths`` over its N - 1 edges.

    Clients that use too few atoms are on no path.

    Parameters
    ----------
    result : RunResult
        The run.
    """
    lengths = np.asarray(result.summary.get("path_lengths") or [], dtype=float)
    n_edges = int(result.summary.get("n_edges", len(result.clients) - 1))
    edges: NDArray[np.floating] = lengths / max(n_edges, 1)
    return edges


def _unrelated(result: RunResult, key: str = "unrelated_edges") -> list[float]:
    return list(result.summary.get(key) or [])[: len(mean_edges(result))]


def _why_not(result: RunResult, client: str | None) -> str:
    if not result.summary:
        return "a client's folder tells nothing of the matching: see the server's"
    if result.members:
        return "atoms that some clients share are matched in groups, not along paths"
    if not len(mean_edges(result)):
        return "nothing was matched" if not result.summary.get("n_global") else "the path lengths are not known"
    return "there is one client alone, and no path" if len(result.clients) < 2 else ""


def _draw(result: RunResult, client: str | None) -> Figure:
    from perdl.report.drawing import INK, OWN, SHARED, new_figure, whole_numbers

    figure = new_figure(3.0)
    axes = figure.subplots()
    edges, n_global = mean_edges(result), int(result.summary["n_global"])
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
    unrelated = np.asarray(_unrelated(result))
    for line, style, name in (
        (unrelated, "k--", "unrelated atoms"),
        (np.asarray(_unrelated(result, "unrelated_bound")), "k:", "nearer is hardly chance"),
    ):
        if len(line):
            x = places[: len(line)] if len(line) > 1 else np.array([0.7, 1.3])
            axes.plot(x, np.resize(line, len(x)), style, linewidth=1, label=name)
    if 0 < n_global < len(edges):
        axes.axvline(n_global + 0.5, color=INK, linestyle=":", linewidth=1)
    top = max(edges.max(), unrelated.max(initial=0.0))
    axes.set(xlabel="path, in the order found", ylabel="mean edge between neighbours", ylim=(0, 1.08 * top or 1))
    axes.set_xlim(0.4, len(edges) + 0.6)
    whole_numbers(axes.xaxis)
    if len(edges) == 1:
        axes.set_xticks([1])
    axes.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


def _caption(result: RunResult, client: str | None) -> str:
    edges, n_global = mean_edges(result), int(result.summary["n_global"])
    text = "How far matched atoms of neighbouring clients lay apart before the first round, on average along a path."
    if n_global:
        text += f" The {counted(n_global, 'shared path')}: {between(edges[:n_global])}."
    if n_global < len(edges):
        text += f" The next path, not shared: {edges[n_global]:.2g}."
    if unrelated := _unrelated(result):
        text += f" Unrelated atoms would lie {between(unrelated)} apart on average (dashed)"
        bound = _unrelated(result, "unrelated_bound")
        text += f", and hardly ever nearer than {between(bound)} (dotted)." if bound else "."
    return text


def _numbers(result: RunResult, client: str | None) -> list[Row]:
    n_global = int(result.summary["n_global"])
    unrelated, bound = _unrelated(result), _unrelated(result, "unrelated_bound")
    return [
        {
            "path": str(k + 1),
            "mean edge": f"{edge:.3g}",
            "unrelated atoms": f"{unrelated[k]:.3g}" if k < len(unrelated) else "-",
            "hardly chance below": f"{bound[k]:.3g}" if k < len(bound) else "-",
            "shared": "yes" if k < n_global else "no",
        }
        for k, edge in enumerate(mean_edges(result))
    ]


PATH_LENGTHS = FigureKind(
    "How near the matched atoms lay",
    "What is shared lies near across clients. Where it is the same at all clients the lengths jump after it; where it "
    "is only alike they rise as a slope. Paths as long as those of unrelated atoms hold nothing that was shared from "
    "the start.",
    _why_not,
    _caption,
    _draw,
    _numbers,
)
