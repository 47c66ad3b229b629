"""The ``perdl`` command, quiet also where it is interrupted while it still imports."""

from __future__ import annotations

import os
import signal
from types import FrameType

from common.errors import INTERRUPTED


def main() -> None:
    """Entry point."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    from perdl.cli import app

    app(prog_name="perdl")


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
