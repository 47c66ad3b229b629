"""Read sound: rows are moments, columns are channels."""

from __future__ import annotations

import struct
import warnings
from pathlib import Path

import numpy as np

from perdl_client.formats.file_checks import file_error, reading, require_samples
from perdl_client.formats.format import Format, Options, Table

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_ENCODINGS = {2: "ADPCM", 6: "A-law", 7: "mu-law", 17: "IMA ADPCM", 49: "GSM", 80: "MPEG", 85: "MP3"}
_UNKNOWN_LENGTH = 0x7FFFF000
"""Lengths from here on mean unknown: the program wrote to a pipe."""


def _read(path: Path, options: Options) -> Table:
    """Return (moments, channels) as floats or signed integers, and the moments per second."""
    from scipy.io import wavfile

    with reading(path, "a WAV file"), warnings.catch_warnings():
        warnings.simplefilter("ignore", wavfile.WavFileWarning)  # unknown chunks of text do no harm
        _require_whole_pcm(path)
        rate, sound = wavfile.read(path)
        if len(sound) == 0:
            raise file_error(path, "holds 0 samples: its sound is empty; export it again")
        table = sound.reshape(len(sound), -1)
        require_samples(path, table.shape, table.dtype)
        if table.dtype == np.uint8:  # the one type without a sign
            table = (table ^ np.uint8(128)).view(np.int8)
        return Table(table, rate=rate)


def _require_whole_pcm(path: Path) -> None:
    """Raise if the sound is neither PCM nor floats, or if its end is missing."""
    with path.open("rb") as file:
        kind, size = file.read(12)[:4], path.stat().st_size
        order = ">" if kind == b"RIFX" else "<"
        frame, large = 1, 0
        while len(head := file.read(8)) == 8:
            name, length = struct.unpack(f"{order}4sI", head)
            start = file.tell()
            if name == b"ds64":  # for files of more than 4 GB
                large = struct.unpack("<QQ", file.read(16))[1]
            elif name == b"fmt ":
                frame = _frame_of_pcm(path, file.read(min(length, 40)), order)
            elif name == b"data":
                length = large or length
                there = size - start
                if there < length and (large or length < _UNKNOWN_LENGTH):
                    held = f"{there // frame} of {length // frame} samples"
                    raise file_error(path, f"is cut short: {held}; copy or export it again")
                return
            file.seek(start + length + length % 2)


def _frame_of_pcm(path: Path, chunk: bytes, order: str) -> int:
    """Return the bytes of one moment of all channels."""
    encoding, _, _, _, frame = struct.unpack_from(f"{order}HHIIH", chunk)
    if encoding == _EXTENSIBLE:
        encoding = struct.unpack_from(f"{order}H", chunk, 24)[0]
    if encoding not in (_PCM, _FLOAT):
        name = _ENCODINGS.get(encoding, f"encoding {encoding}")
        raise file_error(path, f"holds sound in {name}, not in PCM; export it as WAV with 16-bit PCM")
    return max(1, int(frame))


WAV = Format(
    "WAV",
    _read,
    (".wav",),
    samples_first=True,
    in_time=True,
    full_scale={np.int8: 2.0**7, np.int16: 2.0**15, np.int32: 2.0**31, np.int64: 2.0**63},
)
