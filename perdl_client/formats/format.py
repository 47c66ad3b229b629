"""Definition of a file format: how its files are recognised and read, and the scale of their numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Table(NamedTuple):
    """Result of a reader.

    Parameters
    ----------
    array : array
        Samples along the first axis. A table with samples in columns is returned as the file has it.
    names : tuple of str
        Names of the columns that are kept; empty if they have none.
    notes : tuple of str
        What was left out of the file, and what may be misunderstood.
    rate : int
        Samples a second; 0 if unknown.
    """

    array: NDArray[Any]
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rate: int = 0


class Rows(NamedTuple):
    """A file that is read block by block.

    Parameters
    ----------
    shape : tuple of int
        Shape of all samples, along the first axis.
    dtype : numpy.dtype
        Type of its numbers.
    read : callable ``(i, j) -> array``
        Returns samples i to j - 1 along the first axis, in memory of their own.
    names : tuple of str
        Names of the columns that are kept; empty if they have none.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[int, int], NDArray[Any]]
    names: tuple[str, ...] = ()


class Options(NamedTuple):
    """How a file is to be read.

    Parameters
    ----------
    variable : str, optional
        Name of the array, if a file holds several.
    drop : str, optional
        Names or numbers (from 1) of columns to leave out, separated by commas.
    in_columns : bool
        Whether samples are in columns.
    allow_missing : bool
        Whether empty cells and words for missing values become NaN.
    """

    variable: str | None = None
    drop: str | None = None
    in_columns: bool = False
    allow_missing: bool = False


@dataclass(frozen=True)
class Format:
    """A file format, with all that the loader needs.

    Parameters
    ----------
    title : str
        Name in messages.
    read : callable ``(path, options) -> Table``
        Reads a file; raises :class:`~common.errors.DataError` with one line. It imports optional packages itself.
    suffixes : tuple of str
        Suffixes of the files, in lower case.
    known_as : str
        Text in the list of known formats; default the suffixes.
    mark : str
        Text in the names of files whose suffix does not tell the format.
    of_folder : bool
        Whether the reader takes a folder of such files, with one sample per file.
    has_variables, has_columns : bool
        Whether it supports ``variable``, and ``drop``.
    samples_first : bool
        Whether samples always lie along the first axis, whatever ``samples_in`` says.
    in_time : bool
        Whether samples follow each other in time.
    full_scale : mapping of integer type to float
        Number of each integer type that becomes 1; other types are not scaled.
    open : callable ``(path, options) -> Rows``, optional
        Opens a file to read it block by block; None if this file cannot be.
    place : callable ``(path, options, row, column) -> str``, optional
        Returns the place of a cell in an editor; row and column count from 0.
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
    in_time: bool = False
    full_scale: Mapping[type[np.generic], float] = field(default_factory=dict)
    open: Callable[[Path, Options], Rows | None] | None = None
    place: Callable[[Path, Options, int, int], str] | None = None
