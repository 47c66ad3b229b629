"""The run's folder: what the server writes while a run goes on and when it ends."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import metadata
from pathlib import Path
from platform import python_version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import PerdlError
from common.files import plain, write_json, write_npz, write_text
from common.protocol import PROTOCOL
from common.settings import Settings
from perdl_server.checkpoint import BEFORE, NEWEST, Checkpoint, load_checkpoint, save_checkpoint

_log = logging.getLogger("perdl.server")
Floats = NDArray[np.floating]

STOP = "stop"
SERVED = "PERDL_SERVED"
"""Environment variable of a ServerApp that ``perdl server`` watches over: ``new`` or ``resumed``."""
NEW, RESUMED = "new", "resumed"


class RunFolder:
    """Writes ``metrics.jsonl``, ``rounds.jsonl``, ``global_dictionary.npz``, checkpoints and ``summary.json``.

    Parameters
    ----------
    path : Path
        Made if it is not there; what a former run left in these files is removed, unless that run is resumed.

    Raises
    ------
    PerdlError
        If the folder cannot be written, or a run that is to be resumed left no checkpoint.

    Attributes
    ----------
    checkpoint : Checkpoint, optional
        Where a run that is resumed goes on.

    Notes
    -----
    ``metrics.jsonl`` has one row per round and client, ``rounds.jsonl`` one per round. A disk that is full for a while
    does not end a run: rows wait in memory, and the next round writes them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._saved_at = 0.0
        self._waiting: dict[str, bytes] = {"metrics.jsonl": b"", "rounds.jsonl": b""}
        self._served = os.environ.get(SERVED, "")
        self.checkpoint: Checkpoint | None = None
        try:
            path.mkdir(parents=True, exist_ok=True)
            if self._served == RESUMED:
                self.checkpoint = load_checkpoint(path)
            for name in self._waiting:
                write_text(path / name, self._rows_until(name, self.checkpoint.round) if self.checkpoint else "")
            if self.checkpoint is None:
                for name in ("summary.json", "global_dictionary.npz", NEWEST, BEFORE):
                    (path / name).unlink(missing_ok=True)
            if not self._served:  # there, whoever serves clears it, and may have written it since
                (path / STOP).unlink(missing_ok=True)
        except OSError as error:
            raise PerdlError(f"cannot write results to {path}: {error.strerror}; choose another --output") from None

    def asked_to_stop(self) -> bool:
        """Whether a file called ``stop`` has appeared: the way to end a run that gets no signals."""
        return (self.path / STOP).exists()

    def add_round(self, row: Mapping[str, Any], clients: list[dict[str, Any]]) -> None:
        """Append one round: a row of its own and one for each client."""
        for name, rows in (("metrics.jsonl", clients), ("rounds.jsonl", [dict(row)])):
            self._waiting[name] += "".join(json.dumps(plain(one)) + "\n" for one in rows).encode()
            if self._bear(f"{name}, kept in memory", partial(_append, self.path / name, self._waiting[name])):
                self._waiting[name] = b""

    def save_dictionary(self, dictionary: Floats, consensus: Floats, *, every: float = 0.0) -> None:
        """Write D^g (d, r^g) and its consensus (r^g,), at most once in ``every`` seconds."""
        if every and time.monotonic() - self._saved_at < every:
            return
        path = self.path / "global_dictionary.npz"
        self._bear(path.name, lambda: write_npz(path, dictionary=dictionary, consensus=consensus))
        self._saved_at = time.monotonic()

    def save_checkpoint(self, checkpoint: Callable[[], Checkpoint]) -> None:
        """Keep what a server needs to resume, if ``perdl server`` runs this: a simulation's clients end with it."""
        if self._served:
            self._bear("the checkpoint", lambda: save_checkpoint(checkpoint(), self.path))

    def save_summary(self, summary: Mapping[str, Any]) -> None:
        """Write ``summary.json``, the last file of a run: where it is, the run has ended.

        Raises
        ------
        PerdlError
            If it cannot be written.
        """
        try:
            write_json(self.path / "summary.json", plain(summary))
        except OSError as error:
            cure = f", then `perdl server --resume {self.path}`" if self._served else ""
            raise PerdlError(f"cannot write {error.filename}: {error.strerror}; make room{cure}") from None

    def _bear(self, what: str, write: Callable[[], object]) -> bool:
        """Write, or say that it failed and go on: the run itself is worth more."""
        try:
            write()
        except OSError as error:
            _log.warning("cannot write %s: %s", what, error.strerror)
            return False
        return True

    def _rows_until(self, name: str, t: int) -> str:
        """What a former server wrote of the rounds that are complete; its last line may be cut short."""
        rows = (self.path / name).read_text(encoding="utf-8").splitlines() if (self.path / name).exists() else []
        kept = []
        for row in rows:
            with suppress(ValueError):
                if json.loads(row)["round"] <= t:
                    kept.append(row + "\n")
        return "".join(kept)


def _append(path: Path, data: bytes) -> None:
    """Add whole lines or nothing."""
    with path.open("ab", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        try:
            while data:
                data = data[file.write(data) :]
        except OSError:
            file.truncate(size)
            raise


def stop_run_in(path: Path, seconds: float = 10.0) -> None:
    """Ask the run whose results go to ``path`` to end, and wait until it has saved them."""
    (path / STOP).touch()
    until = time.monotonic() + seconds
    while not (path / "summary.json").exists() and time.monotonic() < until:
        time.sleep(0.05)


def describe(settings: Settings) -> dict[str, Any]:
    """Return what a summary says of a run before it began: ``settings`` and ``versions``."""
    packages = ("perdl", "flwr", "numpy", "scipy")
    versions: dict[str, Any] = {name: _version(name) for name in packages}
    return {
        "settings": settings.model_dump(exclude_none=True),
        "versions": {**versions, "python": python_version(), "protocol": PROTOCOL},
    }


def warnings(report: Mapping[str, Any], clients: Mapping[str, Mapping[str, Any]], settings: Settings) -> list[str]:
    """Return, in words for people, what makes a run's result doubtful though nothing failed."""
    found = []
    edges = np.asarray(report["path_lengths"][: report["n_global"]]) / max(len(clients) - 1, 1)
    unrelated = np.asarray(report["unrelated_edges"])
    far = int(np.count_nonzero(edges > 0.8 * unrelated[: len(edges)])) if len(clients) > 1 else 0
    if far:
        found.append(
            f"{far} of {len(edges)} global atoms were no nearer across clients at the start than unrelated atoms would "
            f"be (mean distance {edges.max():.2f}, unrelated {unrelated[0]:.2f}): clients came to agree on "
            "them by averaging; lower n_global if you look for what is shared from the start"
        )
    strange = report.get("misfits", [])
    if strange:
        robust = settings.matching_method == "star" and settings.aggregation in ("trimmed", "geometric-median")
        found.append(
            f"the matched atoms of {', '.join(strange)} were no nearer to the other clients' than unrelated atoms: "
            f"look at their data, or leave them out{'' if robust else '; aggregation = trimmed bears a minority'}"
        )
    if settings.n_global == "auto" and report["n_global"] == 0:
        lengths = np.asarray(report["path_lengths"]) / max(len(clients) - 1, 1)
        near = f"{lengths[0]:.2f}" if len(lengths) else "-"
        found.append(
            f"n_global = auto found no shared atom (nearest path: mean distance {near}, unrelated atoms "
            f"{unrelated.max(initial=0):.2f}); look at the scale of the data and the threshold, or set n_global"
        )
    dense = [
        name for name, facts in clients.items() if facts["n_atoms"] > 1 and facts["nonzeros"] > 0.7 * facts["n_atoms"]
    ]
    if dense:
        facts = clients[dense[0]]
        found.append(
            f"codes are not sparse ({facts['nonzeros']:.1f} of {facts['n_atoms']} atoms a sample at {dense[0]}"
            f"{' and others' if len(dense) > 1 else ''}): raise threshold or set threshold_unit = rms"
        )
    uncentred = [name for name, facts in clients.items() if facts["mean_share"] > 0.9]
    if uncentred and not settings.data.center:
        found.append(
            f"the mean carries {clients[uncentred[0]]['mean_share']:.1%} of the energy of {uncentred[0]}'s data: the "
            "first shared atom will be that mean; set data.center = true"
        )
    return found


def spread(values: list[float]) -> dict[str, float]:
    """Return ``min``, ``median`` and ``max``; empty for no values."""
    if not values:
        return {}
    return {"min": min(values), "median": float(np.median(values)), "max": max(values)}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
