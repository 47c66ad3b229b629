"""Which columns of a table are features, and how the columns of two tables differ."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Sequence
from pathlib import Path

from perdl_client.data.samples import plainly
from perdl_client.formats.file_checks import file_error


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
        If a column does not exist, or none is left.
    """
    known, out = plainly(tuple(names)), set[int]()
    for wanted in next(csv.reader([drop or ""], skipinitialspace=True), []):
        plain = wanted.strip().casefold()
        if plain in known:
            out |= {j for j, name in enumerate(known) if name == plain}
        elif plain.isdecimal() and 1 <= int(plain) <= width:
            out.add(int(plain) - 1)
        elif plain:
            raise file_error(
                path, f"has no column {wanted.strip()!r} to leave out (drop); {_hint(plain, names, width)}"
            )
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


def lacking(found: Sequence[str], expected: Sequence[str]) -> str:
    """Say which columns are missing or additional, by name; empty if none is.

    Parameters
    ----------
    found : sequence of str
        Names of the columns in the file.
    expected : sequence of str
        Names of the columns that are needed.
    """
    mine, theirs = plainly(tuple(found)), plainly(tuple(expected))
    missing = [name for name, plain in zip(expected, theirs, strict=True) if plain not in mine]
    more = [name for name, plain in zip(found, mine, strict=True) if plain not in theirs]
    said = [f"lacks {_columns(missing)}"] if missing else []
    return " and ".join(said + ([f"has {_columns(more)} more"] if more else []))


def _columns(names: Sequence[str]) -> str:
    text = ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} others" if len(names) > 5 else "")
    return f"the column{'s' * (len(names) > 1)} {text}"
