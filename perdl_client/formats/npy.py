"""Read NumPy's files."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from common.threads import READING_NPY
from perdl_client.formats.file_checks import choose_array, reading, require_no_other_kind, require_samples
from perdl_client.formats.format import Format, Options, Table


def _read_npy(path: Path, options: Options) -> Table:
    """Return the array, memory-mapped."""
    require_no_other_kind(path)
    with reading(path, "a NumPy .npy file"):
        with path.open("rb") as file:
            require_samples(path, *_read_header(file))
        with READING_NPY:
            return Table(np.load(path, mmap_mode="r", allow_pickle=False))


def _read_npz(path: Path, options: Options) -> Table:
    """Return the only array that can be samples, or the one named ``variable``."""
    with reading(path, "a NumPy .npz file"), zipfile.ZipFile(path) as archive:
        headers = {}
        for member in archive.namelist():
            if member.endswith(".npy"):
                with archive.open(member) as file:
                    headers[member.removesuffix(".npy")] = _read_header(file)
        listing = {name: (shape, dtype.name) for name, (shape, dtype) in headers.items()}
        name = choose_array(path, listing, options.variable)
        require_samples(path, *headers[name], name)
        with archive.open(f"{name}.npy") as file, READING_NPY:
            return Table(np.lib.format.read_array(file, allow_pickle=False))


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    with READING_NPY:
        shape, _, dtype = read(file)
    return shape, dtype


NPY = Format(".npy", _read_npy, (".npy",))
NPZ = Format(".npz", _read_npz, (".npz",), has_variables=True)
