"""Figure: which client answered which round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from common.protocol import natural_key
from perdl.report.figure import FigureKind, chosen_clients, chosen_of
from perdl.report.words import counted, some_of
from perdl.results.run_result import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.floating]


def answered_rounds(result: RunResult) -> dict[str, list[int]]:
    """Return the rounds that each client answered; clients are sorted by name.

    Parameters
    ----------
    result : RunResult
        The run.
    """
    rounds: dict[str, list[int]] = {name: [] for name in result.clients}
    for row in result.metrics:
        rounds.setdefault(row["client"], []).append(row["round"])
    return dict(sorted(rounds.items(), key=lambda item: natural_key(item[0])))


def _why_not(result: RunResult, client: str | None) -> str:
    if result.metrics:
        return ""
    if not result.history:
        return "no round was done"
    return "only a run's folder says who answered which round; give that, see output"


def _draw(result: RunResult, client: str | None) -> Figure:
    from perdl.report.drawing import SHARED, name_rows, new_figure, whole_numbers

    answered = answered_rounds(result)
    last = max(row["round"] for row in result.metrics)
    names = chosen_clients(result, answered, {name: last - len(rounds) for name, rounds in answered.items()})
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


def _spans(rounds: Sequence[int]) -> tuple[Floats, Floats]:
    """Return the first and the last of each series of consecutive rounds."""
    t = np.array(sorted(rounds), dtype=float)
    breaks = np.flatnonzero(np.diff(t) > 1)
    return t[np.r_[0, breaks + 1]] if len(t) else t, t[np.r_[breaks, len(t) - 1]] if len(t) else t


def _caption(result: RunResult, client: str | None) -> str:
    answered = answered_rounds(result)
    n = max(row["round"] for row in result.metrics)
    away = {name: n - len(rounds) for name, rounds in answered.items() if len(rounds) < n}
    text = f"Who answered which of {counted(n, 'round')}: "
    if not away:
        text += f"all {counted(len(answered), 'client')} answered every round."
    else:
        worst = sorted(away, key=lambda name: -away[name])
        text += (
            f"{len(answered) - len(away)} of {counted(len(answered), 'client')} answered every round; "
            f"{some_of([f'{name} missed {away[name]}' for name in worst])}."
        )
    return text + chosen_of(len(answered), "the most rounds missed")


PARTICIPATION = FigureKind("Who took part", "Gaps are rounds that a client did not answer.", _why_not, _caption, _draw)
