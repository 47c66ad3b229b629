"""What a figure of the report consists of: how to draw it, and the texts about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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


def chosen_clients(result: RunResult, clients: Iterable[str], worst: Mapping[str, float] | None = None) -> list[str]:
    """Return the clients that a figure shows: all, or those of thousands that need a look.

    Parameters
    ----------
    result : RunResult
        The run.
    clients : iterable of str
        Clients that could be shown, in their order, which is kept.
    worst : mapping of str to float, optional
        How much each needs a look; default its relative error in the end.
    """
    names = list(clients)
    if len(names) <= MOST_CLIENTS:
        return names
    if worst is None:
        worst = {name: facts.get("final_error") or 0.0 for name, facts in result.clients.items()}
    largest = set(sorted(names, key=lambda name: -worst.get(name, 0.0))[:MOST_CLIENTS])
    return [name for name in names if name in largest]


def chosen_of(n: int, why: str = "the largest error") -> str:
    """Say which clients :func:`chosen_clients` has chosen; empty if all are shown.

    Parameters
    ----------
    n : int
        Number of all clients.
    why : str
        What those shown have, in words.
    """
    return f" Of {n} clients the {MOST_CLIENTS} with {why} are shown." if n > MOST_CLIENTS else ""


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
