"""Write settings as a configuration file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

Value = float | int | str | bool


def settings_toml(values: Mapping[str, Value], comments: Mapping[str, Sequence[str]] | None = None) -> str:
    """Return settings as TOML.

    Parameters
    ----------
    values : mapping of str to bool, int, float or str
        Settings by dotted names.
    comments : mapping of str to sequence of str, optional
        Lines at the top of a table, by its name.
    """
    tables: dict[str, list[str]] = {"": [], **{table: list(lines) for table, lines in (comments or {}).items()}}
    for key, value in values.items():
        table, _, name = key.rpartition(".")
        tables.setdefault(table, []).append(f"{name} = {_toml(value)}")
    parts = (lines if not table else ["", f"[{_header(table)}]", *lines] for table, lines in tables.items())
    return "\n".join(line for part in parts for line in part)


def _header(table: str) -> str:
    """Return the name of a table; a client's name may hold any character."""
    return f"clients.{_toml(table.removeprefix('clients.'))}" if table.startswith("clients.") else table


def _toml(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
