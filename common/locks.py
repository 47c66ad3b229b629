"""A folder belongs to one process at a time (POSIX)."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.errors import SettingsError


@contextmanager
def locked(folder: Path, who: str) -> Iterator[None]:
    """Hold a folder for one process; the lock goes with the process, however it ends.

    Parameters
    ----------
    folder : Path
        Made if it is not there.
    who : str
        Whose it is, for people.

    Raises
    ------
    SettingsError
        If another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".lock").touch()
    with (folder / ".lock").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingsError(
                f"{folder} is in use by another {who} that is still running: take another folder"
            ) from None
        yield
