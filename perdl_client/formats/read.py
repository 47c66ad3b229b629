"""Read a client's samples from the files people have; say in one line what is wrong with a file that cannot be used.

People store samples in rows, the code wants them in columns. The transposition happens here and nowhere else. Each
format has a module of its own, ``*_source.py``, whose reader returns an array with samples along its first axis.
"""

from __future__ import annotations

import difflib
import math
import os
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.errors import SettingsError
from common.settings import Dtype
from perdl_client.data.samples import Samples, plainly
from perdl_client.formats.arrow import read_arrow
from perdl_client.formats.columns import Absent, column_name, lacking, leave_out_odd, leaving_out, require_some_have
from perdl_client.formats.csv import place_in_csv, read_csv
from perdl_client.formats.file_checks import OTHER_FORMATS, file_error, is_data, reading, require_no_other_kind
from perdl_client.formats.hdf5 import read_hdf5
from perdl_client.formats.idx import read_idx_samples
from perdl_client.formats.images import IMAGE_SUFFIXES, natural_order, read_images
from perdl_client.formats.matlab import read_mat
from perdl_client.formats.npy import read_npy, read_npz
from perdl_client.formats.scales import as_floats
from perdl_client.formats.video import VIDEO_SUFFIXES, read_video
from perdl_client.formats.wav import read_wav

KNOWN = (
    ".npy, .npz, .csv, .tsv, .mat, .parquet, .feather, .arrow, .h5, .hdf5, .wav, IDX (*-idx3-ubyte, .gz or not), "
    "videos (.mp4, .avi, ...) or a folder of images or of such files"
)
_FORMATS = {
    ".npy": "npy",
    ".npz": "npz",
    ".csv": "csv",
    ".tsv": "csv",
    ".mat": "mat",
    ".parquet": "parquet",
    ".feather": "arrow",
    ".arrow": "arrow",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".wav": "wav",
    ".ubyte": "idx",
    **dict.fromkeys(VIDEO_SUFFIXES, "video"),
}
_WITH_VARIABLES = ("npz", "mat", "hdf5")
_WITH_COLUMNS = ("csv", "parquet", "arrow")
_ONE_WAY = ("idx", "images", "video", "wav")
"""Formats whose first axis is that of the samples, whatever anyone says."""

Orientation = Literal["rows", "columns"]


def load_samples(
    path: str | Path,
    *,
    samples_in: Orientation = "rows",
    variable: str | None = None,
    drop: str | None = None,
    n_features: int | None = None,
    allow_nan: bool = False,
    dtype: Dtype = "float64",
) -> Samples:
    """Read one client's samples.

    Parameters
    ----------
    path : str or Path
        A ``.npy``, ``.npz``, ``.csv``, ``.tsv``, ``.mat``, ``.parquet``, ``.feather``, ``.arrow``, ``.h5``, ``.hdf5``,
        ``.wav``, video or IDX file (its name contains ``idx``; gzipped or not), a folder of images of one size and
        mode, or a folder of data files of one format, whose samples are joined. Folders are read in natural order
        (``2.png`` before ``10.png``).
    samples_in : {"rows", "columns"}
        How the file's matrix is laid out. What holds images, frames or sound has samples along its first axis whatever
        this says.
    variable : str, optional
        Name of the array in a ``.npz``, ``.mat`` or HDF5 file (``group/x``); needed where it holds several that fit.
    drop : str, optional
        Names or numbers (from 1) of columns of a CSV, Parquet or Arrow file to leave out, with commas between.
    n_features : int, optional
        Number of features that all clients share; a file with another number is refused.
    allow_nan : bool
        Take NaN and infinite numbers as they are, to count them.
    dtype : {"float64", "float32"}
        What whole numbers become; float32 and float64 stay. Give what the run computes in: memory then holds no wider
        copy.

    Returns
    -------
    Samples
        float32 and float64 stay, all else becomes ``dtype``. 8-bit intensities of IDX files, images and videos are
        divided by 255, 16-bit ones of images by 65535, integers of sound scaled to [-1, 1); nothing else is rescaled. A
        float ``.npy`` file is memory-mapped, hence read-only. A missing value of a Parquet or Arrow file is NaN.

    Raises
    ------
    DataError
        If the file cannot be read or used, in one line: the file, the place, the numbers and the cure. Samples,
        features, lines and columns are counted from 1.
    """
    if samples_in not in ("rows", "columns"):
        raise SettingsError(f'samples_in is {samples_in!r}; it must be "rows" or "columns"')
    path = Path(path)
    features, parts, absent = Features(), [], Absent()
    files = _parts(path)
    for file in files:

        def read(drop: str | None, file: Path = file) -> Samples:
            return _load_part(file, samples_in, variable, drop, allow_nan, dtype)

        part = leaving_out(drop, read, absent)
        if wrong := features.compare(part, file.name, samples_in):
            raise file_error(file, wrong)
        parts.append(part)
    require_some_have(absent, len(files))
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    shape, rate = parts[0].shape, parts[0].rate
    with reading(path, "a folder of data"):
        data = _joined(parts)
    samples = Samples(data, shape, features.names, rate, notes)
    if n_features is not None and len(data) != n_features:
        wrong = f"has {len(data)} features per sample, but {n_features} are expected"
        cure = "; give every client a file with the same features, or correct n_features"
        if other := _turned(samples, n_features, samples_in):
            cure = f'; the transpose would fit: set samples_in = "{other}"'
        raise file_error(path, wrong + cure)
    return samples


def _joined(parts: list[Samples]) -> NDArray[np.floating]:
    """Return the samples (d, n) of all parts, and empty the list: each part is freed once it is copied.

    Samples lie one after the other in memory. The same numbers in another layout would give other last bits.
    """
    if len(parts) == 1:
        return np.ascontiguousarray(parts.pop().data.T).T
    dtype = np.result_type(*(part.data.dtype for part in parts))
    rows = np.empty((sum(part.data.shape[1] for part in parts), len(parts[0].data)), dtype)
    end = 0
    while parts:
        part = parts.pop(0).data
        start, end = end, end + part.shape[1]
        rows[start:end] = part.T
    return rows.T


class Features:
    """What the features of several files have in common, as the first ones have it."""

    def __init__(self) -> None:
        self.shape: tuple[int, ...] = ()
        self.names: tuple[str, ...] = ()
        self._first = self._first_named = ""
        self._rated = (0, "")

    def compare(self, samples: Samples, file: str, samples_in: Orientation = "rows") -> str:
        """Say how the features of ``samples`` differ from those before, and the cure; nothing if they do not."""
        self.shape = self.shape or samples.shape
        self._first = self._first or file
        d, expected = math.prod(samples.shape), math.prod(self.shape)
        if d != expected:
            if samples.names and self.names and (lacks := lacking(samples.names, self.names)):
                cure = f"give all the same columns{leave_out_odd(samples.names, self.names)}"
                return f"has {d} columns, {self._first_named!r} has {expected}: it {lacks}; {cure}"
            cure = "; give all files the same features in the same order"
            if other := _turned(samples, expected, samples_in):
                cure = f"; the transpose would fit: turn that file, or let its client alone read samples in {other}"
            return f"has {d} features per sample, but {expected} in {self._first!r}{cure}"
        if samples.shape != self.shape and len(samples.shape) > 1 and len(self.shape) > 1:
            return f"has samples of shape {samples.shape}, but {self.shape} in {self._first!r}; give all one size"
        if samples.rate:
            self._rated = self._rated if self._rated[0] else (samples.rate, file)
            rate, rated = self._rated
            if samples.rate != rate:
                return f"has {samples.rate} samples a second, but {rate} in {rated!r}; bring them to the same rate"
        if samples.names and not self.names:
            self.names, self._first_named = samples.names, file
        names, expected_names = plainly(samples.names), plainly(self.names)
        if names and names != expected_names:
            i = next(i for i, name in enumerate(names) if name != expected_names[i])
            same = sorted(names) == sorted(expected_names)
            cure = (
                "bring its columns into the same order" if same else "give all files the same columns in the same order"
            )
            return (
                f"column {i + 1} is called {samples.names[i]!r}, but {self.names[i]!r} in {self._first_named!r}; {cure}"
            )
        return ""


def _turned(samples: Samples, expected: int, samples_in: Orientation) -> str:
    """Return the other orientation, if the transpose would fit; else nothing."""
    if len(samples.shape) > 1 or samples.data.shape[1] != expected:
        return ""
    return "columns" if samples_in == "rows" else "rows"


def _parts(path: Path) -> list[Path]:
    """Return the files that make up a client's samples; a folder of images is one."""
    if not os.path.isdir(path):
        return [path]
    with reading(path, "a folder of data"):
        entries = sorted(filter(is_data, path.iterdir()), key=natural_order)
    formats = {entry: None if entry.is_dir() else _format_by_name(entry) for entry in entries}
    held = {one for one in formats.values() if one is not None}
    if not held or set(formats.values()) == {"image"}:
        if entries and all(entry.is_dir() for entry in entries):
            raise file_error(
                path, f"holds folders ({entries[0].name!r}, ...), not samples; give one of them to a client"
            )
        return [path]
    if len(set(formats.values())) > 1:
        first = entries[0]
        other = next(entry for entry in entries if formats[entry] != formats[first])
        raise file_error(
            path, f"holds {first.name!r} and {other.name!r}; keep files of one format alone in a client's folder"
        )
    return entries


def _load_part(
    path: Path, samples_in: Orientation, variable: str | None, drop: str | None, allow_nan: bool, dtype: Dtype
) -> Samples:
    file_format = _format_of(path)
    if variable is not None and file_format not in _WITH_VARIABLES:
        raise file_error(path, f"variable = {variable!r} is for .npz, .mat and HDF5 files; leave it out here")
    if drop is not None and file_format not in _WITH_COLUMNS:
        raise file_error(path, f"drop = {drop!r} is for columns of CSV, Parquet and Feather files; leave it out here")
    sideways = samples_in == "columns"
    read = _read(path, file_format, variable, drop, sideways)
    names, array = read.names, read.array
    turned = array.ndim == 2 and file_format not in _ONE_WAY and sideways
    with reading(path, "a table of numbers"), np.errstate(over="ignore"):  # too large is infinite: refused later
        array = as_floats(array, file_format, dtype, "F" if turned else "C")
    data = array if turned else array.reshape(len(array), -1).T
    if not allow_nan:
        _require_finite(path, file_format, data, names, turned, drop)
    shape = (len(data),) if array.ndim == 2 else array.shape[1:]
    return Samples(data, shape, () if turned else names, read.rate, read.notes)


def _format_by_name(path: Path) -> str | None:
    suffix = path.suffix.lower()
    if suffix in IMAGE_SUFFIXES:
        return "image"
    return _FORMATS.get(suffix, "idx" if "idx" in path.name.lower() else None)


def _format_of(path: Path) -> str:
    if os.path.isdir(path):
        return "images"
    if not os.path.exists(path):
        dangling = "is a link that leads nowhere; mend it, or give the file itself"
        raise file_error(path, dangling if os.path.islink(path) else _not_found(path))
    if not os.path.isfile(path):
        raise file_error(path, "is neither a file nor a folder; give the path of a data file")
    file_format = _format_by_name(path)
    if file_format == "image":
        raise file_error(path, "is a single image; give the folder that holds one image per sample")
    if file_format is None:
        cure = OTHER_FORMATS.get(path.suffix.lower(), "")
        raise file_error(
            path, f"has the unknown extension {path.suffix.lower()!r}; {cure}{' - ' * bool(cure)}known are {KNOWN}"
        )
    if os.path.getsize(path) == 0:
        raise file_error(path, "is empty (0 bytes); copy or export it again")
    if file_format in ("csv", "npy"):
        require_no_other_kind(path)
    return file_format


def _not_found(path: Path) -> str:
    try:
        names = sorted(os.listdir(path.parent))
    except (OSError, ValueError):
        return f"does not exist, nor does its folder {str(path.parent)!r}; correct the path"
    near = difflib.get_close_matches(path.name, names, n=3)
    return "does not exist; " + (f"did you mean {' or '.join(map(repr, near))}?" if near else "correct the path")


class _Read(NamedTuple):
    """What a file has, samples along the first axis."""

    array: NDArray[Any]
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rate: int = 0


def _read(path: Path, file_format: str, variable: str | None, drop: str | None, sideways: bool) -> _Read:
    match file_format:
        case "csv":
            return _Read(*read_csv(path, drop, sideways))
        case "parquet" | "arrow":
            return _Read(*read_arrow(path, drop))
        case "npy":
            return _Read(read_npy(path))
        case "npz":
            return _Read(read_npz(path, variable))
        case "mat":
            return _Read(read_mat(path, variable))
        case "hdf5":
            return _Read(read_hdf5(path, variable))
        case "idx":
            return _Read(read_idx_samples(path))
        case "video":
            return _Read(read_video(path))
        case "wav":
            sound, rate = read_wav(path)
            return _Read(sound, rate=rate)
        case _:
            return _Read(read_images(path))


def _require_finite(
    path: Path,
    file_format: str,
    samples: NDArray[np.floating],
    names: tuple[str, ...],
    turned: bool,
    drop: str | None,
) -> None:
    bad = np.isfinite(samples.T)
    if bad.all():
        return
    np.logical_not(bad, out=bad)
    n_bad = int(np.count_nonzero(bad))
    sample, feature = divmod(int(bad.argmax()), bad.shape[1])
    row, column = (feature, sample) if turned else (sample, feature)
    place = f"sample {sample + 1}, feature {feature + 1}" + ("" if turned else column_name(names, column))
    if file_format == "csv":
        place += f", in {place_in_csv(path, row, column, drop, turned)}"
    raise file_error(
        path, f"has {n_bad} NaN or infinite of {bad.size} numbers, the first at {place}; drop or fill them"
    )
