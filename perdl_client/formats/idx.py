"""Read IDX files, the format of MNIST."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdl_client.formats.file_checks import file_error, reading, require_samples
from perdl_client.formats.format import Format, Options, Table

_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: str | Path) -> NDArray[Any]:
    """Read an IDX file, gzipped or not, without scaling.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    array of the shape and dtype that the header names, read-only
    """
    path = Path(path)
    with reading(path, "an IDX file"):
        raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            try:
                raw = gzip.decompress(raw)
            except EOFError:
                raise file_error(path, "is gzip data cut short; copy or download it again") from None
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in _DTYPES or raw[3] == 0:
        magic = "00 00, a type code 08 to 0e and the number of dimensions"
        raise file_error(path, f"is not an IDX file: it starts {raw[:4].hex(' ')!r}, not {magic}; download it again")
    start = 4 + 4 * raw[3]
    if len(raw) < start:
        raise file_error(
            path, f"is cut short: {len(raw)} bytes, its header alone has {start}; copy or download it again"
        )
    shape = tuple(int(size) for size in np.frombuffer(raw, ">u4", raw[3], offset=4))
    dtype = np.dtype(_DTYPES[raw[2]])
    expected = start + math.prod(shape) * dtype.itemsize
    if len(raw) != expected:
        raise file_error(path, f"holds {len(raw)} bytes, but shape {shape} needs {expected}; copy or download it again")
    with reading(path, "an IDX file"):  # numpy refuses more than 64 dimensions
        return np.frombuffer(raw, dtype, offset=start).reshape(shape)


def _read(path: Path, options: Options) -> Table:
    """Return the samples along the first axis."""
    samples = read_idx(path)
    if samples.ndim == 1:
        raise file_error(
            path, f"is 1-D, of shape {samples.shape}: labels rather than samples; give the file of the images"
        )
    require_samples(path, samples.shape, samples.dtype, max_dims=64)
    return Table(samples)


IDX = Format(
    "IDX",
    _read,
    (".ubyte",),
    known_as="IDX (*-idx3-ubyte, .gz or not)",
    mark="idx",
    samples_first=True,
    full_scale={np.uint8: 255.0},
)
