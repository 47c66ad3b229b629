"""The SuperLink as a child: refusals, runs, and nothing left behind. Real processes, loopback, bounded waits."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

import pytest
from flwr.app import Message, RecordDict

from common.errors import FederationError, SettingsError
from perdl.engines.superlink import run_status, submit, superlink, write_bundle
from perdl_client.node.loop import run_node
from perdl_client.node.supernode import stock_command

SLEEPER = """
import os, time
from flwr.serverapp import ServerApp
app = ServerApp()

@app.main()
def main(grid, context):
    if context.run_config["fail"]:
        raise RuntimeError("on purpose")
    with open(context.run_config["marker"], "w") as marker:
        marker.write(str(os.getpid()))
    time.sleep(600)
"""

ASKER = """
import json, time
from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp
app = ServerApp()

@app.main()
def main(grid, context):
    while not (nodes := list(grid.get_node_ids())):
        time.sleep(0.1)
    waiting = grid.push_messages([Message(RecordDict(), nodes[0], "query")])
    while not (replies := list(grid.pull_messages(waiting))):
        time.sleep(0.1)
    with open(context.run_config["answer"], "w") as answer:
        answer.write(replies[0].error.reason if replies[0].has_error() else replies[0].content["me"]["name"])
"""

ANSWERER = """
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
app = ClientApp()

@app.query()
def query(message, context):
    return Message(RecordDict({"me": ConfigRecord({"name": context.node_config["name"]})}), reply_to=message)
"""

OWNER = """
import sys, time
from pathlib import Path
from perdl.engines.superlink import superlink
with superlink(sys.argv[1], Path(sys.argv[2]), log=Path(sys.argv[3])):
    print("up", flush=True)
    time.sleep(600)
"""


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def wait_for(condition, seconds=30.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.1)


def processes_of(home: Path) -> list[str]:
    """Command lines of the living processes that work for this FLWR_HOME."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            mine = f"FLWR_HOME={home}\0".encode() in (entry / "environ").read_bytes() + b"\0"
            if mine and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def is_free(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, int(port))) != 0


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "example.org", "[::]"])
def test_a_superlink_beyond_loopback_is_refused(tmp_path, host):
    with pytest.raises(SettingsError, match="loopback"), superlink(f"{host}:8000", tmp_path, log=tmp_path / "log"):
        pass


def test_a_taken_port_is_refused_before_anything_starts(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with (
            pytest.raises(FederationError, match=rf"port {port} .*choose another port"),
            superlink(f"127.0.0.1:{port}", tmp_path / "home", log=tmp_path / "log"),
        ):
            pass
    assert not (tmp_path / "log").exists()


def test_a_superlink_that_dies_shows_the_end_of_its_log(tmp_path, monkeypatch):
    (tmp_path / "flwr.py").write_text("raise SystemExit('no flower today')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        pytest.raises(FederationError, match=r"ended with code 1 .*\n.*no flower today"),
        superlink(free_address(), tmp_path / "home", log=tmp_path / "log"),
    ):
        pass


def test_a_bundle_holds_one_file_with_any_settings(tmp_path):
    config = {"plain": 1, "with.dots": True, "with-hyphen": 1e-9, 'quo"te': 'C:\\x "y"\n', "ö": "ü"}
    bundle = write_bundle(tmp_path / "bundle", config)
    assert [path.name for path in bundle.iterdir()] == ["pyproject.toml"]
    app = tomllib.loads((bundle / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flwr"]["app"]
    assert app["config"] == config
    assert app["components"] == {"serverapp": "perdl_server.app:app", "clientapp": "perdl_client.app:app"}
    assert write_bundle(bundle, {}) == bundle
    (bundle / "code.py").touch()
    with pytest.raises(SettingsError, match=r"code\.py"):
        write_bundle(bundle, {})


def test_no_superlink_is_an_error_that_names_the_address(tmp_path):
    address = free_address()
    with pytest.raises(FederationError, match=address):
        run_status(1, address)
    with pytest.raises(FederationError, match=address):
        submit(write_bundle(tmp_path / "bundle", {}, serverapp="json:dumps", clientapp="json:dumps"), address)


@pytest.fixture
def sleeper(tmp_path, monkeypatch):
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "perdl_sleeper.py").write_text(SLEEPER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # must not be asked on loopback

    def bundle(name, fail):
        config = {"fail": fail, "marker": str(tmp_path / name)}
        return write_bundle(tmp_path / f"bundle-{name}", config, serverapp="perdl_sleeper:app", clientapp="json:dumps")

    return bundle


def test_runs_are_watched_and_no_process_outlives_the_context(tmp_path, sleeper):
    address, home = free_address(), tmp_path / "home"
    with superlink(address, home, log=tmp_path / "log"):
        failing = submit(sleeper("failing", True), address)
        running = submit(sleeper("running", False), address)
        wait_for(lambda: run_status(failing, address)[0].startswith("finished"))
        status, details = run_status(failing, address)
        assert (status, "on purpose" in details) == ("finished:failed", True)

        with pytest.raises(FederationError, match=r"Run ID not found"):
            run_status(7, address)

        wait_for((tmp_path / "running").exists)
        assert run_status(running, address)[0] == "running"
        names = " ".join(processes_of(home))
        assert "superlink" in names
        assert "flower-superexec" in names
        assert "flwr-serverapp" in names
    assert processes_of(home) == []
    assert is_free(address)


def test_flowers_own_supernode_runs_the_installed_app_with_its_own_settings(tmp_path, monkeypatch):
    for name, text in (("perdl_asker", ASKER), ("perdl_answerer", ANSWERER)):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "client-home"))
    address, home, client_name = free_address(), tmp_path / "home", 'St. "Mary\'s" C:\\ward = 3'
    config = {"answer": str(tmp_path / "answer")}
    bundle = write_bundle(tmp_path / "bundle", config, serverapp="perdl_asker:app", clientapp="perdl_answerer:app")
    argv, environment = stock_command(address, {"name": client_name, "partition-id": 0})
    with superlink(address, home, log=tmp_path / "log"), (tmp_path / "client-log").open("wb") as log:
        node = subprocess.Popen(argv, env=environment, stdout=log, stderr=log)
        try:
            run = submit(bundle, address)
            wait_for(lambda: run_status(run, address)[0].startswith("finished"), 60)
            assert run_status(run, address) == ("finished:completed", "")
        finally:
            node.terminate()
            node.wait(10)
    assert (tmp_path / "answer").read_text() == client_name
    wait_for(lambda: not processes_of(tmp_path / "client-home"), 10)


def test_a_node_outlives_a_restart_of_its_server_and_gives_up_when_it_stays_away(tmp_path):
    def app(message, context):
        return Message(RecordDict(), reply_to=message)

    address, events, ends, stop = free_address(), [], [], threading.Event()

    def node(**kwargs):
        try:
            run_node(address, app, {}, on_event=events.append, **kwargs)
            ends.append(None)
        except FederationError as error:
            ends.append(error)

    def joined():
        return sum("joined" in event for event in events)

    patient = threading.Thread(target=node, kwargs={"max_wait": 60, "stop": stop}, daemon=True)
    with superlink(address, tmp_path / "home", log=tmp_path / "log"):
        patient.start()
        wait_for(lambda: joined() == 1)
    with superlink(address, tmp_path / "home", log=tmp_path / "log"):
        wait_for(lambda: joined() == 2)
        began = time.monotonic()
        stop.set()
        patient.join(5)
        assert time.monotonic() - began < 1.5
        assert ends == [None]
        assert (tmp_path / "log").read_text().count("Fleet.DeactivateNode") == 1
        hasty = threading.Thread(target=node, kwargs={"max_wait": 1.0}, daemon=True)
        hasty.start()
        wait_for(lambda: joined() == 3)
    hasty.join(10)
    assert len(ends) == 2
    assert f"no server at {address} for 1 s" in str(ends[1])


def test_a_superlink_whose_owner_is_killed_ends_by_itself(tmp_path):
    address, home = free_address(), tmp_path / "home"
    root = str(Path(__file__).resolve().parents[3])
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, address, str(home), str(tmp_path / "log")],
        env={**os.environ, "PYTHONPATH": root},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout.readline() == "up\n"
    assert processes_of(home)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    wait_for(lambda: not processes_of(home), 15)
    assert is_free(address)
    owner.stdout.close()
