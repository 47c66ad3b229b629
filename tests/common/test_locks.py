"""A folder belongs to one process, where its file system has locks."""

from __future__ import annotations

import errno
import fcntl
import os

import pytest

from common.errors import SettingsError
from common.locks import locked


def test_a_thread_may_hold_a_folder_twice_and_then_it_is_free(tmp_path):
    for _ in range(2):
        with locked(tmp_path / "a", "run"), locked(tmp_path / "a", "run"):
            pass


def test_the_file_is_open_for_writing_as_nfs_wants_it(tmp_path, monkeypatch):
    """Linux turns flock on NFS into a lock of bytes, for which a file that is open for reading is EBADF."""
    monkeypatch.setattr(fcntl, "flock", fcntl.lockf)
    with locked(tmp_path, "run"):
        pass


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_locks_it_goes_on_and_says_so(tmp_path, monkeypatch, caplog, code):
    def flock(*args):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    with locked(tmp_path, "run"), locked(tmp_path, "run"):
        pass
    assert f"{tmp_path} cannot be locked ({os.strerror(code)}): going on without a lock" in caplog.text


def test_another_failure_names_the_file(tmp_path, monkeypatch):
    def flock(*args):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match=f"{tmp_path}/.lock") as caught, locked(tmp_path, "run"):
        pass
    assert not isinstance(caught.value, SettingsError)
