"""What every reader of files asks of them, and how it says what is wrong: one line, the numbers, the cure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import DataError

NUMERIC_TYPE = re.compile(r"bool|logical|double|single|u?int\d+|float\d+")


def file_error(path: Path, message: str) -> DataError:
    """Return the error that says in one line what is wrong with a file."""
    return DataError(re.sub(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+", " ", f"{path}: {message}"))


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Turn whatever a reader raises on a damaged file into a DataError; its text may hold data, so it is not quoted."""
    try:
        yield
    except DataError:
        raise
    except MemoryError as error:
        raise file_error(path, "does not fit into memory; give fewer samples, or a float .npy file") from error
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:
            raise file_error(path, f"cannot be read: {error.strerror}; check the path and its permissions") from error
        kind = type(error).__name__
        raise file_error(
            path, f"is not {what}, or is damaged or cut short ({kind}); copy or export it again"
        ) from error


def require_matrix(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], name: str = "") -> None:
    """Raise unless an array of this shape and type can be a table of samples."""
    what = f"array {name!r}" if name else "the array"
    if dtype.kind == "c":
        raise file_error(
            path, f"{what} is complex ({dtype}); save its real part, or real and imaginary part as features"
        )
    if dtype.kind not in "biuf":
        kind = "structured" if dtype.names else dtype.name
        raise file_error(path, f"{what} has dtype {kind}, not numbers; save it after array.astype(float)")
    if len(shape) != 2:
        cure = "reshape(1, -1) makes it one row, reshape(-1, 1) one column"
        if len(shape) > 2:
            cure = "with samples along the first axis, save array.reshape(len(array), -1)"
        raise file_error(path, f"{what} is {len(shape)}-D, of shape {shape}; a 2-D array is needed: {cure}")
    if 0 in shape:
        empty = "samples" if shape[0] == 0 else "numbers"
        raise file_error(path, f"{what} holds 0 {empty}: its shape is {shape}; export the data again")


def choose_array(path: Path, listing: Mapping[str, tuple[tuple[int, ...], str]], variable: str | None) -> str:
    """Name of the one array to read, of ``listing``: name → (shape, type)."""
    held = ", ".join(f"{name!r} {shape} {kind}" for name, (shape, kind) in list(listing.items())[:10]) or "no array"
    held += f" and {len(listing) - 10} more" if len(listing) > 10 else ""
    if variable is not None:
        if variable not in listing:
            raise file_error(path, f"has no array {variable!r}; it holds {held}: set variable to one of these")
        return variable
    matrices = [name for name, (shape, kind) in listing.items() if len(shape) == 2 and NUMERIC_TYPE.fullmatch(kind)]
    names = matrices or list(listing)
    if len(names) != 1:
        count = f"{len(matrices)} 2-D numeric arrays" if matrices else "no 2-D numeric array"
        cure = "set variable to the one to use" if matrices else "save the samples as one 2-D array"
        raise file_error(path, f"has {count}; it holds {held}: {cure}")
    return names[0]
