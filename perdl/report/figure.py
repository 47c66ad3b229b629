"""What a figure of the report consists of: how to draw it, and the texts about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from perdl.results.run_result import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row: TypeAlias = Mapping[str, str]
MOST_CLIENTS = 40
"""Largest number of clients for which a figure stays legible."""
NO_MODELS = (
    "no client's model is here: a server's clients keep theirs, each in its own folder, and a run that was interrupted "
    "has none"
)


def no_numbers(result: RunResult, client: str | None) -> list[Row]:
    """Return no table: a file of the run's folder holds the numbers of this figure.

    Parameters
    ----------
    result : RunResult
        Ignored.
    client : str or None
        Ignored.
    """
    return []


@dataclass(frozen=True)
class FigureKind:
    """A figure of a run or a model. Each callable takes the result, and the client if ``per_client`` (else None).

    Parameters
    ----------
    title : str
        Title in the report.
    hint : str
        How to read the figure, in one or two sentences.
    why_not : callable (RunResult, str or None) -> str
        Says why the figure cannot be drawn; empty if it can.
    caption : callable (RunResult, str or None) -> str
        Says what the figure shows, in words and numbers.
    draw : callable (RunResult, str or None) -> Figure
        Draws the figure. It imports matplotlib itself.
    numbers : callable (RunResult, str or None) -> list of rows
        Returns the numbers drawn, as rows of a table.
    of_model : bool
        Whether the report of a client's own folder has this figure too.
    per_client : bool
        Whether each client has its own figure.
    """

    title: str
    hint: str
    why_not: Callable[[RunResult, str | None], str]
    caption: Callable[[RunResult, str | None], str]
    draw: Callable[[RunResult, str | None], Figure]
    numbers: Callable[[RunResult, str | None], list[Row]] = no_numbers
    of_model: bool = False
    per_client: bool = False
