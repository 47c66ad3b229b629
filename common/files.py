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
