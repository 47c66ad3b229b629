"""Certificates and keys: what is made, what is left alone, what Flower and OpenSSH make of it, and what is refused."""

from __future__ import annotations

import datetime
import shutil
import ssl
import subprocess
from argparse import Namespace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.cli.supernode.register import try_load_public_key
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.cli.flower_supernode import _try_setup_client_authentication
from typer.testing import CliRunner

import perdl.deploy.certs
from common.errors import SettingsError
from perdl.cli.app import app
from perdl.deploy.certs import check_certs, make_certs, public_key, read_keys
from perdl_client.node.tls import load_credentials


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def handshake(ca: Path, folder: Path, host: str) -> None:
    """A TLS handshake in memory, with the checks that any client makes."""
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(folder / "server.crt", folder / "server.key")
    client_side = ssl.create_default_context(cafile=ca)
    client_side.verify_flags |= ssl.VERIFY_X509_STRICT  # Python's own default from 3.13 on
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_side.wrap_bio(down, up, server_hostname=host)
    server = server_side.wrap_bio(up, down, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certs") / "certs"
    make_certs(folder, ["perdl.example.org", "192.0.2.7"], ["ada", "Dr. Bob"])
    return folder


@pytest.fixture
def certs(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / "certs"))


class Past(datetime.datetime):
    """Two years ago."""

    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.now(tz) - datetime.timedelta(days=730)


@pytest.fixture
def past(monkeypatch):
    """Make certificates as two years ago, for as long as the test says."""

    def make(*arguments, **kwargs):
        with monkeypatch.context() as patch:
            patch.setattr(perdl.deploy.certs, "datetime", Past)
            return make_certs(*arguments, **kwargs)

    return make


def test_private_files_are_for_their_owner_alone(made):
    modes = {str(path.relative_to(made)): path.stat().st_mode & 0o777 for path in made.rglob("*")}
    keys = [name for name in modes if name.endswith("key")]
    assert sorted(keys) == ["ca.key", "clients/Dr. Bob/key", "clients/ada/key", "server.key"]
    assert {modes[name] for name in keys} == {0o600}
    assert {modes[f"clients{name}"] for name in ("", "/ada", "/Dr. Bob")} == {0o700}
    assert made.stat().st_mode & 0o777 == 0o700
    assert sorted(name for name in modes if name.startswith(("clients/ada/", "keys/"))) == [
        "clients/ada/ca.crt", "clients/ada/client.crt", "clients/ada/key", "clients/ada/key.pub",
        "keys/Dr. Bob.pub", "keys/ada.pub"
    ]  # fmt: skip


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "perdl.example.org", "192.0.2.7"])
def test_a_client_with_the_authority_trusts_the_server_under_each_of_its_names(made, host):
    handshake(made / "clients" / "ada" / "ca.crt", made, host)
    check_certs(made, host)


def test_neither_another_name_nor_another_authority_is_trusted(made, tmp_path):
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(made / "ca.crt", made, "other.example.org")
    make_certs(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        handshake(tmp_path / "other" / "ca.crt", made, "localhost")


def test_keys_are_what_flower_and_openssh_read(made, tmp_path):
    key = made / "clients" / "ada" / "key"
    private, public = _try_setup_client_authentication(
        Namespace(auth_supernode_private_key=str(key), auth_supernode_public_key=None)
    )
    assert isinstance(private.curve, ec.SECP384R1)
    assert try_load_public_key(made / "keys" / "ada.pub") == public_key_to_bytes(public)
    assert load_credentials(key.parent).keys[1] == public
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is missing")
    told = subprocess.run(["ssh-keygen", "-y", "-f", key], capture_output=True, check=True).stdout
    assert told.split()[:2] == (made / "keys" / "ada.pub").read_bytes().split()[:2]
    own = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", tmp_path / "key"]
    subprocess.run(own, check=True)  # a client that makes its own
    shutil.copy(made / "ca.crt", tmp_path)
    assert public_key(tmp_path / "key.pub") == public_key_to_bytes(load_credentials(tmp_path).keys[1])


def test_nothing_that_is_there_is_made_again(certs):
    before = contents(certs)
    assert make_certs(certs, [], ["ada"]) == []
    assert make_certs(certs, ["192.0.2.7", "perdl.example.org"], ["ada"]) == []
    assert contents(certs) == before


def test_a_client_added_later_keeps_all_else_and_needs_no_authority_key(certs):
    before = contents(certs)
    (certs / "ca.key").unlink()  # kept elsewhere
    assert make_certs(certs, [], ["eve"]) == [certs / "clients" / "eve" / "key", certs / "keys" / "eve.pub"]
    after = contents(certs)
    assert {name for name in after if before.get(name) != after[name]} == {
        "clients/eve/key", "clients/eve/key.pub", "clients/eve/ca.crt", "keys/eve.pub"
    }  # fmt: skip
    assert set(read_keys(certs / "keys", pytest.fail).values()) == {"ada", "Dr. Bob", "eve"}


def test_other_hosts_make_the_servers_certificate_anew_and_nothing_else(certs):
    before = contents(certs)
    assert make_certs(certs, ["new.example.org"]) == [certs / "server.crt"]
    after = contents(certs)
    assert {name for name in after if before[name] != after[name]} == {"server.crt"}
    handshake(certs / "ca.crt", certs, "new.example.org")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(certs / "ca.crt", certs, "perdl.example.org")


def test_an_expired_certificate_is_renewed_with_its_names(tmp_path, past):
    past(tmp_path, ["perdl.example.org"])
    with pytest.raises(SettingsError, match=r"server\.crt expired on .*`perdl certs"):
        check_certs(tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        handshake(tmp_path / "ca.crt", tmp_path, "perdl.example.org")
    assert make_certs(tmp_path) == [tmp_path / "server.crt"]
    handshake(tmp_path / "ca.crt", tmp_path, "perdl.example.org")
    check_certs(tmp_path)


def test_a_certificate_that_does_not_fit_its_key_is_made_anew(certs):
    from_other("server.key")(certs)
    assert make_certs(certs) == [certs / "server.crt"]
    check_certs(certs, "perdl.example.org")


def test_an_expired_authority_is_not_renewed_in_silence(tmp_path, past, monkeypatch):
    monkeypatch.setattr(perdl.deploy.certs, "CA_DAYS", 10)
    past(tmp_path)
    with pytest.raises(SettingsError, match=r"ca\.crt has expired; take a new folder"):
        make_certs(tmp_path)
    with pytest.raises(SettingsError, match=r"ca\.crt expired"):
        check_certs(tmp_path)
    server, ca = (x509.load_pem_x509_certificate((tmp_path / name).read_bytes()) for name in ("server.crt", "ca.crt"))
    assert server.not_valid_after_utc == ca.not_valid_after_utc  # never beyond its authority


def test_a_client_with_a_key_of_its_own_gets_no_other(certs):
    shutil.rmtree(certs / "clients" / "ada")
    make_certs(certs, [], ["ada"])  # a certificate of the key that it has, and no key
    assert sorted(path.name for path in (certs / "clients" / "ada").iterdir()) == ["ca.crt", "client.crt"]
    found = x509.load_pem_x509_certificate((certs / "clients" / "ada" / "client.crt").read_bytes())
    assert public_key_to_bytes(found.public_key()) == public_key(certs / "keys" / "ada.pub")
    (certs / "ca.key").rename(certs / "elsewhere")
    with pytest.raises(SettingsError, match="ada has a key already"):
        make_certs(certs, [], ["ada"])
    shutil.rmtree(certs / "clients" / "ada")
    shutil.copytree(certs / "clients" / "Dr. Bob", certs / "clients" / "ada")
    with pytest.raises(SettingsError, match=r"ada\.pub is another key"):
        make_certs(certs, [], ["ada"])


@pytest.mark.parametrize("host", ["", "a b", "host:8000", "https://host", "10.0.0.256", "größe.de", "-a", "a..b"])
def test_a_host_that_is_none_is_refused_before_anything_is_made(tmp_path, host):
    with pytest.raises(SettingsError, match="neither an IP address nor a host name"):
        make_certs(tmp_path / "certs", [host])
    assert not (tmp_path / "certs").exists()


@pytest.mark.parametrize("name", ["", "a/b", "..", "x\n", "x" * 101])
def test_a_name_that_no_client_may_have_is_refused_before_anything_is_made(tmp_path, name):
    with pytest.raises(SettingsError, match="cannot be a client's name"):
        make_certs(tmp_path / "certs", [], [name])
    assert not (tmp_path / "certs").exists()


def from_other(name, other="server"):
    def change(folder):
        make_certs(folder.parent / "other")
        shutil.copy(folder.parent / "other" / name, folder / name)

    return change


def replaced(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def private_for_public(folder):
    shutil.copy(folder / "clients" / "ada" / "key", folder / "keys" / "ada.pub")


RSA = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJeB0lJ6bTRfzVu3aSAl4HDy6tZlQmOPKzvhqZ6NGrUU x\n"
BROKEN = {
    "no authority": (lambda folder: (folder / "ca.crt").unlink(), r"ca\.crt is missing; make it with `perdl certs`"),
    "no certificate": (lambda folder: (folder / "server.crt").unlink(), r"server\.crt is missing"),
    "no key": (lambda folder: (folder / "server.key").unlink(), r"server\.key is missing"),
    "no keys": (lambda folder: shutil.rmtree(folder / "keys"), r"keys is missing; put the public keys there"),
    "not PEM": (replaced("server.crt", b"x"), r"server\.crt is not a certificate in PEM"),
    "no private key": (replaced("server.key", b"\xff\x00"), r"server\.key is not a private key"),
    "key of another": (from_other("server.key"), r"server\.key is not the key of .*server\.crt"),
    "other authority": (from_other("ca.crt"), r"server\.crt is not signed by .*ca\.crt"),
    "not a public key": (replaced("keys/ada.pub", b"hello"), r"ada\.pub is not a public key in OpenSSH's format"),
    "a private key": (private_for_public, r"ada\.pub is not a public key in OpenSSH's format"),
    "another kind": (replaced("keys/ada.pub", RSA), r"ada\.pub is a key of another kind; make one with `ssh-keygen"),
    "twice": (lambda f: shutil.copy(f / "keys/ada.pub", f / "keys/b.pub"), r"b\.pub holds the same key as ada\.pub"),
    "no name": (lambda f: shutil.copy(f / "keys/ada.pub", f / "keys/ .pub"), "cannot be a client's name"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_folder_that_would_fail_later_is_refused_at_once(certs, case):
    breaks, words = BROKEN[case]
    check_certs(certs)
    breaks(certs)
    with pytest.raises(SettingsError, match=words) as failure:
        check_certs(certs)
    assert "\n" not in str(failure.value)


def test_a_certificate_for_another_address_or_of_the_future_is_refused(certs, monkeypatch):
    with pytest.raises(SettingsError, match=r"server\.crt is not for 127\.0\.0\.2"):
        check_certs(certs, "127.0.0.2")
    monkeypatch.setattr(perdl.deploy.certs, "datetime", Past)
    with pytest.raises(SettingsError, match=r"ca\.crt is not valid before .* this machine's clock says"):
        check_certs(certs)


CLIENTS = {
    "no authority": (lambda folder: (folder / "ca.crt").unlink(), r"ca\.crt cannot be read"),
    "no key": (lambda folder: (folder / "key").unlink(), r"key cannot be read .* must hold ca\.crt and key"),
    "not PEM": (replaced("ca.crt", b"x"), r"ca\.crt is not a certificate in PEM"),
    "public for private": (lambda f: shutil.copy(f / "key.pub", f / "key"), "is not a private key of OpenSSH"),
    "PEM of another form": (lambda f: shutil.copy(f.parents[1] / "server.key", f / "key"), "is not a private key of"),
}


@pytest.mark.parametrize("case", CLIENTS)
def test_a_clients_folder_is_checked_too(certs, case):
    breaks, words = CLIENTS[case]
    breaks(certs / "clients" / "ada")
    with pytest.raises(SettingsError, match=words):
        load_credentials(certs / "clients" / "ada")


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is missing")
def test_a_key_with_a_passphrase_is_refused_with_the_cure(certs):
    folder = certs / "clients" / "ada"
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", folder / "key"], check=True, capture_output=True)
    with pytest.raises(SettingsError, match=r"without a passphrase .*`ssh-keygen -t ecdsa"):
        load_credentials(folder)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["server"], "neither --certs nor --insecure is given"),
        (["server", "--insecure", "--certs", "certs"], "both --certs and --insecure are given"),
        (["server", "--certs", "none"], "none/ca.crt is missing"),
        (["client", "--name", "a"], "neither --certs nor --insecure is given"),
        (["client", "--name", "a", "--insecure", "--certs", "x"], "both --certs and --insecure"),
        (["client", "--name", "a", "--certs", "none"], "none/ca.crt cannot be read"),
        (["client", "--name", "a", "--insecure", "--server", "192.0.2.1:9"], "add --trust-network if"),
        (["client", "--name", "a", "--insecure", "--server", "localhost.example.org:9"], "--certs FOLDER"),
        (["gateway", "--certs", "none", "--listen", "0.0.0.0:1"], "none/ca.crt is missing"),
        (["certs", "x", "--client", "a/b"], "cannot be a client's name"),
    ],
)
def test_what_is_not_said_or_not_there_is_one_line_and_exit_code_2(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2, done.output
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_plain_text_to_another_machine_needs_a_second_word(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["client", "--name", "a", "--insecure", "--trust-network", "--server", "192.0.2.1:9", "--wait", "0"]
    monkeypatch.setattr("perdl_client.node.runner.run_client", lambda server, *_, **__: f"would have joined {server}")
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0
    assert done.stdout.endswith("a: done: would have joined 192.0.2.1:9\n")


def test_the_command_tells_what_it_made(tmp_path):
    command = ["certs", str(tmp_path / "certs"), "--host", "192.0.2.7", "--client", "ada", "--client", "bob"]
    first, second = (CliRunner().invoke(app, command) for _ in range(2))
    assert first.exit_code == second.exit_code == 0
    assert first.stdout.count("made ") == 10
    assert "has all of that already" in second.stdout
    check_certs(tmp_path / "certs", "192.0.2.7")
