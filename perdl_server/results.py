"""The run's folder: files that the server writes during a run and at its end."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import PerdlError, UnsavedError
from common.files import plain, write_json, write_npz, write_text
from perdl_server.checkpoint import BEFORE, NEWEST, Checkpoint, load_checkpoint, save_checkpoint

_log = logging.getLogger("perdl.server")
Floats = NDArray[np.floating]

TRIALS, TUNING, CHOSEN = "trials.jsonl", "tuning.json", "tuned.toml"
"""Files of a search of settings: a row for each trial, at its end the result, and the settings that it chose."""
FIXED = "fixed"
"""Key of the configuration of a search: names of settings that are not varied, separated by commas."""

STOP = "stop"
LAST_ROUND = "stop-after-round"
SERVED = "PERDL_SERVED"
"""Environment variable, ``new`` or ``resumed``, for a ServerApp that ``perdl server`` started."""
NEW, RESUMED = "new", "resumed"


class RunFolder:
    """Writes ``metrics.jsonl``, ``rounds.jsonl``, ``global_dictionary.npz``, checkpoints and ``summary.json``.

    Parameters
    ----------
    path : Path
        The run's folder; created if missing. Files of a former run are removed, unless that run is resumed.
    checkpoint : Checkpoint, optional
        Where to resume a run. With ``perdl server --resume`` the checkpoint is read from ``path``.

    Raises
    ------
    PerdlError
        If the folder cannot be written, or there is no checkpoint to resume from.

    Attributes
    ----------
    checkpoint : Checkpoint, optional
        Where the run is resumed; None for a new run.

    Notes
    -----
    ``metrics.jsonl`` has one row per round and client, ``rounds.jsonl`` one per round. A full disk does not end
    a run: rows wait in memory, and a later round writes them.
    """

    def __init__(self, path: Path, checkpoint: Checkpoint | None = None) -> None:
        self.path = path
        self._saved_at = 0.0
        self._waiting: dict[str, bytes] = {"metrics.jsonl": b"", "rounds.jsonl": b""}
        self._failing: set[str] = set()
        self._served = os.environ.get(SERVED, "")
        self.checkpoint = checkpoint
        try:
            path.mkdir(parents=True, exist_ok=True)
            if self._served == RESUMED:
                self.checkpoint = load_checkpoint(path)
            for name in self._waiting:
                write_text(path / name, self._rows_until(name, self.checkpoint.round) if self.checkpoint else "")
            if self.checkpoint is None:
                for name in ("summary.json", "global_dictionary.npz", NEWEST, BEFORE):
                    (path / name).unlink(missing_ok=True)
            if not self._served:  # `perdl server` clears these itself, and may have written them since
                for name in (STOP, LAST_ROUND):
                    (path / name).unlink(missing_ok=True)
        except OSError as error:
            raise PerdlError(f"cannot write results to {path}: {error.strerror}; choose another output") from None

    def asked_to_stop(self) -> bool:
        """Return whether a file ``stop`` is in the folder. It ends a run that cannot receive signals."""
        return (self.path / STOP).exists()

    def last_round(self) -> str:
        """Return why the run is to end after this round (see :func:`end_after_round`); empty if it is not."""
        path = self.path / LAST_ROUND
        return (path.read_text(encoding="utf-8").strip() or f"stopped by {LAST_ROUND}") if path.exists() else ""

    def add_round(self, row: Mapping[str, Any], clients: list[dict[str, Any]]) -> None:
        """Append one round: its own row, and one row for each client.

        Parameters
        ----------
        row : mapping
            Metrics of the round.
        clients : list of dict
            Metrics of each client.
        """
        for name, rows in (("metrics.jsonl", clients), ("rounds.jsonl", [dict(row)])):
            self._waiting[name] += "".join(json.dumps(plain(one)) + "\n" for one in rows).encode()
            if self._bear(
                f"{self.path / name}, kept in memory", partial(_append, self.path / name, self._waiting[name])
            ):
                self._waiting[name] = b""

    def save_dictionary(self, dictionary: Floats, consensus: Floats, *, every: float = 0.0) -> None:
        """Write D^g and its consensus.

        Parameters
        ----------
        dictionary : (d, r_g) array
            D^g.
        consensus : (r_g,) array
            Agreement of the clients on each atom.
        every : float
            Fewest seconds between two writes.
        """
        if every and time.monotonic() - self._saved_at < every:
            return
        path = self.path / "global_dictionary.npz"
        self._bear(str(path), lambda: write_npz(path, dictionary=dictionary, consensus=consensus))
        self._saved_at = time.monotonic()

    def save_checkpoint(self, checkpoint: Callable[[], Checkpoint]) -> None:
        """Write a checkpoint, if ``perdl server`` started this run. A simulation cannot be resumed.

        Parameters
        ----------
        checkpoint : callable () -> Checkpoint
            Returns the run's state.
        """
        if self._served:
            self._bear(str(self.path / NEWEST), lambda: save_checkpoint(checkpoint(), self.path))

    def save_summary(self, summary: Mapping[str, Any]) -> None:
        """Write ``summary.json``. It is the last file of a run: if it exists, the run has ended.

        Parameters
        ----------
        summary : mapping
            The summary.

        Raises
        ------
        UnsavedError
            If it cannot be written.
        """
        try:
            write_json(self.path / "summary.json", plain(summary))
        except OSError as error:
            cure = f", then `perdl server --resume {self.path}`" if self._served else ""
            text = f"cannot write {error.filename}: {error.strerror}; make room{cure}"
            raise UnsavedError(text, plain(summary)) from None

    def _bear(self, what: str, write: Callable[[], object]) -> bool:
        """Write a file. On failure, log it once and go on: the run must not end because of it."""
        try:
            write()
        except OSError as error:
            if what not in self._failing:
                _log.warning("cannot write %s: %s", what, error.strerror)
            self._failing.add(what)
            return False
        self._failing.discard(what)
        return True

    def _rows_until(self, name: str, t: int) -> str:
        """Return the rows of complete rounds that a former server wrote. Its last line may be cut short."""
        rows = (self.path / name).read_text(encoding="utf-8").splitlines() if (self.path / name).exists() else []
        kept = []
        for row in rows:
            with suppress(ValueError):
                if json.loads(row)["round"] <= t:
                    kept.append(row + "\n")
        return "".join(kept)


def _append(path: Path, data: bytes) -> None:
    """Append complete lines, or nothing."""
    with path.open("ab", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        try:
            while data:
                data = data[file.write(data) :]
        except OSError:
            file.truncate(size)
            raise


def stop_run_in(path: Path, seconds: float = 10.0, last: str = "summary.json") -> None:
    """Ask a run to end, and wait until it has saved its results.

    Parameters
    ----------
    path : Path
        The run's folder.
    seconds : float
        Longest time to wait.
    last : str
        The file that is written last.
    """
    (path / STOP).touch()
    until = time.monotonic() + seconds
    while not (path / last).exists() and time.monotonic() < until:
        time.sleep(0.05)


def end_after_round(path: Path, why: str) -> None:
    """Ask a run to end after its present round.

    Parameters
    ----------
    path : Path
        The run's folder.
    why : str
        Becomes the run's stop reason.
    """
    write_text(path / LAST_ROUND, why)
