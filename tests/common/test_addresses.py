"""Addresses are read in one form, and a wrong one is told with the right one."""

from __future__ import annotations

import pytest

from common.addresses import is_loopback, split_address
from common.errors import SettingsError


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:8000", ("127.0.0.1", 8000)),
        ("host-1.example.org:1", ("host-1.example.org", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("[fe80::1%eth0]:8000", ("fe80::1%eth0", 8000)),
    ],
)
def test_an_address_is_split(address, parts):
    assert split_address(address) == parts


@pytest.mark.parametrize(
    ("address", "right"),
    [
        ("::1:18446", r"\[::1\]:18446"),
        ("[::1:8000", r"\[::1\]:8000"),
        ("::1]:8000", r"\[::1\]:8000"),
        (":::8443", r"\[::\]:8443"),
        ("fe80::1:8443", r"\[fe80::1\]:8443"),
        *[
            (one, "HOST:PORT, as in 127.0.0.1:8000")
            for one in ("[]:8443", "", ":1", "a", "a:", "a:b", "a:0", "a:65536", "a:²", "a/b:1", "http://a:1", "a b:1")
        ],
        ("[1.2.3.4]:1", "HOST:PORT"),
        ("u@a:1", "HOST:PORT"),
    ],
)
def test_a_wrong_address_is_told_with_the_right_form(address, right):
    with pytest.raises(SettingsError, match=f"--listen is .*; write it as {right}"):
        split_address(address, "--listen")


def test_only_this_machine_is_loopback():
    assert all(map(is_loopback, ("localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "::1")))
    assert not any(map(is_loopback, ("", "localhost.example.org", "10.0.0.1", "::", "0.0.0.0")))
