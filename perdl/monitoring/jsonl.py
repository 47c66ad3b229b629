"""Read files of JSON lines that another process appends to."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


def identity(path: Path) -> tuple[int, int] | None:
    """Return numbers that tell a file from a later one of the same name; None if there is no file.

    Parameters
    ----------
    path : Path
        The file.
    """
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns


class Tail:
    """Reads the lines added to a file of JSON lines since the last look.

    Parameters
    ----------
    path : Path
        The file. Lines of an earlier run are skipped; a new run replaces the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        stat = path.stat() if path.exists() else None
        self._file, self._read = (stat.st_ino, stat.st_size) if stat else (0, 0)

    def new_rows(self) -> list[dict[str, Any]]:
        """Return all complete new lines, without those that are not valid JSON."""
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
