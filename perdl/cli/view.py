"""How a command shows a run: as text, as JSON lines, or only where the results are."""

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
    """Print a run's progress and results to standard output and error.

    Parameters
    ----------
    quiet : bool
        Print only where the results are.
    json_lines : bool
        Print only JSON to standard output.
    sinks : sequence of str
        Names for `perdl.monitoring.trackers.load_sink`.
    """

    def __init__(self, *, quiet: bool = False, json_lines: bool = False, sinks: Sequence[str] = ()) -> None:
        self._quiet, self._json = quiet, json_lines
        self._told: set[str] = set()
        shown: list[Callback] = [JsonLines()] if json_lines else [] if quiet else [ProgressBar(out)]
        self._callbacks = [*shown, *map(load_sink, sinks)]

    def line(self, text: str) -> None:
        """Print a line for people: to standard error if standard output is JSON, not at all if quiet.

        Parameters
        ----------
        text : str
            The line.
        """
        if not self._quiet:
            print_line(err if self._json else out, text)

    def doubts(self, texts: Sequence[str]) -> None:
        """Say before a run what is doubtful about its data; the end does not say it again.

        Parameters
        ----------
        texts : sequence of str
            Notes on the data.
        """
        for text in texts:
            self.line(f"note: {text}")
        self._told.update(texts)

    @contextmanager
    def watching(
        self, settings: Settings, *, after: int = 0, log: Path | None = None
    ) -> Iterator[Callable[[int, int], object]]:
        """Show the run inside the context.

        Parameters
        ----------
        settings : Settings
            Settings of the run; ``output`` is its folder.
        after : int
            Last round that a resumed run has already done.
        log : Path, optional
            A server's log. Its warnings and errors are shown, and the clients that come and go.

        Yields
        ------
        callable (int, int) -> object
            To be called with the number of clients that have learnt their first dictionary, and with that of all.
        """
        with watch(settings, self._callbacks, self._note, after=after, log=log, on_log=self._news) as tell:
            yield tell

    def end(self, summary: Mapping[str, Any], folder: Path, *, saved: bool = True) -> None:
        """Show the results of a run.

        Parameters
        ----------
        summary : mapping
            Content of ``summary.json``.
        folder : Path
            Folder of the results.
        saved : bool
            Whether the results are in the folder. If not, they are shown in full, even if quiet.
        """
        if self._json and not saved:
            _print_json({"folder": str(folder), **summary})
        elif self._quiet and saved and not self._json:
            print_line(out, f"results: {folder}")
        elif not self._json:  # JsonLines has printed the summary
            print_summary(out, summary, folder if saved else None, self._told)

    def _note(self, text: str) -> None:
        print_line(err, f"note: {text}")

    def _news(self, line: Mapping[str, Any]) -> None:
        if line["level"] != "info" or "client" in line:
            who = f"{line['client']} " if "client" in line else ""
            self.line(f"{who}{line['text']}")


class JsonLines(Callback):
    """Print one line per round, as in ``rounds.jsonl``, then ``summary.json`` with its ``folder``."""

    def on_start(self, settings: Settings) -> None:
        """Note the folder.

        Parameters
        ----------
        settings : Settings
            Settings of the run.
        """
        self._folder = settings.output

    def on_round(self, row: Mapping[str, Any]) -> None:
        """Print a round.

        Parameters
        ----------
        row : mapping
            A row of ``rounds.jsonl``.
        """
        _print_json(row)

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Print the summary, if there is one.

        Parameters
        ----------
        summary : mapping
            Content of ``summary.json``; empty if nothing was saved.
        """
        if summary:
            _print_json({"folder": self._folder, **summary})


def _print_json(value: Mapping[str, Any]) -> None:
    out.write_line(json.dumps(value))
