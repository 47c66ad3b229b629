"""`perdl.simulate`: run a simulation from Python."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from common.errors import SettingsError
from common.settings import load_settings, override_settings

if TYPE_CHECKING:
    from perdl.engines.run import Engine
    from perdl.monitoring.callbacks import Callback
    from perdl.results.run_result import RunResult


def simulate(
    config: str | Path = "synthetic",
    settings: Mapping[str, Any] | None = None,
    *,
    output: str | Path | None = None,
    overwrite: bool = False,
    engine: Engine = "in-process",
    callbacks: Sequence[Callback] = (),
) -> RunResult:
    """Simulate all clients on this machine. It writes the same folder as `perdl simulate`.

    Parameters
    ----------
    config : str or Path
        A TOML file or a preset.
    settings : mapping, optional
        Settings that win over the file, named as for ``-c``: ``{"n_global": "auto", "data.path": "samples/*.csv"}``.
    output : path, optional
        Folder of the results; default ``runs/NAME-DATE``.
    overwrite : bool
        Whether results of an earlier run in the folder are replaced.
    engine : {"in-process", "processes", "ray"}
        Engine that runs the clients; all give the same numbers. With many small clients, "processes" uses all cores,
        but does not know what this program has registered, such as a learner of its own.
    callbacks : sequence of Callback
        Called during the run.

    Returns
    -------
    RunResult

    Raises
    ------
    PerdlError
        If a setting, the data or the folder is wrong. One line names the problem and its cure.

    Warns
    -----
    UserWarning
        For each thing that makes the result doubtful, and for a callback that failed.
    """
    from perdl.cli.command import find_config
    from perdl.engines import run
    from perdl.engines.claim import claimed
    from perdl.experiments.additions import complete
    from perdl.monitoring.callbacks import watch
    from perdl.plots import draw_figures
    from perdl.results.run_result import read_run

    if engine not in get_args(run.Engine):
        raise SettingsError(f"engine = {engine!r}: must be {', '.join(map(repr, get_args(run.Engine)))}")
    path = find_config(str(config))
    chosen = override_settings(load_settings(path), settings or {})
    notes: list[str] = []
    cure = "choose another output, or give overwrite=True"
    with claimed(chosen, path, Path(output) if output else None, overwrite, cure) as settled:
        chosen = run.count_clients(settled)
        with watch(chosen, callbacks, notes.append) as on_start:
            run.simulate(chosen, engine, on_start, complete=complete)
            result = read_run(chosen.output)
            draw_figures(result, ["png"])
    warn_of_doubts([*notes, *result.summary["warnings"]], 2)
    return result


def warn_of_doubts(notes: Sequence[str], stacklevel: int) -> None:
    """Warn of what makes a run's result doubtful.

    Parameters
    ----------
    notes : sequence of str
        One warning each.
    stacklevel : int
        As for `warnings.warn`; 1 is the caller of this function.
    """
    for text in notes:
        warnings.warn(text, UserWarning, stacklevel=stacklevel + 1)
