"""How much memory is available, and where samples go by it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from common.blocks import Stream
from common.settings import load_settings
from perdl_client.data import room
from perdl_client.data.load import load_data
from perdl_client.data.room import available_memory, fits, is_small
from perdl_client.identity import Identity
from perdl_client.node.runner import node_config

resource = pytest.importorskip("resource", reason="Windows has no limits of this kind")
GB = 2**30


def system(folder, cgroup="", meminfo=8 * GB):
    """Files by which a system tells of memory; no limits of the process."""
    proc = folder / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {meminfo // 1024} kB\n")
    (proc / "self" / "cgroup").write_text(cgroup)
    (proc / "self" / "status").write_text(f"VmSize:\t{2 * GB // 1024} kB\nVmData:\t{GB // 1024} kB\n")
    return proc, folder / "groups"


def group(place, names, limit, used, cached):
    place.mkdir(parents=True, exist_ok=True)
    for name, text in zip((*names, "memory.stat"), (limit, used, f"{cached}\nother 7"), strict=True):
        (place / name).write_text(f"{text}\n")


V2, V1 = ("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")


@pytest.fixture(autouse=True)
def no_limits(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY,) * 2)


def test_the_machine_tells(tmp_path):
    assert available_memory(*system(tmp_path)) == 8 * GB


def test_nothing_known_is_no_limit(tmp_path, monkeypatch):
    monkeypatch.delattr(room.os, "sysconf")
    assert available_memory(tmp_path, tmp_path) == math.inf


def test_the_narrowest_control_group_decides(tmp_path):
    proc, groups = system(tmp_path, "0::/a/b\n")
    group(groups, V2, "max", 5 * GB, "inactive_file 0")
    group(groups / "a", V2, 3 * GB, 2 * GB, f"inactive_file {GB // 2}")
    group(groups / "a" / "b", V2, 4 * GB, GB, "inactive_file 0")
    assert available_memory(proc, groups) == 1.5 * GB


def test_groups_of_the_first_version(tmp_path):
    proc, groups = system(tmp_path, "4:memory:/job\n3:cpu:/job\n")
    group(groups / "memory", V1, 2**63 - 4096, 5 * GB, "total_inactive_file 0")
    group(groups / "memory" / "job", V1, 3 * GB, 2 * GB, f"total_inactive_file {GB}")
    assert available_memory(proc, groups) == 2 * GB


@pytest.mark.parametrize(("kind", "left"), [("RLIMIT_AS", 3 * GB), ("RLIMIT_DATA", 4 * GB)])
def test_limits_of_the_process(tmp_path, monkeypatch, kind, left):
    limited = {getattr(resource, kind): 5 * GB}
    monkeypatch.setattr(resource, "getrlimit", lambda one: (limited.get(one, resource.RLIM_INFINITY),) * 2)
    assert available_memory(*system(tmp_path)) == left


def test_what_fits(tmp_path, monkeypatch):
    monkeypatch.setattr(room, "available_memory", lambda: 1000.0)
    assert fits(200, 200)
    assert not fits(201, 200)
    assert not fits(100, 100, clients=4)
    (tmp_path / "a").write_bytes(b"123456")
    (tmp_path / "b").write_bytes(b"123")
    assert is_small(tmp_path / "a")
    assert is_small(tmp_path)
    assert not is_small(tmp_path, clients=2)
    assert is_small(tmp_path / "none")  # reading it tells what is wrong


@pytest.mark.parametrize("available", [1e12, 1e4])
def test_a_client_of_its_own_decides_before_it_joins_and_again_by_the_run(tmp_path, monkeypatch, available):
    np.save(tmp_path / "a.npy", np.random.default_rng(0).standard_normal((500, 4)))
    monkeypatch.setattr(room, "available_memory", lambda: available)
    _, memory = node_config(
        "ada", tmp_path / "a.npy", samples_in="rows", variable=None, folder=tmp_path / "ada", on_warning=print
    )
    held = memory.look("float64")
    assert isinstance(held.data, Stream) == (available < 1e5)
    for asked, is_stream in (("auto", available < 1e5), ("true", False), ("false", True)):
        settings = load_settings(None, ["data.source=files", "n_global=2", f"data.in_memory={asked}"])
        data = load_data(Identity("ada", 0, {"data": str(tmp_path / "a.npy")}), settings, held)
        assert isinstance(data.Y, Stream) == is_stream
        np.testing.assert_array_equal(data.Y[:, :], np.load(tmp_path / "a.npy").T)
