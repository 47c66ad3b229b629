"""Logs for people and for machines: which run, which round, which client; and never a sample."""

from __future__ import annotations

import json
import logging
import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from logging.handlers import WatchedFileHandler
from pathlib import Path
from types import TracebackType

LOG = "PERDL_LOG"
"""Environment variable: the file to which a process adds its log as JSON lines."""

FAULT = "fault"
"""Of a record: what makes it one with others, of which a person is to see the first only."""

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


class Notes(PlainLog):
    """Lines of perdl's own log in the form of a command's other notes: whose it is, and the text."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return "ada: note: ..."; another program's line stays as it is."""
        if record.name.partition(".")[0] != "perdl":
            return super().formatMessage(record)
        who = [str(name)] if (name := _about.get({}).get("client")) else []
        kind = "note" if record.levelno < logging.ERROR else "error"
        return ": ".join([*who, kind, record.getMessage()])


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


class _LogFile(WatchedFileHandler):
    """Adds JSON lines to a file, which another program may rotate; a disk that is full is for others to report."""

    def __init__(self, path: str) -> None:
        super().__init__(path, encoding="utf-8", delay=True)
        self.setFormatter(JsonLog())

    def emit(self, record: logging.LogRecord) -> None:
        """Add a line; one that a full disk does not take is lost, also where the file is looked up or opened anew."""
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Print nothing."""

    def close(self) -> None:
        """Close the file; what a full disk did not take is lost."""
        with suppress(OSError):
            super().close()


def _once() -> Callable[[logging.LogRecord], bool]:
    """Return a filter by which the same unforeseen failure, at however many clients, is shown once."""
    seen: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        fault = getattr(record, FAULT, "")
        if record.exc_info:
            fault = "\n".join([record.getMessage(), *_frames(record.exc_info)])
        new = fault not in seen
        if fault:
            seen.add(fault)
        return new

    return is_new


def start_log(level: int = logging.WARNING) -> None:
    """Print perdl's log from ``level`` on to standard error, and add all of it to the file that ``PERDL_LOG`` names.

    What goes wrong is printed as notes; where all is printed, lines tell their time too.
    """
    plain = logging.StreamHandler()
    plain.setLevel(level)
    plain.setFormatter(PlainLog() if level < logging.WARNING else Notes())
    plain.addFilter(_once())
    logging.basicConfig(handlers=[plain])
    log = logging.getLogger("perdl")
    log.setLevel(logging.INFO)
    for former in _files():
        log.removeHandler(former)
        former.close()
    if path := os.environ.get(LOG):
        log.addHandler(_LogFile(path))


def join_log() -> None:
    """Add what goes wrong to the file that ``PERDL_LOG`` names, in a process that another program started."""
    if (path := os.environ.get(LOG)) and not _files():
        logging.getLogger("perdl").addHandler(_LogFile(path))


@contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Add the log of what goes on inside to a file, unless ``PERDL_LOG`` names another: of clients what goes wrong.

    Parameters
    ----------
    path : Path
        Its folder must be there.
    """
    if os.environ.get(LOG):
        yield
        return
    log, file = logging.getLogger("perdl"), _LogFile(str(path.resolve()))
    # An answer is a line; there may be thousands of clients.
    file.addFilter(lambda record: record.name != "perdl.client" or record.levelno >= logging.WARNING)
    log.addHandler(file)
    os.environ[LOG] = file.baseFilename
    try:
        yield
    finally:
        del os.environ[LOG]
        log.removeHandler(file)
        file.close()


def log_file() -> str | None:
    """Return the file to which this process adds its log, if there is one."""
    return next((file.baseFilename for file in _files()), None)


def _files() -> list[_LogFile]:
    return [handler for handler in logging.getLogger("perdl").handlers if isinstance(handler, _LogFile)]


def _frames(ei: ExcInfo) -> list[str]:
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(ei[2])]
