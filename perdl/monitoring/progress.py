"""Progress of a run: a bar in a terminal, lines in a pipe, and an estimate of the time left."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from perdl.monitoring.callbacks import Callback
from perdl.monitoring.output import Output

if TYPE_CHECKING:
    from common.settings import Settings

_LINE = 10.0
"""Seconds between lines in a pipe."""

_FIRST = "first dictionaries"

_WIDE = 120
"""Columns of a terminal with room for all numbers."""

_WINDOW, _FEWEST = 6, 3
"""Largest and smallest number of rounds from which the time left is estimated."""


class ProgressBar(Callback):
    """Show the progress of a run: as a bar in a terminal, as lines in a pipe.

    Parameters
    ----------
    console : Console
        Where to print.
    every : float
        Seconds between lines in a pipe.
    """

    def __init__(self, console: Console, every: float = _LINE) -> None:
        self._console, self._every = console, every
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = TaskID(0)
        self._shown, self._started, self._counted = -math.inf, True, False
        self._rows: deque[Mapping[str, Any]] = deque(maxlen=_WINDOW)

    def on_start(self, settings: Settings) -> None:
        """Show an empty bar.

        Parameters
        ----------
        settings : Settings
            Settings of the run.
        """
        self._rounds, self._tolerance = settings.rounds, settings.tolerance
        self._task = self._bar.add_task("round", total=settings.rounds, text="starting")
        self._bar.start()

    def on_first_dictionaries(self, done: int, total: int) -> None:
        """Show how many clients have their first dictionary.

        Parameters
        ----------
        done : int
            Number of clients that have learnt theirs.
        total : int
            Number of all clients.
        """
        if self._console.is_terminal:
            text = "clients" if done < total else "clients, matching"
            self._bar.update(self._task, description=_FIRST, completed=done, total=total, text=text)
        elif self._counted if done == total else self._due():  # who has read of the beginning reads of the end
            self._counted = done < total
            self._line(f"{_FIRST}: {done} of {total} clients")

    def on_round(self, row: Mapping[str, Any]) -> None:
        """Show a round.

        Parameters
        ----------
        row : mapping
            A row of ``rounds.jsonl``.
        """
        self._rows.append(row)
        seconds = seconds_left(self._rows, self._rounds, self._tolerance)
        left = f", about {human_time(seconds)} left" if seconds is not None else ""
        if self._console.is_terminal:
            text = describe_round(row) if self._console.width >= _WIDE else f"change {row['change']:.1e}"
            done = {"completed": row["round"], "total": self._rounds, "text": f"{text}{left}"}
            self._bar.update(self._task, description="round", **done)
        elif self._started or self._due():
            self._started = False
            self._line(f"round {row['round']} of {self._rounds}{left}: {describe_round(row)}")

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Remove the bar.

        Parameters
        ----------
        summary : mapping
            Content of ``summary.json``; empty if nothing was saved.
        """
        self._bar.stop()

    def _due(self) -> bool:
        """Whether to print another line."""
        return time.monotonic() - self._shown >= self._every

    def _line(self, text: str) -> None:
        self._shown = time.monotonic()
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class Narrator(ProgressBar):
    """A :class:`ProgressBar` that ends with the number of rounds and the stop reason.

    Parameters
    ----------
    console : Console
        Where to print.
    every : float
        Seconds between lines in a pipe.
    """

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Remove the bar and say how the run ended.

        Parameters
        ----------
        summary : mapping
            Content of ``summary.json``; empty if nothing was saved.
        """
        super().on_end(summary)
        if summary:
            self._line(f"{summary['rounds']} rounds in {summary['seconds']:.1f} s: {summary['stop_reason']}")


def narrator(*, every_round: bool) -> Callback:
    """Return a callback that shows a run on the present standard output.

    Parameters
    ----------
    every_round : bool
        Whether to show every round if it is not a terminal, rather than a line every ten seconds.
    """
    return Narrator(Output(), 0.0 if every_round else _LINE)


def seconds_left(rows: Sequence[Mapping[str, Any]], rounds: int, tolerance: float) -> float | None:
    """Estimate the time until a run has done all rounds or reaches its tolerance, whichever comes first.

    Parameters
    ----------
    rows : sequence of mapping
        The newest rows of ``rounds.jsonl``.
    rounds : int
        Largest number of rounds of the run.
    tolerance : float
        The run stops when ``change`` is at most this.

    Returns
    -------
    float or None
        Seconds; None if fewer than three rounds are known.

    Notes
    -----
    ``change`` shrinks geometrically once the atoms are found. A line through its logarithms predicts when it reaches
    the tolerance. While it does not shrink, only the rounds count.
    """
    if len(rows) < _FEWEST:
        return None
    change = np.array([row["change"] for row in rows])
    left = rounds - rows[-1]["round"]
    if tolerance > 0 and (change > 0).all():
        slope = float(np.polyfit(np.arange(len(rows)), np.log(change), 1)[0])
        if slope < 0:
            more = (math.log(tolerance) - math.log(change[-1])) / slope
            left = min(left, max(0, math.ceil(more - 1e-6)))
    return float(left * (rows[-1]["seconds"] - rows[0]["seconds"]) / (rows[-1]["round"] - rows[0]["round"]))


def describe_round(row: Mapping[str, Any]) -> str:
    """Return one line about a round.

    Parameters
    ----------
    row : mapping
        A row of ``rounds.jsonl``.
    """
    error = row["error_before_update"]
    spread = " / ".join(f"{error[key]:.2g}" for key in ("min", "median", "max") if key in error) if error else "-"
    if error and "mean" in error:
        spread = f"{error['mean']:.2g} in the mean"
    return f"change {row['change']:.1e}  error {spread}  clients {row['clients']}  {decimal(row['bytes'])}"


def human_time(seconds: float) -> str:
    """Return a rounded time with its unit: 1 s, 40 s, 5 min, 3 h.

    Parameters
    ----------
    seconds : float
        The time.
    """
    count, unit = (seconds, "s") if seconds < 100 else (seconds / 60, "min")
    if unit == "min" and count >= 100:
        count, unit = count / 60, "h"
    if unit == "h" and count >= 100:
        count, unit = count / 24, "days"
    step = 1 if count < 10 else 5 if count < 50 else 10
    return f"{max(1, round(count / step) * step):g} {unit}"
