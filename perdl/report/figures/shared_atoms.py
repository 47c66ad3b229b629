"""Figure: held-out error over the number of shared atoms, from the search that found a run's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from common.evaluation import EXACT, gain, percent
from perdl.report.figure import FigureKind, Row
from perdl.report.words import counted
from perdl.results.run_result import RunResult
from perdl.results.search import is_auto, rungs

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def curve(result: RunResult) -> tuple[list[int], list[float], list[bool]]:
    """Return numbers of shared atoms, the geometric mean of the clients' errors with each, and whether auto found it.

    Parameters
    ----------
    result : RunResult
        The run.
    """
    worked = [one for one in rungs(result.search) if one["errors"]]
    return [one["n_global"] for one in worked], [_error(one) for one in worked], [is_auto(one) for one in worked]


def _error(trial: Mapping[str, Any]) -> float:
    return float(np.exp(np.log(np.maximum(list(trial["errors"].values()), EXACT)).mean()))


def _why_not(result: RunResult, client: str | None) -> str:
    if not result.search:
        return "no search tried other numbers: perdl tune does, and a run of the settings that it writes shows them"
    return "" if len(curve(result)[0]) > 1 else "the search did not try several numbers of shared atoms"


def _draw(result: RunResult, client: str | None) -> Figure:
    from perdl.report.drawing import INK, SHARED, new_figure, whole_numbers

    figure = new_figure(2.6)
    axes = figure.subplots()
    numbers, errors, auto = curve(result)
    axes.plot(numbers, errors, "o-", color=SHARED, linewidth=1.5, markersize=5, clip_on=False)
    found = np.flatnonzero(auto)
    if len(found):
        x, y = numbers[found[0]], errors[found[0]]
        axes.plot(x, y, "o", color=SHARED, markerfacecolor="white", markersize=8, label="auto", clip_on=False)
    n_global = result.summary.get("n_global")
    if n_global is not None:
        axes.axvline(n_global, color=INK, linestyle=":", linewidth=1, label="this run")
    if 0 in numbers:
        axes.axhline(errors[numbers.index(0)], color=INK, linestyle="--", linewidth=1, label="nothing shared")
    axes.set(xlabel="shared atoms", ylabel="error on held-out samples")
    whole_numbers(axes.xaxis)
    axes.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
    return figure


def _caption(result: RunResult, client: str | None) -> str:
    numbers, errors, auto = curve(result)
    best = int(np.argmin(errors))
    text = (
        f"{counted(len(numbers), 'short run')}, alike but for the number of shared atoms, by the search that chose the "
        f"settings. The error was least with {counted(numbers[best], 'shared atom')} ({errors[best]:.3f}"
    )
    if numbers[best] and 0 in numbers:
        alone = errors[numbers.index(0)]
        text += f", {percent(gain(alone, errors[best]))} lower than with none"
    text += ")."
    if any(auto):
        i = auto.index(True)
        text += f" auto took {numbers[i]} ({errors[i]:.3f})."
    failed = [one for one in rungs(result.search) if not one["errors"]]
    return text + (f" {counted(len(failed), 'number')} could not be tried: {failed[0]['failed']}." if failed else "")


def _numbers(result: RunResult, client: str | None) -> list[Row]:
    return [
        {"shared atoms": str(number), "found by": "auto" if auto else "number given", "error": f"{error:.4f}"}
        for number, error, auto in zip(*curve(result), strict=True)
    ]


SHARED_ATOMS = FigureKind(
    "How many atoms to share",
    "Error on samples that clients held out, the geometric mean over the clients, where the settings were searched. A "
    "curve that falls and rises again has its best number in between. If it hardly moves, the number matters little; "
    "if it only rises, clients are better alone.",
    _why_not,
    _caption,
    _draw,
    _numbers,
)
