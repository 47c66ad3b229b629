"""Read a client's samples from files, and say in one line what is wrong with a file that cannot be used.

People store samples in rows, the code wants them in columns. Only :func:`_read_file` transposes them.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from common.blocks import Columns, in_memory
from common.errors import SettingsError
from common.settings import Dtype
from perdl_client.data.samples import Samples
from perdl_client.formats.columns import Absent, column_name, leaving_out, require_some_have
from perdl_client.formats.features import Features, Orientation, transpose_that_fits
from perdl_client.formats.file_checks import OTHER_FORMATS, file_error, is_data, reading
from perdl_client.formats.format import Format, Options
from perdl_client.formats.images import natural_order
from perdl_client.formats.registry import FORMATS, format_by_name, known_formats
from perdl_client.formats.stream import float_type, joined, open_file, require_complete

Missing = Literal["refuse", "mask", "count"]


def load_samples(
    path: str | Path,
    *,
    samples_in: Orientation = "rows",
    variable: str | None = None,
    drop: str | None = None,
    n_features: int | None = None,
    missing: Missing = "refuse",
    dtype: Dtype = "float64",
    stream: bool = False,
) -> Samples:
    """Read one client's samples.

    Parameters
    ----------
    path : str or Path
        A ``.npy``, ``.npz``, ``.csv``, ``.tsv``, ``.mat``, ``.parquet``, ``.feather``, ``.arrow``, ``.h5``,
        ``.hdf5``, ``.wav``, video or IDX file (its name contains ``idx``; gzipped or not), a folder of images of
        one size and mode, or a folder of data files of one format, whose samples are joined. Folders are read in
        natural order (``2.png`` before ``10.png``).
    samples_in : {"rows", "columns"}
        Orientation of the file's matrix. Images, frames and sound always have samples along the first axis.
    variable : str, optional
        Name of the array in a ``.npz``, ``.mat`` or HDF5 file (``group/x``); needed if several fit.
    drop : str, optional
        Names or numbers (from 1) of columns of a CSV, Parquet or Arrow file to leave out, separated by commas.
    n_features : int, optional
        Number of features that all clients share. A file with another number is refused.
    missing : {"refuse", "mask", "count"}
        ``mask`` keeps NaN, and takes empty cells of tables for NaN; ``count`` keeps NaN and infinite numbers, to count
        them.
    dtype : {"float64", "float32"}
        Type that whole numbers become; float32 and float64 stay. Give the run's type to avoid a wider copy in
        memory.
    stream : bool
        Read samples when they are needed, a block at a time. Unless ``missing`` is ``count``, all are read once to look
        for numbers that are none.

    Returns
    -------
    Samples
        float32 and float64 stay, other types become ``dtype``. 8-bit intensities of IDX files, images and videos are
        divided by 255, 16-bit intensities of images by 65535. Integer sound is scaled to [-1, 1). Nothing else is
        rescaled. A float ``.npy`` file is memory-mapped and read-only. A missing value of a Parquet or Arrow file
        is NaN.

    Raises
    ------
    DataError
        If the file cannot be read or used. One line names the file, the place, the numbers and what to do. Samples,
        features, lines and columns count from 1.
    """
    if samples_in not in ("rows", "columns"):
        raise SettingsError(f'samples_in is {samples_in!r}; it must be "rows" or "columns"')
    path = Path(path)
    features, parts, absent = Features(), [], Absent()
    files = _parts(path)
    for file in files:

        def read(drop: str | None, file: Path = file) -> Samples:
            options = Options(variable, drop, samples_in == "columns", missing == "mask")
            if stream:
                return open_file(file, _format_of(file), _fitting(file, _format_of(file), options), dtype)
            return _read_file(file, options, missing, dtype)

        part = leaving_out(drop, read, absent)
        if wrong := features.compare(part, file.name, samples_in):
            raise file_error(file, wrong)
        parts.append(part)
    require_some_have(absent, len(files))
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    shape, rate, in_time = parts[0].shape, parts[0].rate, parts[0].in_time
    sizes = tuple(part.data.shape[1] for part in parts) if len(parts) > 1 else ()
    data: Columns
    if stream:
        data = joined(parts)
    else:
        with reading(path, "a folder of data"):
            data = _joined(parts)
    samples = Samples(data, shape, features.names, rate, notes, sizes, in_time)
    if n_features is not None and len(data) != n_features:
        wrong = f"has {len(data)} features per sample, but {n_features} are expected"
        cure = "; give every client a file with the same features, or correct n_features"
        if other := transpose_that_fits(samples, n_features, samples_in):
            cure = f'; the transpose would fit: set samples_in = "{other}"'
        raise file_error(path, wrong + cure)
    if stream and missing != "count":
        require_complete(path, samples, allow_missing=missing == "mask", in_columns=samples_in == "columns")
    return samples


def streams(path: str | Path) -> bool:
    """Return whether files of this kind can be read block by block.

    Parameters
    ----------
    path : str or Path
        File or folder of a client.
    """
    return all(_format_of(file).open is not None for file in _parts(Path(path)))


def _joined(parts: list[Samples]) -> NDArray[np.floating]:
    """Return the samples (d, n) of all parts, and empty the list, so that each part is freed once it is copied.

    Samples are contiguous in memory. Another memory layout of the same numbers would change the last bits of results.
    """
    if len(parts) == 1:
        return np.ascontiguousarray(in_memory(parts.pop().data).T).T
    dtype = np.result_type(*(part.data.dtype for part in parts))
    rows: NDArray[np.floating] = np.empty((sum(part.data.shape[1] for part in parts), len(parts[0].data)), dtype)
    end = 0
    while parts:
        part = in_memory(parts.pop(0).data)
        start, end = end, end + part.shape[1]
        rows[start:end] = part.T
    return rows.T


def _parts(path: Path) -> list[Path]:
    """Return the files that make up a client's samples. A folder of images counts as one."""
    if not os.path.isdir(path):
        return [path]
    with reading(path, "a folder of data"):
        entries = sorted(filter(is_data, path.iterdir()), key=natural_order)
    formats = [None if entry.is_dir() else format_by_name(entry) for entry in entries]
    first = next((one for one in formats if one is not None), None)
    same = all(one is formats[0] for one in formats)
    if first is None or (same and first.of_folder):
        if entries and all(entry.is_dir() for entry in entries):
            raise file_error(
                path, f"holds folders ({entries[0].name!r}, ...), not samples; give one of them to a client"
            )
        return [path]
    if not same:
        other = next(entry for entry, one in zip(entries, formats, strict=True) if one is not formats[0])
        raise file_error(
            path, f"holds {entries[0].name!r} and {other.name!r}; keep files of one format alone in a client's folder"
        )
    return entries


def _read_file(path: Path, options: Options, missing: Missing, dtype: Dtype) -> Samples:
    """Return a file's samples in columns."""
    kind = _format_of(path)
    array, names, notes, rate = kind.read(path, _fitting(path, kind, options))
    in_columns = options.in_columns and array.ndim == 2 and not kind.samples_first
    with reading(path, "a table of numbers"), np.errstate(over="ignore"):  # infinity is refused later
        array = _as_floats(array, kind.full_scale, dtype, "F" if in_columns else "C")
    data = array if in_columns else array.reshape(len(array), -1).T
    if missing != "count":
        _require_finite(path, kind, options, data, names, in_columns)
    shape = (len(data),) if array.ndim == 2 else array.shape[1:]
    return Samples(data, shape, () if in_columns else names, rate, notes, in_time=kind.in_time)


def _fitting(path: Path, kind: Format, options: Options) -> Options:
    """Return the options after checking that this format has them."""
    if options.variable is not None and not kind.has_variables:
        fitting = _in_words([one.title for one in FORMATS.values() if one.has_variables])
        raise file_error(path, f"variable = {options.variable!r} is for {fitting} files; leave it out here")
    if options.drop is not None and not kind.has_columns:
        fitting = _in_words([one.title for one in FORMATS.values() if one.has_columns])
        raise file_error(path, f"drop = {options.drop!r} is for columns of {fitting} files; leave it out here")
    return options


def _in_words(titles: list[str]) -> str:
    return f"{', '.join(titles[:-1])} and {titles[-1]}"


def _as_floats(
    array: NDArray[Any], full_scale: Mapping[type[np.generic], float], dtype: Dtype, order: Literal["C", "F"]
) -> NDArray[np.floating]:
    """Return numbers as floats in this memory order; without a copy if nothing changes."""
    target = float_type(array.dtype, dtype)
    full = full_scale.get(array.dtype.type)
    if full is None:
        return np.asarray(array, dtype=target, order=order)
    scaled: NDArray[np.floating] = np.divide(array, full, dtype=target, order=order)
    return scaled


def _format_of(path: Path) -> Format:
    if os.path.isdir(path):
        return next(one for one in FORMATS.values() if one.of_folder)
    if not os.path.exists(path):
        dangling = "is a link that leads nowhere; mend it, or give the file itself"
        raise file_error(path, dangling if os.path.islink(path) else _not_found(path))
    if not os.path.isfile(path):
        raise file_error(path, "is neither a file nor a folder; give the path of a data file")
    kind = format_by_name(path)
    if kind is not None and kind.of_folder:
        raise file_error(path, "is a single image; give the folder that holds one image per sample")
    if kind is None:
        cure = OTHER_FORMATS.get(path.suffix.lower(), "")
        known = f"{cure}{' - ' * bool(cure)}known are {known_formats()}"
        raise file_error(path, f"has the unknown extension {path.suffix.lower()!r}; {known}")
    if os.path.getsize(path) == 0:
        raise file_error(path, "is empty (0 bytes); copy or export it again")
    return kind


def _not_found(path: Path) -> str:
    try:
        names = sorted(os.listdir(path.parent))
    except (OSError, ValueError):
        return f"does not exist, nor does its folder {str(path.parent)!r}; correct the path"
    near = difflib.get_close_matches(path.name, names, n=3)
    return "does not exist; " + (f"did you mean {' or '.join(map(repr, near))}?" if near else "correct the path")


def _require_finite(
    path: Path,
    kind: Format,
    options: Options,
    samples: NDArray[np.floating],
    names: tuple[str, ...],
    in_columns: bool,
) -> None:
    if options.allow_missing:
        bad, what, cure = np.isinf(samples.T), "infinite", "leave them empty, or drop or fill them"
    else:
        bad = np.isfinite(samples.T)
        np.logical_not(bad, out=bad)
        what, cure = "NaN or infinite", "drop or fill them"
        if not np.isinf(samples).any():
            cure += ', or set data.missing = "mask"'
    if not bad.any():
        return
    n_bad = int(np.count_nonzero(bad))
    sample, feature = divmod(int(bad.argmax()), bad.shape[1])
    row, column = (feature, sample) if in_columns else (sample, feature)
    place = f"sample {sample + 1}, feature {feature + 1}" + ("" if in_columns else column_name(names, column))
    if kind.place is not None:
        place += f", in {kind.place(path, options, row, column)}"
    raise file_error(path, f"has {n_bad} {what} of {bad.size} numbers, the first at {place}; {cure}")
