"""Decide whether a first line of numbers holds names (0, 1, 2, ..., wavelengths, ppm) or a sample.

A sample must never be lost, so numbers are taken for names only if two signs agree. With one sign there is a note.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

NAMES, UNCLEAR = "names", "unclear"

_FEWEST_NAMES, _FEWEST_ROWS = 4, 3
"""Fewest names and rows for a decision; with fewer, chance is likely."""

_FAR = 10
"""Numbers are far from the rows if the gap is this many times the range of all rows."""


def are_names(first: Sequence[str], below: Sequence[Sequence[str]]) -> str:
    """Decide whether the first line's numbers are names, may be names (unclear), or are a sample (empty).

    They are names if they rise or fall in equal steps, almost no row below does, and they are written in another way
    (whole numbers above decimals). They also are names if they rise or fall and lie far from all rows.

    Parameters
    ----------
    first : sequence of str
        Cells of the first line, in the columns of numbers.
    below : sequence of sequence of str
        Cells of the rows below, in the same columns.

    Returns
    -------
    {"names", "unclear", ""}
    """
    if len(first) < 2 or len(below) < _FEWEST_ROWS:
        return ""
    x, Y = _numbers(first), np.array([_numbers(cells) for cells in below])
    if not np.isfinite(x).all() or not _one_way(x) or not np.isfinite(Y).any():
        return ""
    equal = _equal_steps(x) and np.mean([_equal_steps(row) for row in Y]) < 0.2  # chance gives some rows equal steps
    otherwise, far = _written_otherwise(first, below), _far_from(x, Y)
    if len(first) >= _FEWEST_NAMES and (far or (equal and otherwise)):
        return NAMES
    return UNCLEAR if far or (equal and (otherwise or len(first) > _FEWEST_NAMES)) else ""


def note_of_names(number: int, line: str) -> str:
    """Say that a line was taken for names.

    Parameters
    ----------
    number : int
        Number of the line.
    line : str
        The line in the file.
    """
    return (
        f"line {number} ({_begin(line)}) is taken for names, not for a sample: its numbers rise or fall like names, "
        "and those of the rows below do not; if it is a sample, put a line of names above it"
    )


def note_of_sample(number: int, line: str) -> str:
    """Say that a line was taken for a sample, but may be names.

    Parameters
    ----------
    number : int
        Number of the line.
    line : str
        The line in the file.
    """
    return (
        f"line {number} ({_begin(line)}) is taken for a sample, though its numbers rise or fall like names; if they "
        "are names, write them as words, such as c0, or take the line out"
    )


def _begin(line: str) -> str:
    return line if len(line) <= 20 else line[:20] + "…"


def _numbers(cells: Sequence[str]) -> NDArray[np.float64]:
    def number(cell: str) -> float:
        try:
            return float(cell)
        except ValueError:
            return np.nan

    return np.array([number(cell) for cell in cells])


def _one_way(x: NDArray[np.float64]) -> bool:
    steps = np.diff(x)
    return bool((steps > 0).all() or (steps < 0).all())


def _equal_steps(x: NDArray[np.float64]) -> bool:
    steps = np.diff(x)
    return _one_way(x) and bool(np.ptp(steps) <= 0.05 * abs(steps[0]))


def _written_otherwise(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    def decimals(cells: Sequence[str]) -> float:
        return sum(bool(re.search("[.e]", cell.lower())) for cell in cells) / len(cells)

    mine, theirs = decimals(first), [decimals(cells) for cells in below]
    return (mine == 0 and min(theirs) >= 0.9) or (mine == 1 and max(theirs) == 0)


def _far_from(x: NDArray[np.float64], Y: NDArray[np.float64]) -> bool:
    least, most = np.nanmin(Y), np.nanmax(Y)
    reach = _FAR * (most - least)
    return bool(reach > 0 and ((x < least - reach) | (x > most + reach)).all())
