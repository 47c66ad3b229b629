"""Who may join and who may listen: real servers, clients and gateways on loopback."""

from __future__ import annotations

import datetime
import http.client
import http.server
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from flwr.proto.control_pb2 import ListNodesRequest, ListNodesResponse

import perdl.deploy.certs
from common.errors import FederationError
from common.settings import settings_from_values
from perdl.deploy.certs import make_certs
from perdl.deploy.gateway import gateway_config
from perdl.deploy.registered_keys import Members
from perdl.engines.run import simulate
from perdl.engines.superlink import control, run_status, submit, superlink, write_bundle
from perdl_client.node.loop import run_node
from perdl_client.node.tls import load_credentials

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(sys.executable).parent
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
SETTINGS = {"n_clients": 2, "rounds": 5, "tolerance": 0.0, "synthetic": {"noise": 0.1}}
RUN = ["-c", "n_clients=2", "-c", "rounds=5", "-c", "tolerance=0", "-c", "synthetic.noise=0.1"]


def free_address() -> str:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{s.getsockname()[1]}"


def wait_for(condition, seconds=60.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)


class Started:
    """Processes of one federation, in one folder; ended together."""

    def __init__(self, folder):
        self.folder, self.all = folder, {}

    def start(self, label, *command, **environment):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **environment}
        with (self.folder / f"{label}.log").open("wb") as log:
            self.all[label] = subprocess.Popen(
                list(map(str, command)), cwd=self.folder, env=environment, stdout=log, stderr=log
            )

    def perdl(self, label, *arguments, **environment):
        self.start(label, sys.executable, "-m", "perdl", *arguments, **environment)

    def log(self, label):
        return (self.folder / f"{label}.log").read_text()

    def wait(self, label, seconds=240):
        return self.all[label].wait(seconds)

    def end(self):
        for process in self.all.values():
            if process.poll() is None:
                process.terminate()
        for process in self.all.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """A federation by the command line with TLS, keys and a gateway, and what those were told who should not join."""
    if NGINX is None:
        pytest.skip("nginx is not installed")
    run = Started(tmp_path_factory.mktemp("tls"))
    folder, certs, address, gate = run.folder, run.folder / "certs", free_address(), free_address()
    make_certs(certs, [], ["client-1", "client-2"])
    make_certs(folder / "other", [], ["client-1"])
    (folder / "unknown").mkdir()
    shutil.copy(certs / "ca.crt", folder / "unknown")
    shutil.copy(folder / "other" / "clients" / "client-1" / "key", folder / "unknown")
    (certs / "keys" / "client-2.pub").rename(folder / "client-2.pub")
    (folder / "gateway.conf").write_text(gateway_config(certs, gate, address, folder / "gateway-run"))
    (folder / "gateway-run").mkdir()
    try:
        run.start("nginx", NGINX, "-e", "stderr", "-p", folder / "gateway-run", "-c", folder / "gateway.conf")
        arguments = ["--certs", "certs", "--address", address, "--output", "served", "-c", "join_timeout=300"]
        run.perdl("server", "server", "synthetic", *RUN, *arguments)
        wait_for(lambda: "waiting for 2 clients" in run.log("server"))

        for label, trust, server in (
            ("unknown key", ["--certs", "unknown"], gate),
            ("wrong authority", ["--certs", "other/clients/client-1"], gate),
            ("plain text to the gateway", ["--insecure"], gate),
            ("plain text to the server", ["--insecure"], address),
        ):
            run.perdl(label, "client", "--name", label, "--server", server, *trust)
        flower = {"FLWR_HOME": str(folder / "flower"), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        (folder / "flower").mkdir()
        link = f'[superlink.gate]\naddress = "{gate}"\nroot-certificates = "{certs / "ca.crt"}"\n'
        (folder / "flower" / "config.toml").write_text('[superlink]\ndefault = "gate"\n' + link)
        write_bundle(folder / "bundle", {})
        run.start("flwr run", SCRIPTS / "flwr", "run", "bundle", "gate", **flower)
        run.start("flwr stop", SCRIPTS / "flwr", "stop", "1", "gate", **flower)
        key = folder / "other" / "keys" / "client-1.pub"
        run.start("flwr register", SCRIPTS / "flwr", "supernode", "register", key, "gate", **flower)
        for label in set(run.all) - {"nginx", "server"}:
            run.wait(label)

        (folder / "client-2.pub").rename(certs / "keys" / "client-2.pub")
        wait_for(lambda: "client-2 may join" in run.log("server"))
        for i in (2, 1):
            trust = ["--certs", certs / "clients" / f"client-{i}"]
            run.perdl(f"client-{i}", "client", "--name", f"client-{i}", "--server", gate, *trust)
        for label in ("server", "client-1", "client-2"):
            run.wait(label)
        run.address, run.gate = address, gate
        yield run
    finally:
        run.end()


def dictionary(folder):
    with np.load(folder / "global_dictionary.npz") as file:
        return file["dictionary"]


def test_a_run_through_the_gateway_gives_the_bits_of_the_simulation(started, tmp_path):
    """And so of the run in plain text, which test_processes.py compares with the simulation."""
    codes = [started.wait(label) for label in ("server", "client-1", "client-2")]
    assert codes == [0, 0, 0], started.log("server") + started.log("client-1") + started.log("client-2")
    simulate(settings_from_values({**SETTINGS, "output": str(tmp_path)}))
    np.testing.assert_array_equal(dictionary(started.folder / "served"), dictionary(tmp_path))


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("unknown key", "does not admit this client (HTTP"),
        ("wrong authority", "its certificate is not signed by the authority in ca.crt"),
        ("plain text to the gateway", "speaks TLS, and this client plain text; start it with --certs FOLDER"),
        ("plain text to the server", "speaks TLS, and this client plain text; start it with --certs FOLDER"),
    ],
)
def test_who_should_not_join_is_told_why_in_one_line(started, label, words):
    assert started.wait(label) == 4, started.log(label)
    assert words in started.log(label)
    assert len([line for line in started.log(label).splitlines() if "note: no data given" not in line]) == 1


@pytest.mark.parametrize("label", ["flwr run", "flwr stop", "flwr register"])
def test_flowers_commands_with_the_authoritys_certificate_are_refused_at_the_gateway(started, label):
    assert started.wait(label) != 0
    assert "403" in started.log(label)


def test_the_gateway_has_passed_no_call_but_the_clients_own(started):
    refused = (started.folder / "gateway-run" / "refused.log").read_text()
    for call in ("start-run", "stop-run", "register-node"):
        assert f'"POST /v1/control/{call} HTTP/1.1" 403' in refused
    assert "unknown" not in started.log("server")
    log = (started.folder / "served" / "superlink.log").read_text()
    assert log.count("/v1/control/register-node") == 2  # the server's own, for the two clients
    assert log.count("/v1/control/start-run") == 1
    assert "get-fab" not in log


@pytest.mark.parametrize("path", ["/v1/control/list-runs", "/v1/runtime/pull-task", "/openapi.json", "/docs"])
def test_nothing_but_the_clients_interface_answers(started, path):
    host, _, port = started.gate.rpartition(":")
    context = ssl.create_default_context(cafile=started.folder / "certs" / "ca.crt")
    connection = http.client.HTTPSConnection(host, int(port), timeout=10, context=context)
    for method in ("GET", "POST"):
        connection.request(method, path, b"" if method == "POST" else None)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 403
    connection.close()


HOSTILE = """
import os
with open({marker!r}, "a") as file:
    file.write(os.environ.get("PERDL_TEST", "server") + "\\n")
import perdl_client.app
app = perdl_client.app.app
"""


def test_our_client_never_runs_the_servers_code_and_flowers_own_does(tmp_path):
    """One run whose bundle holds code: our client and a stock one take part, with keys."""
    run, address, certs, home = Started(tmp_path), free_address(), tmp_path / "certs", tmp_path / "home"
    make_certs(certs, [], ["client-1", "client-2"])
    settings = settings_from_values({**SETTINGS, "rounds": 1, "output": str(tmp_path / "out")})
    bundle = write_bundle(home / "bundle", settings.flat(), clientapp="perdl_hostile:app")
    (bundle / "perdl_hostile.py").write_text(HOSTILE.format(marker=str(tmp_path / "marker")))
    with superlink(address, home, log=tmp_path / "log", certs=certs):
        Members(certs / "keys", lambda call, request: control(call, request, address, certs), pytest.fail).update()
        try:
            for i, label, more in ((1, "ours", []), (2, "stock", ["--stock"])):
                trust = ["--server", address, "--certs", certs / "clients" / f"client-{i}"]
                own = {"PERDL_TEST": label, "FLWR_HOME": str(tmp_path / f"flower-{i}")}
                run.perdl(label, "client", "--name", f"client-{i}", *trust, *more, **own)
            number = submit(bundle, address, certs)
            wait_for(lambda: run_status(number, address, certs)[0].startswith("finished"), 240)
            assert run_status(number, address, certs) == ("finished:completed", ""), (tmp_path / "log").read_text()
            assert run.wait("ours", 60) == 0
        finally:
            run.end()
    ran = (tmp_path / "marker").read_text().split()
    assert "stock" in ran, "the server had code to run"
    assert "ours" not in ran
    simulate(settings_from_values({**settings.model_dump(exclude_unset=True), "output": str(tmp_path / "simulated")}))
    np.testing.assert_array_equal(dictionary(tmp_path / "out"), dictionary(tmp_path / "simulated"))


def answer(message, context):
    return Message(RecordDict(), reply_to=message)


class Node(threading.Thread):
    """A client in this process; keeps what it was told and how it ended."""

    def __init__(self, address, folder, **kwargs):
        super().__init__(daemon=True)
        credentials, self.events, self.error, self.stop = load_credentials(folder), [], None, threading.Event()
        self.arguments = (address, answer, {})
        self.kwargs = {"stop": self.stop, "on_event": self.events.append, "max_wait": 5, **kwargs}
        self.kwargs |= {"root_certificates": credentials.root_certificates, "authentication_keys": credentials.keys}
        self.start()

    def run(self):
        try:
            run_node(*self.arguments, **self.kwargs)
        except FederationError as error:
            self.error = str(error)

    def ended(self):
        self.join(60)
        assert not self.is_alive()
        return self.error

    def joined(self):
        return any("joined" in event for event in self.events)


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A SuperLink with keys, and what keeps those in step with their folder."""
    folder, address = tmp_path_factory.mktemp("secured"), free_address()
    certs, told = folder / "certs", []
    make_certs(certs, [], ["ada", "bob"])
    with superlink(address, folder / "home", log=folder / "log", certs=certs):
        members = Members(certs / "keys", lambda call, request: control(call, request, address, certs), told.append)
        members.update()
        assert told == []
        yield certs, address, members, told


def names(certs, address):
    nodes = ListNodesResponse.FromString(control("list-nodes", ListNodesRequest().SerializeToString(), address, certs))
    return sorted(node.name for node in nodes.nodes_info if node.status != "unregistered")


def test_keys_that_come_may_join_and_keys_that_go_may_not(secured):
    certs, address, members, told = secured
    assert names(certs, address) == ["ada", "bob"]
    ada = Node(address, certs / "clients" / "ada")
    wait_for(ada.joined)
    make_certs(certs, [], ["eve"])
    members.update()
    assert told == ["eve may join"]
    assert names(certs, address) == ["ada", "bob", "eve"]
    eve = Node(address, certs / "clients" / "eve")
    wait_for(eve.joined)

    (certs / "keys" / "eve.pub").unlink()
    (certs / "keys" / "bob.pub").unlink()  # who never joined
    members.update()
    assert sorted(told[1:]) == ["bob may not join any more", "eve may not join any more"]
    assert names(certs, address) == ["ada"]
    assert "does not admit this client" in eve.ended()
    assert ada.is_alive()

    told.clear()
    make_certs(certs, [], ["eve"])
    members.update()
    assert len(told) == 1
    assert "eve cannot join" in told[0]
    assert "after a restart only" in told[0]

    told.clear()
    (certs / "keys" / "wrong.pub").write_text("no key")
    members.update()
    assert any("wrong.pub is not a public key" in text for text in told)
    (certs / "keys").rename(certs / "away")  # a disk that is gone puts nobody out
    members.update()
    (certs / "away").rename(certs / "keys")
    told.clear()
    members.update()
    assert (names(certs, address), told) == (["ada"], [])
    ada.stop.set()
    assert ada.ended() is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(60, r"its clock is (59|6\d) s ahead of the server's"), (-400, r"(39\d|400) s behind the server's")],
)
def test_a_client_whose_clock_is_wrong_is_told_so(secured, monkeypatch, seconds, words):
    certs, address, _, _ = secured

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.datetime.now(tz) + datetime.timedelta(seconds=seconds)

    class Module:
        datetime, UTC = Clock, datetime.UTC

    monkeypatch.setattr("flwr.supercore.date.datetime", Module)
    error = Node(address, certs / "clients" / "ada").ended()
    assert error is not None
    with pytest.raises(FederationError, match=words):
        raise FederationError(error)


@contextmanager
def server(host="127.0.0.1", certs=None):
    """Something that is not a SuperLink, in TLS with these certificates or in plain text."""
    with http.server.ThreadingHTTPServer((host, 0), http.server.BaseHTTPRequestHandler) as it:
        it.RequestHandlerClass.log_message = lambda *_: None
        if certs is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certs / "server.crt", certs / "server.key")
            it.socket = context.wrap_socket(it.socket, server_side=True)
        threading.Thread(target=it.serve_forever, args=(0.05,), daemon=True).start()
        yield f"{host}:{it.server_port}"
        it.shutdown()


def shifted(days):
    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.datetime.now(tz) + datetime.timedelta(days=days)

    return Clock


@pytest.mark.parametrize(
    ("host", "days", "words"),
    [
        ("127.0.0.2", 0, r"its certificate is for other names .*--host 127\.0\.0\.2"),
        ("127.0.0.1", -500, r"its certificate has expired; this machine's clock says .*renew it"),
        ("127.0.0.1", 30, r"its certificate is not valid yet; this machine's clock says"),
    ],
)
def test_a_certificate_that_is_not_good_here_and_now_is_named(tmp_path, monkeypatch, host, days, words):
    make_certs(tmp_path, [], ["ada"])
    (tmp_path / "server.crt").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(perdl.deploy.certs, "datetime", shifted(days))
        make_certs(tmp_path)
    with server(host, tmp_path) as address:
        error = Node(address, tmp_path / "clients" / "ada").ended()
    with pytest.raises(FederationError, match=words):
        raise FederationError(error)


def test_tls_to_a_server_of_plain_text_is_told_at_once(tmp_path):
    make_certs(tmp_path, [], ["ada"])
    began = time.monotonic()
    with server() as address:
        assert "does not speak TLS, and this client does" in Node(address, tmp_path / "clients" / "ada").ended()
    assert time.monotonic() - began < 5


def test_a_server_that_goes_in_the_middle_of_a_handshake_is_waited_for(tmp_path):
    make_certs(tmp_path, [], ["ada"])
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up():
            while True:
                try:
                    listener.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=hang_up, daemon=True).start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        node = Node(address, tmp_path / "clients" / "ada", max_wait=1.0)
        assert f"no server at {address} for 1 s" in node.ended()
        listener.shutdown(socket.SHUT_RDWR)
