"""A client's trust in its server, its own identity, and explanations of failed connections."""

from __future__ import annotations

import email.utils
import re
import socket
import ssl
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE
from flwr.supercore.date import now

from common.addresses import is_loopback, split_address
from common.errors import SettingsError

CA, KEY = "ca.crt", "key"
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_PROBE = 3.0  # seconds to find out whether a server speaks TLS
# OpenSSL's X509_V_ERR_... codes; Python does not name them.
_NOT_YET, _EXPIRED, _OTHER_HOST = {9}, {10}, {62, 64}


class Credentials(NamedTuple):
    """A client's certificate of the authority, and its own keys.

    Parameters
    ----------
    folder : Path
        Folder that they were read from.
    root_certificates : bytes
        Certificate of the authority (PEM).
    keys : pair of elliptic curve keys
        Private and public key: the client's identity.
    """

    folder: Path
    root_certificates: bytes
    keys: tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]


def load_credentials(folder: Path) -> Credentials:
    """Read the certificate and the private key of a client's folder.

    Parameters
    ----------
    folder : Path
        Folder with ``ca.crt`` and ``key``, made by the server's operator or by the client.

    Raises
    ------
    SettingsError
        If a file is missing or cannot be used.
    """
    root, key = _content(folder / CA), _content(folder / KEY)
    try:
        root = certificates_in(root)
        ssl.create_default_context(cadata=root.decode())
    except (ValueError, ssl.SSLError):
        raise SettingsError(f"{folder / CA} is not a certificate in PEM; ask whoever runs the server for it") from None
    try:
        private = load_ssh_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SettingsError(
            f"{folder / KEY} is not a private key of OpenSSH without a passphrase ({str(error)[:80]}); "
            "make one with `ssh-keygen -t ecdsa -b 384 -N '' -f key`"
        ) from None
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise SettingsError(
            f"{folder / KEY} is a key of another kind; make one with `ssh-keygen -t ecdsa -b 384 -N '' -f key`"
        )
    return Credentials(folder, root, (private, private.public_key()))


def certificates_in(content: bytes) -> bytes:
    """Return only the certificates of a PEM file. Editors and ``openssl x509 -text`` put other text before them.

    Parameters
    ----------
    content : bytes
        Content of the file.

    Raises
    ------
    ValueError
        If it holds no certificate.
    """
    found = _PEM.findall(content)
    if not found:
        raise ValueError("no certificate in PEM")
    return b"\n".join(found) + b"\n"


def check_plain_text(server: str, trust_network: bool) -> None:
    """Refuse plain text to another machine, unless the user confirmed it.

    Parameters
    ----------
    server : str
        ``HOST:PORT``.
    trust_network : bool
        Whether the user also gave ``--trust-network``.

    Raises
    ------
    SettingsError
        If the server is on another machine and the network is not trusted.
    """
    host, _ = split_address(server, "the server's address")
    if not is_loopback(host) and not trust_network:
        raise SettingsError(
            f"--insecure would send all in plain text to {server}, which is not this machine; use --certs FOLDER, or "
            "add --trust-network if nobody else is on the network between"
        )


def trust_problem(error: httpx.HTTPError, server: str, tls: bool) -> str | None:
    """Explain a request that failed for lack of trust, so that retrying is useless.

    Parameters
    ----------
    error : httpx.HTTPError
        The failure.
    server : str
        ``HOST:PORT``.
    tls : bool
        Whether this client speaks TLS.

    Returns
    -------
    str or None
        None for any other failure.
    """
    if isinstance(error, httpx.HTTPStatusError):
        status = error.response.status_code
        if status == httpx.codes.UNAUTHORIZED:
            return _clock_problem(error.response, server)
        plain_to_tls = not tls and status == httpx.codes.BAD_REQUEST and _speaks_tls(server)  # nginx answers 400
    else:
        if (cause := _ssl_error(error)) is not None:
            return _tls_problem(cause, server)
        plain_to_tls = (
            not tls and isinstance(error, httpx.ReadError | httpx.RemoteProtocolError) and _speaks_tls(server)
        )
    if plain_to_tls:
        return f"{server} speaks TLS, and this client plain text; start it with --certs FOLDER instead of --insecure"
    return None


def _tls_problem(error: ssl.SSLError, server: str) -> str | None:
    if not isinstance(error, ssl.SSLCertVerificationError):
        if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return None  # the connection was cut, for example because the server restarts
        if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"):
            return (
                f"{server} does not speak TLS, and this client does; start `perdl server` with --certs, or give the "
                "address of its gateway"
            )
        return f"no trusted connection to {server} ({error.reason or error}); see the log of the server or its gateway"
    begin = f"no trusted connection to {server}: its certificate "
    clock = f"this machine's clock says {now():%Y-%m-%d %H:%M} UTC; if that is right, "
    if error.verify_code in _EXPIRED:
        return begin + f"has expired; {clock}whoever runs the server must renew it with `perdl certs`"
    if error.verify_code in _NOT_YET:
        return begin + f"is not valid yet; {clock}whoever runs the server must make it anew"
    if error.verify_code in _OTHER_HOST:
        host = server.rpartition(":")[0]
        return begin + (
            f"is for other names ({error.verify_message}); use one of those, or let whoever runs the server make it "
            f"anew with `perdl certs DIR --host {host}`"
        )
    return begin + (
        f"is not signed by the authority in {CA} ({error.verify_message}); check the address, and ask whoever runs "
        f"the server for its {CA}"
    )


def _clock_problem(response: httpx.Response, server: str) -> str | None:
    """Explain a wrong clock. Flower's server refuses requests from the future or more than minutes old."""
    try:
        there = email.utils.parsedate_to_datetime(response.headers["date"])
        ahead = (now() - there).total_seconds()
    except (KeyError, ValueError, TypeError):
        return None
    # The header has whole seconds and is slightly older than now.
    if -(TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE) < ahead < SYSTEM_TIME_TOLERANCE:
        return None
    way = "ahead of" if ahead > 0 else "behind"
    return (
        f"{server} does not admit this client, for its clock is {abs(ahead):.0f} s {way} the server's "
        f"({_utc(now())} here, {_utc(there)} there, UTC); set it right"
    )


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _ssl_error(error: BaseException | None) -> ssl.SSLError | None:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error


def _speaks_tls(server: str) -> bool:
    host, port = split_address(server)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), timeout=_PROBE) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return True
    except OSError:
        return False


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(
            f"--certs: {path} cannot be read ({error.strerror}); the folder must hold {CA} and {KEY}, see "
            "docs/security.md"
        ) from None
