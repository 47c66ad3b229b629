"""Key cards: a client's public key for secure sums, signed so that a server cannot play another client.

A card is JSON with ``key`` and, if the client has a folder of certificates, its ``certificate`` and a ``signature`` of
the run's id, the client's name and the key. Others accept it if the authority that they hold signed the certificate for
this name. So whoever keeps the authority's key can play clients: it should not be whoever runs the server.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from common.errors import SettingsError
from common.protocol import ProtocolError, client_uri
from common.secure_sum import SEED, digest
from perdl_client.node.tls import CA, load_credentials

CERTIFICATE = "client.crt"
"""File of a client's certificate, beside its key."""

_SCHEME = ec.ECDSA(SHA384())


def make_card(key: bytes, run: str, name: str, certs: Path | None) -> str:
    """Return a client's card.

    Parameters
    ----------
    key : bytes
        Its public key for secure sums.
    run : str
        The run's id.
    name : str
        The client.
    certs : Path, optional
        Folder of its certificate and key. Without it the card is not signed.

    Raises
    ------
    SettingsError
        If the folder holds no certificate of this client.
    """
    if certs is None:
        return json.dumps({"key": _text(key)})
    private, _ = load_credentials(certs).keys
    path = certs / CERTIFICATE
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        raise SettingsError(
            f'{CERTIFICATE} is missing or is no certificate, and privacy = "aggregated" needs it: whoever runs '
            f"`perdl certs DIR --client {name}` makes it, and {name} puts it beside its key"
        ) from None
    if certificate.public_key() != private.public_key() or not _is_of(certificate, name):
        raise SettingsError(f"{CERTIFICATE} is of another key or name than {name}'s: `perdl certs` makes a new one")
    card = {
        "key": key,
        "certificate": certificate.public_bytes(Encoding.DER),
        "signature": private.sign(_signed(key, run, name), _SCHEME),
    }
    return json.dumps({part: _text(content) for part, content in card.items()})


def is_signed(card: str) -> bool:
    """Return whether a card that this client made is signed.

    Parameters
    ----------
    card : str
        The card.
    """
    return "signature" in json.loads(card)


def read_card(card: str, run: str, name: str, certs: Path | None) -> bytes:
    """Return the public key on a client's card, after checking it.

    Parameters
    ----------
    card : str
        The card, as it came by the server.
    run : str
        The run's id.
    name : str
        The client whose card it is said to be.
    certs : Path, optional
        Folder of the reader's certificates. Without it no signature is checked.

    Raises
    ------
    ProtocolError
        If it is no card, or its signature or certificate is not valid.
    """
    try:
        parts = {part: base64.b64decode(text, validate=True) for part, text in json.loads(card).items()}
        key = parts["key"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ProtocolError(f"the key of {name} cannot be read") from None
    if len(key) != SEED:
        raise ProtocolError(f"the key of {name} has {len(key)} bytes")
    if certs is not None:
        _verify(parts, key, run, name, certs)
    return key


def _verify(parts: dict[str, bytes], key: bytes, run: str, name: str, certs: Path) -> None:
    """Raise unless the authority says that this is the client's certificate, and the client that this is its key."""
    if not {"certificate", "signature"} <= parts.keys():
        raise ProtocolError(f"the key of {name} is not signed: start {name} with --certs, as all clients of this run")
    try:
        certificate = x509.load_der_x509_certificate(parts["certificate"])
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        public = certificate.public_key()
    except (ValueError, x509.ExtensionNotFound):
        raise ProtocolError(f"the certificate of {name} cannot be read") from None
    now = datetime.now(UTC)
    valid = certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc
    authorities = x509.load_pem_x509_certificates(load_credentials(certs).root_certificates)
    if (
        not valid
        or ExtendedKeyUsageOID.CLIENT_AUTH not in usage
        or not any(_issued(certificate, a) for a in authorities)
    ):
        raise ProtocolError(f"the certificate of {name} is not valid, or not signed by the authority in {CA}")
    if not _is_of(certificate, name):
        raise ProtocolError(f"the certificate of {name} is of another client")
    if not isinstance(public, ec.EllipticCurvePublicKey):
        raise ProtocolError(f"the certificate of {name} has a key of another kind")
    try:
        public.verify(parts["signature"], _signed(key, run, name), _SCHEME)
    except InvalidSignature:
        raise ProtocolError(
            f"the key of {name} is not signed by {name}: the server, or who is between, changed it"
        ) from None


def _signed(key: bytes, run: str, name: str) -> bytes:
    return digest("perdl key card 1", run, name, key)


def _is_of(certificate: x509.Certificate, name: str) -> bool:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return False
    return names.get_values_for_type(x509.UniformResourceIdentifier) == [client_uri(name)]


def _issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
