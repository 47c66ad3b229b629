"""A client's file is read once: what was read to check it is what the run learns from."""

from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from common.protocol import INITIALISE, pack
from common.settings import load_settings
from perdl import read_run
from perdl.engines.run import simulate
from perdl_client.app import app
from perdl_client.data.load import load_data
from perdl_client.data.memory import Memory, memory_of, share_memory
from perdl_client.formats.registry import FORMATS
from perdl_client.identity import Identity
from perdl_client.node.runner import node_config


@pytest.fixture
def read(monkeypatch):
    """The files that were read."""
    files = []

    def counted(one):
        return replace(one, read=lambda path, options: files.append(path.name) or one.read(path, options))

    for name in ("csv", "npy"):
        monkeypatch.setitem(FORMATS, name, counted(FORMATS[name]))
    return files


def samples(seed, n=60):
    return np.random.default_rng(seed).standard_normal((n, 5))


def settings_of(folder, *more):
    told = ["data.source=files", f"data.path={folder}/*.*", "n_clients=2", "n_global=2", "rounds=2", *more]
    return load_settings(None, [*told, "threshold_unit=rms", f"output={folder.parent / 'run'}", "coder=omp"])


@pytest.mark.parametrize("more", [[], ["data.center=true", "data.scale=client"], ["data.window=4", "data.stride=2"]])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_simulation_reads_each_file_once_with_the_bits_of_reading_it_again(tmp_path, monkeypatch, read, more, dtype):
    (tmp_path / "data").mkdir()
    np.savetxt(tmp_path / "data" / "ada.csv", samples(0), delimiter=",")
    np.save(tmp_path / "data" / "bob.npy", (100 * samples(1)).astype(int))
    settings = settings_of(tmp_path / "data", f"dtype={dtype}", *more)
    simulate(settings)
    assert sorted(read) == ["ada.csv", "bob.npy"]
    once = read_run(settings.output).global_dictionary
    monkeypatch.setattr(Memory, "take", lambda memory, dtype: None)
    simulate(settings.model_copy(update={"output": str(tmp_path / "again")}))
    assert len(read) == 6
    np.testing.assert_array_equal(once, read_run(tmp_path / "again").global_dictionary)


def test_samples_between_which_windows_leave_gaps_are_not_held(tmp_path, read):
    (tmp_path / "data").mkdir()
    for i in (1, 2):
        np.savetxt(tmp_path / "data" / f"{i}.csv", samples(i, 300), delimiter=",")
    simulate(settings_of(tmp_path / "data", "data.window=2", "data.stride=9", "n_nonzero=2"))
    assert sorted(read) == ["1.csv", "1.csv", "2.csv", "2.csv"]


@pytest.mark.parametrize(
    ("name", "dtype", "n_reads"),
    [("ada.csv", "float64", 1), ("ada.npy", "float64", 1), ("ada.csv", "float32", 2), ("ada.npy", "float32", 2)],
)
def test_a_deployed_client_reads_its_file_once_unless_the_run_is_narrower(
    tmp_path, monkeypatch, read, name, dtype, n_reads
):
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    file = tmp_path / name
    rows = (100 * samples(0)).astype(int)
    np.save(file, rows) if name.endswith("npy") else np.savetxt(file, rows, delimiter=",")
    told, memory = node_config("ada", file, "rows", None, tmp_path / "own")
    settings = settings_of(tmp_path, f"dtype={dtype}", "data.center=true")
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 7, 1, 1
    context = Context(5, 3, told, RecordDict(), {})
    share_memory(context, memory)
    asked = Message(pack(run="f00d", settings=settings.model_dump_json(exclude_none=True)), 3, INITIALISE)
    assert app(asked, context).has_content()
    assert len(read) == n_reads
    learnt_from = memory_of(context).recall("f00d").Y
    np.testing.assert_array_equal(learnt_from, load_data(Identity.of(told), settings).Y)
    assert memory.take(dtype) is None
