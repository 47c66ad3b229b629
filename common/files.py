"""Write files so that they are either complete or absent."""

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


def write_atomically(path: Path, write: Callable[[IO[bytes]], object], *, durable: bool = True) -> None:
    """Write a temporary file in the same folder, flush it to the disk, and rename it.

    Parameters
    ----------
    path : Path
        Target file. Its folder is created.
    write : callable
        Called with the open binary file.
    durable : bool
        Whether to wait until the disk has it, so that it survives a power failure.

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
            if durable:
                os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException as error:
        name.unlink(missing_ok=True)
        if isinstance(error, OSError):  # on a full disk it names no file, else the temporary one
            error.filename, error.filename2 = str(path), None
        raise
    if durable and os.name == "posix":  # make the rename survive a power failure
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of writers that were killed.

    Parameters
    ----------
    folder : Path
        A folder that no other process writes to.
    """
    for path in folder.glob(".*.*-????????"):
        path.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes atomically.

    Parameters
    ----------
    path : Path
        Target file. Its folder is created.
    content : bytes
        Content of the file.
    """
    write_atomically(path, lambda file: file.write(content))


def write_text(path: Path, text: str) -> None:
    """Write text atomically, in UTF-8.

    Parameters
    ----------
    path : Path
        Target file. Its folder is created.
    text : str
        Content of the file.
    """
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON atomically.

    Parameters
    ----------
    path : Path
        Target file. Its folder is created.
    value : object
        Anything that JSON can hold, without NaN and infinity.
    """
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_npz(path: Path, *, durable: bool = True, **arrays: NDArray[Any]) -> None:
    """Write arrays as ``.npz`` atomically, without pickling.

    Parameters
    ----------
    path : Path
        Target file. Its folder is created.
    durable : bool
        As for :func:`write_atomically`.
    **arrays : array
        Arrays by name.
    """
    write_atomically(path, lambda file: np.savez(file, allow_pickle=False, **arrays), durable=durable)


class ForeignFileError(Exception):
    """A file is damaged or of another kind than expected."""


def write_record(
    path: Path, kind: str, version: int, head: Mapping[str, Any], arrays: Mapping[str, Any], *, durable: bool = True
) -> None:
    """Write arrays and plain values as one ``.npz``, atomically and without pickling.

    Parameters
    ----------
    path : Path
        Target file. Its folder is created.
    kind : str
        What the file holds, such as ``"checkpoint"``.
    version : int
        Version of this kind's format.
    head : mapping
        Plain values, stored as JSON under the name ``head``.
    arrays : mapping of str to array
        Arrays by name.
    durable : bool
        As for :func:`write_atomically`.
    """
    text = json.dumps({"kind": kind, "version": version, "arrays": sorted(arrays), **plain(head)})
    write_npz(path, durable=durable, head=np.array(text), **arrays)


def read_record(path: Path, kind: str, version: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the plain values and the arrays that :func:`write_record` wrote.

    Parameters
    ----------
    path : Path
        File to read.
    kind : str
        Expected kind.
    version : int
        Expected version of the format.

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
    if head.pop("arrays", None) != sorted(arrays):  # a damaged table of contents may leave some out
        raise ForeignFileError("it does not hold the arrays that it names")
    return head, arrays


def plain(value: Any) -> Any:
    """Turn NumPy's types into Python's. NaN and infinity become None, since JSON has neither.

    Parameters
    ----------
    value : object
        A value, or nested mappings, lists and arrays of values.
    """
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
