"""Figure: the shares of each client's energy that are shared, its own, and unexplained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perdl.report.figure import MOST_CLIENTS, FigureKind, Row, chosen_clients, chosen_of
from perdl.results.run_result import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def explained_parts(result: RunResult) -> dict[str, tuple[float, float, float]]:
    """Return the shares of each client's energy that are shared, its own, and unexplained.

    Clients that did not report them are left out.

    Parameters
    ----------
    result : RunResult
        The run.
    """
    found = {}
    for name, facts in result.clients.items():
        if facts.get("final_shared") is not None and facts.get("final_own") is not None:
            shared, own = float(facts["final_shared"]), float(facts["final_own"])
            found[name] = (shared, own, 1.0 - shared - own)
    return found


def _why_not(result: RunResult, client: str | None) -> str:
    if explained_parts(result):
        return ""
    if not result.summary:
        return "shares of a client are in the server's folder"
    return "no client reported what its atoms explain in the end"


def _draw(result: RunResult, client: str | None) -> Figure:
    from perdl.report.drawing import HATCH, OWN, REST, SHARED, name_rows, new_figure

    parts = explained_parts(result)
    parts = {name: parts[name] for name in chosen_clients(result, parts)}
    figure = new_figure(0.9 + 0.2 * len(parts))
    axes = figure.subplots()
    values = np.clip(list(parts.values()), 0, 1)
    left = np.zeros(len(parts))
    for width, colour, name in zip(values.T, (SHARED, OWN, REST), ("shared", "own", "unexplained"), strict=True):
        edge = "white" if colour == SHARED else "0.3"
        style: Any = {"facecolor": colour, "hatch": HATCH[colour], "edgecolor": edge}
        axes.barh(range(len(parts)), width, left=left, height=0.75, linewidth=0.5, label=name, **style)
        left += width
    name_rows(axes, list(parts))
    axes.set(xlabel="share of the energy of the client's data", xlim=(0, 1))
    axes.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


def main_finding(result: RunResult) -> str:
    """Return one sentence with the medians over the clients.

    Parameters
    ----------
    result : RunResult
        The run.
    """
    shared, own, rest = np.median(list(explained_parts(result).values()), axis=0)
    return (
        f"Of the energy of a client's data, shared atoms explain {shared:.0%} (median), own atoms {own:.0%} more, and "
        f"{rest:.1%} stays unexplained."
    )


def _caption(result: RunResult, client: str | None) -> str:
    parts, text = explained_parts(result), main_finding(result)
    least, most = min(parts, key=lambda name: parts[name][0]), max(parts, key=lambda name: parts[name][0])
    if len(parts) > 1:
        text += f" Least is shared at {least} ({parts[least][0]:.0%}), most at {most} ({parts[most][0]:.0%})."
    if len(parts) > MOST_CLIENTS:
        low, high = np.quantile([shared for shared, _, _ in parts.values()], (0.05, 0.95))
        text += f" It is {low:.0%} to {high:.0%} for nine clients of ten."
    return text + chosen_of(len(parts))


def _numbers(result: RunResult, client: str | None) -> list[Row]:
    names, parts = ("shared", "own", "unexplained"), explained_parts(result)
    return [
        {"client": name, **{key: f"{value:.1%}" for key, value in zip(names, parts[name], strict=True)}}
        for name in chosen_clients(result, parts)
    ]


VARIANCE = FigureKind(
    "Shared, own, unexplained",
    "The energy of each client's data, after its preprocessing, that shared atoms explain, that its own "
    "atoms add, and that neither explains.",
    _why_not,
    _caption,
    _draw,
    _numbers,
)
