"""Runs for people who write Python: `perdl.simulate`, and what a run's folder holds as arrays."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from common.errors import SettingsError
from common.settings import load_settings, override_settings

if TYPE_CHECKING:
    from perdl.engines.run import Engine
    from perdl.monitoring.callbacks import Callback

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class RunResult:
    """What a run left in its folder.

    Attributes
    ----------
    folder : Path
    summary : dict
        ``summary.json``.
    global_dictionary : (d, r_g) array
        Columns are atoms, as in the files.
    consensus : (r_g,) array
    local_dictionaries : dict of str to (d, r_l) array
        By client; empty for a server's folder, whose clients keep their own.
    usage : dict of str to (r,) array
        By client: the share of its data's energy that each atom carries, global atoms first.
    history : list of dict
        One row a round.
    """

    folder: Path
    summary: dict[str, Any]
    global_dictionary: Floats
    consensus: Floats
    local_dictionaries: dict[str, Floats]
    usage: dict[str, Floats]
    history: list[dict[str, Any]]

    def __repr__(self) -> str:
        s = self.summary
        return (
            f"RunResult({str(self.folder)!r}: {len(s['clients'])} clients, {s['n_global']} global atoms, "
            f"{s['rounds']} rounds, {s['stop_reason']})"
        )


def read_run(folder: str | Path) -> RunResult:
    """Read a run's folder.

    Parameters
    ----------
    folder : path
        Of `perdl simulate`, `perdl server` or :func:`simulate`.

    Raises
    ------
    PerdlError
        If there is no run that ended.
    """
    from common.protocol import natural_key
    from perdl.engines.run import read_summary

    folder = Path(folder)
    summary = read_summary(folder)
    with np.load(folder / "global_dictionary.npz", allow_pickle=False) as file:
        D, consensus = file["dictionary"], file["consensus"]
    local, usage = {}, {}
    for path in sorted(folder.glob("clients/*/dictionary.npz"), key=lambda path: natural_key(path.parent.name)):
        with np.load(path, allow_pickle=False) as file:
            local[path.parent.name], usage[path.parent.name] = file["local"], file["usage"]
    rows = (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    return RunResult(folder, summary, D, consensus, local, usage, [json.loads(row) for row in rows])


def simulate(
    config: str | Path = "synthetic",
    settings: Mapping[str, Any] | None = None,
    *,
    output: str | Path | None = None,
    overwrite: bool = False,
    engine: Engine = "in-process",
    callbacks: Sequence[Callback] = (),
) -> RunResult:
    """Simulate all clients on this machine, as `perdl simulate` does, into the same folder.

    Parameters
    ----------
    config : str or Path
        A TOML file or a preset.
    settings : mapping, optional
        Put over it, by the names that ``-c`` takes: ``{"n_global": "auto", "data.path": "samples/*.csv"}``.
    output : path, optional
        Folder of the results; default ``runs/NAME-DATE``.
    overwrite : bool
        Whether a former run in the folder may go.
    engine : {"in-process", "ray"}
    callbacks : sequence of Callback
        Hear of the run while it goes on.

    Returns
    -------
    RunResult

    Raises
    ------
    PerdlError
        One line that says what is wrong and the cure.

    Warns
    -----
    UserWarning
        For each thing that makes the result doubtful, and for a callback that failed.
    """
    from perdl.cli.command import find_config
    from perdl.engines import run
    from perdl.engines.claim import claimed
    from perdl.monitoring.callbacks import watch
    from perdl.plots import draw_figures

    if engine not in get_args(run.Engine):
        raise SettingsError(f"engine = {engine!r}: must be {' or '.join(map(repr, get_args(run.Engine)))}")
    path = find_config(str(config))
    chosen = override_settings(load_settings(path), settings or {})
    notes: list[str] = []
    cure = "choose another output, or give overwrite=True"
    with claimed(chosen, path.stem, Path(output) if output else None, overwrite, cure) as settled:
        chosen = run.count_clients(settled)
        with watch(chosen, callbacks, notes.append) as on_start:
            run.simulate(chosen, engine, on_start)
            draw_figures(Path(chosen.output), ["png"])
    result = read_run(chosen.output)
    warn_of_doubts([*notes, *result.summary["warnings"]], 2)
    return result


def warn_of_doubts(notes: Sequence[str], stacklevel: int) -> None:
    """Say what makes a run's result doubtful as Python says it; 1 is the place that calls this."""
    for text in notes:
        warnings.warn(text, UserWarning, stacklevel=stacklevel + 1)
