"""Find the HTTP proxy between this client and its server, if the environment names one.

The client decides itself and does not leave it to its HTTP library: libraries interpret ``NO_PROXY`` differently, and
an unexpected proxy would read plain text that was meant for the server.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from common.addresses import is_loopback, split_address
from common.errors import SettingsError

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Environment variables that HTTP libraries read. Proxies may also be written in lower case."""


@dataclass(frozen=True)
class Proxy:
    """A proxy and the variable that names it.

    Parameters
    ----------
    url : str
        Address, perhaps with a password: never show it.
    variable : str
        Environment variable that names the proxy.
    shown : str
        The address without user and password, for messages.
    """

    url: str
    variable: str
    shown: str


def proxy_for(server: str, *, tls: bool, environment: Mapping[str, str] | None = None) -> Proxy | None:
    """Return the proxy through which a server is reached.

    Parameters
    ----------
    server : str
        ``HOST:PORT``.
    tls : bool
        Whether this client speaks TLS.
    environment : mapping, optional
        Environment variables; default those of this process.

    Returns
    -------
    Proxy or None
        None for loopback addresses and for hosts in ``NO_PROXY``.

    Raises
    ------
    SettingsError
        If a proxy would read plain text, or is of a kind that is not supported.
    """
    told = os.environ if environment is None else environment
    host, _ = split_address(server, "the server's address")
    names = [f"{kind}_proxy" for kind in ("https" if tls else "http", "all")]
    variable = next((v for name in names for v in (name, name.upper()) if told.get(v, "").strip()), None)
    if variable is None or is_loopback(host) or _is_exempt(host, told.get("no_proxy") or told.get("NO_PROXY") or ""):
        return None
    value = told[variable].strip()
    url = value if "://" in value else f"http://{value}"
    shown, cure = _without_password(url), f"unset {variable}, or add {host} to NO_PROXY"
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good:
        raise SettingsError(f"{variable} is {shown}, and perdl takes proxies of the form http://HOST:PORT only; {cure}")
    if not tls:
        raise SettingsError(
            f"{variable} names the proxy {shown}, which would read all that this client sends to {server} in plain "
            f"text; {cure}, or use --certs FOLDER"
        )
    return Proxy(url, variable, shown)


def without_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without proxies and certificates, for processes that only use loopback.

    Parameters
    ----------
    environment : mapping of str to str
        Environment variables.
    """
    return {key: value for key, value in environment.items() if key.upper() not in VARIABLES}


def _is_exempt(host: str, no_proxy: str) -> bool:
    """Return whether ``NO_PROXY`` covers a host: by name, domain, address, network, or ``*``."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    for entry in filter(None, (part.strip().lower() for part in no_proxy.split(","))):
        name = entry.partition("]")[0].strip("[]") if entry.startswith("[") else entry
        if name.count(":") == 1:
            name = name.partition(":")[0]  # with a port
        if entry == "*":
            return True
        if address is not None:
            try:
                if address in ipaddress.ip_network(name, strict=False):
                    return True
            except ValueError:
                continue
        elif host.lower() == name.lstrip(".") or host.lower().endswith("." + name.lstrip("*.")):
            return True
    return False


def _without_password(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    return scheme + mark + rest.rpartition("@")[2]
