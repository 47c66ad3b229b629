"""Lists in words."""

from __future__ import annotations

from collections.abc import Iterable


def listed(items: Iterable[object], most: int = 3) -> str:
    """Return items in words: "3, 7, 9 and 47 more".

    Parameters
    ----------
    items : iterable
        What to list, by its text.
    most : int
        How many items are named before the rest is counted.
    """
    words = [str(item) for item in items]
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")
