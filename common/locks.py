"""Locks that let only one process at a time use a folder."""

from __future__ import annotations

import errno
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import Timeout, UnixFileLock, WindowsFileLock

from common.errors import SettingsError

_log = logging.getLogger("perdl")

_Lock = WindowsFileLock if sys.platform == "win32" else UnixFileLock
_FILE = ".lock"
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP}
"""Error codes of file systems without locks, such as Lustre without ``-o flock``."""


@contextmanager
def locked_file(path: Path, wait: float = 30.0) -> Iterator[None]:
    """Lock a file for a short change of it, so that no change of another process is lost. Others wait.

    Parameters
    ----------
    path : Path
        The file. Its folder must exist; the lock is a hidden file beside it.
    wait : float
        Seconds to wait for another process.

    Raises
    ------
    SettingsError
        If another process holds it for so long.
    """
    place = path.resolve().with_name(f".{path.name}.lock")
    lock = _Lock(place, timeout=wait, is_singleton=False, fallback_to_soft=False)
    in_use = f"{path} is locked by another process for {wait:g} s: end that one"
    with _held(lock, path, in_use, "let no other process change it"):
        yield


@contextmanager
def locked(folder: Path, who: str) -> Iterator[None]:
    """Lock a folder for this process. The lock is released when the process ends, even if it is killed.

    Parameters
    ----------
    folder : Path
        Folder to lock; created if missing.
    who : str
        What holds the lock, for the error message: ``"run"`` or ``"client"``.

    Raises
    ------
    SettingsError
        If another process, or another thread of this one, holds it.

    Notes
    -----
    The thread that holds a folder may lock it again. If the file system has no locks, a warning names the folder and
    the block runs without a lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = _Lock(folder.resolve() / _FILE, blocking=False, is_singleton=True, fallback_to_soft=False)
    in_use = f"{folder} is in use by another {who} that is still running: take another folder"
    with _held(lock, folder, in_use, f"going on without a lock, so let no other {who} use this folder"):
        yield


@contextmanager
def _held(lock: UnixFileLock | WindowsFileLock, what: Path, in_use: str, without: str) -> Iterator[None]:
    """Hold a lock; go on with a warning where the file system has none."""
    try:
        lock.acquire()
    except Timeout:
        raise SettingsError(in_use) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise OSError(error.errno, error.strerror, lock.lock_file) from None
        _log.warning("%s cannot be locked (%s): %s", what, error.strerror, without)
        yield
        return
    try:
        yield
    finally:
        lock.release()
