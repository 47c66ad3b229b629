"""The ``perdl`` command. It prints no traceback when it is interrupted, not even during its imports."""

from __future__ import annotations

import io
import os
import signal
import sys
from types import FrameType

from common.errors import INTERRUPTED


def main() -> None:
    """Run the command line."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # print "?" for characters that the terminal's encoding lacks
            stream.reconfigure(errors="replace")
    from perdl.cli.app import app

    app(prog_name="perdl")


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
