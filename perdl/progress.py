"""A run as it goes on: a bar in the terminal, fed by what the server writes to the run's folder.

The same for every engine, because the folder is.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_PAUSE, _LINE = 0.2, 10.0


@contextmanager
def progress(folder: Path, rounds: int, console: Console, log: Path | None = None) -> Iterator[None]:
    """Show the rounds of the run in ``folder`` while the context lasts: a bar, or now and then a line in a pipe.

    Of a server's ``log`` it shows what goes wrong, and who comes and goes.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
    )
    news = _Tail(log) if log else None
    reader, done, pause = _Tail(folder / "rounds.jsonl"), threading.Event(), _PAUSE if console.is_terminal else _LINE
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("round", total=rounds, text="starting")

        def watch() -> None:
            shown = 0.0
            while not done.wait(_PAUSE):
                for line in news.new_rows() if news else ():
                    if line["level"] != "info" or "client" in line:
                        who = f"{line['client']} " if "client" in line else ""
                        console.print(f"{who}{line['text']}", markup=False, highlight=False, soft_wrap=True)
                if time.monotonic() - shown < pause:
                    continue
                shown = time.monotonic()
                row = reader.last_row()
                if row is not None and console.is_terminal:
                    bar.update(task, completed=row["round"], text=describe_round(row))
                elif row is not None:
                    console.print(f"round {row['round']} of {rounds}: {describe_round(row)}", soft_wrap=True)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def describe_round(row: Mapping[str, Any]) -> str:
    """Say one row of ``rounds.jsonl`` in a line."""
    error = row["error_before_update"]
    spread = " / ".join(f"{error[key]:.2g}" for key in ("min", "median", "max")) if error else "-"
    return f"change {row['change']:.1e}  error {spread}  clients {row['clients']}  {human_bytes(row['bytes'])}"


def human_bytes(count: float) -> str:
    """Return a size as people read it."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


class _Tail:
    """Reads what was added to a file of JSON lines since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # What a former run left is not read; the server empties the file when it begins.
        self._read = path.stat().st_size if path.exists() else 0

    def last_row(self) -> dict[str, Any] | None:
        """Return the last whole new line, if there is one."""
        rows = self._new_lines()
        return dict(json.loads(rows[-1])) if rows else None

    def new_rows(self) -> list[dict[str, Any]]:
        """Return all whole new lines."""
        return [dict(json.loads(row)) for row in self._new_lines()]

    def _new_lines(self) -> list[bytes]:
        try:
            with self._path.open("rb") as file:
                if self._path.stat().st_size < self._read:
                    self._read = 0
                file.seek(self._read)
                lines = file.read()
        except OSError:
            return []
        whole = lines[: lines.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.splitlines()
