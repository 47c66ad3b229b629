"""Logs for people and for machines. They name run, round and client, and never hold a sample."""

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

from common.simulation import is_simulation

LOG = "PERDL_LOG"
"""Environment variable: the file to which a process appends its log as JSON lines."""

FAULT = "fault"
"""Attribute of a log record: records with the same fault are one failure, and only the first is shown to people."""

_log = logging.getLogger("perdl.client")
_about: ContextVar[dict[str, str | int | float]] = ContextVar("about")

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


@contextmanager
def about(**facts: str | int | float) -> Iterator[None]:
    """Add facts to every record that is logged inside the block.

    Parameters
    ----------
    **facts : str, int or float
        Such as ``run``, ``round`` or ``client``.
    """
    token = _about.set({**_about.get({}), **facts})
    try:
        yield
    finally:
        _about.reset(token)


class PlainLog(logging.Formatter):
    """Time, logger and text. Of an exception, only type and frames: its text may hold data."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(name)s %(message)s")

    def formatException(self, ei: ExcInfo) -> str:
        """Return the frames and the type of an exception.

        Parameters
        ----------
        ei : tuple
            Type, value and traceback, as ``sys.exc_info`` gives them.
        """
        return "\n".join([*_frames(ei), ei[0].__name__ if ei[0] else ""])


class Notes(PlainLog):
    """Lines of perdl's own log in the form of a command's other notes: whose it is, and the text."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return "ada: note: ..."; another program's line stays as it is.

        Parameters
        ----------
        record : logging.LogRecord
            What is logged.
        """
        if record.name.partition(".")[0] != "perdl":
            return super().formatMessage(record)
        who = [str(name)] if (name := _about.get({}).get("client")) else []
        kind = "note" if record.levelno < logging.ERROR else "error"
        return ": ".join([*who, kind, record.getMessage()])


class JsonLog(logging.Formatter):  # numpydoc ignore=PR01
    """One JSON object a line: ``time`` (UTC), ``level``, ``logger``, ``text``, and the facts of `about`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line.

        Parameters
        ----------
        record : logging.LogRecord
            The record to format.
        """
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
    """Appends JSON lines to a file, which other programs may rotate. Errors of the disk are ignored here."""

    def __init__(self, path: str) -> None:
        super().__init__(path, encoding="utf-8", delay=True)
        self.setFormatter(JsonLog())

    def emit(self, record: logging.LogRecord) -> None:
        """Append a line. On a full disk the line is lost, also while the file is looked up or reopened."""
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Print nothing."""

    def close(self) -> None:
        """Close the file. On a full disk, lines that were not written are lost."""
        with suppress(OSError):
            super().close()


def _once() -> Callable[[logging.LogRecord], bool]:
    """Return a filter that shows the same unforeseen failure once, even if it happens at many clients."""
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
    """Print perdl's log to standard error as notes, and append all of it to the file that ``PERDL_LOG`` names.

    Parameters
    ----------
    level : int
        Lowest level that is printed. Where all is printed, lines begin with their time.
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
    """Append problems to the file that ``PERDL_LOG`` names, in a process that Flower started."""
    if (path := os.environ.get(LOG)) and not _files():
        logging.getLogger("perdl").addHandler(_LogFile(path))


@contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Append the log of the block to a file, unless ``PERDL_LOG`` names another file.

    Of clients, only warnings and errors are written.

    Parameters
    ----------
    path : Path
        Log file, in an existing folder.
    """
    if os.environ.get(LOG):
        yield
        return
    log, file = logging.getLogger("perdl"), _LogFile(str(path.resolve()))
    # Clients log a line for each answer, and there may be thousands of them.
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
    """Return the file to which this process appends its log, None if there is none."""
    return next((file.baseFilename for file in _files()), None)


def _files() -> list[_LogFile]:
    return [handler for handler in logging.getLogger("perdl").handlers if isinstance(handler, _LogFile)]


def _frames(ei: ExcInfo) -> list[str]:
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(ei[2])]


def tell_of_disk(error: OSError) -> None:
    """Log what could not be written. Clients of a simulation share one disk, so people are told once.

    Parameters
    ----------
    error : OSError
        What the disk or folder refused.
    """
    known = {FAULT: error.strerror} if is_simulation() else {}
    _log.error("cannot write %s: %s", error.filename or "a file", error.strerror, extra=known)
