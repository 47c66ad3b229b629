"""What a client keeps between messages, and where its own model lies. None of it is ever sent."""

from __future__ import annotations

import logging
from dataclasses import astuple, dataclass, field
from pathlib import Path

import numpy as np
from flwr.app import Context
from numpy.typing import NDArray

from common.files import ForeignFileError, read_record, write_record
from common.protocol import Scalar, pack, unpack
from perdl_client.learning.client import NOTHING_SEEN, Watch

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]
_log = logging.getLogger("perdl.client")

VERSION = 3
"""Of the files; another perdl's are refused rather than misread."""

KEPT = 3
"""A server that resumes from its last complete round, or from the one before it, asks again what was answered: a client
then goes on from the state that it had before, and its answer is the same to the last bit."""

_STATE = "perdl"
NOTHING_USED = np.empty(0, dtype=np.intp)


@dataclass(frozen=True)
class ClientState:
    """State of one client in one run.

    Attributes
    ----------
    run : str
        The run's id, given by its server; the same after the server was resumed.
    settings : str
        The run's settings as JSON, as the server sent them.
    step : int
        The last round answered; 0 after the start.
    local_dictionary : (d, r_l) array
        D^l_i; before matching, the whole D_i^(0).
    n_global : int
        r^g as it was when the first D^g came; -1 before.
    used : (m,) int array
        Which of its atoms the client sent for matching; empty once D^l is split off.
    split : (r_g,) int array
        Which of those it was told are global; empty before. Later questions may not split it otherwise.
    watch : Watch
        Its own evidence of being stuck.
    names : str
        Mark of the names of its features; empty if they have none.
    """

    run: str
    settings: str
    step: int
    local_dictionary: Floats
    n_global: int = -1
    used: Ints = field(default_factory=lambda: NOTHING_USED)
    split: Ints = field(default_factory=lambda: NOTHING_USED)
    watch: Watch = NOTHING_SEEN
    names: str = ""


def save_state(state: ClientState, context: Context, folder: Path | None) -> None:
    """Keep the state in Flower's context and, if a folder is given, the last few on the client's own disk.

    Parameters
    ----------
    state : ClientState
    context : flwr.app.Context
    folder : Path, optional
        A restarted client finds its states there; files are written whole or not at all.

    Raises
    ------
    OSError
        If the disk does not take it; the state before it then stays in force.
    """
    watch = np.array(astuple(state.watch), dtype=np.float64)
    arrays = {"local_dictionary": state.local_dictionary, "used": state.used, "split": state.split, "watch": watch}
    if folder is not None:
        head = {key: getattr(state, key) for key in ("run", "settings", "step", "n_global", "names")}
        write_record(folder / "state" / f"{state.step:08d}.npz", "state", VERSION, head, arrays)
        _prune(folder, state.step)
    scalars: dict[str, Scalar] = {"step": state.step, "n_global": state.n_global, "names": state.names}
    record = pack(arrays, run=state.run, settings=state.settings, **scalars)
    context.state.config_records[_STATE] = record.config_records[_STATE]


def find_state(run: str, context: Context, folder: Path | None, before: int | None = None) -> ClientState | None:
    """Return the newest state of a run, from Flower's context or else from the client's own disk.

    Parameters
    ----------
    run : str
    context : flwr.app.Context
    folder : Path, optional
    before : int, optional
        Only states that had not yet answered this round.

    Returns
    -------
    ClientState, or None
        None if there is none: the client was never initialised in this run, its states are lost or too new.

    Raises
    ------
    PerdlError
        If another version of perdl wrote them.
    """

    def fits(state: ClientState) -> bool:
        return state.run == run and (before is None or state.step < before)

    if _STATE in context.state.config_records:
        state = _unpack(context)
        if fits(state):
            return state
    for path in reversed(_files(folder)):
        found = _read(path)
        if found is not None and fits(found):
            return found
    return None


def _unpack(context: Context) -> ClientState:
    payload = unpack(context.state)
    return ClientState(
        run=payload.scalar("run", str),
        settings=payload.scalar("settings", str),
        step=payload.scalar("step", int),
        local_dictionary=payload.array("local_dictionary", (-1, -1)),
        n_global=payload.scalar("n_global", int),
        used=payload.array("used", (-1,), "i"),
        split=payload.array("split", (-1,), "i"),
        watch=_watch(payload.arrays["watch"]),
        names=payload.scalar("names", str),
    )


def _files(folder: Path | None) -> list[Path]:
    return sorted((folder / "state").glob("[0-9]*.npz")) if folder is not None else []


def _read(path: Path) -> ClientState | None:
    try:
        head, arrays = read_record(path, "state", VERSION)
        return ClientState(**head, **{**arrays, "watch": _watch(arrays["watch"])})  # type: ignore[arg-type]
    except (OSError, ForeignFileError) as error:
        _log.warning("%s cannot be read (%s); the state before it is used", path, error)
        return None


def _prune(folder: Path, step: int) -> None:
    """Drop the states of a former run, of rounds that a resumed server went back behind, and old ones."""
    steps = {int(path.stem): path for path in _files(folder)}
    kept = sorted(steps)[: sorted(steps).index(step) + 1][-KEPT:] if step else [0]
    for other in steps.keys() - set(kept):
        steps[other].unlink(missing_ok=True)


def _watch(values: Floats) -> Watch:
    objective, previous, next_try, wait = values.tolist()
    return Watch(objective, previous, int(next_try), int(wait))
