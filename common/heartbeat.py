"""Signs of life of a server or client, for health checks: it touches the file ``alive`` in its folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from common.errors import PerdlError

FRESH = 60.0  # seconds; clients give a sign every 10 s, servers more often
_FILE = "alive"


@contextmanager
def signs_of_life(folder: Path) -> Iterator[Callable[[], None]]:
    """Yield a function that touches ``folder/alive``. The file is removed on exit.

    Errors of the disk are ignored here; other writers report them.

    Parameters
    ----------
    folder : Path
        Folder of the server or client.
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
    """Raise unless the last sign of life is at most `FRESH` seconds old.

    Parameters
    ----------
    folder : Path
        Folder of the server or client.

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
