"""What a figure of the report is: how it is drawn, and all that a reader is told of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from perdl.results.run_result import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row: TypeAlias = Mapping[str, str]
MOST_CLIENTS = 40
"""Rows or columns of clients that stay legible."""
NO_MODELS = (
    "no client's model is here: a server's clients keep theirs, each in its own folder, and a run that was interrupted "
    "has none"
)


def no_numbers(result: RunResult, client: str | None) -> list[Row]:
    """Return no table: the numbers of this figure are in a file of the run's folder."""
    return []


@dataclass(frozen=True)
class FigureKind:
    """A figure of a run or a model. Each callable takes the result, and the client where ``per_client``.

    Attributes
    ----------
    title : str
    hint : str
        How to read it, in one or two sentences.
    why_not : callable
        Returns why it cannot be drawn; empty if it can.
    caption : callable
        Returns what it shows, in words and numbers.
    draw : callable
        Returns the matplotlib figure. It imports matplotlib itself.
    numbers : callable
        Returns the rows of a table with the numbers that are drawn.
    of_model : bool
        Whether a client's own folder has it too.
    per_client : bool
        Whether each client has one.
    """

    title: str
    hint: str
    why_not: Callable[[RunResult, str | None], str]
    caption: Callable[[RunResult, str | None], str]
    draw: Callable[[RunResult, str | None], Figure]
    numbers: Callable[[RunResult, str | None], list[Row]] = no_numbers
    of_model: bool = False
    per_client: bool = False
