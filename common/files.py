"""Files that are either whole or not there."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from common.errors import PerdlError


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file through a temporary neighbour, flush it to the disk, and rename it.

    Parameters
    ----------
    path : Path
        Its folder is made.
    write : callable
        Gets the open binary file.

    Raises
    ------
    OSError
        With the name of the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with name.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException as error:
        name.unlink(missing_ok=True)
        if isinstance(error, OSError):  # a full disk tells no name, others tell the neighbour's
            error.filename, error.filename2 = str(path), None
        raise
    if os.name == "posix":  # the new name itself must outlive a loss of power
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_leftovers(folder: Path) -> None:
    """Remove what writers left that were killed while they wrote; for whoever has the folder to itself."""
    for path in folder.glob(".*.*-????????"):
        path.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes atomically."""
    write_atomically(path, lambda file: file.write(content))


def write_text(path: Path, text: str) -> None:
    """Write text atomically, in UTF-8."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON atomically."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_npz(path: Path, **arrays: NDArray[Any]) -> None:
    """Write arrays as ``.npz`` atomically, without pickling."""
    write_atomically(path, lambda file: np.savez(file, allow_pickle=False, **arrays))


class ForeignFileError(Exception):
    """A file is not of the kind that was wanted."""


def write_record(path: Path, kind: str, version: int, head: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write arrays and plain values as one ``.npz``, atomically and without pickling.

    Parameters
    ----------
    path : Path
    kind : str
        What the file holds, as ``"checkpoint"``.
    version : int
        Of the format of this kind.
    head : mapping
        Plain values; they are kept as JSON under the name ``head``.
    arrays : mapping of str to array
    """
    text = json.dumps({"kind": kind, "version": version, **plain(head)})
    write_npz(path, head=np.array(text), **arrays)


def read_record(path: Path, kind: str, version: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the plain values and the arrays that :func:`write_record` wrote.

    Parameters
    ----------
    path : Path
    kind : str
    version : int

    Raises
    ------
    OSError
        If the file cannot be read.
    ForeignFileError
        If it is damaged or of another kind.
    PerdlError
        If it is of another version.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file}
        head = json.loads(str(arrays.pop("head")))
        found = (head.pop("kind"), head.pop("version"))
    except OSError:
        raise
    except Exception as error:  # NumPy and zipfile raise many kinds
        raise ForeignFileError(type(error).__name__) from None
    if found[0] != kind:
        raise ForeignFileError(f"it holds a {found[0]}")
    if found[1] != version:
        raise PerdlError(f"{path} is of format {found[1]}, this perdl reads {version}: use the perdl that wrote it")
    return head, arrays


def plain(value: Any) -> Any:
    """Turn NumPy's types into Python's; what JSON cannot say (NaN, infinity) becomes null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
