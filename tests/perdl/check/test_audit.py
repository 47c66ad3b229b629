"""A client's record of what left it, and the audit that holds it to what may travel."""

from __future__ import annotations

import json

import numpy as np
import pytest

from common.errors import DataError
from common.protocol import FINISH, UPDATE, unpack
from common.settings import load_settings
from common.travels import ALLOWED
from perdl.check.audit import audit
from perdl.engines.in_process import run_in_process
from perdl_client.app import app as client_app
from perdl_client.record import FILE
from perdl_server.app import app as server_app


def run_deployed(tmp_path, monkeypatch, *overrides, **keywords):
    """A run of four clients that own their folders and keep records."""
    from contextlib import nullcontext

    monkeypatch.setattr("perdl.engines.in_process.simulation", nullcontext)
    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    configs = [
        {"name": f"client-{i + 1}", "partition-id": i, "folder": str(tmp_path / f"own-{i + 1}"), "record": True}
        for i in range(4)
    ]
    settings = load_settings(None, [f"output={tmp_path / 'run'}", "n_clients=4", "rounds=3", "tolerance=0", *overrides])
    run_in_process(server_app, client_app, settings, node_configs=configs, **keywords)


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("aggregation=energy", "evaluation.held_out=0.2"),
        ("sharing=some", "n_global=auto"),
        ("privacy=aggregated", "aggregation=procrustes"),
    ],
)
def test_the_record_is_what_was_sent_and_passes(tmp_path, monkeypatch, overrides):
    sent = []
    run_deployed(tmp_path, monkeypatch, *overrides, record=sent.append)
    answers = [message for message in sent if message.metadata.reply_to_message_id]
    mine = [m for m in answers if unpack(m.content).scalars["client"] == "client-2"]
    rows = [json.loads(line) for line in (tmp_path / "own-2" / FILE).read_text().splitlines()]
    assert [row["kind"] for row in rows] == [message.metadata.message_type for message in mine]
    for row, message in zip(rows, mine, strict=True):
        payload = unpack(message.content)
        assert row["scalars"] == payload.scalars
        assert {name: tuple(one["shape"]) for name, one in row["arrays"].items()} == {
            name: array.shape for name, array in payload.arrays.items()
        }
    found = audit(tmp_path / "own-2")
    assert found.faults == []
    assert sum(phase.answers for phase in found.phases) == len(mine)
    assert sum(phase.bytes for phase in found.phases) == sum(
        array.nbytes for message in mine for array in unpack(message.content).arrays.values()
    )


@pytest.fixture
def record(tmp_path, monkeypatch):
    run_deployed(tmp_path, monkeypatch)
    return tmp_path / "own-1"


def change(folder, kind, edit):
    """Change the first row of a kind."""
    rows = [json.loads(line) for line in (folder / FILE).read_text().splitlines()]
    edit(next(row for row in rows if row["kind"] == kind))
    (folder / FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))


def array(*shape):
    return {"shape": list(shape), "type": "float64", "bytes": 8 * int(np.prod(shape)), "sha256": "0"}


@pytest.mark.parametrize(
    ("kind", "edit", "fault"),
    [
        (UPDATE, lambda row: row["arrays"].update(local=array(6, 3)), "the array local left"),
        (UPDATE, lambda row: row["scalars"].update(mean=1.0), "the scalar mean left"),
        (UPDATE, lambda row: row["arrays"].update(contribution=array(6, 4)), "rounds sent 3 and 4 atoms"),
        (UPDATE, lambda row: row["arrays"].update(energies=array(6, 3)), "energies left with 2 axes"),
        (UPDATE, lambda row: row.update(kind="train.spy"), "the protocol knows no message train.spy"),
        (FINISH, lambda row: row["arrays"].update(contribution=array(6, 3)), "the array contribution left"),
        (FINISH, lambda row: row["scalars"].update({"alone_x": 1.0}), "the scalar alone_x left"),
        ("train.initialise", lambda row: row["arrays"].update(dictionary=array(6, 7)), "7 atoms left, and it has 6"),
        ("train.initialise", lambda row: row["scalars"].update(n_samples=6), "6 atoms left, of 6 samples"),
    ],
)
def test_what_may_not_leave_is_found(record, kind, edit, fault):
    change(record, kind, edit)
    assert any(fault in found for found in audit(record).faults)


def test_a_second_first_dictionary_is_found(record):
    rows = (record / FILE).read_text().splitlines()
    first = next(row for row in rows if '"train.initialise"' in row)
    again = json.loads(first)
    again["arrays"]["dictionary"]["sha256"] = "1"
    (record / FILE).write_text("\n".join([*rows, first, json.dumps(again)]) + "\n")
    assert any("2 first dictionaries left" in found for found in audit(record).faults)


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"time": 1}', '{"time":"","run":"","kind":"","arrays":{"a":{}},"scalars":{}}']
)
def test_a_damaged_record_is_named(record, line):
    with (record / FILE).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DataError, match="is damaged"):
        audit(record)


def test_without_a_record_the_cure_is_told(tmp_path):
    with pytest.raises(DataError, match="--record"):
        audit(tmp_path)


def test_nothing_leaves_that_cannot_be_recorded(tmp_path, monkeypatch):
    from tests.perdl_client.test_app import Client, refused, sparse_data

    monkeypatch.delenv("PERDL_SIMULATION", raising=False)
    client = Client(tmp_path, sparse_data(), record=True)
    (tmp_path / "own" / FILE).mkdir(parents=True)  # a folder in its place
    assert refused(client.start(), "its own disk or folder fails it")


def test_the_table_of_the_docs_lists_what_may_travel():
    from pathlib import Path

    page = (Path(__file__).resolve().parents[3] / "docs" / "privacy.md").read_text()
    for kind in ALLOWED.values():
        for name in kind.arrays:
            assert f"`{name}`" in page, name
