"""Read NumPy's own files."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from common.threads import READING_NPY
from perdl_client.formats.file_checks import choose_array, reading, require_samples


def read_npy(path: Path) -> NDArray[Any]:
    """Return the array, memory-mapped."""
    with reading(path, "a NumPy .npy file"):
        with path.open("rb") as file:
            require_samples(path, *_read_header(file))
        with READING_NPY:
            table: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        return table


def read_npz(path: Path, variable: str | None) -> NDArray[Any]:
    """Return the only array that can be samples, or the one named ``variable``."""
    with reading(path, "a NumPy .npz file"), zipfile.ZipFile(path) as archive:
        headers = {}
        for member in archive.namelist():
            if member.endswith(".npy"):
                with archive.open(member) as file:
                    headers[member.removesuffix(".npy")] = _read_header(file)
        listing = {name: (shape, dtype.name) for name, (shape, dtype) in headers.items()}
        name = choose_array(path, listing, variable)
        require_samples(path, *headers[name], name)
        with archive.open(f"{name}.npy") as file, READING_NPY:
            table: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
            return table


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    with READING_NPY:
        shape, _, dtype = read(file)
    return shape, dtype
