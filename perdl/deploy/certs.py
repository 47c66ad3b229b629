"""Certificates and keys of a deployment: they prove who the server is, and say who may join.

A folder ``DIR`` holds the certificate authority (``ca.crt``, ``ca.key``), the server's certificate and key
(``server.crt``, ``server.key``) and the public keys of all clients that may join (``keys/NAME.pub``). Each client gets
a folder ``clients/NAME`` with ``ca.crt``, ``key``, ``key.pub`` and ``client.crt``. Keys of clients are in OpenSSH's
formats, because Flower's own commands read these. ``client.crt`` says to the other clients that the key is NAME's;
secure sums need it (``privacy = "aggregated"``).
"""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
    load_ssh_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, uses_nist_ec_curve

from common.errors import SettingsError
from common.files import write_atomically
from common.mask import LENGTH
from common.protocol import ProtocolError, check_name, client_uri

CA, CA_KEY, CERTIFICATE, KEY, KEYS = "ca.crt", "ca.key", "server.crt", "server.key", "keys"
CLIENT_CERTIFICATE = "client.crt"
LOOPBACK = ("localhost", "127.0.0.1", "::1")  # the SuperLink listens there, and the gateway calls it there
CA_DAYS = 3650  # long, because every client holds the authority's certificate
_EARLY = timedelta(days=1)  # valid since yesterday: clients' clocks may be slow

Key = ec.EllipticCurvePrivateKey
T = TypeVar("T")


def make_certs(folder: Path, hosts: Sequence[str] = (), clients: Sequence[str] = (), days: int = 365) -> list[Path]:
    """Make the certificates and keys that are missing. No key and no authority is ever overwritten.

    Parameters
    ----------
    folder : Path
        The server's folder.
    hosts : sequence of str
        Names and IP addresses under which clients reach the server, beside its loopback ones. The server's certificate
        is made again if it is for other hosts than these, or has expired.
    clients : sequence of str
        Names of clients that get a key and may join.
    days : int
        Days for which the server's certificate is valid, at most as long as the authority.

    Returns
    -------
    list of Path
        The files made.

    Raises
    ------
    SettingsError
        If a name is not valid, or existing files do not fit together.
    """
    names = [_general_name(host) for host in dict.fromkeys([*LOOPBACK, *(host.strip("[]") for host in hosts)])]
    for client in clients:
        check_client(client)
    made: list[Path] = []
    authority = _authority(folder, made)
    _server(folder, authority, names, bool(hosts), days, made)
    (folder / KEYS).mkdir(exist_ok=True)
    for client in dict.fromkeys(clients):
        _client(folder, client, authority, made)
    return made


def make_secret(path: Path, server: Path) -> None:
    """Write a new secret for clients of masked runs (``privacy = "masked"``), which only this user may read.

    Parameters
    ----------
    path : Path
        File to write; it must not exist.
    server : Path
        The server's folder. The secret must not be in it.

    Raises
    ------
    SettingsError
        If the file exists, is in the server's folder or cannot be written.
    """
    if path.resolve().is_relative_to(server.resolve()):
        raise SettingsError(f"{path} is in the server's folder, and the server must not have it: choose another place")
    if path.exists():
        raise SettingsError(f"{path} is there already: keep it if clients have it, or choose another name")
    _write(path, secrets.token_hex(LENGTH).encode() + b"\n", [], mode=0o600)


def check_certs(folder: Path, host: str = "localhost", *, keys: bool = True) -> None:
    """Check a server's folder. Without this check, errors would come late or only at the clients.

    Parameters
    ----------
    folder : Path
        The server's folder.
    host : str
        Where the SuperLink listens; the certificate must be for it.
    keys : bool
        Whether to check the clients' public keys too. A gateway does not need them.

    Raises
    ------
    SettingsError
        If a file is missing or cannot be read, a certificate is not valid now or not signed by the authority, a key
        does not fit, or a client's public key is not valid.
    """
    cure = f"`perdl certs {folder}` makes a new one"
    ca, certificate = _certificate(folder / CA), _certificate(folder / CERTIFICATE)
    key = _read(folder / KEY, "private key", lambda content: load_pem_private_key(content, None))
    _check_time(folder / CA, ca, "`perdl certs` makes a new one in another folder, and all clients need it")
    _check_time(folder / CERTIFICATE, certificate, cure)
    if not _fits(certificate, key):
        raise SettingsError(f"{folder / KEY} is not the key of {folder / CERTIFICATE}; {cure} for the key")
    if not _issued(certificate, ca):
        raise SettingsError(f"{folder / CERTIFICATE} is not signed by {folder / CA}; {cure} for this authority")
    if host not in {str(value) for value in _alternatives(certificate)}:
        raise SettingsError(
            f"{folder / CERTIFICATE} is not for {host}, where the server listens; add --host {host} to "
            f"`perdl certs {folder}`"
        )
    if not keys:
        return
    if not (folder / KEYS).is_dir():
        raise SettingsError(f"{folder / KEYS} is missing; put the public keys there of all who may join, as NAME.pub")
    read_keys(folder / KEYS, _raise)


def read_keys(folder: Path, complain: Callable[[SettingsError], object]) -> dict[bytes, str]:
    """Read the ``NAME.pub`` files of the clients that may join; return the name for each public key (PEM).

    Parameters
    ----------
    folder : Path
        Folder of the public keys.
    complain : callable (SettingsError) -> object
        Called for each file that is left out because it holds no key, or the same key as another one.
    """
    found: dict[bytes, str] = {}
    for path in sorted(folder.glob("*.pub")):
        try:
            name, key = check_client(path.stem), public_key(path)
            if key in found:
                raise SettingsError(f"{path} holds the same key as {found[key]}.pub; each client needs its own")
            found[key] = name
        except SettingsError as error:
            complain(error)
    return found


def public_key(path: Path) -> bytes:
    """Read a public key as ``ssh-keygen`` writes it; return it as PEM.

    Parameters
    ----------
    path : Path
        File of the key.

    Raises
    ------
    SettingsError
        If the file holds no public key, or one of a kind that Flower does not accept.
    """
    key = _read(path, "public key in OpenSSH's format", load_ssh_public_key)
    if not isinstance(key, ec.EllipticCurvePublicKey) or not uses_nist_ec_curve(key):
        raise SettingsError(f"{path} is a key of another kind; make one with `ssh-keygen -t ecdsa -b 384 -N '' -f key`")
    return public_key_to_bytes(key)


def check_client(name: str) -> str:
    """Return a client's name, or raise if it is not valid (`common.protocol.check_name`).

    Parameters
    ----------
    name : str
        Name of a client.
    """
    try:
        return check_name(name)
    except ProtocolError as error:
        raise SettingsError(str(error)) from None


def _authority(folder: Path, made: list[Path]) -> tuple[x509.Certificate, Key | None]:
    """Return the authority, made if missing. Its key may be elsewhere: only signing a certificate needs it."""
    path, key_path = folder / CA, folder / CA_KEY
    if path.exists() and not key_path.exists():
        return _certificate(path), None
    key = _private_key(key_path, made)
    if not path.exists():
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "perdl certificate authority")])
        builder = _builder(name, name, key.public_key(), datetime.now(UTC) + timedelta(days=CA_DAYS))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        usage = x509.KeyUsage(*(at in (5, 6) for at in range(9)))  # signs certificates and revocations
        _write(path, builder.add_extension(usage, critical=True).sign(key, hashes.SHA384()), made)
    certificate = _certificate(path)
    if not _fits(certificate, key):
        raise SettingsError(f"{key_path} is not the key of {path}; put the right one there, or take another folder")
    return certificate, key


def _server(
    folder: Path,
    authority: tuple[x509.Certificate, Key | None],
    names: list[x509.GeneralName],
    told: bool,
    days: int,
    made: list[Path],
) -> None:
    path, (ca, ca_key) = folder / CERTIFICATE, authority
    key = _private_key(folder / KEY, made)
    if path.exists():
        now = _certificate(path)
        same = not told or {name.value for name in names} == set(_alternatives(now))
        if same and now.not_valid_after_utc > datetime.now(UTC) and _issued(now, ca) and _fits(now, key):
            return
        names = names if told else list(_alternatives(now).values())
    if ca_key is None:
        raise SettingsError(f"{folder / CA_KEY} is missing; a new server certificate must be signed with it")
    if ca.not_valid_after_utc <= datetime.now(UTC):
        raise SettingsError(f"{folder / CA} has expired; take a new folder, and hand its {CA} to all clients")
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "perdl server")])
    end = min(datetime.now(UTC) + timedelta(days=days), ca.not_valid_after_utc)
    builder = _builder(subject, ca.subject, key.public_key(), end)
    for extension, critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.KeyUsage(*(at == 0 for at in range(9))), True),  # signs handshakes
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectAlternativeName(names), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), False),
    ):
        builder = builder.add_extension(extension, critical)
    path.unlink(missing_ok=True)
    _write(path, builder.sign(ca_key, hashes.SHA384()), made)


def _client(folder: Path, name: str, authority: tuple[x509.Certificate, Key | None], made: list[Path]) -> None:
    home, public = folder / "clients" / name, folder / KEYS / f"{name}.pub"
    if not public.exists() or (home / "key").exists():
        key = _private_key(home / "key", made, PrivateFormat.OpenSSH, load_ssh_private_key)
        line = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + f" {name}\n".encode()
        if public.exists() and public_key(public) != _pem(key):
            raise SettingsError(f"{public} is another key than that in {home}; remove the one that is not {name}'s")
        if not public.exists():
            _write(public, line, made)
        write_atomically(home / "key.pub", lambda file: file.write(line))
    elif authority[1] is None:
        raise SettingsError(
            f"{public} is there: {name} has a key already; hand out {folder / CA} alone, remove it, or bring "
            f"{folder / CA_KEY} here to make {name}'s certificate"
        )
    _client_certificate(home / CLIENT_CERTIFICATE, public, name, authority, made)
    write_atomically(home / CA, lambda file: file.write((folder / CA).read_bytes()))


def _client_certificate(
    path: Path, public: Path, name: str, authority: tuple[x509.Certificate, Key | None], made: list[Path]
) -> None:
    """Make a certificate of a client's key, valid as long as the authority; none where the authority's key is not."""
    ca, ca_key = authority
    key = load_pem_public_key(public_key(public))
    if ca_key is None or not isinstance(key, ec.EllipticCurvePublicKey):
        return
    if path.exists():
        now = _certificate(path)
        if _issued(now, ca) and now.public_key() == key:
            return
        path.unlink()
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "perdl client")])
    builder = _builder(subject, ca.subject, key, ca.not_valid_after_utc)
    for extension, critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.KeyUsage(*(at == 0 for at in range(9))), True),  # signs keys
        (x509.SubjectAlternativeName([x509.UniformResourceIdentifier(client_uri(name))]), False),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), False),
    ):
        builder = builder.add_extension(extension, critical)
    _write(path, builder.sign(ca_key, hashes.SHA384()), made)


def _private_key(
    path: Path,
    made: list[Path],
    form: PrivateFormat = PrivateFormat.PKCS8,
    load: Callable[[bytes, None], object] = load_pem_private_key,
) -> Key:
    """Return the key in this file, made if missing."""
    if not path.exists():
        new = ec.generate_private_key(ec.SECP384R1())
        _write(path, new.private_bytes(Encoding.PEM, form, NoEncryption()), made, mode=0o600)
        return new
    key = _read(path, "private key without a passphrase", lambda content: load(content, None))
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SettingsError(f"{path} is not a key of an elliptic curve; take another folder")
    return key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, end: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number())
    builder = builder.not_valid_before(datetime.now(UTC) - _EARLY).not_valid_after(end)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _write(path: Path, content: bytes | x509.Certificate, made: list[Path], mode: int = 0o644) -> None:
    """Write a file that must not exist yet."""
    parents = [parent for parent in path.parents if not parent.exists()]
    for parent in reversed(parents):
        parent.mkdir(mode=0o755 if parent.name == KEYS else 0o700)
    data = content.public_bytes(Encoding.PEM) if isinstance(content, x509.Certificate) else content
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
    made.append(path)


def _read(path: Path, what: str, load: Callable[[bytes], T]) -> T:
    try:
        return load(path.read_bytes())
    except FileNotFoundError:
        raise SettingsError(f"{path} is missing; make it with `perdl certs`, see docs/security.md") from None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SettingsError(f"{path} is not a {what} ({str(error).splitlines()[0][:100]})") from None


def _certificate(path: Path) -> x509.Certificate:
    """Read a certificate. Flower and nginx accept no byte order mark and nothing beyond ASCII."""
    certificate = _read(path, "certificate in PEM", x509.load_pem_x509_certificate)
    if not path.read_bytes().isascii():
        raise SettingsError(
            f"{path} holds more than a certificate (a byte order mark, or text); keep only what stands from "
            "-----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----"
        )
    return certificate


def _issued(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _fits(certificate: x509.Certificate, key: object) -> bool:
    return public_key_to_bytes(certificate.public_key()) == _pem(key)  # type: ignore[arg-type]  # any kind of key


def _check_time(path: Path, certificate: x509.Certificate, cure: str) -> None:
    now = datetime.now(UTC)
    if certificate.not_valid_after_utc <= now:
        raise SettingsError(f"{path} expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; {cure}")
    if certificate.not_valid_before_utc > now:
        raise SettingsError(
            f"{path} is not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC, and this machine's "
            f"clock says {now:%Y-%m-%d %H:%M}; set the clock right, or {cure}"
        )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        label = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
        if not re.fullmatch(rf"(\*\.)?({label}\.)*{label}", host) or re.fullmatch(r"[\d.]+", host):
            raise SettingsError(
                f"--host {host}: is neither an IP address nor a host name in ASCII (and without port)"
            ) from None
        return x509.DNSName(host)


def _alternatives(certificate: x509.Certificate) -> dict[object, x509.GeneralName]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return {}
    return {name.value: name for name in names}


def _pem(key: object) -> bytes:
    return public_key_to_bytes(key.public_key())  # type: ignore[attr-defined]  # any kind of private key


def _raise(error: SettingsError) -> NoReturn:
    raise error
