"""Tables for a terminal or a pipe. Names and numbers are never broken or cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from perdl.monitoring.output import Output

_FRAME = 3
"""Characters of the frame per column. The table takes one more."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    name : str
        Title of the column.
    right : bool
        Whether cells are aligned to the right, as numbers are.
    wrap : {"no", "words", "anywhere"}
        Where a cell may be wrapped: nowhere (names and numbers), between words, anywhere (files).
    """

    name: str
    right: bool = False
    wrap: Literal["no", "words", "anywhere"] = "no"


_NARROWEST = {"words": 20, "anywhere": 12}
"""Smallest width of a column whose cells may be wrapped."""


def print_table(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Print a table.

    Parameters
    ----------
    console : Console
        Where to print.
    columns : sequence of Column
        The columns; the first one names the rows.
    rows : sequence of sequence of str
        Cells, row by row.
    title : str
        Line above the table; may be empty.

    Notes
    -----
    In a pipe a table may be as wide as it needs. On a screen, columns that may wrap shrink first. A table that is still
    too wide is printed in parts one below the other, each with the first column.
    """
    wide = console if console.is_terminal else Output(file=console.file, width=10_000)
    least = [_least(column, [row[i] for row in rows]) for i, column in enumerate(columns)]
    for n, part in enumerate(_parts(least, wide.width)):
        # Let the terminal break the lines of a column wider than the screen: nothing is lost.
        whole = max(wide.width, 1 + sum(least[i] + _FRAME for i in part))
        table = Table(title=escape(title) if title and n == 0 else None, title_justify="left")
        for i in part:
            column = columns[i]
            table.add_column(
                escape(column.name),
                justify="right" if column.right else "left",
                no_wrap=column.wrap == "no",
                overflow="fold",
                min_width=least[i],
            )
        for row in rows:
            table.add_row(*(escape(row[i]) for i in part))
        wide.print(table, width=whole, crop=False, no_wrap=whole > wide.width, soft_wrap=whole > wide.width)


def _least(column: Column, cells: Sequence[str]) -> int:
    """Smallest width in which no name and no number is broken."""
    if column.wrap == "words":
        words = [word for cell in [column.name, *cells] for word in cell.split()]
        return max(map(cell_len, words), default=1)
    longest = max(map(cell_len, [column.name, *cells]))
    return longest if column.wrap == "no" else min(longest, max(cell_len(column.name), _NARROWEST[column.wrap]))


def _parts(least: Sequence[int], width: int) -> list[list[int]]:
    """Split the columns into tables that fit. Each table repeats the first column."""
    parts, part, used = [], [0], 1 + least[0] + _FRAME
    for i in range(1, len(least)):
        if used + least[i] + _FRAME > width and len(part) > 1:
            parts.append(part)
            part, used = [0], 1 + least[0] + _FRAME
        part.append(i)
        used += least[i] + _FRAME
    return [*parts, part]
