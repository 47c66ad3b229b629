"""A run as it goes on: a bar in the terminal, fed by what the server writes to the run's folder.

The same for every engine, because the folder is.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_PAUSE = 0.2


@contextmanager
def progress(folder: Path, rounds: int, console: Console) -> Iterator[None]:
    """Show the rounds of the run in ``folder`` while the context lasts; silent where there is no terminal."""
    if not console.is_terminal:
        yield
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
    )
    (folder / "rounds.jsonl").unlink(missing_ok=True)
    done = threading.Event()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("round", total=rounds, text="waiting for clients")

        def watch() -> None:
            reader = _Tail(folder / "rounds.jsonl")
            while not done.wait(_PAUSE):
                row = reader.last_row()
                if row is not None:
                    bar.update(task, completed=row["round"], text=describe_round(row))

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
        self._read = 0

    def last_row(self) -> dict[str, Any] | None:
        """Return the last whole new line, if there is one."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                lines = file.read()
        except OSError:
            return None
        whole = lines[: lines.rfind(b"\n") + 1]
        self._read += len(whole)
        rows = whole.splitlines()
        return dict(json.loads(rows[-1])) if rows else None
