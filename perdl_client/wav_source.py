"""Read sound: rows are moments, columns are channels."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdl_client.file_checks import file_error, reading, require_samples


def read_wav(path: Path) -> NDArray[Any]:
    """Return (moments, channels); integers are scaled to [-1, 1), floats are as they are."""
    from scipy.io import wavfile

    with reading(path, "a WAV file"), warnings.catch_warnings():
        warnings.simplefilter("ignore", wavfile.WavFileWarning)  # chunks of text that it does not know
        sound = wavfile.read(path)[1]
        if len(sound) == 0:
            raise file_error(path, "holds 0 samples: its sound is empty; export it again")
        table = sound.reshape(len(sound), -1)
        require_samples(path, table.shape, table.dtype)
        if table.dtype == np.uint8:  # the one type without a sign
            return (table - 128.0) / 128.0
        return table if table.dtype.kind == "f" else table / -float(np.iinfo(table.dtype).min)


def require_one_rate(files: Sequence[Path]) -> None:
    """Raise unless all files of one client have the same rate: a window of them lasts as long."""
    from scipy.io import wavfile

    rates: dict[int, Path] = {}
    for file in files:
        with reading(file, "a WAV file"), warnings.catch_warnings():
            warnings.simplefilter("ignore", wavfile.WavFileWarning)
            rates.setdefault(wavfile.read(file, mmap=True)[0], file)
    if len(rates) > 1:
        (one, first), (other, second) = list(rates.items())[:2]
        raise file_error(
            second, f"has {other} samples a second, but {first.name!r} has {one}; bring them to the same rate"
        )
