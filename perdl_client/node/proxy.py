"""Which HTTP proxy of the environment stands between this client and its server, if any.

The client decides itself and hands its HTTP library a proxy or none: libraries read ``NO_PROXY`` each in its own way,
and a proxy that is not expected reads in plain text what was meant for the server.
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
"""What an environment tells HTTP libraries, in capitals; proxies are also written in small letters."""


@dataclass(frozen=True)
class Proxy:
    """A proxy and where it is named.

    Attributes
    ----------
    url : str
        With its password, if it has one: never show it.
    variable : str
        The environment variable that names it.
    shown : str
        The same for people: without user and password.
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
        Default: this process's.

    Returns
    -------
    Proxy or None
        None for this machine itself, and for what ``NO_PROXY`` names.

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
    """Return an environment for processes that talk on loopback alone: without proxies and other certificates."""
    return {key: value for key, value in environment.items() if key.upper() not in VARIABLES}


def _is_exempt(host: str, no_proxy: str) -> bool:
    """Whether ``NO_PROXY`` holds a host: by name or the end of one, by address, by network, or by ``*``."""
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
