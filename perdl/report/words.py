"""Numbers and lists in a figure's caption."""

from __future__ import annotations

from typing import Any


def counted(n: int, thing: str) -> str:
    """Return a number and its thing: ``1 client``, ``3 clients``."""
    return f"{n} {thing}{'s' * (n != 1)}"


def first_of(shown: int, n: int) -> str:
    """Say how many of many are shown; empty if all are."""
    return f" The first {shown} of {n} are shown." if n > shown else ""


def some_of(things: list[str], most: int = 3) -> str:
    """Return the first things and how many more there are: ``a, b, c and 4 more``."""
    more = f" and {len(things) - most} more" if len(things) > most else ""
    return ", ".join(things[:most]) + more


def between(values: Any) -> str:
    """Return the range of numbers: ``0.1 to 0.3``, or one number where both ends read alike."""
    low, high = f"{min(values):.2g}", f"{max(values):.2g}"
    return low if low == high else f"{low} to {high}"


def number(value: Any) -> str:
    """Return a number with two digits, or a dash for none."""
    return "-" if value is None else f"{value:.2g}"
