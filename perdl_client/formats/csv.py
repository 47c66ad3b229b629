"""Read tables of numbers from text: cells separated by comma, semicolon or tab, with or without a header."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from perdl_client.formats.columns import kept_columns
from perdl_client.formats.csv_faults import explain, refuse_cut_numbers, refuse_index
from perdl_client.formats.csv_layout import MISSING, NUMBER, CsvLayout, cells_of, layout_of, rows
from perdl_client.formats.file_checks import file_error, reading, require_no_other_kind
from perdl_client.formats.format import Format, Options, Table


def _read(path: Path, options: Options) -> Table:
    """Return the table of the file, the names of its columns, and notes.

    Parameters
    ----------
    path : Path
        The file.
    options : Options
        ``drop`` and ``in_columns`` are used.
    """
    require_no_other_kind(path)
    with reading(path, "a table of numbers in UTF-8 text"):
        layout = layout_of(path, options.in_columns)
        keep = _kept(path, layout, options.drop)
        if layout.delimiter == "," and not layout.names:
            refuse_cut_numbers(path, layout)
        refuse_index(path, layout, keep)
        whole = len(keep) == layout.width
        repeated: list[int] = []
        found = rows(path, layout, repeated.append)
        lines = (line for _, line in found) if whole else _checked(found, layout)
        cells = [j + layout.columns.start for j in keep]
        try:
            table = np.loadtxt(
                lines,
                delimiter=layout.delimiter,
                quotechar='"',
                comments=None,
                ndmin=2,
                usecols=None if whole else cells,
                converters=_number if options.allow_missing else None,
            )
        except UnicodeDecodeError:
            raise
        except ValueError:
            explain(path, layout, keep, allow_missing=options.allow_missing)
            raise
        if layout.names and len(layout.names) != len(layout.columns):
            explain(path, layout, keep, allow_missing=options.allow_missing)
        if table.size == 0:
            raise file_error(path, "holds 0 samples: it has no line of numbers; export it again")
        # A header may leave some columns without a name.
        names = tuple(layout.names[j] or f"column {j + 1}" for j in keep) if layout.names else ()
        return Table(table, names, layout.notes + _said_of(repeated))


def _number(cell: str) -> float:
    """Return the number in a cell, NaN if it is empty or holds a word for a missing value."""
    text = cell.strip()
    if text.lower() in MISSING:
        return float("nan")
    if not NUMBER.fullmatch(text):  # Python reads 1_000 as a number
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def _place(path: Path, options: Options, row: int, column: int) -> str:
    layout = layout_of(path, options.in_columns)
    number = next(number for i, (number, _) in enumerate(rows(path, layout)) if i == row)
    return f"line {number}, column {_kept(path, layout, options.drop)[column] + layout.columns.start + 1}"


def _kept(path: Path, layout: CsvLayout, drop: str | None) -> list[int]:
    names: Sequence[str] = layout.names if len(layout.names) == len(layout.columns) else ()
    return kept_columns(path, names, len(layout.columns), drop)


def _checked(found: Iterator[tuple[int, str]], layout: CsvLayout) -> Iterator[str]:
    """Yield lines after checking that all have the same width, and that cells after the last column are empty."""
    delimiter, n_marks = layout.delimiter, layout.width - 1
    for _, line in found:
        simple = '"' not in line and line.count(delimiter) == n_marks
        if not (simple and line.endswith(delimiter * layout.trailing)):
            cells = cells_of(line, delimiter)
            if len(cells) != layout.width or any(cell.strip() for cell in cells[layout.columns.stop :]):
                raise ValueError(line)
        yield line


def _said_of(repeated: Sequence[int]) -> tuple[str, ...]:
    if not repeated:
        return ()
    more = f" and {len(repeated) - 1} more" if len(repeated) > 1 else ""
    return (f"line {repeated[0]}{more} repeats the names: left out (were files joined?)",)


CSV = Format("CSV", _read, (".csv", ".tsv"), has_columns=True, place=_place)
