"""Checkpoints: whole or the one before, whatever happens to the newest."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import numpy as np
import pytest

from common.errors import PerdlError, SettingsError
from common.settings import load_settings
from perdl.engines.run import resumed_settings
from perdl_server.algorithm.membership import Membership
from perdl_server.checkpoint import BEFORE, NEWEST, Checkpoint, load_checkpoint, save_checkpoint
from perdl_server.results import RESUMED, SERVED, RunFolder
from perdl_server.summary import describe

SUMMARY: dict[str, object] = {"settings": {}, "clients": {}, "final": {}, "bytes": {}}


def checkpoint(t=1, ended="", **settings):
    rng = np.random.default_rng(t)
    return Checkpoint(
        run="f00d",
        round=t,
        dictionary=rng.standard_normal((6, 3)),
        consensus=rng.random(3),
        members={"b": {"n_samples": 3, "start_error": float("nan")}, "a": {"missed": 2}},
        matches={"a": np.array([2, 0, 1])},
        report=describe(load_settings(None, [f"{key}={value}" for key, value in settings.items()])),
        bytes={"update": {"to_clients": 5, "to_server": 7}},
        seconds=1.5,
        ended=ended,
    )


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    save_checkpoint(checkpoint(), tmp_path)
    back, was = load_checkpoint(tmp_path), checkpoint()
    np.testing.assert_array_equal(back.dictionary, was.dictionary)
    np.testing.assert_array_equal(back.consensus, was.consensus)
    assert back.members == {"b": {"n_samples": 3, "start_error": None}, "a": {"missed": 2}}
    assert list(back.members) == ["b", "a"]
    assert set(back.matches) == {"a"}
    np.testing.assert_array_equal(back.matches["a"], was.matches["a"])
    assert (back.run, back.round, back.seconds, back.ended) == ("f00d", 1, 1.5, "")
    assert back.bytes == was.bytes
    assert back.report["settings"] == was.report["settings"]


def test_members_of_atoms_come_back_as_they_were(tmp_path):
    some = Membership(np.array([[True, False], [True, True], [False, True]]), 0.3)
    some.update([0, 1, 2], np.ones((3, 4, 2)), np.zeros((3, 2)), np.full((3, 2), 2.0))
    save_checkpoint(replace(checkpoint(), membership=some, sharers=["c", "a", "b"]), tmp_path)
    back = load_checkpoint(tmp_path)
    assert back.sharers == ["c", "a", "b"]
    assert back.membership is not None
    assert back.membership.reach == 0.3
    for key in ("members", "distance", "settled"):
        np.testing.assert_array_equal(getattr(back.membership, key), getattr(some, key))
    save_checkpoint(checkpoint(), tmp_path)
    assert load_checkpoint(tmp_path).membership is None


def test_one_cut_short_anywhere_is_noticed_and_the_one_before_it_used(tmp_path, caplog):
    for t in (1, 2):
        save_checkpoint(checkpoint(t), tmp_path)
    content = (tmp_path / NEWEST).read_bytes()
    for length in [0, 1, *range(7, len(content), 97), len(content) - 1]:
        (tmp_path / NEWEST).write_bytes(content[:length])
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="perdl.server"):
            back = load_checkpoint(tmp_path)
        assert back.round == 1
        np.testing.assert_array_equal(back.dictionary, checkpoint(1).dictionary)
        assert "checkpoint.npz cannot be read" in caplog.text


def test_damaged_bytes_anywhere_never_pass_for_another_checkpoint(tmp_path):
    for t in (1, 2):
        save_checkpoint(checkpoint(t), tmp_path)
    content = (tmp_path / NEWEST).read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(content), 200):
        damaged = bytearray(content)
        damaged[place] ^= 0x55
        (tmp_path / NEWEST).write_bytes(damaged)
        back = load_checkpoint(tmp_path)
        np.testing.assert_array_equal(back.dictionary, checkpoint(back.round).dictionary)


def test_a_damaged_table_of_contents_never_leaves_out_an_array(tmp_path):
    """Of a zip file the table at the end counts: with one byte of its size changed, arrays would be missing."""
    for t in (1, 2):
        save_checkpoint(checkpoint(t), tmp_path)
    content = (tmp_path / NEWEST).read_bytes()
    for place in range(content.index(b"PK\x01\x02"), len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 0x55
        (tmp_path / NEWEST).write_bytes(damaged)
        back = load_checkpoint(tmp_path)
        np.testing.assert_array_equal(back.dictionary, checkpoint(back.round).dictionary)


def test_a_process_that_dies_between_the_two_renames_leaves_one(tmp_path, monkeypatch):
    save_checkpoint(checkpoint(1), tmp_path)

    def die(*args, **kwargs):
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr("perdl_server.checkpoint.write_record", die)
        with pytest.raises(SystemExit):
            save_checkpoint(checkpoint(2), tmp_path)
    assert load_checkpoint(tmp_path).round == 1
    save_checkpoint(checkpoint(2), tmp_path)
    assert load_checkpoint(tmp_path).round == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([NEWEST, BEFORE])


def test_another_format_and_none_at_all_are_named(tmp_path):
    with pytest.raises(PerdlError, match=f"{tmp_path} holds no checkpoint"):
        load_checkpoint(tmp_path)
    save_checkpoint(checkpoint(), tmp_path)
    with np.load(tmp_path / NEWEST) as file:
        arrays = dict(file)
    head = json.loads(str(arrays["head"])) | {"version": 8}
    np.savez(tmp_path / NEWEST, **{**arrays, "head": np.array(json.dumps(head))})
    with pytest.raises(PerdlError, match="is of format 8, this perdl reads 5"):
        load_checkpoint(tmp_path)


def test_what_was_written_of_unfinished_rounds_goes_and_the_rest_stays(tmp_path, monkeypatch):
    rows = [{"round": t, "client": name} for t in (1, 2, 3) for name in "ab"]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"round": 4, "cli')
    (tmp_path / "rounds.jsonl").write_text('{"round": 1}\n{"round": 2}\n{"rou')
    save_checkpoint(checkpoint(2), tmp_path)
    monkeypatch.setenv(SERVED, RESUMED)
    assert RunFolder(tmp_path).checkpoint.round == 2
    left = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert left == rows[:4]
    assert (tmp_path / "rounds.jsonl").read_text() == '{"round": 1}\n{"round": 2}\n'


def test_a_resumed_run_has_its_own_settings_and_can_change_a_few(tmp_path):
    save_checkpoint(checkpoint(2, seed=7, rounds=30), tmp_path)
    settings = resumed_settings(tmp_path, ["rounds=40", "quorum=3"])
    assert (settings.seed, settings.rounds, settings.quorum, settings.output) == (7, 40, 3, str(tmp_path))
    with pytest.raises(SettingsError, match="n_global: a run that is resumed can change rounds, tolerance"):
        resumed_settings(tmp_path, ["n_global=2"])


@pytest.mark.parametrize(("ended", "reason"), [("tolerance", "tolerance"), ("rounds", "rounds")])
def test_a_run_that_came_to_its_end_is_not_resumed_but_one_that_failed_then_is(tmp_path, ended, reason):
    save_checkpoint(checkpoint(30, ended=ended, rounds=30), tmp_path)
    assert resumed_settings(tmp_path).rounds == 30  # it was cut off before it had let its clients go
    (tmp_path / "summary.json").write_text(json.dumps({**SUMMARY, "stop_reason": reason}))
    with pytest.raises(SettingsError, match=f"has come to its end .{reason}.: there is nothing to resume"):
        resumed_settings(tmp_path)
    if ended == "rounds":
        assert resumed_settings(tmp_path, ["rounds=31"]).rounds == 31
    (tmp_path / "summary.json").write_text(json.dumps({**SUMMARY, "stop_reason": "failed: the end: 1 of 2"}))
    assert resumed_settings(tmp_path).rounds == 30
