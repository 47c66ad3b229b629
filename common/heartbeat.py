"""Signs of life of a server or client, for what watches over it: the file ``alive`` in its folder is touched."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from common.errors import PerdlError

FRESH = 60.0  # seconds; clients give a sign every ten, servers more often
_FILE = "alive"


@contextmanager
def signs_of_life(folder: Path) -> Iterator[Callable[[], None]]:
    """Yield what touches ``folder/alive``; at the end the file is removed, for what ended in order is not alive.

    A disk that is full or gone is for others to report.
    """

    def give_sign() -> None:
        with suppress(OSError):
            (folder / _FILE).touch()

    try:
        yield give_sign
    finally:
        with suppress(OSError):
            (folder / _FILE).unlink()


def check_sign(folder: Path) -> None:
    """Return if a sign of life is at most `FRESH` seconds old.

    Raises
    ------
    PerdlError
        If there is none or it is older.
    """
    try:
        age = time.time() - (folder / _FILE).stat().st_mtime
    except OSError:
        raise PerdlError(f"{folder}: no server or client is at work here") from None
    if age > FRESH:
        raise PerdlError(f"{folder}: the last sign of life is {age:.0f} s old; more than {FRESH:g} s is too much")
