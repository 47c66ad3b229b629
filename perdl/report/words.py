"""Numbers and lists in a figure's caption."""

from __future__ import annotations

from typing import Any


def counted(n: int, thing: str) -> str:
    """Return a number and a noun: ``1 client``, ``3 clients``.

    Parameters
    ----------
    n : int
        The number.
    thing : str
        The noun in the singular.
    """
    return f"{n} {thing}{'s' * (n != 1)}"


def first_of(shown: int, n: int) -> str:
    """Say how many are shown; empty if all are.

    Parameters
    ----------
    shown : int
        Largest number that is shown.
    n : int
        Number of all.
    """
    return f" The first {shown} of {n} are shown." if n > shown else ""


def some_of(things: list[str], most: int = 3) -> str:
    """Return the first items and how many more there are: ``a, b, c and 4 more``.

    Parameters
    ----------
    things : list of str
        All items.
    most : int
        Largest number of items that are named.
    """
    more = f" and {len(things) - most} more" if len(things) > most else ""
    return ", ".join(things[:most]) + more


def between(values: Any) -> str:
    """Return the range of numbers: ``0.1 to 0.3``, or one number if both ends read the same.

    Parameters
    ----------
    values : sequence of float
        The numbers; at least one.
    """
    low, high = f"{min(values):.2g}", f"{max(values):.2g}"
    return low if low == high else f"{low} to {high}"


def number(value: Any) -> str:
    """Return a number with two digits, or a dash for None.

    Parameters
    ----------
    value : float or None
        The number.
    """
    return "-" if value is None else f"{value:.2g}"


def sentence_case(text: str) -> str:
    """Return a text as a sentence, with a capital and a full stop.

    Parameters
    ----------
    text : str
        Words without a full stop.
    """
    return f"{text[:1].upper()}{text[1:]}."
