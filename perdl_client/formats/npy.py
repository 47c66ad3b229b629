"""Read NumPy's files."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from common.threads import READING_NPY
from perdl_client.formats.file_checks import choose_array, reading, require_no_other_kind, require_samples
from perdl_client.formats.format import Format, Options, Rows, Table


def _read_npy(path: Path, options: Options) -> Table:
    """Return the array, memory-mapped."""
    require_no_other_kind(path)
    with reading(path, "a NumPy .npy file"):
        with path.open("rb") as file:
            shape, dtype, _ = _read_header(file)
            require_samples(path, shape, dtype)
        with READING_NPY:
            return Table(np.load(path, mmap_mode="r", allow_pickle=False))


def _open_npy(path: Path, options: Options) -> Rows | None:
    """Open an array to read some samples at a time: nothing is mapped, for a map needs address space for all of it."""
    require_no_other_kind(path)
    with reading(path, "a NumPy .npy file"):
        with path.open("rb") as file:
            shape, dtype, by_columns = _read_header(file)
            begin = file.tell()
        require_samples(path, shape, dtype)
        if path.stat().st_size < begin + math.prod(shape) * dtype.itemsize:
            raise EOFError
    in_columns = options.in_columns and len(shape) == 2
    if by_columns and len(shape) > 2:
        return None
    n, each = (shape[1], shape[:1]) if in_columns else (shape[0], shape[1:])
    d = math.prod(each)

    def read(i: int, j: int) -> NDArray[Any]:
        with path.open("rb") as file:
            if by_columns == in_columns:  # a sample's numbers lie side by side
                return _numbers(file, dtype, begin + i * d * dtype.itemsize, (j - i) * d).reshape(j - i, *each)
            features = [_numbers(file, dtype, begin + (k * n + i) * dtype.itemsize, j - i) for k in range(d)]
            return np.stack(features, axis=1)

    return Rows((n, *each), dtype, read)


def _numbers(file: IO[bytes], dtype: np.dtype[Any], begin: int, count: int) -> NDArray[Any]:
    file.seek(begin)
    found = np.fromfile(file, dtype, count)
    if len(found) < count:
        raise EOFError
    return found


def _read_npz(path: Path, options: Options) -> Table:
    """Return the only array that can be samples, or the one named ``variable``."""
    with reading(path, "a NumPy .npz file"), zipfile.ZipFile(path) as archive:
        headers = {}
        for member in archive.namelist():
            if member.endswith(".npy"):
                with archive.open(member) as file:
                    headers[member.removesuffix(".npy")] = _read_header(file)[:2]
        listing = {name: (shape, dtype.name) for name, (shape, dtype) in headers.items()}
        name = choose_array(path, listing, options.variable)
        require_samples(path, *headers[name], name)
        with archive.open(f"{name}.npy") as file, READING_NPY:
            return Table(np.lib.format.read_array(file, allow_pickle=False))


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """Return shape, type, and whether columns lie side by side (Fortran's order)."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    with READING_NPY:
        shape, by_columns, dtype = read(file)
    return shape, dtype, by_columns


NPY = Format(".npy", _read_npy, (".npy",), open=_open_npy)
NPZ = Format(".npz", _read_npz, (".npz",), has_variables=True)
