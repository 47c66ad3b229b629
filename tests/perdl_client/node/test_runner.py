"""What a client's user is told at its end, and whose a folder is."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from common.errors import FederationError, PerdlError, SettingsError
from common.protocol import FINISH, pack
from perdl_client.node.runner import node_config, run_client


def end_with(monkeypatch, tmp_path, last):
    """A run of one message, its last."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 7, 1, 1
    told, memory = node_config("ada", None, "rows", None, tmp_path / "own")
    context = Context(5, 3, told, RecordDict(), {})

    def run_node(server, app, node_config, *, is_last, **rest):
        message = last()
        assert is_last(message)
        app(message, context)

    monkeypatch.setattr("perdl_client.node.loop.run_node", run_node)
    return run_client("127.0.0.1:1", told, memory, stop=threading.Event(), max_wait=1.0, on_event=lambda text: None)


def test_after_a_search_of_settings_it_is_told_what_the_server_saw(monkeypatch, tmp_path):
    result = end_with(monkeypatch, tmp_path, lambda: Message(pack(run="f00d", trials=15), 3, FINISH))
    assert result.startswith("the server chose settings in 15 short runs, which showed it 0 first dictionaries of this")
    assert not (tmp_path / "own" / "dictionary.npz").exists()


def test_a_client_whose_model_is_not_written_does_not_end_as_if_it_were(monkeypatch, tmp_path):
    arrays = {"global_dictionary": np.eye(6)[:, :3]}
    with pytest.raises(PerdlError, match=r"own model is not written \(ada has no state of this run"):
        end_with(monkeypatch, tmp_path, lambda: Message(pack(arrays, run="f00d"), 3, FINISH))
    empty = Message(RecordDict(), 3, FINISH)
    with pytest.raises(PerdlError, match=r"own model is not written .*not perdl's"):
        end_with(monkeypatch, tmp_path, lambda: empty)
    with pytest.raises(PerdlError, match="own model is not written"):
        end_with(monkeypatch, tmp_path, lambda: Message(Error(1, "x"), reply_to=Message(RecordDict(), 3, FINISH)))


def test_what_a_server_says_is_shown_in_one_line(monkeypatch, tmp_path):
    with pytest.raises(FederationError) as caught:
        end_with(monkeypatch, tmp_path, lambda: Message(pack(run="f00d", reason="a\x1b[2J\nb" + "x" * 9999), 3, FINISH))
    assert str(caught.value).startswith("the run ended before its time: a [2J bxx")
    assert len(str(caught.value)) < 600


def test_a_folder_is_one_clients(tmp_path):
    for _ in range(2):
        node_config("ada", None, "rows", None, tmp_path)
    with pytest.raises(SettingsError, match=r"is the folder of ada.*give bob a --folder of its own"):
        node_config("bob", None, "rows", None, tmp_path)
    assert (tmp_path / "client.txt").read_text() == "ada"
