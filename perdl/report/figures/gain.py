"""Figure: how much lower each client's error on held-out samples is than it would be alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from common.evaluation import percent
from perdl.report.figure import FigureKind, Row, chosen_clients, chosen_of
from perdl.results.run_result import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def evaluated(result: RunResult) -> dict[str, dict[str, Any]]:
    """Return what each client told of its held-out samples, by client; those that held out nothing are left out.

    Parameters
    ----------
    result : RunResult
        The run.
    """
    return {name: facts["held_out"] for name, facts in result.clients.items() if facts.get("held_out")}


def _told(result: RunResult) -> dict[str, dict[str, Any]]:
    """Return what is shown of :func:`evaluated`."""
    told = evaluated(result)
    names = chosen_clients(result, told, {name: -float(one["gain"]) for name, one in told.items()})
    return {name: told[name] for name in names}


def _why_not(result: RunResult, client: str | None) -> str:
    if evaluated(result):
        return ""
    if not result.summary:
        return "gains of a client are in the server's folder"
    if not result.summary.get("settings", {}).get("evaluation", {}).get("held_out"):
        return "no samples were held out; set evaluation.held_out, for example to 0.2"
    return "no client told of held-out samples: it had too few, or the run did not come to its end"


def _draw(result: RunResult, client: str | None) -> Figure:
    from perdl.report.drawing import INK, SHARED, name_rows, new_figure

    told = _told(result)
    low, gain, high = (100 * np.array([one[key] for one in told.values()]) for key in ("gain_low", "gain", "gain_high"))
    figure = new_figure(0.9 + 0.2 * len(told))
    axes = figure.subplots()
    rows = np.arange(len(told))
    axes.axvline(0, color="0.4", linewidth=1)
    axes.hlines(rows, low, high, color=SHARED, linewidth=2)
    decided = (low > 0) | (high < 0)
    axes.plot(gain[decided], rows[decided], "o", color=SHARED)
    axes.plot(gain[~decided], rows[~decided], "o", markerfacecolor="white", color=SHARED)
    bounds = 100 * np.array([one.get("pooled_gain") for one in told.values()], dtype=float)  # None becomes NaN
    if np.isfinite(bounds).any():
        axes.plot(bounds, rows, "|", color=INK, markersize=9, label="pooled")
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1))
    name_rows(axes, list(told))
    axes.set(xlabel="error on held-out samples, lower than alone by (%)")
    return figure


def _caption(result: RunResult, client: str | None) -> str:
    return str(result.summary["held_out"]["sentence"]) + chosen_of(len(evaluated(result)), "the smallest gain")


def _numbers(result: RunResult, client: str | None) -> list[Row]:
    names = {"alone": "alone", "federated": "federated", "shared": "shared atoms only", "pooled": "pooled"}
    rows: list[Row] = []
    for name, one in _told(result).items():
        errors = one["errors"][str(one["atoms"])]
        row = {"client": name, "held out": str(one["n_samples"]), "atoms": str(one["atoms"])}
        row |= {title: f"{errors[key]:.3f}" for key, title in names.items() if key in errors}
        row["gain"] = percent(one["gain"])
        rows.append({**row, "95 % interval": f"{percent(one['gain_low'])} to {percent(one['gain_high'])}"})
    return rows


GAIN = FigureKind(
    "Did federating help?",
    "Right of zero a client has a lower error on samples that it did not learn from than it would have alone. The line "
    "is a 95 % interval; a hollow point means that it includes zero.",
    _why_not,
    _caption,
    _draw,
    _numbers,
)
