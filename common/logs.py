"""Logs for people and for machines: which run, which round, which client; and never a sample."""

from __future__ import annotations

import json
import logging
import os
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from logging.handlers import WatchedFileHandler
from types import TracebackType

LOG = "PERDL_LOG"
"""Environment variable: the file to which a process adds its log as JSON lines."""

_about: ContextVar[dict[str, str | int | float]] = ContextVar("about")

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


@contextmanager
def about(**facts: str | int | float) -> Iterator[None]:
    """Say of what is logged inside that it is about this ``run``, ``round`` or ``client``."""
    token = _about.set({**_about.get({}), **facts})
    try:
        yield
    finally:
        _about.reset(token)


class PlainLog(logging.Formatter):
    """Time, logger and text; of exceptions the type and where they came from, for their texts may hold data."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(name)s %(message)s")

    def formatException(self, ei: ExcInfo) -> str:
        """Return the frames and the type."""
        return "\n".join([*_frames(ei), ei[0].__name__ if ei[0] else ""])


class JsonLog(logging.Formatter):
    """One JSON object a line: ``time`` (seconds, UTC), ``level``, ``logger``, ``text``, and what it is about."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "text": record.getMessage(),
            **_about.get({}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line |= {"exception": record.exc_info[0].__name__, "frames": _frames(record.exc_info)}
        return json.dumps(line)


def start_log(level: int = logging.WARNING) -> None:
    """Print perdl's log from ``level`` on to standard error, and add all of it to the file that ``PERDL_LOG`` names."""
    plain = logging.StreamHandler()
    plain.setLevel(level)
    plain.setFormatter(PlainLog())
    logging.basicConfig(handlers=[plain])
    log = logging.getLogger("perdl")
    log.setLevel(logging.INFO)
    for former in [handler for handler in log.handlers if isinstance(handler, WatchedFileHandler)]:
        log.removeHandler(former)
        former.close()
    if path := os.environ.get(LOG):
        machine = WatchedFileHandler(path, encoding="utf-8", delay=True)  # another program may rotate it
        machine.setFormatter(JsonLog())
        log.addHandler(machine)


def _frames(ei: ExcInfo) -> list[str]:
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(ei[2])]
