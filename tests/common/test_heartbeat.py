"""Signs of life: who gives them, who takes them away, and what the health check makes of them."""

import os
import socket
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from common.errors import FederationError, PerdlError
from common.heartbeat import check_sign, signs_of_life
from perdl.cli.app import app
from perdl_client.node.runner import node_config, run_client


def test_a_fresh_sign_is_health_and_an_old_or_missing_one_is_not(tmp_path):
    with pytest.raises(PerdlError, match="no server or client"):
        check_sign(tmp_path)
    with signs_of_life(tmp_path) as give_sign:
        give_sign()
        check_sign(tmp_path)
        old = time.time() - 90
        os.utime(tmp_path / "alive", (old, old))
        with pytest.raises(PerdlError, match="90 s old"):
            check_sign(tmp_path)
        give_sign()
        check_sign(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_gone_stops_nobody(tmp_path):
    with signs_of_life(tmp_path / "gone") as give_sign:
        give_sign()


def test_the_command_exits_with_one_line(tmp_path):
    failed = CliRunner().invoke(app, ["health", str(tmp_path)])
    assert failed.exit_code == 1
    assert len(failed.output.splitlines()) == 1
    with signs_of_life(tmp_path) as give_sign:
        give_sign()
        healthy = CliRunner().invoke(app, ["health", str(tmp_path)])
    assert (healthy.exit_code, healthy.output) == (0, "")


def test_a_client_that_waits_for_its_server_is_alive_and_afterwards_is_not(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{probe.getsockname()[1]}"
    told, memory = node_config("client-1", None, "rows", None, tmp_path)
    seen: list[bool] = []

    def look(folder: Path, over: threading.Event) -> None:
        while not over.wait(0.02):
            seen.append((folder / "alive").exists())

    over = threading.Event()
    watcher = threading.Thread(target=look, args=(tmp_path, over))
    watcher.start()
    try:
        with pytest.raises(FederationError, match="no server at"):
            run_client(nobody, told, memory, stop=threading.Event(), max_wait=0.5, on_event=lambda text: None)
    finally:
        over.set()
        watcher.join()
    assert any(seen)
    assert not (tmp_path / "alive").exists()
