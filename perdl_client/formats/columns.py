"""Which columns of a table are features, and how the columns of two tables differ."""

from __future__ import annotations

import csv
import difflib
import io
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from common.errors import DataError
from perdl_client.data.samples import plainly
from perdl_client.formats.file_checks import file_error

T = TypeVar("T")


class NoColumnError(DataError):
    """A column that is to be left out has a name, and the file has none of this name.

    Parameters
    ----------
    message : str
        The error, with the file and the cure.
    column : str
        The name.
    """

    def __init__(self, message: str, column: str) -> None:
        super().__init__(message)
        self.column = column


Absent = dict[str, list[NoColumnError]]
"""By name of a column that is to be left out: the errors of the files that lack it."""


def leaving_out(drop: str | None, read: Callable[[str | None], T], absent: Absent) -> T:
    """Return what ``read`` gives for ``drop`` without the columns that the file lacks; ``absent`` is told of them.

    Parameters
    ----------
    drop : str, optional
        Columns to leave out, separated by commas.
    read : callable (str or None) -> object
        Reads the file without the columns that it is given.
    absent : dict
        Filled with the errors, by column.
    """
    while True:
        try:
            return read(drop)
        except NoColumnError as error:
            absent.setdefault(error.column, []).append(error)
            drop = without(drop, [error.column])


def require_some_have(absent: Mapping[str, Sequence[NoColumnError]], n_files: int) -> None:
    """Raise a file's error if a column that is to be left out is in none of the files; one that has a cure, if any.

    Parameters
    ----------
    absent : mapping of str to sequence of NoColumnError
        Errors of the files that lack a column, by column.
    n_files : int
        Number of files that were read.
    """
    for errors in absent.values():
        if len(errors) == n_files:
            raise next((error for error in errors if "did you mean" in str(error)), errors[0])


def _wanted(drop: str | None) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([drop or ""], skipinitialspace=True), [])]


def without(drop: str | None, columns: Collection[str]) -> str | None:
    """Return columns to leave out but these, as text with commas between; None if none is left.

    Parameters
    ----------
    drop : str, optional
        Columns to leave out, separated by commas.
    columns : collection of str
        Columns to take off this list.
    """
    return _as_cells([cell for cell in _wanted(drop) if cell not in columns]) or None


def kept_columns(path: Path, names: Sequence[str], width: int, drop: str | None) -> list[int]:
    """Return the numbers, from 0, of the columns that are kept.

    Parameters
    ----------
    path : Path
        The file, for errors.
    names : sequence of str
        Names of the columns; empty if they have none.
    width : int
        Number of columns.
    drop : str, optional
        Names or numbers (from 1) of columns to leave out, separated by commas: ``"id, time"``. A text that is a
        name is never read as a number.

    Raises
    ------
    DataError
        If there is no such column (:class:`NoColumnError` if it was given by name), or none is left.
    """
    known, out = plainly(tuple(names)), set[int]()
    for wanted in _wanted(drop):
        plain = wanted.casefold()
        if plain in known:
            out |= {j for j, name in enumerate(known) if name == plain}
        elif plain.isdecimal() and 1 <= int(plain) <= width:
            out.add(int(plain) - 1)
        elif plain:
            error = file_error(path, f"has no column {wanted!r} to leave out (drop); {_hint(plain, names, width)}")
            raise error if plain.isdecimal() or not names else NoColumnError(str(error), wanted)
    if len(out) == width:
        raise file_error(path, f"has {width} columns, and drop leaves all of them out; keep those that are features")
    return [j for j in range(width) if j not in out]


def _hint(wanted: str, names: Sequence[str], width: int) -> str:
    if not names:
        return f"its columns have no names: give their numbers, 1 to {width}"
    near = difflib.get_close_matches(wanted, [name.casefold() for name in names], n=1)
    if near:
        return f"did you mean {next(name for name in names if name.casefold() == near[0])!r}?"
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"it has {', '.join(map(repr, names[:10]))}{more}"


def column_name(names: Sequence[str], j: int) -> str:
    """Return a column's name in brackets, to follow its number; empty if it has none.

    Parameters
    ----------
    names : sequence of str
        Names of the columns; empty if they have none.
    j : int
        Number of the column, from 0.
    """
    return f" ({names[j]!r})" if j < len(names) and names[j] else ""


def to_drop(names: Sequence[str], j: int) -> str:
    """Say how to leave a column out.

    Parameters
    ----------
    names : sequence of str
        Names of the columns; empty if they have none.
    j : int
        Number of the column, from 0.
    """
    name = names[j] if j < len(names) else ""
    plain = name and not set(name) & set("\"',=$`\\") and plainly(tuple(names)).count(plainly((name,))[0]) == 1
    word = name if plain else str(j + 1)
    return f"leave the column out (data.drop={word}; a client: --drop {word})"


def drop_option(begin: str, already: str | None, names: Sequence[str]) -> str:
    """Return the option that leaves columns out, with those that are left out already.

    Parameters
    ----------
    begin : str
        What the option begins with, ``"--drop "`` or ``"-c data.drop="``.
    already : str, optional
        What is left out already, as ``--drop`` takes it.
    names : sequence of str
        Columns to leave out besides.
    """
    return begin + shlex.quote(_as_cells([*_wanted(already), *names]))


def _as_cells(names: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()


def leave_out_odd(found: Sequence[str], expected: Sequence[str]) -> str:
    """Say how the columns that only one of two files has are left out; nothing if they are many.

    Parameters
    ----------
    found : sequence of str
        Names of the columns in the file.
    expected : sequence of str
        Names of the columns that are needed.
    """
    odd = [name for names in _odd(found, expected) for name in names]
    if len(odd) > 3:
        return ""
    words = drop_option("", None, odd)
    return f", or leave out what not all have (-c data.drop={words}; a client: --drop {words})"


def _odd(found: Sequence[str], expected: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names that are missing, and those that are too many."""
    mine, theirs = plainly(tuple(found)), plainly(tuple(expected))
    missing = [name for name, plain in zip(expected, theirs, strict=True) if plain not in mine]
    more = [name for name, plain in zip(found, mine, strict=True) if plain not in theirs]
    return missing, more


def lacking(found: Sequence[str], expected: Sequence[str]) -> str:
    """Say which columns are missing or too many, by name; empty if none is.

    Parameters
    ----------
    found : sequence of str
        Names of the columns in the file.
    expected : sequence of str
        Names of the columns that are needed.
    """
    missing, more = _odd(found, expected)
    said = [f"lacks {_columns(missing)}"] if missing else []
    return " and ".join(said + ([f"has {_columns(more)} more"] if more else []))


def _columns(names: Sequence[str]) -> str:
    text = ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} others" if len(names) > 5 else "")
    return f"the column{'s' * (len(names) > 1)} {text}"
