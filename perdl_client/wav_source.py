"""Read sound: rows are moments, columns are channels."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdl_client.file_checks import file_error, reading, require_samples


def read_wav(path: Path) -> tuple[NDArray[Any], int]:
    """Return (moments, channels), integers scaled to [-1, 1) and floats as they are; and how many moments a second."""
    from scipy.io import wavfile

    with reading(path, "a WAV file"), warnings.catch_warnings():
        warnings.simplefilter("ignore", wavfile.WavFileWarning)  # chunks of text that it does not know
        rate, sound = wavfile.read(path)
        if len(sound) == 0:
            raise file_error(path, "holds 0 samples: its sound is empty; export it again")
        table = sound.reshape(len(sound), -1)
        require_samples(path, table.shape, table.dtype)
        if table.dtype == np.uint8:  # the one type without a sign
            return (table - 128.0) / 128.0, rate
        return (table if table.dtype.kind == "f" else table / -float(np.iinfo(table.dtype).min)), rate
