"""What a search of settings tried: a file beside the settings that it chose, and a copy of it in a run's folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.files import plain, write_json, write_text

if TYPE_CHECKING:
    from perdl_server.algorithm.search import Trial

SEARCH = "search.json"
"""Name of the copy in a run's folder."""


def search_file(config: Path) -> Path:
    """Return where the trials of a search are whose chosen settings are in a file: ``tuned.search.json``.

    Parameters
    ----------
    config : Path
        File of settings.
    """
    return config.with_suffix(f".{SEARCH}")


def write_search(config: Path, names: Sequence[str], trials: Sequence[Trial], best: Trial, **facts: Any) -> None:
    """Write what a search tried beside the settings that it chose.

    Parameters
    ----------
    config : Path
        File of the chosen settings.
    names : sequence of str
        Clients that held samples out, in the order of the errors.
    trials : sequence of Trial
        All runs, in their order.
    best : Trial
        The chosen one.
    **facts
        What else is known of the search: ``data``, ``rounds``, ``n_nonzero``, ``seed``.
    """
    rows = [
        {
            "group": one.group,
            "values": one.values,
            "n_global": one.n_global,
            "errors": dict(zip(names, one.errors.tolist(), strict=True)) if len(one.errors) else {},
            "seconds": one.seconds,
            "failed": one.failed,
        }
        for one in trials
    ]
    chosen = next(i for i, one in enumerate(trials) if one is best)
    write_json(search_file(config), plain({**facts, "chosen": chosen, "trials": rows}))


def keep_search(config: Path, folder: Path) -> None:
    """Copy what a search tried from beside its settings into the folder of a run that takes them.

    Parameters
    ----------
    config : Path
        File of the run's settings.
    folder : Path
        Folder of the run. A copy of an earlier run there is removed.
    """
    (folder / SEARCH).unlink(missing_ok=True)
    if search_file(config).exists():
        write_text(folder / SEARCH, search_file(config).read_text(encoding="utf-8"))


def read_search(folder: Path) -> dict[str, Any]:
    """Return the search that found a run's settings; empty if none did, or if its file is damaged.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    """
    with suppress(OSError, ValueError):
        search = json.loads((folder / SEARCH).read_text(encoding="utf-8"))
        if isinstance(search, dict) and isinstance(search.get("trials"), list):
            return dict(search)
    return {}


def rungs(search: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the trials that differ in the number of shared atoms alone, by that number.

    Parameters
    ----------
    search : mapping
        What `read_search` returned.

    Returns
    -------
    list of dict
        Trials. The one whose ``values`` have no ``n_global``, or ``"auto"``, found its number by itself.
    """
    trials = search.get("trials", [])
    first = next((one for one in trials if "n_global" in one["values"]), None)
    if first is None:
        return []
    same = [one for one in trials if _others(one) == _others(first)]
    return sorted(same, key=lambda one: (_asked(one), is_auto(one)))


def is_auto(trial: Mapping[str, Any]) -> bool:
    """Return whether a trial found its number of shared atoms by itself.

    Parameters
    ----------
    trial : mapping
        One of the trials of a search.
    """
    return not isinstance(trial["values"].get("n_global", "auto"), int)


def _others(trial: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in trial["values"].items() if key != "n_global"}


def _asked(trial: Mapping[str, Any]) -> int:
    """The number of shared atoms; of a run that failed the one that it should have had."""
    return int(trial["n_global"] if is_auto(trial) else trial["values"]["n_global"])
