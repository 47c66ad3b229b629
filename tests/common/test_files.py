"""Claims of atomic writing: a file is whole, old or new, and nothing is left beside it."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from common.files import remove_leftovers, write_atomically, write_json, write_npz


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_content_arrives_and_folders_are_made(tmp_path):
    path = tmp_path / "a" / "b" / "c.bin"
    write_atomically(path, lambda file: file.write(b"one"))
    write_atomically(path, lambda file: file.write(b"two"))
    assert path.read_bytes() == b"two"
    assert names(path.parent) == ["c.bin"]


class Stop(BaseException):
    """Not an Exception: what Ctrl-C raises is not either."""


@pytest.mark.parametrize("failure", [OSError, ValueError, Stop])
@pytest.mark.parametrize("old", [b"old", None])
def test_a_failing_write_leaves_the_old_file_and_nothing_else(tmp_path, failure, old):
    path = tmp_path / "c.bin"
    if old is not None:
        path.write_bytes(old)

    def write(file):
        file.write(b"half of the new content")
        file.flush()
        raise failure

    with pytest.raises(failure):
        write_atomically(path, write)
    assert names(tmp_path) == (["c.bin"] if old else [])
    assert old is None or path.read_bytes() == old


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_disk_that_fails_late_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call):
    path = tmp_path / "c.bin"
    path.write_bytes(b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, lambda file: file.write(b"new"))
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["c.bin"]


def test_readers_see_the_old_file_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "c.bin"
    path.write_bytes(b"old")
    seen = []

    def write(file):
        file.write(b"new")
        file.flush()
        seen.append(path.read_bytes())

    write_atomically(path, write)
    assert seen == [b"old"]
    assert path.read_bytes() == b"new"


def test_the_content_is_on_disk_before_the_name_is(tmp_path, monkeypatch):
    order = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (order.append("fsync"), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append("replace"), replace(a, b)))
    write_atomically(tmp_path / "c.bin", lambda file: file.write(b"new"))
    assert order[:2] == ["fsync", "replace"]


def test_json_comes_back_and_nan_is_refused(tmp_path):
    value = {"a": [1, 2.5, None, True], "é": {"b": "text"}}
    write_json(tmp_path / "a.json", value)
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == value
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"a": float("nan")})
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == value


def test_npz_comes_back_and_objects_are_refused(tmp_path):
    A = np.random.default_rng(0).standard_normal((3, 2))
    write_npz(tmp_path / "a.npz", dictionary=A, usage=A[0].astype("f4"))
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        assert sorted(file) == ["dictionary", "usage"]
        np.testing.assert_array_equal(file["dictionary"], A)
        assert file["usage"].dtype == np.float32
    with pytest.raises(ValueError, match="allow_pickle"):
        write_npz(tmp_path / "a.npz", dictionary=np.array([{}], dtype=object))
    assert names(tmp_path) == ["a.npz"]
    with np.load(tmp_path / "a.npz") as file:
        np.testing.assert_array_equal(file["dictionary"], A)


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path):
    program = (
        "import os, sys; from pathlib import Path; from common.files import write_atomically\n"
        "write_atomically(Path(sys.argv[1]), lambda file: (file.write(b'half'), os._exit(9)))"
    )
    for name in ("state.npz", "model.v2.npz", "client.txt"):
        subprocess.run([sys.executable, "-c", program, str(tmp_path / name)], check=False)
    for name in (".lock", ".hidden.npz", "state.npz", "00000001.npz"):
        (tmp_path / name).write_text("whole")
    assert len(list(tmp_path.iterdir())) == 7
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {".lock", ".hidden.npz", "state.npz", "00000001.npz"}
