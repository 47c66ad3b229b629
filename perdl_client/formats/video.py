"""Read a video's frames, and masks of its moving parts, from a folder of images or a video file."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.errors import DataError
from common.protocol import natural_key
from perdl_client.formats.file_checks import file_error, reading
from perdl_client.formats.format import Format, Options, Rows, Table
from perdl_client.formats.images import IMAGE_SUFFIXES, upright_image
from perdl_client.formats.in_order import InOrder
from perdl_client.formats.video_length import require_whole_video

Bytes = NDArray[np.uint8]
VIDEO_SUFFIXES = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".mpg", ".mpeg", ".m4v")


@functools.lru_cache(maxsize=1)  # each client of a simulation uses one frame of the same video
def read_frames(path: str | Path, every: int = 1, n_frames: int | None = None) -> Bytes:
    """Read frames in order.

    Parameters
    ----------
    path : str or Path
        A folder of images of one size, read in natural order (``2.png`` before ``10.png``), or a video file, which
        needs the extra ``video``.
    every : int
        Take every n-th frame.
    n_frames : int, optional
        Most frames to take.

    Returns
    -------
    (n, h, w, c) uint8 array, read-only
        One channel if all frames are grey, else three.

    Raises
    ------
    DataError
        One line that names the file, the numbers and what to do.
    """
    path = Path(path)
    if not path.exists():
        raise file_error(path, "does not exist; give a folder of frames or a video file")
    if path.is_dir():
        wanted = _images(path)[::every][:n_frames]
        frames = _stack(((file, _image(file)) for file in wanted), len(wanted))
        if frames is None:
            raise file_error(path, "holds no frame; copy or export it again")
    else:
        frames = read_video(path, every, n_frames)
    frames.setflags(write=False)
    return frames


def read_video(path: Path, every: int = 1, n_frames: int | None = None) -> Bytes:
    """Read the frames of a video file, (n, h, w, c). This needs the extra ``video``.

    Parameters
    ----------
    path : Path
        The file.
    every : int
        Take every n-th frame.
    n_frames : int, optional
        Most frames to take.
    """
    _require_imageio(path)
    require_whole_video(path)
    frames = _stack(islice(_video(path), 0, None if n_frames is None else n_frames * every, every))
    if frames is None:
        raise file_error(path, "holds no frame; copy or export it again")
    return frames


def _open(path: Path, options: Options) -> Rows:
    """Count a video's frames, to read some of them at a time, in order."""
    _require_imageio(path)
    require_whole_video(path)
    n, shape = 0, ()
    for _, frame in _video(path):
        n, shape = n + 1, shape or frame.shape
    if not n:
        raise file_error(path, "holds no frame; copy or export it again")

    def begin(k: int) -> Iterator[Bytes]:
        for _, frame in _video(path):
            yield frame[None]

    return Rows((n, *shape), np.dtype(np.uint8), InOrder(n, begin).read)


def read_masks(path: str | Path, n_frames: int, every: int = 1) -> Bytes:
    """Read one mask per frame: images of labels.

    Parameters
    ----------
    path : str or Path
        A folder with one image for each frame of the video, in the same natural order, palette or grey.
    n_frames : int
        Number of frames that were read.
    every : int
        Take every n-th mask, as for the frames.

    Returns
    -------
    (n_frames, h, w) uint8 array
        Labels as stored: palette indices or grey values.

    Raises
    ------
    DataError
        If there are fewer masks than frames, or masks of several sizes.
    """
    path = Path(path)
    if not path.is_dir():
        raise file_error(path, "is no folder; data.masks names a folder with one image of labels a frame")
    files = _images(path)[::every][:n_frames]
    if len(files) < n_frames:
        raise file_error(
            path, f"holds {len(files)} masks for {n_frames} frames; give one mask a frame, or lower data.n_frames"
        )
    masks = _stack(((file, _labels(file)) for file in files), n_frames)
    assert masks is not None
    return masks


def masks_beside(path: str | Path) -> Path | None:
    """Return the folder ``groundtruth`` beside a folder ``input``, as in CDnet's videos; None if there is none.

    Parameters
    ----------
    path : str or Path
        Folder of the frames.
    """
    path = Path(path).absolute()
    found = path.parent / "groundtruth" if path.name == "input" else path / "groundtruth"
    return found if found.is_dir() else None


def frame_folder(path: str | Path) -> Path:
    """Return where the frames are: ``input`` or ``frames`` inside the folder, else the path itself.

    Parameters
    ----------
    path : str or Path
        Folder of the frames, or one that holds it.
    """
    path = Path(path)
    return next((path / name for name in ("input", "frames") if (path / name).is_dir()), path)


def _images(folder: Path) -> list[Path]:
    with reading(folder, "a folder of images"):
        found = [file for file in folder.iterdir() if file.suffix.lower() in IMAGE_SUFFIXES and file.name[0] != "."]
    if not found:
        raise file_error(folder, f"holds no images ({', '.join(IMAGE_SUFFIXES)}); give the folder that holds them")
    return sorted(found, key=lambda file: natural_key(file.name))


def _stack(frames: Iterator[tuple[Path, Bytes]], n: int | None = None) -> Bytes | None:
    """Stack frames of one shape. If their number is known, they are written in place to save memory."""
    out: list[Bytes] | Bytes = []
    count = 0
    for count, (file, frame) in enumerate(frames, start=1):
        if count == 1 and n is not None:
            out = np.empty((n, *frame.shape), dtype=np.uint8)
        elif count > 1 and frame.shape != out[0].shape:
            raise file_error(
                file, f"is of shape {frame.shape}, the first of {out[0].shape}: give all one size and mode"
            )
        if isinstance(out, list):
            out.append(frame)
        else:
            out[count - 1] = frame
    return np.asarray(out) if count else None


def _image(file: Path) -> Bytes:
    with upright_image(file) as image:
        if image.mode.startswith(("I", "F")):
            raise file_error(file, f"has mode {image.mode}, not 8 bits a channel; save it as 8-bit grey or RGB")
        return np.atleast_3d(np.asarray(image.convert("L" if image.mode in ("1", "L", "LA") else "RGB")))


def _labels(file: Path) -> Bytes:
    with upright_image(file) as image:
        return np.asarray(image if image.mode in ("P", "L") else image.convert("L"), dtype=np.uint8)


def _require_imageio(path: Path) -> None:
    if path.suffix.lower() not in VIDEO_SUFFIXES:
        raise file_error(path, f"is no video file ({', '.join(VIDEO_SUFFIXES)}) and no folder of frames")
    try:
        import_module("imageio.v3")
        import_module("imageio_ffmpeg")  # imageio looks for it only when it reads
    except ImportError:
        raise DataError(
            f"{path}: video files need imageio: pip install imageio imageio-ffmpeg, or give a folder of frames"
        ) from None


def _video(path: Path) -> Iterator[tuple[Path, Bytes]]:
    import imageio.v3 as imageio

    with reading(path, "a video"):
        for frame in imageio.imiter(path, plugin="FFMPEG"):
            yield path, np.atleast_3d(np.asarray(frame, dtype=np.uint8))


VIDEO = Format(
    "videos",
    lambda path, options: Table(read_video(path)),
    VIDEO_SUFFIXES,
    known_as="videos (.mp4, .avi, ...)",
    samples_first=True,
    in_time=True,
    full_scale={np.uint8: 255.0},
    open=_open,
)
