"""Checks that all readers share, and their errors: one line with the numbers and what to do."""

from __future__ import annotations

import difflib
import glob
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import DataError

NUMERIC_TYPE = re.compile(r"bool|logical|double|single|u?int\d+|float\d+")


_LEFT_BEHIND = ("thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r", ".ds_store", "__macosx", "@eadir", "$recycle.bin")
_ABOUT = tuple(f"{name}{suffix}" for name in ("readme", "license") for suffix in ("", ".md", ".txt", ".rst"))


LEDGER = ".perdl-ledger.json"
"""Ending of the file in which a client counts what its data served, see `perdl_client.ledger`."""


def is_data(entry: Path) -> bool:
    """Return whether a folder's entry is data: not hidden, no README, not left behind by another program.

    Parameters
    ----------
    entry : Path
        File or folder inside a client's folder.
    """
    return (
        entry.name[0] not in "._"
        and not entry.name.endswith(LEDGER)
        and entry.name.lower() not in _ABOUT
        and not is_left_behind(entry)
    )


def is_left_behind(entry: Path) -> bool:
    """Return whether an office program, editor or system left this file: a lock, a backup, a cache.

    Parameters
    ----------
    entry : Path
        File or folder inside a client's folder.
    """
    name = entry.name.lower()
    marked = name.startswith(("~$", "._", ".~lock.")) or name.endswith("~") or name[:1] == name[-1:] == "#"
    return marked or name in _LEFT_BEHIND


def nearest(path: str) -> str:
    """Return the path or glob most like one that nothing matches, if there is one that something does.

    Parameters
    ----------
    path : str
        Path or glob that leads nowhere.
    """
    there = Path()
    with suppress(OSError, ValueError):
        for part in Path(path).parts:
            if not glob.glob(str(there / part)):
                names = sorted(entry.name for entry in there.iterdir() if is_data(entry))
                if glob.has_magic(part):  # another ending
                    names = sorted({f"*{Path(name).suffix}" for name in names if Path(name).suffix})
                part = next(iter(difflib.get_close_matches(part, names, n=1)), part)
            there /= part
        if there != Path(path) and glob.glob(str(there)):
            return str(there)
    return ""


def file_error(path: Path, message: str) -> DataError:
    """Return an error that says in one line what is wrong with a file.

    Parameters
    ----------
    path : Path
        The file.
    message : str
        What is wrong, and what to do.
    """
    return DataError(re.sub(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+", " ", f"{path}: {message}"))


OTHER_FORMATS = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "save the sheet as CSV in UTF-8"),
    **dict.fromkeys(
        (".pkl", ".pickle", ".pt", ".pth", ".joblib"), "pickles can run code: save the array by numpy.save"
    ),
    **dict.fromkeys((".dta", ".sav", ".sas7bdat"), "export the table as CSV"),
    **dict.fromkeys((".rds", ".rdata", ".rda"), "in R write the table by write.csv(x, file, row.names = FALSE)"),
    **dict.fromkeys((".gz", ".bz2", ".xz", ".zst", ".zip", ".tar", ".tgz", ".7z"), "unpack it"),
    **dict.fromkeys((".txt", ".dat", ".data"), "if it is a table, name it .csv or .tsv"),
    ".json": "write the numbers as a table in CSV",
    "": "name it by what it holds",
}
"""What to do with files that cannot be read, by extension."""

_OTHER_KINDS = {
    b"version https://git-lfs": "is a pointer of git-lfs, not the data: get them by `git lfs pull`",
    b"<!doctype html": "is a web page, not data: download it again, and look whether you must sign in for that",
    b"<html": "is a web page, not data: download it again, and look whether you must sign in for that",
    b"pk\x03\x04": "is a zip archive or an Excel file: unpack it, or save the sheet as CSV",
    b"\x1f\x8b": "is compressed by gzip: unpack it",
    b"\x80": "is a pickle, which can run code: save the array by numpy.save",
}


def require_no_other_kind(path: Path) -> None:
    """Raise if a file's first bytes show another kind than its name.

    Parameters
    ----------
    path : Path
        The file.
    """
    with reading(path, "a file"), path.open("rb") as file:
        start = file.read(64).lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    for mark, message in _OTHER_KINDS.items():
        if start.startswith(mark):
            raise file_error(path, message)


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Turn any error while reading a file into a DataError. The error's text may hold data and is not quoted.

    Parameters
    ----------
    path : Path
        The file.
    what : str
        Expected kind of file, for errors.
    """
    try:
        yield
    except DataError:
        raise
    except MemoryError as error:
        cure = "give fewer samples, or set data.in_memory = false (for .npy, HDF5 and Parquet)"
        raise file_error(path, f"does not fit into memory: {cure}") from error
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:
            raise file_error(path, f"cannot be read: {error.strerror}; check the path and its permissions") from error
        kind = type(error).__name__
        raise file_error(
            path, f"is not {what}, or is damaged or cut short ({kind}); copy or export it again"
        ) from error


def require_samples(
    path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], name: str = "", max_dims: int = 4
) -> None:
    """Raise unless an array can be samples: a matrix, or images along its first axis.

    Parameters
    ----------
    path : Path
        The file, for errors.
    shape : tuple of int
        The array's shape.
    dtype : numpy.dtype
        The array's type.
    name : str
        Name of the array, if it has one.
    max_dims : int
        Most dimensions that samples may have.
    """
    what = f"array {name!r}" if name else "the array"
    if dtype.kind == "c":
        raise file_error(
            path, f"{what} is complex ({dtype}); save its real part, or real and imaginary part as features"
        )
    if dtype.kind not in "biuf":
        kind = "structured" if dtype.names else dtype.name
        raise file_error(path, f"{what} has dtype {kind}, not numbers; save it after array.astype(float)")
    if not 2 <= len(shape) <= max_dims:
        needed = "a 2-D array is" if max_dims == 2 else "2-D, or 3-D or 4-D for images along the first axis, is"
        cure = "reshape(1, -1) makes it one row, reshape(-1, 1) one column"
        if len(shape) > 2:
            cure = "with samples along the first axis, save array.reshape(len(array), -1)"
        raise file_error(path, f"{what} is {len(shape)}-D, of shape {shape}; {needed} needed: {cure}")
    if 0 in shape:
        empty = "samples" if shape[0] == 0 else "numbers"
        raise file_error(path, f"{what} holds 0 {empty}: its shape is {shape}; export the data again")


def choose_array(
    path: Path, listing: Mapping[str, tuple[tuple[int, ...], str]], variable: str | None, max_dims: int = 4
) -> str:
    """Return the name of the array to read.

    Parameters
    ----------
    path : Path
        The file, for errors.
    listing : mapping of str to (shape, type)
        Shape and type of each array in the file.
    variable : str, optional
        Name that the user asked for.
    max_dims : int
        Most dimensions that samples may have.
    """
    held = ", ".join(f"{name!r} {shape} {kind}" for name, (shape, kind) in list(listing.items())[:10]) or "no array"
    held += f" and {len(listing) - 10} more" if len(listing) > 10 else ""
    if variable is not None:
        if variable not in listing:
            raise file_error(path, f"has no array {variable!r}; it holds {held}: set variable to one of these")
        return variable
    fitting = [
        name for name, (shape, kind) in listing.items() if 2 <= len(shape) <= max_dims and NUMERIC_TYPE.fullmatch(kind)
    ]
    names = fitting or list(listing)
    if len(names) != 1:
        dims = "2-D" if max_dims == 2 else f"2-D to {max_dims}-D"
        count = f"{len(fitting)} {dims} numeric arrays" if fitting else f"no {dims} numeric array"
        cure = "set variable to the one to use" if fitting else "save the samples as one 2-D array"
        raise file_error(path, f"has {count}; it holds {held}: {cure}")
    return names[0]


def require_package(path: Path, *modules: str) -> None:
    """Raise unless the packages for this kind of file are installed.

    Parameters
    ----------
    path : Path
        The file, for errors.
    *modules : str
        Packages that the reader imports.
    """
    for module in modules:
        try:
            import_module(module)
        except ImportError:
            raise file_error(
                path, f"cannot be read without the package {module}: pip install {module}, or export .npy"
            ) from None
