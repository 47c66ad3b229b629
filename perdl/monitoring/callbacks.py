"""Callbacks during a run. They work with every engine: a thread reads the run's folder as the server writes it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdl.monitoring.jsonl import Tail, identity

if TYPE_CHECKING:
    from common.settings import Settings

_PAUSE = 0.2
"""Seconds between looks at the folder."""


class Callback:
    """Base class of callbacks, which are called during a run. Inherit from it, and write the methods that you need.

    Notes
    -----
    All methods are called from one thread, not from that of the run. A slow callback delays no round, and still gets
    every round. If a callback raises, a note names it, it gets no more rounds, and the run goes on.

    Examples
    --------
    >>> class Patience(Callback):
    ...     def on_round(self, row):
    ...         return row["error_before_update"]["median"] < 0.01
    """

    def on_start(self, settings: Settings) -> None:
        """Act before the run begins.

        Parameters
        ----------
        settings : Settings
            Settings of the run; ``settings.output`` is its folder.
        """

    def on_first_dictionaries(self, done: int, total: int) -> None:
        """Act as the clients of a simulation learn their first dictionaries, before the first round.

        Parameters
        ----------
        done : int
            Number of clients that have learnt theirs.
        total : int
            Number of all clients.
        """

    def on_round(self, row: Mapping[str, Any]) -> bool | None:
        """Act after a round.

        Parameters
        ----------
        row : mapping
            A row of ``rounds.jsonl``: ``round``, ``change``, ``consensus``, ``error_before_update``, ``clients``,
            ``bytes``, ``seconds``.

        Returns
        -------
        bool, optional
            True ends the run after the present round, with all results.
        """
        return None

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Act after the run, even if it failed.

        Parameters
        ----------
        summary : mapping
            Content of ``summary.json``, with ``stop_reason``; empty if nothing was saved.
        """


@contextmanager
def watch(
    settings: Settings,
    callbacks: Sequence[Callback],
    note: Callable[[str], object],
    *,
    after: int = 0,
    log: Path | None = None,
    on_log: Callable[[dict[str, Any]], object] = lambda line: None,
) -> Iterator[Callable[[int, int], object]]:
    """Call callbacks for the run inside the context.

    Parameters
    ----------
    settings : Settings
        Settings of the run; ``output`` is the folder to watch.
    callbacks : sequence of Callback
        Called in this order.
    note : callable (str) -> object
        Gets a line for each callback that fails.
    after : int
        Last round that a resumed run has already done; only later rounds are told.
    log : Path, optional
        A log of JSON lines to read too.
    on_log : callable (dict) -> object
        Gets each line of the log.

    Yields
    ------
    callable (int, int) -> object
        To be called with the number of clients that have learnt their first dictionary, and with that of all. It
        returns at once.
    """
    check_callbacks(callbacks)
    if not callbacks and log is None:
        yield lambda done, total: None
        return
    watcher = _Watcher(settings, callbacks, note, after)
    lines, done = Tail(log) if log else None, threading.Event()

    def look() -> None:
        for line in lines.new_rows() if lines else ():
            on_log(line)
        watcher.look()

    def work() -> None:
        watcher.start()
        while not done.wait(_PAUSE):
            look()
        look()
        watcher.end()

    thread = threading.Thread(target=work, name="callbacks", daemon=True)
    thread.start()
    try:
        yield watcher.note_start
    finally:
        done.set()
        thread.join()


def check_callbacks(callbacks: Sequence[Callback]) -> None:
    """Raise unless all are callbacks.

    Parameters
    ----------
    callbacks : sequence of Callback
        The callbacks to check.

    Raises
    ------
    SettingsError
        If one is a class or another object.
    """
    from common.errors import SettingsError

    if isinstance(callbacks, Callback):
        raise SettingsError("callbacks is one callback: give a list, [callback]")
    for one in callbacks:
        if isinstance(one, type) and issubclass(one, Callback):
            raise SettingsError(f"callbacks holds the class {one.__name__}: give an object of it, {one.__name__}()")
        if not isinstance(one, Callback):
            raise SettingsError(f"callbacks holds {one!r}: give objects of classes that inherit from perdl.Callback")


class _Watcher:
    """Calls callbacks, and notes their errors instead of raising them."""

    def __init__(
        self, settings: Settings, callbacks: Sequence[Callback], note: Callable[[str], object], after: int
    ) -> None:
        self._settings, self._callbacks, self._note, self._after = settings, callbacks, note, after
        self._folder = Path(settings.output)
        self._rounds, self._former = Tail(self._folder / "rounds.jsonl"), identity(self._folder / "summary.json")
        self._failed: set[int] = set()
        self._first: tuple[int, int] | None = None

    def note_start(self, done: int, total: int) -> None:
        """Keep these numbers until the next look."""
        self._first = (done, total)

    def start(self) -> None:
        self._tell("on_start", self._settings)

    def look(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            self._tell("on_first_dictionaries", *first)
        for row in self._rounds.new_rows():
            if row["round"] > self._after:
                self._tell("on_round", row)

    def end(self) -> None:
        path, summary = self._folder / "summary.json", {}
        if identity(path) not in (None, self._former):  # else the run saved nothing
            summary = json.loads(path.read_text(encoding="utf-8"))
        self._failed, failed = set(), self._failed
        for callback in self._callbacks:  # also those that failed, so that they close their files
            self._call(callback, "on_end", summary, silent=id(callback) in failed)

    def _tell(self, method: str, *values: object) -> None:
        for callback in self._callbacks:
            if id(callback) not in self._failed and self._call(callback, method, *values) and method == "on_round":
                from perdl_server.results import end_after_round

                end_after_round(self._folder, f"stopped by {type(callback).__name__}")

    def _call(self, callback: Callback, method: str, *values: object, silent: bool = False) -> object:
        try:
            return getattr(callback, method)(*values)
        except BaseException as error:  # in this thread, even a KeyboardInterrupt does not come from the user
            self._failed.add(id(callback))
            if not silent:
                self._note(
                    f"the callback {type(callback).__name__} failed in {method} ({type(error).__name__}: {error}); the "
                    "run goes on without it"
                )
            return None
