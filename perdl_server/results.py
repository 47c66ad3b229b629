"""The run's folder: what the server writes while a run goes on and when it ends."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from platform import python_version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import PerdlError
from common.files import write_json, write_npz
from common.protocol import PROTOCOL
from common.settings import Settings

Floats = NDArray[np.floating]

STOP = "stop"
SERVED = "PERDL_SERVED"
"""Environment variable of a ServerApp that ``perdl server`` watches over."""


class RunFolder:
    """Writes ``metrics.jsonl``, ``rounds.jsonl``, ``global_dictionary.npz`` and ``summary.json``.

    Parameters
    ----------
    path : Path
        Made if it is not there; what a former run left in these files is removed.

    Raises
    ------
    PerdlError
        If the folder cannot be written.

    Notes
    -----
    ``metrics.jsonl`` has one row per round and client, ``rounds.jsonl`` one per round.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._saved_at = 0.0
        try:
            path.mkdir(parents=True, exist_ok=True)
            for name in ("metrics.jsonl", "rounds.jsonl"):
                (path / name).write_text("")
            for name in ("summary.json", "global_dictionary.npz"):
                (path / name).unlink(missing_ok=True)
            if not os.environ.get(SERVED):  # there, whoever serves clears it, and may have written it since
                (path / STOP).unlink(missing_ok=True)
        except OSError as error:
            raise PerdlError(f"cannot write results to {path}: {error.strerror}; choose another --output") from None

    def asked_to_stop(self) -> bool:
        """Whether a file called ``stop`` has appeared: the way to end a run that gets no signals."""
        return (self.path / STOP).exists()

    def add_round(self, row: Mapping[str, Any], clients: list[dict[str, Any]]) -> None:
        """Append one round: a row of its own and one for each client."""
        self._append("metrics.jsonl", clients)
        self._append("rounds.jsonl", [dict(row)])

    def save_dictionary(self, dictionary: Floats, consensus: Floats, *, every: float = 0.0) -> None:
        """Write D^g (d, r^g) and its consensus (r^g,), at most once in ``every`` seconds."""
        if every and time.monotonic() - self._saved_at < every:
            return
        write_npz(self.path / "global_dictionary.npz", dictionary=dictionary, consensus=consensus)
        self._saved_at = time.monotonic()

    def save_summary(self, summary: Mapping[str, Any]) -> None:
        """Write ``summary.json``, the last file of a run: where it is, the run has ended."""
        write_json(self.path / "summary.json", _plain(summary))

    def _append(self, name: str, rows: list[dict[str, Any]]) -> None:
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(_plain(row)) + "\n" for row in rows)


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


def _plain(value: Any) -> Any:
    """Turn NumPy's types into Python's; what JSON cannot say (NaN, infinity) becomes null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
