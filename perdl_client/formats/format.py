"""What a file format is: how its files are told, how they are read, and what their numbers mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Table(NamedTuple):
    """What a reader returns.

    Attributes
    ----------
    array : array
        Samples along the first axis; of a table with samples in columns, as the file has it.
    names : tuple of str
        Of the columns that are kept; empty if they have none.
    notes : tuple of str
        What of the file was left out, and what may have been misunderstood.
    rate : int
        Samples a second; 0 if it is not known.
    """

    array: NDArray[Any]
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rate: int = 0


class Options(NamedTuple):
    """How a client says that its file is read.

    Attributes
    ----------
    variable : str, optional
        Name of the array, where a file holds several.
    drop : str, optional
        Names or numbers (from 1) of columns to leave out, with commas between.
    in_columns : bool
        Whether samples are in columns.
    """

    variable: str | None = None
    drop: str | None = None
    in_columns: bool = False


@dataclass(frozen=True)
class Format:
    """A file format, and all that the loader must know of it.

    Attributes
    ----------
    title : str
        What messages call it.
    read : callable ``(path, options) -> Table``
        Raises :class:`~common.errors.DataError` in one line. It imports what is no dependency of perdl itself.
    suffixes : tuple of str
        Endings of the files' names, in lower case.
    known_as : str
        How it stands in the list of known formats; default its suffixes.
    mark : str
        Text within the names of files whose suffix tells no format.
    of_folder : bool
        Whether the reader takes a folder of such files, one sample a file.
    has_variables, has_columns : bool
        Whether it obeys ``variable``, and ``drop``.
    samples_first : bool
        Whether samples lie along the first axis whatever ``samples_in`` says.
    full_scale : mapping of integer type to float
        The number that becomes 1; the numbers of other types stay as they are.
    place : callable ``(path, options, row, column) -> str``, optional
        Says where an editor shows a cell, whose row and column are counted from 0.
    """

    title: str
    read: Callable[[Path, Options], Table]
    suffixes: tuple[str, ...]
    known_as: str = ""
    mark: str = ""
    of_folder: bool = False
    has_variables: bool = False
    has_columns: bool = False
    samples_first: bool = False
    full_scale: Mapping[type[np.generic], float] = field(default_factory=dict)
    place: Callable[[Path, Options, int, int], str] | None = None
