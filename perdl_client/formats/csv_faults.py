"""Say in one line why a text is not a table of numbers: the place, the content, and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from perdl_client.formats.columns import column_name, to_drop
from perdl_client.formats.csv_layout import (
    COMMENTS,
    DECIMAL_COMMA,
    MISSING,
    NUMBER,
    SPACED,
    THOUSANDS,
    CsvLayout,
    cells_of,
    records,
    rows,
)
from perdl_client.formats.file_checks import file_error


def explain(path: Path, layout: CsvLayout, keep: Sequence[int], *, allow_missing: bool = False) -> None:
    """Raise an error for the first cell or line that does not fit a table of numbers.

    Parameters
    ----------
    path : Path
        The file.
    layout : CsvLayout
        How the file is laid out.
    keep : sequence of int
        Columns that are read, from 0.
    allow_missing : bool
        Whether empty cells and words for what is missing are right.
    """
    _explain_head(path, layout)
    for number, line in rows(path, layout):
        if line.count('"') % 2:
            raise file_error(path, f"line {number} has a quote that is not closed; close or remove it")
        cells = cells_of(line, layout.delimiter)
        if len(cells) != layout.width:
            _explain_width(path, layout, number, line, len(cells))
        for j in keep:
            column = j + layout.columns.start
            if allow_missing and cells[column].strip().lower() in MISSING:
                continue
            if not NUMBER.fullmatch(cells[column]):
                raise file_error(path, _wrong_cell(path, layout, keep, number, j, cells[column]))
        for column in range(layout.columns.stop, layout.width):
            if cells[column].strip():
                raise file_error(
                    path,
                    f"line {number} goes on in column {column + 1}, which has no name and is empty in the lines above; "
                    "make all lines equal",
                )


def _explain_head(path: Path, layout: CsvLayout) -> None:
    """Raise if there are more or fewer names than columns."""
    if not layout.names or len(layout.names) == len(layout.columns):
        return
    head = next((number for number, line in records(path) if line == layout.header), 1)
    first = next((number for number, _ in rows(path, layout)), head)
    cure = "make all lines equal"
    if layout.delimiter == "," and len(layout.names) < len(layout.columns):
        cure += " (decimal commas? export decimal points)"
    if layout.skipped > 1:
        cure = f"take the lines above line {first} out, or put a line of names right above it"
    if len(layout.names) == len(layout.columns) - 1 and layout.delimiter != ",":
        cure = "if the first column has no name, name it"
    raise file_error(path, f"line {first} has {layout.width} cells, line {head} has {len(layout.names)}; {cure}")


def _explain_width(path: Path, layout: CsvLayout, number: int, line: str, n_cells: int) -> None:
    """Raise because a line has more or fewer cells than most."""
    other = next(n for n, text in rows(path, layout) if _width(text, layout) == layout.width)
    (late, more), (early, less) = sorted([(number, n_cells), (other, layout.width)], reverse=True)
    cure = "make all lines equal"
    if line.lstrip().startswith(COMMENTS):
        cure = f"take line {number}, a comment, out"
    elif layout.delimiter == ",":
        cure += " (decimal commas? export decimal points)"
    raise file_error(path, f"line {late} has {more} cells, line {early} has {less}; {cure}")


def _width(line: str, layout: CsvLayout) -> int:
    return len(cells_of(line, layout.delimiter))


def _wrong_cell(path: Path, layout: CsvLayout, keep: Sequence[int], number: int, j: int, cell: str) -> str:
    """Say what is wrong with a cell, or with its whole column."""
    column, name = j + layout.columns.start + 1, column_name(layout.names, j)
    out = to_drop(layout.names, j)
    if column - 1 in layout.texts and cell.strip().lower() not in MISSING:
        return (
            f"column {column}{name} is not of numbers (line {number}: {_shown(cell)}); {out}, or encode it as numbers"
        )
    what = _what_is_wrong(cell, out)
    return f"line {number}, column {column}{name} {what}{_missing(path, layout, keep, (number, column))}"


def refuse_index(path: Path, layout: CsvLayout, keep: Sequence[int]) -> None:
    """Raise if all columns but the first have names: the first is an index, such as row numbers, and no feature.

    Parameters
    ----------
    path : Path
        The file.
    layout : CsvLayout
        How the file is laid out.
    keep : sequence of int
        Columns that are read, from 0.
    """
    if not layout.names or layout.names[0] or 0 not in keep or not any(layout.names):
        return
    number = next((number for number, line in records(path) if line == layout.header), 1)
    raise file_error(
        path,
        f"line {number}, column 1 is empty; an index column without a name? Export without it, or {to_drop((), 0)}"
        + _missing(path, layout, keep, (number, 1)),
    )


def refuse_cut_numbers(path: Path, layout: CsvLayout) -> None:
    """Raise if decimal commas split numbers in two: 0,05,1,20 for 0.05 and 1.20.

    Parameters
    ----------
    path : Path
        The file.
    layout : CsvLayout
        How the file is laid out.
    """
    zeros = ""
    for _, (_, line) in zip(range(50), rows(path, layout), strict=False):
        cells = [cell.strip() for cell in line.split(",")]
        whole = all(re.fullmatch(r"-?[0-9]+", cell) for cell in cells[::2])
        if len(cells) % 2 or not whole or not all(re.fullmatch(r"[0-9]+", cell) for cell in cells[1::2]):
            return
        zeros = zeros or next((cell for cell in cells[1::2] if re.fullmatch(r"0[0-9]+", cell)), "")
    if zeros:
        raise file_error(
            path,
            f"holds whole numbers alone, every second like {zeros!r}: decimal commas, of which each makes two "
            "numbers of one; export decimal points",
        )


def _missing(path: Path, layout: CsvLayout, keep: Sequence[int], here: tuple[int, int]) -> str:
    """Say how many cells are missing in all, and which comes after the one at this line and column, both from 1."""
    columns = [j + layout.columns.start for j in keep]
    places = [
        (number, column + 1)
        for number, text in rows(path, layout)
        for cells in [cells_of(text, layout.delimiter)]
        for column in columns
        if column < len(cells) and cells[column].strip().lstrip("+-").lower() in (*MISSING, "nan", "inf", "infinity")
    ]
    if not places or places == [here]:
        return ""
    told = f"; cells that are empty, NaN or infinite: {len(places)} in all"
    if (after := next((place for place in places if place > here), None)) is None:
        return told
    number, column = after
    name = column_name(layout.names, column - 1 - layout.columns.start)
    return f"{told}, the next in line {number}, column {column}{name}"


def _shown(cell: str) -> str:
    text = cell.strip()
    return repr(text if len(text) <= 20 else text[:20] + "…")


def _what_is_wrong(cell: str, out: str) -> str:
    text, shown = cell.strip(), _shown(cell)
    if not text:
        return 'is empty; fill it, drop the line, or set data.missing = "mask"'
    if SPACED.fullmatch(cell):
        return f"is {shown}, several numbers with spaces between; put commas or tabs between them"
    if THOUSANDS.fullmatch(cell) and not re.fullmatch(r"[^,]*,[0-9]{3}", text):
        return f"is {shown}, with marks between thousands; export without them"
    if text.lower() in MISSING:
        return f'is {shown}, a missing value; fill it, drop the line, or set data.missing = "mask"'
    if DECIMAL_COMMA.fullmatch(cell):
        return f"is {shown}, with a decimal comma; export decimal points"
    return f"is {shown}, not a number; mend it, {out}, or encode it as numbers"
