"""The commands that look at what is there: ``perdl settings``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from perdl.command import out


def show_settings(word: Annotated[str, typer.Argument(help="show only settings that mention this")] = "") -> None:
    """List all settings: name, default, what is allowed, what it does."""
    from perdl.settings_page import setting_rows

    table = Table("setting", "default", "allowed", "what")
    for row in setting_rows():
        if word.lower() in " ".join(row).lower():
            table.add_row(*map(escape, row))
    out.print(table)
