"""Open files to read their samples block by block, for data that are larger than memory."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.blocks import Stream, blocks
from common.errors import SettingsError
from common.settings import Dtype
from perdl_client.data.samples import Samples
from perdl_client.formats.columns import column_name
from perdl_client.formats.file_checks import file_error, reading
from perdl_client.formats.format import Format, Options

Floats = NDArray[np.floating]

_CURE = "set data.in_memory = true, or save the samples as .npy, HDF5 or Parquet"


def open_file(path: Path, kind: Format, options: Options, dtype: Dtype) -> Samples:
    """Open a file whose samples are read when they are needed.

    Parameters
    ----------
    path : Path
        The file, or a folder of images.
    kind : Format
        Its format.
    options : Options
        How it is to be read.
    dtype : {"float64", "float32"}
        Type that whole numbers become; float32 and float64 stay.

    Returns
    -------
    Samples
        Of a stream.

    Raises
    ------
    SettingsError
        If files of this kind cannot be read block by block.
    """
    rows = None if kind.open is None else kind.open(path, options)
    if rows is None:
        raise SettingsError(f"data.in_memory = false: {path} ({kind.title}) cannot be read block by block: {_CURE}")
    n, shape, target = rows.shape[0], rows.shape[1:], float_type(rows.dtype, dtype)
    in_columns = options.in_columns and len(shape) == 1 and not kind.samples_first
    full = kind.full_scale.get(rows.dtype.type)
    before = os.stat(path)

    def read(i: int, j: int) -> Floats:
        with reading(path, kind.title):
            now = os.stat(path)
            if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
                raise file_error(path, "has changed since it was opened: start the run again, and leave it as it is")
            found = rows.read(i, j).reshape(j - i, -1)
            out = np.asarray(found, target) if full is None else np.divide(found, full, dtype=target)
        return np.ascontiguousarray(out).T

    data = Stream((math.prod(shape), n), target, read)
    return Samples(data, shape, () if in_columns else rows.names, in_time=kind.in_time)


def float_type(kind: np.dtype[np.generic], dtype: Dtype) -> np.dtype[np.floating]:
    """Return the float type that numbers become: float32 and float64 stay, others become ``dtype``.

    Parameters
    ----------
    kind : numpy.dtype
        Type in the file.
    dtype : {"float64", "float32"}
        Type of the run.
    """
    if kind.kind == "f" and kind.itemsize >= 4:
        return np.dtype(np.float32 if kind.itemsize == 4 else np.float64)
    return np.dtype(dtype)


def joined(parts: list[Samples]) -> Stream:
    """Return the samples of all parts, one after the other.

    Parameters
    ----------
    parts : list of Samples
        Streams of as many features.
    """
    streams = [part.data for part in parts if isinstance(part.data, Stream)]
    if len(streams) == 1:
        return streams[0]
    dtype = np.result_type(*(one.dtype for one in streams))
    ends = np.cumsum([one.shape[1] for one in streams])

    def read(i: int, j: int) -> Floats:
        rows, at = np.empty((j - i, len(streams[0])), dtype), i
        while at < j:
            k = int(np.searchsorted(ends, at, side="right"))
            begin, end = int(ends[k]) - streams[k].shape[1], min(int(ends[k]), j)
            rows[at - i : end - i] = streams[k].read(at - begin, end - begin).T
            at = end
        return rows.T

    return Stream((len(streams[0]), int(ends[-1])), dtype, read)


def require_complete(path: Path, samples: Samples, *, allow_missing: bool, in_columns: bool) -> None:
    """Read all samples once, and raise unless all numbers are finite.

    Parameters
    ----------
    path : Path
        The file.
    samples : Samples
        Of a stream.
    allow_missing : bool
        Whether NaN marks what was not measured. A stream cannot fill it in.
    in_columns : bool
        Whether samples are in columns.
    """
    n_bad, first, begin, infinite = 0, (0, 0), 0, False
    for B in blocks(samples.data):
        bad = np.logical_not(np.isfinite(B.T))
        if bad.any():
            if not n_bad:
                i, j = divmod(int(bad.argmax()), bad.shape[1])
                first = begin + i, j
            n_bad += int(np.count_nonzero(bad))
            infinite = infinite or bool(np.isinf(B).any())
        begin += B.shape[1]
    if not n_bad:
        return
    i, j = first
    place = f"sample {i + 1}, feature {j + 1}" + ("" if in_columns else column_name(samples.names, j))
    if allow_missing and not infinite:
        raise SettingsError(
            f'data.missing = "mask": {path} has {n_bad} NaN, the first at {place}, and is read block by block, which '
            "takes complete samples: drop or fill them, or set data.in_memory = true"
        )
    raise file_error(
        path, f"has {n_bad} NaN or infinite of {samples.data.size} numbers, the first at {place}; drop or fill them"
    )
