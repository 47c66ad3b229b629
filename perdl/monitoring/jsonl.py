"""Files of JSON lines that grow while they are read."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


def identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from another of the same name, if there is one."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns


class Tail:
    """Reads what was added to a file of JSON lines since the last look.

    Parameters
    ----------
    path : Path
        What a former run left in it is not read. A run that begins puts another file in its place.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        stat = path.stat() if path.exists() else None
        self._file, self._read = (stat.st_ino, stat.st_size) if stat else (0, 0)

    def new_rows(self) -> list[dict[str, Any]]:
        """Return all whole new lines; one that was cut short by a fault is left out."""
        try:
            with self._path.open("rb") as file:
                stat = os.fstat(file.fileno())
                if stat.st_ino != self._file or stat.st_size < self._read:
                    self._file, self._read = stat.st_ino, 0
                file.seek(self._read)
                lines = file.read()
        except OSError:
            return []
        whole = lines[: lines.rfind(b"\n") + 1]
        self._read += len(whole)
        rows = []
        for line in whole.splitlines():
            with suppress(ValueError, TypeError):
                rows.append(dict(json.loads(line)))
        return rows
