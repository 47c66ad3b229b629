"""Read a folder of images, one sample per image."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perdl_client.formats.file_checks import file_error, is_data, reading
from perdl_client.formats.format import Format, Options, Rows, Table

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".gif", ".webp")


def _read(folder: Path, options: Options) -> Table:
    """Return the images upright along the first axis, (n, h, w) or (n, h, w, c), without scaling."""
    rows = _open(folder, options)
    return Table(rows.read(0, rows.shape[0]))


def _open(folder: Path, options: Options) -> Rows:
    """Find the images of a folder, to read some of them at a time."""
    with reading(folder, "a folder of images"):
        entries = list(filter(is_data, folder.iterdir()))
        files = [entry for entry in entries if entry.suffix.lower() in IMAGE_SUFFIXES and entry.is_file()]
    if not files:
        held = f"its {len(entries)} entries are of other kinds" if entries else "it is empty"
        raise file_error(
            folder, f"holds no images ({', '.join(IMAGE_SUFFIXES)}): {held}; give a file or another folder"
        )
    files.sort(key=natural_order)
    first, first_mode = _read_image(files[0])
    shape = first.shape

    def read(i: int, j: int) -> NDArray[Any]:
        with reading(folder, "a folder of images"):
            images: NDArray[Any] = np.empty((j - i, *shape), first.dtype)
        for row, file in zip(images, files[i:j], strict=True):
            image, mode = _read_image(file)
            if (image.shape, mode) != (shape, first_mode):
                (h, w), (h0, w0) = image.shape[:2], shape[:2]
                here, there = f"{w}x{h} {mode}", f"{files[0].name!r} is {w0}x{h0} {first_mode}"
                raise file_error(
                    file, f"is {here}, but {there} (width x height, mode); give all images one size and mode"
                )
            row[:] = image
        return images

    return Rows((len(files), *shape), first.dtype, read)


def _read_image(file: Path) -> tuple[NDArray[Any], str]:
    with upright_image(file) as image:
        frames = getattr(image, "n_frames", 1)
        if frames > 1 and image.format != "MPO":  # MPO: a photograph and its previews
            raise file_error(file, f"holds {frames} frames; save each as an image of its own")
        plain = image.convert("RGB") if image.mode in ("P", "PA") else image  # palette indices are not intensities
        if image.format == "PNG" and image.mode == "I":  # 16 bits, as Pillow before 11.3 calls them
            return np.asarray(plain).astype(np.uint16), "I;16"
        return np.asarray(plain), plain.mode


@contextmanager
def upright_image(file: Path) -> Iterator[Image]:
    """Open an image and turn it as its EXIF tag says: cameras and phones store photographs turned.

    Parameters
    ----------
    file : Path
        The image file.
    """
    import PIL.Image
    from PIL import ImageOps

    # Pass an open file: given a path, Pillow maps grey TIFFs into memory and mixes up the rows of turned ones.
    with reading(file, "an image"), file.open("rb") as stream, PIL.Image.open(stream) as image:
        image.load()
        with suppress(Exception):  # the image can be fine even if its tags are damaged
            ImageOps.exif_transpose(image, in_place=True)
        yield image


def natural_order(path: Path) -> tuple[list[tuple[int, str]], str]:
    """Return the sort key of a file in a folder: ``2.png`` before ``10.png``.

    Parameters
    ----------
    path : Path
        The file.
    """
    parts = re.split(r"([0-9]+)", path.name.lower())
    return [(int(part), "") if i % 2 else (0, part) for i, part in enumerate(parts)], path.name


IMAGES = Format(
    "images",
    _read,
    IMAGE_SUFFIXES,
    of_folder=True,
    samples_first=True,
    full_scale={np.uint8: 255.0, np.uint16: 65535.0},
    open=_open,
)
