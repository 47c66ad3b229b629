"""The ``perdl`` command, quiet also where it is interrupted while it still imports."""

from __future__ import annotations

import io
import os
import signal
import sys
from types import FrameType

from common.errors import INTERRUPTED


def main() -> None:
    """Entry point."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what a terminal's encoding lacks becomes a question mark
            stream.reconfigure(errors="replace")
    from perdl.cli.app import app

    app(prog_name="perdl")


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
