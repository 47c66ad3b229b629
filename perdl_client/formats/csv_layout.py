"""Find the layout of a table in text: the delimiter, and which lines above the numbers hold names."""

from __future__ import annotations

import csv
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from perdl_client.formats.file_checks import file_error
from perdl_client.formats.number_names import NAMES, are_names, note_of_names, note_of_sample

NUMBER = re.compile(r"\s*[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|nan|inf|infinity)\s*", re.IGNORECASE)
DECIMAL_COMMA = re.compile(r"\s*[+-]?[0-9]*,[0-9]+(e[+-]?[0-9]+)?\s*", re.IGNORECASE)
THOUSANDS = re.compile(r"\s*[+-]?[0-9]{1,3}([,' \u00a0\u202f][0-9]{3})+([.,][0-9]+)?\s*")
SPACED = re.compile(rf"({NUMBER.pattern})(\s+{NUMBER.pattern})+", re.IGNORECASE)
MISSING = ("", "na", "n/a", "null", "none", "?", "-", ".", "#n/a")
COMMENTS = ("#", "%", "//")

_SEP = re.compile(r'\s*"?sep=(\\t|[^\w"])"?\s*', re.IGNORECASE)
"""Excel's line that names the delimiter."""

_LOOKED_AT = 50
"""Number of lines from which the layout is found."""

_QUOTED_LINES = 20
"""Most lines that a cell in quotes may span."""


@dataclass(frozen=True)
class CsvLayout:
    """Layout of a file.

    Parameters
    ----------
    delimiter : str
        Character between cells.
    skipped : int
        Lines above the first row of numbers.
    header : str
        The line of names; empty if there is none.
    names : tuple of str
        Cells of the line of names, even if there are more or fewer than columns.
    width : int
        Cells per row.
    row_names : bool
        Whether the first cell of a row is its name, as R writes it, and not a column.
    trailing : int
        Empty cells without names at the end of every row.
    texts : frozenset of int
        Columns, from 0, that hold text instead of numbers.
    notes : tuple of str
        What was left out, and what may be misunderstood.
    """

    delimiter: str
    skipped: int
    header: str
    names: tuple[str, ...]
    width: int
    row_names: bool
    trailing: int
    texts: frozenset[int]
    notes: tuple[str, ...]

    @property
    def columns(self) -> range:
        """Cells of a row that are columns of the table."""
        return range(int(self.row_names), self.width - self.trailing)


def records(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, each with its number in an editor. A cell in quotes may span lines.

    Parameters
    ----------
    path : Path
        The file.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            source, ahead = enumerate(file, 1), deque[tuple[int, str]]()
            while item := ahead.popleft() if ahead else next(source, None):
                number, line = item
                if '"' in line and line.count('"') % 2:
                    ahead.extend(islice(source, _QUOTED_LINES - len(ahead)))
                    end = next((i for i, (_, more) in enumerate(ahead) if more.count('"') % 2), -1)
                    line += "".join(ahead.popleft()[1] for _ in range(end + 1))
                line = line.rstrip("\n\x1a")  # DOS ends a file with the mark 0x1A
                if line and not line.isspace():
                    yield number, line
    except UnicodeDecodeError:
        raise file_error(path, "is not UTF-8 text; export it as CSV in UTF-8") from None


def rows(
    path: Path, layout: CsvLayout, on_repetition: Callable[[int], object] = lambda number: None
) -> Iterator[tuple[int, str]]:
    """Yield the lines of numbers below the names. Lines that repeat the names are left out.

    Parameters
    ----------
    path : Path
        The file.
    layout : CsvLayout
        How the file is laid out.
    on_repetition : callable (int) -> object
        Called with the number of each line that repeats the names.
    """
    for number, line in islice(records(path), layout.skipped, None):
        if line != layout.header:
            yield number, line
        else:
            on_repetition(number)


def cells_of(line: str, delimiter: str) -> list[str]:
    """Split a line into cells.

    Parameters
    ----------
    line : str
        A line of the file.
    delimiter : str
        Character between cells.
    """
    return next(csv.reader([line], delimiter=delimiter))


def layout_of(path: Path, turned: bool = False) -> CsvLayout:
    """Find the layout of a file.

    Parameters
    ----------
    path : Path
        The file.
    turned : bool
        Whether samples are in columns. A first line of numbers is then a feature, and never taken for names.

    Raises
    ------
    DataError
        If the file holds no numbers.
    """
    sample = list(islice(records(path), _LOOKED_AT))
    if not sample:
        raise file_error(path, "holds 0 samples: all its lines are blank; export it again")
    told = _SEP.fullmatch(sample[0][1])
    start = int(told is not None)
    rest = range(start, len(sample))
    first_row = next((i for i in rest if not sample[i][1].lstrip(' "').startswith(COMMENTS)), len(sample))
    lines = sample[first_row:]
    if not lines:
        raise file_error(path, "holds 0 samples: only comments; export it again")
    delimiter = told[1].replace("\\t", "\t") if told else _delimiter([line for _, line in lines])
    table = [cells_of(line, delimiter) for _, line in lines]
    half = table[len(table) // 2 :]
    width = Counter(map(len, half)).most_common(1)[0][0]
    kinds = [_kind_of_column(half, width, j) for j in range(width)]
    n_heads = next((i for i, cells in enumerate(table) if not _is_head(cells, kinds)), len(table))
    heads = table[:n_heads]
    notes, named, like = [], -1, ""
    comments, marked = sample[start:first_row], []
    if heads:
        named = _names_among(heads, width)
        n_heads = next((i for i in range(named + 1, n_heads) if "number" in map(_kind_of, table[i])), n_heads)
    elif comments and (marked := _marked_names(comments[-1][1], delimiter, width)):
        comments = comments[:-1]
    elif not turned and (like := are_names(*_numbers_of(table, kinds))) == NAMES:
        named, n_heads = 0, 1
    body = table[n_heads:]
    if not body:
        raise file_error(path, "holds 0 samples: only one line, without numbers; export it again")
    head, header = (table[named], lines[named][1]) if named >= 0 else (marked, "")
    trailing = _trailing(head, [cells for cells in body if len(cells) == width] or [table[-1]])
    row_names = len(head) == width - trailing - 1 and _name_rows(head, body, lines[n_heads:], delimiter)
    if comments:
        notes.append(f"{_lines(comments)} at the top: left out as a comment")
    if named > 0:
        notes.append(f"{_lines(lines[:named])} above the names: left out as no part of the table")
    if named >= 0 and n_heads > named + 1:
        notes.append(f"{_lines(lines[named + 1 : n_heads])} below the names: left out as it holds no numbers (units?)")
    if row_names:
        notes.append("the first cell of each row: left out as the row's name, since the line of names is one shorter")
    if like:
        notes.append((note_of_names if like == NAMES else note_of_sample)(*lines[0]))
    if not any(map(str.strip, head[width - trailing :])):
        head = head[: width - trailing]
    names = tuple(" ".join(cell.split()) for cell in head)
    return CsvLayout(
        delimiter,
        first_row + n_heads,
        header,
        names,
        width,
        row_names,
        trailing,
        frozenset(j for j in range(width) if _is_text(body, width, j)),
        tuple(notes),
    )


def _lines(lines: Sequence[tuple[int, str]]) -> str:
    first, last = lines[0][0], lines[-1][0]
    return f"line {first}" if first == last else f"lines {first} {'and' if len(lines) == 2 else 'to'} {last}"


def _delimiter(lines: Sequence[str]) -> str:
    bare = [re.sub(r'"[^"]*"', "", line) for line in lines]
    return next((mark for mark in "\t;" if 2 * sum(mark in line for line in bare) >= len(bare)), ",")


def _kind_of(cell: str) -> str:
    """Return what a cell is meant to be: a number (perhaps with a decimal comma), missing, or text."""
    text = cell.strip()
    if text.lower() in MISSING:
        return "missing"
    meant = any(one.fullmatch(text) for one in (NUMBER, DECIMAL_COMMA, THOUSANDS, SPACED))
    return "number" if meant else "text"


def _kind_of_column(table: Sequence[Sequence[str]], width: int, j: int) -> str:
    found = Counter(_kind_of(cells[j]) for cells in table if len(cells) == width)
    if not found["text"] and not found["number"]:
        return "missing"
    return "number" if found["number"] >= found["text"] else "text"


def _is_text(table: Sequence[Sequence[str]], width: int, j: int) -> bool:
    found = Counter(_kind_of(cells[j]) for cells in table if len(cells) == width)
    return found["text"] > max(found["number"], 1)


def _is_head(cells: Sequence[str], kinds: Sequence[str]) -> bool:
    """Return whether a line is a header: more text than numbers above columns of numbers, or another width."""
    mine = [_kind_of(cell) for cell in cells]
    if len(cells) != len(kinds):
        return mine[0] == "text"
    if "number" not in kinds:
        return set(mine) == {"text"}
    over = [i for i, (kind, below) in enumerate(zip(mine, kinds, strict=True)) if below == "number" and kind == "text"]
    numbers = [i for i, (kind, below) in enumerate(zip(mine, kinds, strict=True)) if below == kind == "number"]
    return len(over) > len(numbers)


def _names_among(heads: Sequence[Sequence[str]], width: int) -> int:
    """Return which of the lines above the numbers has most words; the last if none has about the right width."""
    near = [abs(len(cells) - width) <= 1 for cells in heads]
    words = [sum(_kind_of(cell) == "text" for cell in cells) * fits for cells, fits in zip(heads, near, strict=True)]
    return words.index(max(words)) if any(words) else len(heads) - 1


def _numbers_of(table: Sequence[Sequence[str]], kinds: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Return cells of the first line that are numbers but may be names, and the same cells of complete lines below.

    Words in the first line are names for certain. A line that has a number above text is a row.
    """
    first = table[0]
    if len(first) != len(kinds) or ("text", "number") in zip(kinds, map(_kind_of, first), strict=True):
        return [], []
    columns = [j for j, kind in enumerate(kinds) if kind == "number" and _kind_of(first[j]) != "text"]
    if not all(NUMBER.fullmatch(first[j]) for j in columns):
        return [], []
    return [first[j] for j in columns], [[row[j] for j in columns] for row in table[1:] if len(row) == len(kinds)]


def _marked_names(line: str, delimiter: str, width: int) -> list[str]:
    """Return the cells of a line of names that is marked as a comment, as NumPy writes it; none if it is a comment."""
    text = line.strip()
    bare = text[1:] if text.startswith("#") else text
    cells = cells_of(bare, delimiter)
    return cells if len(cells) == width else []


def _trailing(head: Sequence[str], body: Sequence[Sequence[str]]) -> int:
    """Count the empty cells without a name at the end of every row, as when a delimiter ends each line."""

    def empty(cells: Sequence[str]) -> int:
        return next((i for i, cell in enumerate(reversed(cells)) if cell.strip()), len(cells))

    width = len(body[0])
    always = min(map(empty, body))
    if not head:
        return always if always < width else 0
    return min(always, max(empty(head) + width - len(head), 0))


def _name_rows(
    head: Sequence[str], body: Sequence[Sequence[str]], lines: Sequence[tuple[int, str]], delimiter: str
) -> bool:
    """Return whether first cells are names of rows: quoted, text, or 1, 2, 3, ... that no decimal comma explains."""
    if not head or set(map(_kind_of, head)) != {"text"}:
        return False
    if all(line.startswith('"') or _kind_of(cells[0]) == "text" for cells, (_, line) in zip(body, lines, strict=True)):
        return True
    counted = [cells[0].strip() for cells in body] == [str(i + 1) for i in range(len(body))]
    return counted and delimiter != ","
