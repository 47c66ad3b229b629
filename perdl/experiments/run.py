"""Run one of the paper's experiments and write its results."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.errors import SettingsError
from common.files import write_json, write_text
from common.settings import Settings
from perdl.engines.claim import held
from perdl_server.summary import describe

DEFAULT_PRESETS = {"synthetic": "text", "mnist": "best", "surveillance": "text"}
"""Default preset of each experiment. MNIST with the 784 atoms of the paper's text takes half an hour."""


def preset_of(experiment: str, preset: str | None = None) -> tuple[str, str]:
    """Return the preset of an experiment and the name of its configuration.

    Parameters
    ----------
    experiment : str
        Name of the experiment.
    preset : str, optional
        The preset; by default that of `DEFAULT_PRESETS`.

    Raises
    ------
    SettingsError
        If there is no such experiment.
    """
    if experiment not in DEFAULT_PRESETS:
        raise SettingsError(f"there is no experiment {experiment}; experiments are {', '.join(DEFAULT_PRESETS)}")
    preset = preset or DEFAULT_PRESETS[experiment]
    return preset, experiment if preset == "text" else f"{experiment}-{preset}"


def run_experiment(
    name: str,
    settings: Settings,
    *,
    preset: str,
    quick: bool = False,
    full: bool = False,
    progress: Callable[[str], object] = lambda text: None,
) -> dict[str, Any]:
    """Run an experiment; write ``results.json``, ``tables.md`` and figures into ``settings.output``.

    Parameters
    ----------
    name : {"synthetic", "mnist", "surveillance"}
        Name of the experiment.
    settings : Settings
        Settings of the experiment.
    preset : str
        Name of the preset, for the results.
    quick : bool
        Whether to run a small version, in less than half a minute.
    full : bool
        Whether to run all parts of the experiment, however long they take.
    progress : callable (str) -> object
        Gets a line for each step.

    Returns
    -------
    dict
        ``experiment``, ``preset``, ``settings``, ``versions``, ``tables`` (by title, lists of rows), ``sentences``
        (three), ``seconds``, ``finished``. If synthetic is interrupted, the files hold the parts that are done.
    """
    folder = Path(settings.output)
    if full and name != "synthetic":
        raise SettingsError(f"--full: the {name} experiment has no longer version")
    if settings.clients:
        raise SettingsError(f"clients.{next(iter(settings.clients))}: all clients of an experiment learn alike")
    module = importlib.import_module(f"perdl.experiments.{name}")
    began = time.monotonic()

    def write(found: Mapping[str, Any], finished: bool) -> dict[str, Any]:
        head = {"experiment": name, "preset": preset, "quick": quick, "full": full, "finished": finished}
        results = {**head, **describe(settings), **found}
        write_json(folder / "results.json", results)
        write_text(folder / "tables.md", markdown(results))
        return results

    def keep(tables: Mapping[str, Any]) -> None:
        write({"tables": tables, "sentences": [], "seconds": time.monotonic() - began}, False)

    longer = {"full": full, "keep": keep} if name == "synthetic" else {}
    with held(folder):
        return write(module.run(settings, folder, quick=quick, progress=progress, **longer), True)


def markdown(results: Mapping[str, Any]) -> str:
    """Return the tables and sentences of an experiment as Markdown.

    Parameters
    ----------
    results : mapping
        Results of `run_experiment`.
    """
    lines = [f"# {results['experiment']}, preset {results['preset']}, {results['seconds']:.0f} s", ""]
    if not results["finished"]:
        lines += ["Unfinished: parts are missing.", ""]
    for title, rows in results["tables"].items():
        columns = columns_of(rows)
        words = [one_sentence(results["explained"][title]), ""] if title in results.get("explained", {}) else []
        lines += [f"## {title}", "", *words, f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
        lines += [f"| {' | '.join(cell(row.get(column)) for column in columns)} |" for row in rows]
        lines.append("")
    return "\n".join([*lines, *(f"- {sentence}" for sentence in results["sentences"]), ""])


def one_sentence(text: str) -> str:
    """Return a text with a capital and a full stop.

    Parameters
    ----------
    text : str
        Words without a full stop.
    """
    return f"{text[0].upper()}{text[1:]}."


def columns_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns of all rows, in the order of their first appearance.

    Parameters
    ----------
    rows : sequence of mapping
        Rows of a table; cells may be missing.
    """
    return list(dict.fromkeys(key for row in rows for key in row))


def cell(value: Any) -> str:
    """Return a value as tables show it: with three digits, empty for None.

    Parameters
    ----------
    value : object
        Content of the cell: a number, a text or None.
    """
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
