"""How a command shows a run: for people, as JSON lines, or hardly at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdl.cli.command import err, out
from perdl.cli.console import print_line, print_summary
from perdl.monitoring.callbacks import Callback, watch
from perdl.monitoring.progress import ProgressBar
from perdl.monitoring.trackers import load_sink

if TYPE_CHECKING:
    from common.settings import Settings


class View:
    """What goes to standard output and error while a run goes on, and when it ends.

    Parameters
    ----------
    quiet : bool
        Nothing but where the results are.
    json_lines : bool
        On standard output nothing but JSON.
    sinks : sequence of str
        Names for `perdl.monitoring.trackers.load_sink`.
    """

    def __init__(self, *, quiet: bool = False, json_lines: bool = False, sinks: Sequence[str] = ()) -> None:
        self._quiet, self._json = quiet, json_lines
        self._told: set[str] = set()
        shown: list[Callback] = [JsonLines()] if json_lines else [] if quiet else [ProgressBar(out)]
        self._callbacks = [*shown, *map(load_sink, sinks)]

    def line(self, text: str) -> None:
        """Say something to people."""
        if not self._quiet:
            print_line(err if self._json else out, text)

    def doubts(self, texts: Sequence[str]) -> None:
        """Say before a run what is doubtful about its data; the end does not say it again."""
        for text in texts:
            self.line(f"note: {text}")
        self._told.update(texts)

    @contextmanager
    def watching(
        self, settings: Settings, *, after: int = 0, log: Path | None = None
    ) -> Iterator[Callable[[int, int], object]]:
        """Show the run that goes on inside; of a server's ``log`` what goes wrong, and who comes and goes.

        What it yields is told how many clients of how many have learnt their first dictionary.
        """
        with watch(settings, self._callbacks, self._note, after=after, log=log, on_log=self._news) as tell:
            yield tell

    def end(self, summary: Mapping[str, Any], folder: Path, *, saved: bool = True) -> None:
        """Show what a run found; the more if it is not ``saved``."""
        if self._json and not saved:
            _print_json({"folder": str(folder), **summary})
        elif self._quiet and saved and not self._json:
            print_line(out, f"results: {folder}")
        elif not self._json:  # there the summary was the last line
            print_summary(out, summary, folder if saved else None, self._told)

    def _note(self, text: str) -> None:
        print_line(err, f"note: {text}")

    def _news(self, line: Mapping[str, Any]) -> None:
        if line["level"] != "info" or "client" in line:
            who = f"{line['client']} " if "client" in line else ""
            self.line(f"{who}{line['text']}")


class JsonLines(Callback):
    """Print a line for each round, as in ``rounds.jsonl``, and last ``summary.json`` with its ``folder``."""

    def on_start(self, settings: Settings) -> None:
        """Note the folder."""
        self._folder = settings.output

    def on_round(self, row: Mapping[str, Any]) -> None:
        """Print a round."""
        _print_json(row)

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Print the summary, if there is one."""
        if summary:
            _print_json({"folder": self._folder, **summary})


def _print_json(value: Mapping[str, Any]) -> None:
    out.write_line(json.dumps(value))
