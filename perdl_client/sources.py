"""Read a client's samples from the files people have; say in one line what is wrong with a file that cannot be used.

People store samples in rows, the code wants them in columns. The transposition happens here and nowhere else.
"""

from __future__ import annotations

import difflib
import gzip
import math
import os
import zipfile
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from common.errors import SettingsError
from perdl_client.csv_source import line_of_row, read_csv
from perdl_client.file_checks import choose_array, file_error, reading, require_matrix
from perdl_client.image_source import IMAGE_SUFFIXES, read_images
from perdl_client.mat_source import read_mat

KNOWN = ".npy, .npz, .csv, .tsv, .mat, IDX (*-idx3-ubyte, .gz or not) or a folder of images"

_IDX_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def load_samples(
    path: str | Path,
    *,
    samples_in: Literal["rows", "columns"] = "rows",
    variable: str | None = None,
    n_features: int | None = None,
) -> NDArray[np.floating]:
    """Read one client's samples.

    Parameters
    ----------
    path : str or Path
        A ``.npy``, ``.npz``, ``.csv``, ``.tsv``, ``.mat`` or IDX file (its name contains ``idx``; gzipped or not), or
        a folder of images of one size and mode, taken in natural order (``2.png`` before ``10.png``).
    samples_in : {"rows", "columns"}
        How the file's matrix is laid out. IDX files and image folders hold one sample per image whatever this says.
    variable : str, optional
        Name of the array in a ``.npz`` or ``.mat`` file; needed where it holds several 2-D numeric arrays.
    n_features : int, optional
        Number of features that all clients share; a file with another number is refused.

    Returns
    -------
    (d, n) array, float32 or float64
        Columns are samples. float32 stays float32, all else becomes float64. 8-bit intensities of IDX files and images
        are divided by 255; nothing else is rescaled. A float ``.npy`` file is memory-mapped, hence read-only.

    Raises
    ------
    DataError
        If the file cannot be read or used, in one line: the file, the place, the numbers and the cure. Samples,
        features, lines and columns are counted from 1.
    """
    if samples_in not in ("rows", "columns"):
        raise SettingsError(f'samples_in is {samples_in!r}; it must be "rows" or "columns"')
    path = Path(path)
    file_format = _format_of(path)
    if variable is not None and file_format not in (".npz", ".mat"):
        raise file_error(path, f"variable = {variable!r} is for .npz and .mat files; leave it out here")
    table = _read(path, file_format, variable)
    turnable = file_format not in ("idx", "images")
    samples = table if turnable and samples_in == "columns" else table.T
    if n_features is not None and samples.shape[0] != n_features:
        message = f"has {samples.shape[0]} features per sample, but {n_features} are expected"
        if turnable and samples.shape[1] == n_features:
            other = "columns" if samples_in == "rows" else "rows"
            raise file_error(path, f'{message}; the transpose would fit: set samples_in = "{other}"')
        raise file_error(path, f"{message}; give every client a file with the same features, or correct n_features")
    _require_finite(path, file_format, samples, samples_in)
    return samples


def read_idx(path: str | Path) -> NDArray[Any]:
    """Read an IDX file as it is, gzipped or not.

    Parameters
    ----------
    path : str or Path

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
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in _IDX_DTYPES or raw[3] == 0:
        magic = "00 00, a type code 08 to 0e and the number of dimensions"
        raise file_error(path, f"is not an IDX file: it starts {raw[:4].hex(' ')!r}, not {magic}; download it again")
    start = 4 + 4 * raw[3]
    if len(raw) < start:
        raise file_error(
            path, f"is cut short: {len(raw)} bytes, its header alone has {start}; copy or download it again"
        )
    shape = tuple(int(size) for size in np.frombuffer(raw, ">u4", raw[3], offset=4))
    dtype = np.dtype(_IDX_DTYPES[raw[2]])
    expected = start + math.prod(shape) * dtype.itemsize
    if len(raw) != expected:
        raise file_error(path, f"holds {len(raw)} bytes, but shape {shape} needs {expected}; copy or download it again")
    with reading(path, "an IDX file"):  # numpy refuses more than 64 dimensions
        return np.frombuffer(raw, dtype, offset=start).reshape(shape)


def _format_of(path: Path) -> str:
    if os.path.isdir(path):
        return "images"
    if not os.path.exists(path):
        raise file_error(path, _not_found(path))
    if not os.path.isfile(path):
        raise file_error(path, "is neither a file nor a folder; give the path of a data file")
    suffix = path.suffix.lower()
    if suffix not in (".npy", ".npz", ".csv", ".tsv", ".mat"):
        if suffix in IMAGE_SUFFIXES:
            raise file_error(path, "is a single image; give the folder that holds one image per sample")
        if "idx" not in path.name.lower() and suffix != ".ubyte":
            raise file_error(path, f"has the unknown extension {suffix!r}; known are {KNOWN}")
        suffix = "idx"
    if os.path.getsize(path) == 0:
        raise file_error(path, "is empty (0 bytes); copy or export it again")
    return suffix


def _not_found(path: Path) -> str:
    try:
        names = sorted(os.listdir(path.parent))
    except (OSError, ValueError):
        return f"does not exist, nor does its folder {str(path.parent)!r}; correct the path"
    near = difflib.get_close_matches(path.name, names, n=3)
    return "does not exist; " + (f"did you mean {' or '.join(map(repr, near))}?" if near else "correct the path")


def _read(path: Path, file_format: str, variable: str | None) -> NDArray[np.floating]:
    """Read the matrix as the file has it; of IDX files and image folders, one sample a row."""
    match file_format:
        case ".npy":
            table = _read_npy(path)
        case ".npz":
            table = _read_npz(path, variable)
        case ".mat":
            table = read_mat(path, variable)
        case "idx":
            table = _read_idx_rows(path)
        case "images":
            table = read_images(path)
        case _:
            table = read_csv(path)
    narrow = table.dtype.kind == "f" and table.dtype.itemsize == 4
    with reading(path, "a table of numbers"), np.errstate(over="ignore"):  # too large is infinite: refused later
        return np.asarray(table, dtype=np.float32 if narrow else np.float64)


def _require_finite(path: Path, file_format: str, samples: NDArray[np.floating], samples_in: str) -> None:
    bad = ~np.isfinite(samples.T)
    n_bad = int(np.count_nonzero(bad))
    if n_bad == 0:
        return
    sample, feature = divmod(int(bad.argmax()), bad.shape[1])
    place = f"sample {sample + 1}, feature {feature + 1}"
    if file_format in (".csv", ".tsv"):
        row, column = (sample, feature) if samples_in == "rows" else (feature, sample)
        place += f" (line {line_of_row(path, row)}, column {column + 1})"
    raise file_error(
        path, f"has {n_bad} NaN or infinite of {bad.size} numbers, the first at {place}; drop or fill them"
    )


def _read_npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def _read_npy(path: Path) -> NDArray[Any]:
    with reading(path, "a NumPy .npy file"):
        with path.open("rb") as file:
            require_matrix(path, *_read_npy_header(file))
        table: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        return table


def _read_npz(path: Path, variable: str | None) -> NDArray[Any]:
    with reading(path, "a NumPy .npz file"), zipfile.ZipFile(path) as archive:
        headers = {}
        for member in archive.namelist():
            if member.endswith(".npy"):
                with archive.open(member) as file:
                    headers[member.removesuffix(".npy")] = _read_npy_header(file)
        listing = {name: (shape, dtype.name) for name, (shape, dtype) in headers.items()}
        name = choose_array(path, listing, variable)
        require_matrix(path, *headers[name], name)
        with archive.open(f"{name}.npy") as file:
            table: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
            return table


def _read_idx_rows(path: Path) -> NDArray[Any]:
    images = read_idx(path)
    if images.ndim == 1:
        raise file_error(
            path, f"is 1-D, of shape {images.shape}: labels rather than samples; give the file of the images"
        )
    rows = images.reshape(images.shape[0], math.prod(images.shape[1:]))
    require_matrix(path, rows.shape, rows.dtype)
    return rows / 255.0 if rows.dtype == np.uint8 else rows
