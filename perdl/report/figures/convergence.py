"""Figure: error, largest move of a shared atom, and consensus, by round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perdl.report.figure import FigureKind
from perdl.report.words import counted, number
from perdl.results.run_result import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _why_not(result: RunResult, client: str | None) -> str:
    if result.history and result.summary.get("n_global") == 0:
        return "there is no shared atom that could move or be agreed on"
    if result.history:
        return ""
    return "no round was done" if result.summary else "a client's folder tells nothing of the rounds: see the server's"


def _draw(result: RunResult, client: str | None) -> Figure:
    from perdl.report.drawing import INK, PALE, new_figure, whole_numbers

    def column(*keys: str) -> NDArray[np.floating]:
        values = []
        for row in result.history:
            value: Any = row
            for key in keys:
                value = value.get(key) if isinstance(value, dict) else None
            values.append(np.nan if value is None else float(value))
        return np.array(values)

    figure = new_figure(5.2)
    top, middle, bottom = figure.subplots(3, 1, sharex=True)
    t = column("round")
    mark = "o" if len(t) < 30 else ""
    low, median, high = (column("error_before_update", key) for key in ("min", "median", "max"))
    if np.isfinite(mean := column("error_before_update", "mean")).any():  # single clients' errors are not known
        low, median = mean, mean
    else:
        top.fill_between(t, low, high, color=PALE, linewidth=0, label="all clients")
    label = "mean over clients" if median is mean else "median client"
    top.plot(t, median, color=INK, marker=mark, markersize=3, label=label)
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


def _caption(result: RunResult, client: str | None) -> str:
    first, last = result.history[0], result.history[-1]
    before, after = first.get("error_before_update") or {}, last.get("error_before_update") or {}
    text = f"{counted(len(result.history), 'round')}."
    if "mean" in before and "mean" in after:
        text += (
            f" The clients' mean relative error before their update went from {number(before['mean'])} to "
            f"{number(after['mean'])}; each one's own is not known, for rounds are secure sums."
        )
    elif before and after:
        text += (
            f" The median client's relative error before its update went from {number(before.get('median'))} to "
            f"{number(after.get('median'))}; in the last round it was between {number(after.get('min'))} and "
            f"{number(after.get('max'))}."
        )
    text += f" The last round moved no shared atom by more than {number(last.get('change'))}."
    if (last.get("consensus") or {}).get("min") is not None:
        text += (
            f" Consensus of the least agreed atom: {first['consensus']['min']:.3f} in the first round, "
            f"{last['consensus']['min']:.3f} in the last (1: all clients agree)."
        )
    return text


CONVERGENCE = FigureKind(
    "Convergence",
    "A good run falls and then rests: the error of all clients, the largest move of a shared atom. "
    "Consensus is 1 where all clients' versions of an atom agree; it cannot tell a wrong match.",
    _why_not,
    _caption,
    _draw,
)
