"""Read tables of numbers from text: comma, semicolon or tab between cells, a header or none."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perdl_client.file_checks import file_error, reading

_NUMBER = re.compile(r"\s*[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|nan|inf|infinity)\s*", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"\s*[+-]?[0-9]*,[0-9]+(e[+-]?[0-9]+)?\s*", re.IGNORECASE)
_NO_NAME = re.compile(rf"{_NUMBER.pattern}|{_DECIMAL_COMMA.pattern}|\s*", re.IGNORECASE)  # never in a header


def read_csv(path: Path) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Return the table as the file has it, and the names of its columns; none without a line of names."""
    with reading(path, "a table of numbers in UTF-8 text"):
        delimiter, has_header = _csv_layout(path)
        lines = (line for _, line in _csv_lines(path))
        names = tuple(cell.strip() for cell in _cells(next(lines), delimiter)) if has_header else ()
        try:
            table = np.loadtxt(lines, delimiter=delimiter, quotechar='"', comments=None, ndmin=2)
        except UnicodeDecodeError:
            raise
        except ValueError:
            _explain_csv(path, delimiter, has_header)
            raise
        if has_header and len(names) != table.shape[1]:
            _explain_csv(path, delimiter, has_header)
        return table, names


def line_of_row(path: Path, row: int) -> int:
    """Return the number that an editor shows for a row of the table, which is counted from 0."""
    has_header = _csv_layout(path)[1]
    return [number for number, _ in _csv_lines(path)][row + has_header]


def _csv_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, with the number that an editor shows."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield from ((number, line) for number, line in enumerate(file, 1) if line.strip())
    except UnicodeDecodeError:
        raise file_error(path, "is not UTF-8 text; export it as CSV in UTF-8") from None


def _cells(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line.rstrip("\n")], delimiter=delimiter))


def _csv_layout(path: Path) -> tuple[str, bool]:
    """Delimiter, and whether the first line is a header."""
    lines = [line for _, (_, line) in zip(range(2), _csv_lines(path), strict=False)]
    if not lines:
        raise file_error(path, "holds 0 samples: all its lines are blank; export it again")
    delimiter = next((mark for mark in "\t;" if mark in lines[-1]), ",")
    cells = _cells(lines[0], delimiter)
    has_header = not any(_NO_NAME.fullmatch(cell) for cell in cells)
    if has_header and len(lines) == 1:
        raise file_error(path, "holds 0 samples: only one line, without numbers; export it again")
    return delimiter, has_header


def _explain_csv(path: Path, delimiter: str, has_header: bool) -> None:
    """Find the first cell or line that is not part of a table of numbers, and raise."""
    first_number = width = 0
    for number, line in _csv_lines(path):
        if line.count('"') % 2:
            raise file_error(path, f"line {number} has a quote that is not closed; close or remove it")
        cells = _cells(line, delimiter)
        if not width:
            first_number, width = number, len(cells)
        if len(cells) != width:
            cure = "make all lines equal" + (" (decimal commas? export decimal points)" if delimiter == "," else "")
            raise file_error(path, f"line {number} has {len(cells)} cells, line {first_number} has {width}; {cure}")
        if has_header and number == first_number:
            continue
        for column, cell in enumerate(cells, 1):
            if not _NUMBER.fullmatch(cell):
                raise file_error(path, f"line {number}, column {column} {_what_is_wrong(cell)}")


def _what_is_wrong(cell: str) -> str:
    text = cell.strip()
    shown = repr(text if len(text) <= 20 else text[:20] + "…")
    if not text:
        return "is empty; fill it or drop the line (an index column without a name: export without it)"
    if _DECIMAL_COMMA.fullmatch(cell):
        return f"is {shown}, with a decimal comma; export decimal points"
    return f"is {shown}, not a number; drop that column or encode it as numbers"
