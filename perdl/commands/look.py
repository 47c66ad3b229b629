"""The commands that look at what is there: ``perdl settings``, ``report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from perdl.command import command, out
from perdl.console import print_line


def show_settings(word: Annotated[str, typer.Argument(help="show only settings that mention this")] = "") -> None:
    """List all settings: name, default, what is allowed, what it does."""
    from perdl.settings_page import setting_rows

    table = Table("setting", "default", "allowed", "what")
    for row in setting_rows():
        if word.lower() in " ".join(row).lower():
            table.add_row(*map(escape, row))
    out.print(table)


@command
def report(
    folder: Annotated[Path, typer.Argument(help="of a simulation, a server or one client")],
    output: Annotated[Path | None, typer.Option(help="file to write; default FOLDER/report.html")] = None,
) -> None:
    """Write one page of HTML about a run or a client's model, with all figures inside."""
    from common.files import write_text
    from perdl.report import render_report

    page = render_report(folder)
    path = folder / "report.html" if output is None else output
    write_text(path, page)
    print_line(out, f"report: {path}")
