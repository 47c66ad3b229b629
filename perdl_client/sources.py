"""Read a client's samples from the files people have; say in one line what is wrong with a file that cannot be used.

People store samples in rows, the code wants them in columns. The transposition happens here and nowhere else.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import math
import mmap
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from common.errors import DataError, SettingsError

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".gif", ".webp")
KNOWN = ".npy, .npz, .csv, .tsv, .mat, IDX (*-idx3-ubyte, .gz or not) or a folder of images"

_IDX_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_NUMBER = re.compile(r"\s*[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|nan|inf|infinity)\s*", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"\s*[+-]?[0-9]*,[0-9]+(e[+-]?[0-9]+)?\s*", re.IGNORECASE)
_NO_NAME = re.compile(rf"{_NUMBER.pattern}|{_DECIMAL_COMMA.pattern}|\s*", re.IGNORECASE)  # never in a header
_NUMERIC_TYPE = re.compile(r"bool|logical|double|single|u?int\d+|float\d+")


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
        raise _error(path, f"variable = {variable!r} is for .npz and .mat files; leave it out here")
    table = _read(path, file_format, variable)
    turnable = file_format not in ("idx", "images")
    samples = table if turnable and samples_in == "columns" else table.T
    if n_features is not None and samples.shape[0] != n_features:
        message = f"has {samples.shape[0]} features per sample, but {n_features} are expected"
        if turnable and samples.shape[1] == n_features:
            other = "columns" if samples_in == "rows" else "rows"
            raise _error(path, f'{message}; the transpose would fit: set samples_in = "{other}"')
        raise _error(path, f"{message}; give every client a file with the same features, or correct n_features")
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
    with _reading(path, "an IDX file"):
        raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            try:
                raw = gzip.decompress(raw)
            except EOFError:
                raise _error(path, "is gzip data cut short; copy or download it again") from None
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in _IDX_DTYPES or raw[3] == 0:
        magic = "00 00, a type code 08 to 0e and the number of dimensions"
        raise _error(path, f"is not an IDX file: it starts {raw[:4].hex(' ')!r}, not {magic}; download it again")
    start = 4 + 4 * raw[3]
    if len(raw) < start:
        raise _error(path, f"is cut short: {len(raw)} bytes, its header alone has {start}; copy or download it again")
    shape = tuple(int(size) for size in np.frombuffer(raw, ">u4", raw[3], offset=4))
    dtype = np.dtype(_IDX_DTYPES[raw[2]])
    expected = start + math.prod(shape) * dtype.itemsize
    if len(raw) != expected:
        raise _error(path, f"holds {len(raw)} bytes, but shape {shape} needs {expected}; copy or download it again")
    with _reading(path, "an IDX file"):  # numpy refuses more than 64 dimensions
        return np.frombuffer(raw, dtype, offset=start).reshape(shape)


def _error(path: Path, message: str) -> DataError:
    return DataError(re.sub(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+", " ", f"{path}: {message}"))


@contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    """Turn whatever a reader raises on a damaged file into a DataError; its text may hold data, so it is not quoted."""
    try:
        yield
    except DataError:
        raise
    except MemoryError as error:
        raise _error(path, "does not fit into memory; give fewer samples, or a float .npy file") from error
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:
            raise _error(path, f"cannot be read: {error.strerror}; check the path and its permissions") from error
        kind = type(error).__name__
        raise _error(path, f"is not {what}, or is damaged or cut short ({kind}); copy or export it again") from error


def _format_of(path: Path) -> str:
    if os.path.isdir(path):
        return "images"
    if not os.path.exists(path):
        raise _error(path, _not_found(path))
    if not os.path.isfile(path):
        raise _error(path, "is neither a file nor a folder; give the path of a data file")
    suffix = path.suffix.lower()
    if suffix not in (".npy", ".npz", ".csv", ".tsv", ".mat"):
        if suffix in IMAGE_SUFFIXES:
            raise _error(path, "is a single image; give the folder that holds one image per sample")
        if "idx" not in path.name.lower() and suffix != ".ubyte":
            raise _error(path, f"has the unknown extension {suffix!r}; known are {KNOWN}")
        suffix = "idx"
    if os.path.getsize(path) == 0:
        raise _error(path, "is empty (0 bytes); copy or export it again")
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
            table = _read_mat(path, variable)
        case "idx":
            table = _read_idx_rows(path)
        case "images":
            table = _read_images(path)
        case _:
            table = _read_csv(path)
    narrow = table.dtype.kind == "f" and table.dtype.itemsize == 4
    with _reading(path, "a table of numbers"), np.errstate(over="ignore"):  # too large is infinite: refused later
        return np.asarray(table, dtype=np.float32 if narrow else np.float64)


def _require_matrix(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], name: str = "") -> None:
    what = f"array {name!r}" if name else "the array"
    if dtype.kind == "c":
        raise _error(path, f"{what} is complex ({dtype}); save its real part, or real and imaginary part as features")
    if dtype.kind not in "biuf":
        kind = "structured" if dtype.names else dtype.name
        raise _error(path, f"{what} has dtype {kind}, not numbers; save it after array.astype(float)")
    if len(shape) != 2:
        cure = "reshape(1, -1) makes it one row, reshape(-1, 1) one column"
        if len(shape) > 2:
            cure = "with samples along the first axis, save array.reshape(len(array), -1)"
        raise _error(path, f"{what} is {len(shape)}-D, of shape {shape}; a 2-D array is needed: {cure}")
    if 0 in shape:
        empty = "samples" if shape[0] == 0 else "numbers"
        raise _error(path, f"{what} holds 0 {empty}: its shape is {shape}; export the data again")


def _require_finite(path: Path, file_format: str, samples: NDArray[np.floating], samples_in: str) -> None:
    bad = ~np.isfinite(samples.T)
    n_bad = int(np.count_nonzero(bad))
    if n_bad == 0:
        return
    sample, feature = divmod(int(bad.argmax()), bad.shape[1])
    place = f"sample {sample + 1}, feature {feature + 1}"
    if file_format in (".csv", ".tsv"):
        row, column = (sample, feature) if samples_in == "rows" else (feature, sample)
        has_header = _csv_layout(path)[1]
        line = [number for number, _ in _csv_lines(path)][row + has_header]
        place += f" (line {line}, column {column + 1})"
    raise _error(path, f"has {n_bad} NaN or infinite of {bad.size} numbers, the first at {place}; drop or fill them")


def _read_npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def _read_npy(path: Path) -> NDArray[Any]:
    with _reading(path, "a NumPy .npy file"):
        with path.open("rb") as file:
            _require_matrix(path, *_read_npy_header(file))
        table: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        return table


def _read_npz(path: Path, variable: str | None) -> NDArray[Any]:
    with _reading(path, "a NumPy .npz file"), zipfile.ZipFile(path) as archive:
        headers = {}
        for member in archive.namelist():
            if member.endswith(".npy"):
                with archive.open(member) as file:
                    headers[member.removesuffix(".npy")] = _read_npy_header(file)
        listing = {name: (shape, dtype.name) for name, (shape, dtype) in headers.items()}
        name = _choose(path, listing, variable)
        _require_matrix(path, *headers[name], name)
        with archive.open(f"{name}.npy") as file:
            table: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
            return table


def _read_mat(path: Path, variable: str | None) -> NDArray[Any]:
    import scipy.io

    with _reading(path, "a MATLAB .mat file"):
        with path.open("rb") as file:
            start = file.read(520)
        if start.startswith(b"MATLAB 7.3") or b"\x89HDF\r\n\x1a\n" in (start[:8], start[512:]):
            raise _error(path, "is a MATLAB v7.3 (HDF5) file; in MATLAB load it and save(..., '-v7'), or export .npy")
        listing = {name: (shape, kind) for name, shape, kind in scipy.io.whosmat(path, appendmat=False)}
        name = _choose(path, listing, variable)
        kind = listing[name][1]
        if not _NUMERIC_TYPE.fullmatch(kind):
            cure = f"save full({name})" if kind == "sparse" else "save the samples as a matrix of numbers"
            raise _error(path, f"array {name!r} is of type {kind}; {cure}")
        if scipy.io.matlab.matfile_version(path, appendmat=False)[0] == 1:
            _require_sound_mat(path, name)
        table = scipy.io.loadmat(path, appendmat=False, variable_names=[name])[name]
        _require_matrix(path, table.shape, table.dtype, name)
        return np.asarray(table)


def _require_sound_mat(path: Path, name: str) -> None:
    """Raise unless the head of array ``name`` in a v5 file is sound: on a wrong type code scipy kills the process."""
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
        _require_matrix(path, (), np.dtype(complex), name)
    code = pair.unpack_from(head, part)[0]
    if (code & 0xFFFF if code >> 16 else code) not in (1, 2, 3, 4, 5, 6, 7, 9, 12, 13):
        raise ValueError("unknown type of numbers")


def _choose(path: Path, listing: Mapping[str, tuple[tuple[int, ...], str]], variable: str | None) -> str:
    """Name of the one array to read, of ``listing``: name → (shape, type)."""
    held = ", ".join(f"{name!r} {shape} {kind}" for name, (shape, kind) in list(listing.items())[:10]) or "no array"
    held += f" and {len(listing) - 10} more" if len(listing) > 10 else ""
    if variable is not None:
        if variable not in listing:
            raise _error(path, f"has no array {variable!r}; it holds {held}: set variable to one of these")
        return variable
    matrices = [name for name, (shape, kind) in listing.items() if len(shape) == 2 and _NUMERIC_TYPE.fullmatch(kind)]
    names = matrices or list(listing)
    if len(names) != 1:
        count = f"{len(matrices)} 2-D numeric arrays" if matrices else "no 2-D numeric array"
        cure = "set variable to the one to use" if matrices else "save the samples as one 2-D array"
        raise _error(path, f"has {count}; it holds {held}: {cure}")
    return names[0]


def _read_idx_rows(path: Path) -> NDArray[Any]:
    images = read_idx(path)
    if images.ndim == 1:
        raise _error(path, f"is 1-D, of shape {images.shape}: labels rather than samples; give the file of the images")
    rows = images.reshape(images.shape[0], math.prod(images.shape[1:]))
    _require_matrix(path, rows.shape, rows.dtype)
    return rows / 255.0 if rows.dtype == np.uint8 else rows


def _read_images(folder: Path) -> NDArray[Any]:
    """Flatten each image to a row of an (n, d) array, row by row of pixels, channels last."""
    with _reading(folder, "a folder of images"):
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
        files = [entry for entry in entries if entry.suffix.lower() in IMAGE_SUFFIXES and entry.is_file()]
    if not files:
        held = f"its {len(entries)} entries are of other kinds" if entries else "it is empty"
        raise _error(folder, f"holds no images ({', '.join(IMAGE_SUFFIXES)}): {held}; give a file or another folder")
    files.sort(key=_natural_order)
    first, first_mode = _read_image(files[0])
    with _reading(folder, "a folder of images"):
        rows = np.empty((len(files), first.size), dtype=np.float32 if first.dtype == np.float32 else np.float64)
    for row, file in zip(rows, files, strict=True):
        image, mode = _read_image(file)
        if (image.shape, mode) != (first.shape, first_mode):
            (h, w), (h0, w0) = image.shape[:2], first.shape[:2]
            here, there = f"{w}x{h} {mode}", f"{files[0].name!r} is {w0}x{h0} {first_mode}"
            raise _error(file, f"is {here}, but {there} (width x height, mode); give all images one size and mode")
        row[:] = image.ravel()
        if image.dtype == np.uint8:
            row /= 255.0
    return rows


def _read_image(file: Path) -> tuple[NDArray[Any], str]:
    from PIL import Image

    with _reading(file, "an image"), Image.open(file) as image:
        frames = getattr(image, "n_frames", 1)
        if frames > 1 and image.format != "MPO":  # MPO: a photograph and its previews
            raise _error(file, f"holds {frames} frames; save each as an image of its own")
        plain = image.convert("RGB") if image.mode in ("P", "PA") else image  # palette indices are not intensities
        return np.asarray(plain), plain.mode


def _natural_order(path: Path) -> tuple[list[tuple[int, str]], str]:
    parts = re.split(r"([0-9]+)", path.name.lower())
    return [(int(part), "") if i % 2 else (0, part) for i, part in enumerate(parts)], path.name


def _read_csv(path: Path) -> NDArray[np.float64]:
    with _reading(path, "a table of numbers in UTF-8 text"):
        delimiter, has_header = _csv_layout(path)
        lines = (line for _, line in _csv_lines(path))
        if has_header:
            n_named = len(_cells(next(lines), delimiter))
        try:
            table = np.loadtxt(lines, delimiter=delimiter, quotechar='"', comments=None, ndmin=2)
        except UnicodeDecodeError:
            raise
        except ValueError:
            _explain_csv(path, delimiter, has_header)
            raise
        if has_header and n_named != table.shape[1]:
            _explain_csv(path, delimiter, has_header)
        return table


def _csv_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, with the number that an editor shows."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield from ((number, line) for number, line in enumerate(file, 1) if line.strip())
    except UnicodeDecodeError:
        raise _error(path, "is not UTF-8 text; export it as CSV in UTF-8") from None


def _cells(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line.rstrip("\n")], delimiter=delimiter))


def _csv_layout(path: Path) -> tuple[str, bool]:
    """Delimiter, and whether the first line is a header."""
    lines = [line for _, (_, line) in zip(range(2), _csv_lines(path), strict=False)]
    if not lines:
        raise _error(path, "holds 0 samples: all its lines are blank; export it again")
    delimiter = next((mark for mark in "\t;" if mark in lines[-1]), ",")
    cells = _cells(lines[0], delimiter)
    has_header = not any(_NO_NAME.fullmatch(cell) for cell in cells)
    if has_header and len(lines) == 1:
        raise _error(path, "holds 0 samples: only one line, without numbers; export it again")
    return delimiter, has_header


def _explain_csv(path: Path, delimiter: str, has_header: bool) -> None:
    """Find the first cell or line that is not part of a table of numbers, and raise."""
    first_number = width = 0
    for number, line in _csv_lines(path):
        if line.count('"') % 2:
            raise _error(path, f"line {number} has a quote that is not closed; close or remove it")
        cells = _cells(line, delimiter)
        if not width:
            first_number, width = number, len(cells)
        if len(cells) != width:
            cure = "make all lines equal" + (" (decimal commas? export decimal points)" if delimiter == "," else "")
            raise _error(path, f"line {number} has {len(cells)} cells, line {first_number} has {width}; {cure}")
        if has_header and number == first_number:
            continue
        for column, cell in enumerate(cells, 1):
            if not _NUMBER.fullmatch(cell):
                raise _error(path, f"line {number}, column {column} {_what_is_wrong(cell)}")


def _what_is_wrong(cell: str) -> str:
    text = cell.strip()
    shown = repr(text if len(text) <= 20 else text[:20] + "…")
    if not text:
        return "is empty; fill it or drop the line (an index column without a name: export without it)"
    if _DECIMAL_COMMA.fullmatch(cell):
        return f"is {shown}, with a decimal comma; export decimal points"
    return f"is {shown}, not a number; drop that column or encode it as numbers"
