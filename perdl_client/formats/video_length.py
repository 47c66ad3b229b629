"""Find out whether the end of a video file is missing.

A container stores its size in bytes, which is exact. Duration times rate is not: sound may go on after the last
picture, and the time between pictures may vary.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import IO

from perdl_client.formats.file_checks import file_error, reading

_SLACK = 16
"""Tolerance in bytes: some programs also count a header."""


def require_whole_video(path: Path) -> None:
    """Raise if an AVI, MP4, MOV, MKV or WebM file is shorter than it says; name the frames if they can be counted.

    Parameters
    ----------
    path : Path
        The video file.
    """
    with reading(path, "a video"), path.open("rb") as file:
        start, size = file.read(64), path.stat().st_size
        declared = _declared_bytes(file, start, size)
    if declared <= size + _SLACK:
        return
    there, expected = _frames(path, start)
    held = f"{there} of {expected} frames" if 0 < there < expected else f"{size} of at least {declared} bytes"
    raise file_error(path, f"is cut short: {held}; copy or export it again")


def _declared_bytes(file: IO[bytes], start: bytes, size: int) -> int:
    """Return the size that the container declares, in bytes; 0 if it declares none, as for a live recording."""
    if start[:4] == b"RIFF":
        length = int.from_bytes(start[4:8], "little")
        return 0 if length >= 0xFFFFFFF0 else length + 8
    if start[:4] == b"\x1aE\xdf\xa3":
        return _declared_by_matroska(start)
    return max((end for kind, end in _boxes(file, size) if kind in (b"moov", b"mdat", b"moof")), default=0)


def _declared_by_matroska(start: bytes) -> int:
    header, width = _variable_length(start, 4)
    segment = 4 + width + (header or 0)
    if start[segment : segment + 4] != b"\x18S\x80g":
        return 0
    length, width = _variable_length(start, segment + 4)
    return 0 if length is None else segment + 4 + width + length


def _variable_length(raw: bytes, place: int) -> tuple[int | None, int]:
    """Return a Matroska number (None if unknown) and its width, which its leading zero bits give."""
    width = 9 - raw[place].bit_length()
    bits = 7 * width
    value = int.from_bytes(raw[place : place + width], "big") & ((1 << bits) - 1)
    return (None if value == (1 << bits) - 1 else value), width


def _boxes(file: IO[bytes], size: int) -> Iterator[tuple[bytes, int]]:
    """Yield kind and end of each box of an MP4 or MOV file."""
    place = 0
    while place + 8 <= size:
        file.seek(place)
        length, kind = struct.unpack(">I4s", file.read(8))
        if length == 1:
            length = int.from_bytes(file.read(8), "big")
        if length < 8:  # 0: to the end of the file
            return
        place += length
        yield kind, place


def _frames(path: Path, start: bytes) -> tuple[int, int]:
    """Return the number of frames in the file, and the number that the container declares; 0 if unknown."""
    imageio_ffmpeg = import_module("imageio_ffmpeg")
    try:
        there = imageio_ffmpeg.count_frames_and_secs(str(path))[0]
        if start[:4] == b"RIFF":
            return there, int.from_bytes(start[48:52], "little")
        reader = imageio_ffmpeg.read_frames(str(path))
        about = next(reader)
        reader.close()
        return there, round(about["duration"] * about["fps"])
    except (RuntimeError, OSError, KeyError, StopIteration):  # too little is left to read
        return 0, 0
