"""Figure: which client shares which atom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perdl.report.figure import FigureKind, Row, chosen_clients, chosen_of
from perdl.report.words import counted, some_of
from perdl.results.membership import who_shares
from perdl.results.run_result import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_ATOMS = 30


def _why_not(result: RunResult, client: str | None) -> str:
    if not result.summary:
        return "a client's folder does not tell who shares what: see the server's"
    if not result.members:
        return "all clients share all shared atoms" if result.global_dictionary.size else "there is no shared atom"
    return "" if result.global_dictionary.size else "no atom is shared by two clients or more"


def _draw(result: RunResult, client: str | None) -> Figure:
    from matplotlib.colors import ListedColormap

    from perdl.report.drawing import SHARED, label, new_figure

    names = chosen_clients(result, result.members)
    table = np.array([result.members[name] for name in names]).T[:_MOST_ATOMS]
    figure = new_figure(min(1.2 + 0.16 * len(table), 9.5))
    axes = figure.subplots()
    axes.imshow(table, cmap=ListedColormap(["0.95", SHARED]), vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    # White lines between the cells: neighbours of one colour stay countable.
    axes.set_xticks(np.arange(1, len(names)) - 0.5, minor=True)
    axes.set_yticks(np.arange(1, len(table)) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.2)
    axes.tick_params(which="minor", length=0)
    axes.set_yticks(range(len(table)), [f"shared {k + 1}" for k in range(len(table))])
    every = -(-len(names) // 20)
    axes.set_xticks(range(0, len(names), every), [label(name) for name in names[::every]], rotation=90)
    return figure


def _caption(result: RunResult, client: str | None) -> str:
    members, r_g = result.members, result.global_dictionary.shape[1]
    text = f"Who shares which of {counted(r_g, 'atom')}: {who_shares(members)}."
    none = [name for name, own in members.items() if not own.any()]
    if none:
        text += f" {some_of(none)} {'share' if len(none) > 1 else 'shares'} none."
    text += chosen_of(len(members))
    return text + (f" Of {counted(r_g, 'atom')} the first {_MOST_ATOMS} are shown." if r_g > _MOST_ATOMS else "")


def _numbers(result: RunResult, client: str | None) -> list[Row]:
    return [
        {
            "client": name,
            **{f"shared {k + 1}": "yes" if own[k] else "-" for k in range(min(len(own), _MOST_ATOMS))},
            "in all": f"{own.sum()} of {len(own)}",
        }
        for name in chosen_clients(result, result.members)
        for own in (result.members[name],)
    ]


MEMBERSHIP = FigureKind(
    "Who shares which atom",
    "Blue: the client's own data carry the atom. Pale: it has other atoms of its own instead.",
    _why_not,
    _caption,
    _draw,
    _numbers,
)
