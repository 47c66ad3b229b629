"""What the environment says of proxies: never for this machine, never in plain text, and told by name."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from common.errors import FederationError, SettingsError
from perdl_client.node.connection import Link
from perdl_client.node.proxy import proxy_for, without_proxies

SERVER = "example.org:8443"
ODD = {
    "HTTPS_PROXY": "ftp://x:1",
    "ALL_PROXY": "socks5://127.0.0.1:1080",
    "all_proxy": "socks://127.0.0.1:1080",
    "NO_PROXY": "localhost,[::1],fd07:b51a:cc66:f0::/64",
    "SSL_CERT_FILE": "/nowhere",
}


@pytest.mark.parametrize("server", ["127.0.0.1:8000", "localhost:8000", "[::1]:8000", "127.1.2.3:8000"])
@pytest.mark.parametrize("tls", [True, False])
def test_this_machine_needs_no_proxy(server, tls):
    assert proxy_for(server, tls=tls, environment=ODD | {"HTTP_PROXY": "http://p:1"}) is None


@pytest.mark.parametrize(
    ("server", "no_proxy", "spared"),
    [
        ("a.example.org:1", "example.org", True),
        ("a.example.org:1", ".example.org", True),
        ("a.example.org:1", "*.example.org", True),
        ("example.org:1", ".EXAMPLE.org", True),
        ("badexample.org:1", "example.org", False),
        ("example.org:1", "x, example.org:443", True),
        ("10.1.2.3:1", "10.0.0.0/8", True),
        ("10.1.2.3:1", "10.1.2.3", True),
        ("11.1.2.3:1", "10.0.0.0/8", False),
        ("[fd07::1]:1", "fd07::/16", True),
        ("[fd07::1]:1", "[fd07::1]", True),
        ("[fd07::1]:1", "[fd07::1]:8443", True),
        ("[fd08::1]:1", "fd07::/16,::1", False),
        ("anything:1", "*", True),
        ("anything:1", "", False),
        ("10.1.2.3:1", "10.0.0.0/99, ::/x, /", False),
    ],
)
def test_no_proxy_takes_names_addresses_and_networks(server, no_proxy, spared):
    found = proxy_for(server, tls=True, environment={"https_proxy": "http://p:1", "no_proxy": no_proxy})
    assert (found is None) == spared


def test_a_proxy_is_told_without_its_password():
    found = proxy_for(SERVER, tls=True, environment={"HTTPS_PROXY": "http://user:secret@proxy:3128"})
    assert found is not None
    assert (found.url, found.shown) == ("http://user:secret@proxy:3128", "http://proxy:3128")
    assert found.variable == "HTTPS_PROXY"
    bare = proxy_for(SERVER, tls=True, environment={"ALL_PROXY": "proxy:3128"})
    assert bare is not None
    assert (bare.url, bare.variable) == ("http://proxy:3128", "ALL_PROXY")


def test_plain_text_is_given_to_no_proxy():
    with pytest.raises(SettingsError, match=r"HTTP_PROXY names the proxy http://p:1, .* add example.org to NO_PROXY"):
        proxy_for(SERVER, tls=False, environment={"HTTP_PROXY": "http://u:w@p:1"})
    assert proxy_for(SERVER, tls=False, environment={"HTTPS_PROXY": "http://p:1"}) is None, "it is for TLS"


@pytest.mark.parametrize(
    "value", ["ftp://x:1", "socks5://x:1", "http://", "http://x:y", "http://x:99999", "http://[::1"]
)
def test_an_odd_proxy_is_told_with_its_variable(value):
    with pytest.raises(SettingsError, match=r"https_proxy is .*http://HOST:PORT only; unset https_proxy, or add"):
        proxy_for(SERVER, tls=True, environment={"https_proxy": value})


def test_helpers_on_loopback_get_neither_proxies_nor_certificates():
    assert without_proxies(ODD | {"PATH": "/bin", "http_proxy": "x"}) == {"PATH": "/bin"}


class Answering:
    """A proxy that answers every request alike and keeps what it was sent."""

    def __init__(self, answer: bytes) -> None:
        self.got: list[bytes] = []
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                one, _ = self._socket.accept()
            except OSError:
                return
            with one:
                one.settimeout(5)
                self.got.append(one.recv(65536))
                one.sendall(self._answer)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def proxy():
    made = []

    def start(answer: bytes) -> Answering:
        made.append(Answering(answer))
        return made[-1]

    yield start
    for one in made:
        one.close()


def join(server: str, ca: bytes | None, wait: float = 0.3) -> None:
    link = Link(server, threading.Event(), lambda text: None, lambda: None, wait, ca, None)
    with link.joined(None):
        pass


@pytest.fixture
def ca(tmp_path):
    from perdl.deploy.certs import make_certs

    make_certs(tmp_path / "certs")
    return (tmp_path / "certs" / "ca.crt").read_bytes()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
            "refuses to connect to example.org:8443 .403 Forbidden",
        ),
        (b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", "refuses to connect to .* .407"),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", "answers: 502"),
    ],
)
def test_what_a_proxy_answers_is_not_told_as_the_servers(monkeypatch, proxy, ca, answer, told):
    one = proxy(answer)
    monkeypatch.setenv("HTTPS_PROXY", one.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(FederationError, match=f"the proxy {one.url}, named by HTTPS_PROXY, {told}"):
        join(SERVER, ca)
    assert one.got[0].startswith(b"CONNECT example.org:8443")


def test_a_proxy_that_is_not_there_is_named(monkeypatch, ca):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
    with pytest.raises(FederationError, match=rf"the proxy http://127.0.0.1:{port}, named by https_proxy, cannot be"):
        join(SERVER, ca)


def test_loopback_asks_no_proxy_whatever_the_environment_says(monkeypatch, proxy):
    one = proxy(b"HTTP/1.1 403 Forbidden\r\n\r\n")
    for key, value in (ODD | {"HTTP_PROXY": one.url, "ALL_PROXY": one.url}).items():
        monkeypatch.setenv(key, value)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(FederationError, match=f"no server at 127.0.0.1:{port} for 0.1 s"):
        join(f"127.0.0.1:{port}", None, wait=0.1)
    assert not one.got


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b'{"code": []}', b"[" * 5000, b'{"detail": {"a": 1}}'])
def test_a_server_that_answers_garbled_json_is_told_in_one_line(proxy, body):
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json; charset=nonsense\r\nContent-Length: %d\r\n\r\n"
    server = proxy(head % len(body) + body)
    with pytest.raises(FederationError, match=r"does not admit this client .HTTP 400") as caught:
        join(server.url.removeprefix("http://"), None, wait=0.1)
    assert "\n" not in str(caught.value)
    assert os.environ.get("HTTP_PROXY") is None
