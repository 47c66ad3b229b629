"""The registry of file formats. To add one, write a file with a reader and its :class:`Format`, and enter it here."""

from __future__ import annotations

from pathlib import Path

from perdl_client.formats.arrow import ARROW, PARQUET
from perdl_client.formats.csv import CSV
from perdl_client.formats.format import Format
from perdl_client.formats.hdf5 import HDF5
from perdl_client.formats.idx import IDX
from perdl_client.formats.images import IMAGES
from perdl_client.formats.matlab import MAT
from perdl_client.formats.npy import NPY, NPZ
from perdl_client.formats.video import VIDEO
from perdl_client.formats.wav import WAV

FORMATS: dict[str, Format] = {
    "npy": NPY,
    "npz": NPZ,
    "csv": CSV,
    "mat": MAT,
    "parquet": PARQUET,
    "arrow": ARROW,
    "hdf5": HDF5,
    "wav": WAV,
    "idx": IDX,
    "video": VIDEO,
    "images": IMAGES,
}
"""Formats by name, in the order in which messages list them."""


def format_by_name(path: Path) -> Format | None:
    """Return the format for a file's name, None if no format fits.

    Parameters
    ----------
    path : Path
        A file, which need not exist.
    """
    suffix, name = path.suffix.lower(), path.name.lower()
    by_suffix = (one for one in FORMATS.values() if suffix in one.suffixes)
    return next(by_suffix, None) or next((one for one in FORMATS.values() if one.mark and one.mark in name), None)


def known_formats() -> str:
    """Return a list of all formats in words."""
    files = [one.known_as or ", ".join(one.suffixes) for one in FORMATS.values() if not one.of_folder]
    return f"{', '.join(files)} or a folder of images or of such files"
