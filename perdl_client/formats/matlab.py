"""Read matrices from MATLAB's files. Those of v7.3 are HDF5."""

from __future__ import annotations

import mmap
import struct
import zlib
from pathlib import Path

import numpy as np

from perdl_client.formats.file_checks import NUMERIC_TYPE, choose_array, file_error, reading, require_samples
from perdl_client.formats.format import Format, Options, Table
from perdl_client.formats.hdf5 import read_hdf5


def _read(path: Path, options: Options) -> Table:
    """Return the only matrix of numbers, or the one named ``variable``."""
    import scipy.io

    with reading(path, "a MATLAB .mat file"):
        with path.open("rb") as file:
            start = file.read(520)
        if start.startswith(b"MATLAB 7.3") or b"\x89HDF\r\n\x1a\n" in (start[:8], start[512:]):
            return Table(read_hdf5(path, options.variable, max_dims=2))
        listing = {name: (shape, kind) for name, shape, kind in scipy.io.whosmat(path, appendmat=False)}
        name = choose_array(path, listing, options.variable, max_dims=2)
        kind = listing[name][1]
        if not NUMERIC_TYPE.fullmatch(kind):
            cure = f"save full({name})" if kind == "sparse" else "save the samples as a matrix of numbers"
            raise file_error(path, f"array {name!r} is of type {kind}; {cure}")
        if scipy.io.matlab.matfile_version(path, appendmat=False)[0] == 1:
            _require_sound_mat(path, name)
        table = scipy.io.loadmat(path, appendmat=False, variable_names=[name])[name]
        require_samples(path, table.shape, table.dtype, name, max_dims=2)
        return Table(np.asarray(table))


def _require_sound_mat(path: Path, name: str) -> None:
    """Raise unless the header of an array in a v5 file is sound: a wrong type code makes scipy crash the process."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        pair = struct.Struct("<II" if raw[126:128] == b"IM" else ">II")
        end = 128
        while True:
            start = end + 8
            kind, size = pair.unpack_from(raw, end)
            end = start + size
            head = raw[start : min(end, start + (1 << 16))]
            if kind == 15:  # compressed
                head = zlib.decompressobj().decompress(head, 1 << 12)[8:]
            flags, part = pair.unpack_from(head, 8)[0], 16
            if not 6 <= flags & 0xFF <= 15:  # not numbers
                continue
            for _ in ("dimensions", "name"):
                code, size = pair.unpack_from(head, part)
                text = head[part + 8 : part + 8 + size]
                if code >> 16:  # small elements keep size and content in the tag
                    text, size = head[part + 4 : part + 4 + (code >> 16)], 0
                part += 8 + size + -size % 8
            if text.decode("latin-1") == name:
                break
    if flags & 0x800:
        require_samples(path, (), np.dtype(complex), name)
    code = pair.unpack_from(head, part)[0]
    if (code & 0xFFFF if code >> 16 else code) not in (1, 2, 3, 4, 5, 6, 7, 9, 12, 13):
        raise ValueError("unknown type of numbers")


MAT = Format(".mat", _read, (".mat",), has_variables=True)
