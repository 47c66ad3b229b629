"""The gateway's configuration in a real nginx, before a server that tells which paths reach it."""

from __future__ import annotations

import http.client
import http.server
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse

import pytest
from typer.testing import CliRunner

from common.errors import SettingsError
from perdl.cli.app import app
from perdl.deploy.certs import make_certs
from perdl.deploy.gateway import gateway_config

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def server_context(certs):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs / "server.crt", certs / "server.key")
    return context


class Upstream(http.server.ThreadingHTTPServer):
    """Answers each request with its path and the size of its body."""

    def __init__(self, context):
        super().__init__(("127.0.0.1", 0), Answer)
        self.seen: list[str] = []
        self.socket = context.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version, wbufsize = "HTTP/1.1", -1  # header and body in one segment

    def do_POST(self):
        self.server.seen.append(self.path)
        if self.headers.get("transfer-encoding"):
            size = 0
            while chunk := int(self.rfile.readline(), 16):
                size += len(self.rfile.read(chunk + 2)) - 2
            self.rfile.readline()
        else:
            size = len(self.rfile.read(int(self.headers.get("content-length", 0))))
        self.send_response(200)
        body = f"{self.path} {size}".encode()
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    """A running gateway; its folder has a blank in its name."""
    if NGINX is None:
        pytest.skip("nginx is not installed")
    folder = tmp_path_factory.mktemp("a gateway")
    make_certs(folder / "certs")
    upstream, port = Upstream(server_context(folder / "certs")), free_port()
    command = [sys.executable, "-m", "perdl", "gateway", "--certs", "certs", "--listen", f"127.0.0.1:{port}"]
    command += ["--to", f"127.0.0.1:{upstream.server_port}", "--run", "run"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    assert "nginx -e stderr -p" in done.stderr
    (folder / "gateway.conf").write_text(done.stdout)
    with (folder / "nginx.log").open("wb") as log:
        arguments = [NGINX, "-e", "stderr", "-p", folder / "run", "-c", folder / "gateway.conf"]
        nginx = subprocess.Popen(arguments, stderr=log, stdout=log)
    try:
        until = time.monotonic() + 10
        while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
            assert nginx.poll() is None, (folder / "nginx.log").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        yield folder, port, upstream
        assert nginx.poll() is None
    finally:
        nginx.terminate()
        nginx.wait(10)
        upstream.shutdown()


def ask(gateway, path, method="POST", body=b"x"):
    folder, port, _ = gateway
    context = ssl.create_default_context(cafile=folder / "certs" / "ca.crt")
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    try:
        connection.putrequest(method, path)
        connection.putheader("content-length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("call", ["pull-messages", "push-object", "activate-node", "get-run"])
def test_what_clients_use_is_passed_on(gateway, call):
    assert ask(gateway, f"/v1/fleet/{call}") == (200, f"/v1/fleet/{call} 1")


def test_health_is_passed_on(gateway):
    assert ask(gateway, "/health", "GET", b"") == (200, "/health 0")


FORBIDDEN = [
    "/v1/control/start-run",
    "/v1/control/register-node",
    "/v1/runtime/pull-task",
    "/openapi.json",
    "/docs",
    "/",
]
TRICKS = ["/v1/fleet/../control/stop-run", "/v1/fleet/%2e%2e/control/stop-run", "/v1/fleet/..%2fcontrol/stop-run"]
TRICKS += [
    "//v1/control/stop-run",
    "/v1/fleet/../../health",
    "/V1/FLEET/get-run",
    "/health/../v1/control/x",
]
TRICKS += ["/v1/control/x#/../../fleet/", "/v1/control/stop-run?/v1/fleet/", "/v1/fleet/./../control/stop-run"]


@pytest.mark.parametrize("path", FORBIDDEN + TRICKS)
def test_nothing_else_reaches_the_superlink(gateway, path):
    seen = gateway[2].seen
    before = len(seen)
    status, _ = ask(gateway, path)
    reached = seen[before:]
    assert status in (400, 403) or reached == ["/health"], (status, reached)
    assert not [one for one in reached if "control" in one or "runtime" in one or "docs" in one]
    if path in FORBIDDEN:
        assert status == 403


@pytest.mark.parametrize("path", ["/v1/fleet/x/../../control/y/../../fleet/get-run", "/v1/control/../fleet/get-run"])
def test_the_path_that_was_matched_is_the_one_that_is_passed(gateway, path):
    assert ask(gateway, path) == (200, "/v1/fleet/get-run 1")


@pytest.mark.parametrize("escaped", ["%252e%252e", "..%252f..", "%00", "%0d%0aX:%20y"])
def test_escapes_do_not_lead_out_of_the_fleet(gateway, escaped):
    before = len(gateway[2].seen)
    ask(gateway, f"/v1/fleet/{escaped}/control/stop-run")
    for path in gateway[2].seen[before:]:
        assert path.startswith("/v1/fleet/")
        assert ".." not in urllib.parse.unquote(path).split("/")


@pytest.mark.parametrize("path", ["/v1/fleet/get-run", "/v1/fleet/activate-node"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "CONNECT"])
def test_only_posts_are_passed(gateway, method, path):
    assert ask(gateway, path, method)[0] in (400, 403, 405)


def test_large_messages_pass(gateway):
    assert ask(gateway, "/v1/fleet/push-object", body=bytes(30_000_000)) == (200, "/v1/fleet/push-object 30000000")


def test_who_asks_to_join_again_and_again_is_told_to_wait(gateway):
    folder, port, _ = gateway
    context = ssl.create_default_context(cafile=folder / "certs" / "ca.crt")
    own = ("127.0.0.9", 0)  # limits are by address, and other tests may have asked from the usual one
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context, source_address=own)
    told = []
    for _ in range(200):
        connection.request("POST", "/v1/fleet/activate-node", b"x")
        answer = connection.getresponse()
        answer.read()
        told.append(answer.status)
    connection.close()
    assert set(told) == {200, 429}
    assert 50 <= told.count(200) < 150
    assert ask(gateway, "/v1/fleet/pull-messages")[0] == 200


def test_neither_plain_text_nor_old_tls_is_spoken(gateway):
    folder, port, _ = gateway
    plain = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    plain.request("POST", "/v1/fleet/get-run", b"x")
    assert plain.getresponse().status == 400
    plain.close()
    old = ssl.create_default_context(cafile=folder / "certs" / "ca.crt")
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", port), 10) as s, pytest.raises((ssl.SSLError, ConnectionError)):
        old.wrap_socket(s, server_hostname="localhost")


def test_a_superlink_with_another_authoritys_certificate_gets_nothing(gateway, tmp_path):
    """The gateway holds the SuperLink to its authority too."""
    folder, _, _ = gateway
    make_certs(tmp_path / "other")
    impostor, port = Upstream(server_context(tmp_path / "other")), free_port()
    config = gateway_config(
        folder / "certs", f"127.0.0.1:{port}", f"127.0.0.1:{impostor.server_port}", tmp_path / "run"
    )
    (tmp_path / "run").mkdir()
    (tmp_path / "gateway.conf").write_text(config)
    arguments = [NGINX, "-e", "stderr", "-p", tmp_path / "run", "-c", tmp_path / "gateway.conf"]
    nginx = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 10
        while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert ask((folder, port, impostor), "/v1/fleet/get-run")[0] == 502
        assert impostor.seen == []
    finally:
        nginx.terminate()
        nginx.wait(10)
        impostor.shutdown()


@pytest.mark.parametrize("listen", ["8443", "host:", ":1", "0.0.0.0:99999", "a b:1", "x;}:1", '"x":1'])
def test_an_address_that_is_none_is_refused(tmp_path, listen):
    make_certs(tmp_path)
    with pytest.raises(SettingsError):
        gateway_config(tmp_path, listen, "127.0.0.1:8000", tmp_path / "run")


@pytest.mark.parametrize("name", ['a"b', "a$b", "a\\b", "a\nb"])
def test_a_path_that_nginx_cannot_be_told_is_refused(tmp_path, name):
    make_certs(tmp_path / "certs")
    with pytest.raises(SettingsError, match="choose another folder"):
        gateway_config(tmp_path / "certs", "0.0.0.0:8443", "127.0.0.1:8000", tmp_path / name)


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
@pytest.mark.parametrize("listen", ["0.0.0.0:8443", "[::1]:8443", "localhost:8443"])
def test_nginx_takes_the_configuration(tmp_path, monkeypatch, listen):
    monkeypatch.chdir(tmp_path)
    make_certs(tmp_path / "certs")
    done = CliRunner().invoke(app, ["gateway", "--certs", "certs", "--listen", listen])
    assert done.exit_code == 0, done.output
    (tmp_path / "gateway.conf").write_text(done.stdout)
    arguments = [NGINX, "-t", "-e", "stderr", "-p", tmp_path / "gateway-run", "-c", tmp_path / "gateway.conf"]
    tested = subprocess.run(arguments, capture_output=True, text=True)
    assert tested.returncode == 0, tested.stderr
