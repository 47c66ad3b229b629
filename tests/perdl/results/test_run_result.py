"""What is known of a run or a client: the same from each of its sources, and the atoms as a table."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import perdl
from common.errors import PerdlError
from perdl.results.atoms_table import write_atoms
from perdl.results.run_result import RunResult, as_result, read_client, read_run

NAMES = ("age", "sepal, length", "ω")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A simulation of two files with names, each with one own direction."""
    folder = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    D = np.linalg.qr(rng.standard_normal((3, 3))).Q
    for i, name in enumerate(("ada", "bob")):
        X = rng.standard_normal((2, 200)) * (rng.random((2, 200)) < 0.5)
        table = (D[:, [0, 1 + i]] @ X).T
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([NAMES, *table.tolist()])
    settings = {"data.path": str(folder / "*.csv"), "n_global": 1, "n_atoms": 3, "threshold": 0.3, "rounds": 3}
    return perdl.simulate("files", settings, output=folder / "run")


def test_a_run_is_the_same_from_its_folder_and_a_client_from_its_own(run):
    again = read_run(run.folder)
    assert np.array_equal(again.global_dictionary, run.global_dictionary)
    assert again.history == run.history
    assert len(again.metrics) == 2 * len(again.history)
    assert again.feature_names == NAMES
    own = read_client(run.folder / "clients" / "bob")
    assert np.array_equal(own.atoms("bob"), run.local_dictionaries["bob"])
    assert np.array_equal(own.usage["bob"], run.usage["bob"])
    assert own.measures["error"] == pytest.approx(run.clients["bob"]["final_error"], rel=5e-3)  # told with three digits
    assert (own.measures["n_samples"], own.measures["held_out"]) == (160, 40)
    assert "2 clients" in repr(run)
    assert "bob's model" in repr(own)


def test_own_atoms_in_use_come_in_the_order_of_their_energy():
    usage = {"a": np.array([0.4, 0.01, 0, 0.2, 2e-5, 0.1])}
    result = RunResult(None, {}, np.eye(6)[:, :1], np.ones(1), {"a": np.eye(6)[:, 1:]}, usage)
    assert result.by_energy("a") == [2, 4, 0]
    assert result.unused("a") == [1, 3]
    assert result.unused() == []
    unknown = RunResult(None, {}, np.eye(6)[:, :1], np.ones(1), {"a": np.eye(6)[:, 1:]})
    assert unknown.by_energy("a") == [0, 1, 2, 3, 4]
    assert unknown.unused("a") == []


def test_atoms_are_a_table_with_a_row_a_feature(run, tmp_path):
    write_atoms(run, tmp_path / "atoms.csv")
    with (tmp_path / "atoms.csv").open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    own = [f"{name} own {k + 1}" for name in ("ada", "bob") for k in run.by_energy(name)]
    assert head == ["feature", "shared 1", *own]
    assert len(own) == 2, "each site has one direction of its own that its samples use"
    assert tuple(row[0] for row in rows) == NAMES
    table = np.array([row[1:] for row in rows], dtype=float)
    assert np.array_equal(table[:, :1], run.global_dictionary), "to the last bit"
    assert np.array_equal(table[:, 1], run.local_dictionaries["ada"][:, run.by_energy("ada")[0]])


@pytest.fixture(scope="module")
def some(tmp_path_factory):
    """A simulation in which clients lack shared atoms."""
    chosen = {"sharing": "some", "n_global": "auto", "synthetic.absence": 0.3}
    return perdl.simulate("synthetic", chosen, output=tmp_path_factory.mktemp("runs") / "some")


def test_members_are_those_of_the_summary_and_of_the_clients_models(some):
    assert some.members.keys() == some.clients.keys()
    table = np.array(list(some.members.values()))
    assert (table.sum(axis=0) >= 2).all()
    assert not table.all()
    assert f"3 global atoms ({table.all(axis=0).sum()} by all, " in repr(some)
    for name, mine in some.members.items():
        assert np.flatnonzero(mine).tolist() == some.summary["members"][name]
        own = read_client(some.folder / "clients" / name)
        assert own.shared_atoms == np.flatnonzero(mine).tolist()
        assert own.lacking(name) == some.lacking(name) == np.flatnonzero(~mine).tolist()
        np.testing.assert_array_equal(own.global_dictionary, np.where(mine, some.global_dictionary, 0))
        assert f"{mine.sum()} global atoms" in repr(own)


def test_an_atom_that_a_client_does_not_share_is_not_called_unused(some):
    assert some.unused() == []
    for name in some.members:
        own = read_client(some.folder / "clients" / name)
        assert own.unused() == []
        assert sorted(own.by_energy()) == own.shared_atoms


def test_where_all_share_all_nobody_is_named(run):
    assert run.members == {}
    assert run.shared_atoms == [0]
    assert run.lacking("ada") == []
    assert read_client(run.folder / "clients" / "ada").members == {}


def test_atoms_of_some_tell_how_many_share_them(some, tmp_path):
    write_atoms(some, tmp_path / "atoms.csv")
    counts = np.array(list(some.members.values())).sum(axis=0)
    head = (tmp_path / "atoms.csv").read_text().splitlines()[0].split(",")
    assert head[1:4] == [f"shared {k + 1} of {counts[k]} clients" for k in range(3)]
    own = read_client(some.folder / "clients" / "client-2")
    write_atoms(own, tmp_path / "own.csv")
    head = (tmp_path / "own.csv").read_text().splitlines()[0].split(",")
    assert [name for name in head if name.startswith("shared")] == [f"shared {k + 1}" for k in own.shared_atoms]


def test_features_without_names_are_numbered(tmp_path):
    write_atoms(RunResult(None, {}, np.eye(2), np.ones(2)), tmp_path / "atoms.csv")
    assert (tmp_path / "atoms.csv").read_text() == "feature,shared 1,shared 2\nfeature 1,1.0,0.0\nfeature 2,0.0,1.0\n"


def test_what_is_no_run_is_said(tmp_path):
    with pytest.raises(PerdlError, match=r"holds no summary\.json"):
        as_result(tmp_path)
    with pytest.raises(PerdlError, match="nowhere does not exist: give the folder of a run"):
        as_result(tmp_path / "nowhere")
    (tmp_path / "a.csv").touch()
    with pytest.raises(PerdlError, match=r"a\.csv is a file: give the folder of a run"):
        as_result(tmp_path / "a.csv")
    with pytest.raises(PerdlError, match="a ndarray cannot be drawn"):
        as_result(np.eye(2))
