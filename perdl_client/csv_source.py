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
_THOUSANDS = re.compile(r"\s*[+-]?[0-9]{1,3}([,' \u00a0\u202f][0-9]{3})+([.,][0-9]+)?\s*")
_MISSING = ("", "na", "n/a", "null", "none", "?", "-", ".", "#n/a")
_SPACED = re.compile(rf"({_NUMBER.pattern})(\s+{_NUMBER.pattern})+", re.IGNORECASE)
_NO_NAME = re.compile(rf"{_NUMBER.pattern}|{_DECIMAL_COMMA.pattern}|\s*", re.IGNORECASE)  # never in a header


def read_csv(path: Path) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Return the table as the file has it, and the names of its columns; none without a line of names."""
    with reading(path, "a table of numbers in UTF-8 text"):
        delimiter, has_header = _csv_layout(path)
        if delimiter == "," and not has_header:
            _refuse_cut_numbers(path)
        lines = (line for _, line in _csv_lines(path))
        # NumPy writes a line of names with a mark of a comment.
        head = next(lines).removeprefix("#") if has_header else ""
        names = tuple(cell.strip() for cell in _cells(head, delimiter)) if has_header else ()
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


def _refuse_cut_numbers(path: Path) -> None:
    """Raise if commas between cells and decimal commas make two whole numbers of each: 0,05,1,20 for 0.05 and 1.20."""
    zeros = ""
    for _, (_, line) in zip(range(50), _csv_lines(path), strict=False):
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


def _explain_csv(path: Path, delimiter: str, has_header: bool) -> None:
    """Find the first cell or line that is not part of a table of numbers, and raise."""
    first_number, width, first = 0, 0, ""
    for number, line in _csv_lines(path):
        if line.count('"') % 2:
            raise file_error(path, f"line {number} has a quote that is not closed; close or remove it")
        cells = _cells(line, delimiter)
        if not width:
            first_number, width, first = number, len(cells), line
        if len(cells) != width:
            cure = "make all lines equal" + (" (decimal commas? export decimal points)" if delimiter == "," else "")
            if number != first_number and first.lstrip().startswith(("#", "%", "//")):
                cure = f"take line {first_number}, a comment, out"
            raise file_error(path, f"line {number} has {len(cells)} cells, line {first_number} has {width}; {cure}")
        if has_header and number == first_number:
            continue
        for column, cell in enumerate(cells, 1):
            if not _NUMBER.fullmatch(cell):
                more = _missing_after(path, delimiter, number)
                raise file_error(path, f"line {number}, column {column} {_what_is_wrong(cell)}{more}")


def _missing_after(path: Path, delimiter: str, line: int) -> str:
    """Say which cells below a line would be found missing next."""
    rows = ((number, _cells(text, delimiter)) for number, text in _csv_lines(path) if number > line)
    places = [
        (number, column)
        for number, cells in rows
        for column, cell in enumerate(cells, 1)
        if cell.strip().lstrip("+-").lower() in (*_MISSING, "nan", "inf", "infinity")
    ]
    if not places:
        return ""
    return "; cells below that are empty, NaN or infinite: {}, the first in line {}, column {}".format(
        len(places), *places[0]
    )


def _what_is_wrong(cell: str) -> str:
    text = cell.strip()
    shown = repr(text if len(text) <= 20 else text[:20] + "…")
    if not text:
        return "is empty; fill it or drop the line (an index column without a name: export without it)"
    if _SPACED.fullmatch(cell):
        return f"is {shown}, several numbers with spaces between; put commas or tabs between them"
    if _THOUSANDS.fullmatch(cell) and not re.fullmatch(r"[^,]*,[0-9]{3}", text):
        return f"is {shown}, with marks between thousands; export without them"
    if text.lower() in _MISSING:
        return f"is {shown}, a missing value; fill it or drop the line"
    if _DECIMAL_COMMA.fullmatch(cell):
        return f"is {shown}, with a decimal comma; export decimal points"
    return f"is {shown}, not a number; drop that column or encode it as numbers"
