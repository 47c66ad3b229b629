"""Network addresses as people write them."""

from __future__ import annotations

import ipaddress
import re

from common.errors import SettingsError

_ADDRESS = re.compile(r"(?:\[(?P<v6>[^\[\]]*)\]|(?P<host>[^\[\]:/@\s]+)):(?P<port>[0-9]{1,5})")
_HOST = re.compile(r"[A-Za-z0-9._-]+")


def split_address(address: str, what: str = "the address") -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``; an IPv6 host is written in brackets and returned without them.

    Parameters
    ----------
    address : str
        Address to split, such as ``127.0.0.1:8000`` or ``[::1]:8000``.
    what : str
        Name of the address in error messages.

    Returns
    -------
    host : str
    port : int

    Raises
    ------
    SettingsError
        One line that shows the right form.
    """
    found = _ADDRESS.fullmatch(address)
    host = (found["v6"] if found["host"] is None else found["host"]) if found else ""
    good = bool(_HOST.fullmatch(host)) if found and found["v6"] is None else _is_ipv6(host)
    if found and good and 0 < int(found["port"]) < 65536:
        return host, int(found["port"])
    raise SettingsError(f"{what} is {address!r}; write it as {_right_form(address)}")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine. Only the address is looked at; no name is resolved.

    Parameters
    ----------
    host : str
        Name or address, without brackets.
    """
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _right_form(address: str) -> str:
    host, _, port = address.rpartition(":")
    bare = host.strip("[]")
    if _is_ipv6(bare) and port.isascii() and port.isdecimal() and 0 < int(port) < 65536:
        return f"[{bare}]:{port}"
    return "HOST:PORT, as in 127.0.0.1:8000 or [::1]:8000"


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False
