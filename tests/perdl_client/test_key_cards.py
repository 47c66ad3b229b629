"""Signed keys: accepted from the client that the authority names, refused from all who play it."""

from __future__ import annotations

import base64
import json
import shutil

import pytest

from common.errors import SettingsError
from common.protocol import ProtocolError
from perdl.deploy.certs import make_certs
from perdl_client.key_cards import CERTIFICATE, make_card, read_card

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certs")
    make_certs(folder / "ours", [], ["ada", "Dr. Böb", "x" * 100])
    make_certs(folder / "theirs", [], ["ada"])
    return folder


def home(certs, name="ada", whose="ours"):
    return certs / whose / "clients" / name


@pytest.mark.parametrize("name", ["ada", "Dr. Böb", "x" * 100])
def test_another_client_reads_the_key(certs, name):
    card = make_card(KEY, "run", name, home(certs, name))
    assert read_card(card, "run", name, home(certs)) == KEY
    assert len(card) < 2000


def edited(card, **parts):
    return json.dumps({**json.loads(card), **{key: base64.b64encode(part).decode() for key, part in parts.items()}})


def test_what_was_changed_on_the_way_is_refused(certs):
    card = make_card(KEY, "run", "ada", home(certs))
    bob = make_card(OTHER, "run", "Dr. Böb", home(certs, "Dr. Böb"))
    theirs = make_card(KEY, "run", "ada", home(certs, whose="theirs"))
    spoilt = bytearray(base64.b64decode(json.loads(card)["signature"]))
    spoilt[-1] ^= 1
    server = (certs / "ours" / "server.crt").read_bytes()
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    der = x509.load_pem_x509_certificate(server).public_bytes(Encoding.DER)
    for wrong, why in (
        (edited(card, key=OTHER), "is not signed by ada"),  # a server plays ada with a key of its own
        (edited(card, signature=bytes(spoilt)), "is not signed by ada"),
        (edited(card, signature=b""), "is not signed by ada"),
        (bob, "the certificate of ada is of another client"),
        (theirs, "not signed by the authority in ca.crt"),
        (edited(card, certificate=der), "not valid, or not signed by the authority|another client"),
        (edited(card, certificate=b"x"), "cannot be read"),
        (json.dumps({"key": json.loads(card)["key"]}), "the key of ada is not signed: start ada with --certs"),
        ("[]", "cannot be read"),
        ("{", "cannot be read"),
        ('{"key": 3}', "cannot be read"),
    ):
        with pytest.raises(ProtocolError, match=why):
            read_card(wrong, "run", "ada", home(certs, "Dr. Böb"))
    with pytest.raises(ProtocolError, match="is not signed by ada"):
        read_card(card, "another run", "ada", home(certs, "Dr. Böb"))


def test_without_certificates_keys_are_taken_as_they_come():
    assert read_card(make_card(KEY, "run", "ada", None), "run", "ada", None) == KEY


def test_a_folder_without_certificate_or_with_another_one_is_told_of(certs, tmp_path):
    mine = tmp_path / "ada"
    shutil.copytree(home(certs), mine)
    (mine / CERTIFICATE).unlink()
    with pytest.raises(SettingsError, match=r"client.crt is missing .* `perdl certs DIR --client ada` makes it"):
        make_card(KEY, "run", "ada", mine)
    shutil.copy(home(certs, "Dr. Böb") / CERTIFICATE, mine)
    with pytest.raises(SettingsError, match="of another key or name than ada's"):
        make_card(KEY, "run", "ada", mine)
    with pytest.raises(SettingsError, match="of another key or name than eve's"):
        make_card(KEY, "run", "eve", home(certs))
