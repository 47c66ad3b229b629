"""What a client keeps between messages. It is never sent."""

from __future__ import annotations

import logging
from dataclasses import astuple, dataclass, field
from pathlib import Path

import numpy as np
from flwr.app import Context
from numpy.typing import NDArray

from common.files import ForeignFileError, read_record, write_record
from common.protocol import Scalar, pack, unpack
from perdl_client.learning.restart import NOTHING_SEEN, Watch

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]
_log = logging.getLogger("perdl.client")

VERSION = 6
"""Version of the files' format. Files of another version are refused."""

KEPT = 3
"""Number of states that are kept. A server that resumes may ask again for one of its last two rounds. The client then
continues from its state before that round, and its answer has the same bits."""

_STATE = "perdl"
NOTHING_USED = np.empty(0, dtype=np.intp)
ALL_SHARED = np.empty(0, dtype=bool)


@dataclass(frozen=True)
class ClientState:
    """State of one client in one run.

    Parameters
    ----------
    run : str
        The run's id, which the server gives; it stays the same after a resume.
    settings : str
        The run's settings as the server sent them (JSON).
    step : int
        The last answered round; 0 after the start.
    local_dictionary : (d, r_l) array
        D^l_i; before the split, the whole D_i^(0).
    n_global : int
        r^g of the first D^g; -1 before it arrived.
    used : (m,) int array
        Atoms that the client sent for matching; empty after the split.
    split : (r_g,) int array
        Those of the sent atoms that are global, as the server said first; empty before. Later messages must agree
        with it.
    members : (r_g,) bool array
        The global atoms that the client shares; empty if all clients share all.
    watch : Watch
        State of the stall detection.
    names : str
        Hash of the features' names; empty if they have none.
    asked : str
        Hash of the D^g to which the last answer was given. A private client answers a round for one D^g only.
    """

    run: str
    settings: str
    step: int
    local_dictionary: Floats
    n_global: int = -1
    used: Ints = field(default_factory=lambda: NOTHING_USED)
    split: Ints = field(default_factory=lambda: NOTHING_USED)
    members: Bools = field(default_factory=lambda: ALL_SHARED)
    watch: Watch = NOTHING_SEEN
    names: str = ""
    asked: str = ""


def save_state(state: ClientState, context: Context, folder: Path | None) -> None:
    """Keep the state in Flower's context and, if a folder is given, the last few states on disk.

    Parameters
    ----------
    state : ClientState
        State after the last answer.
    context : flwr.app.Context
        This node's context.
    folder : Path, optional
        The client's folder, where a restarted client finds its states.

    Raises
    ------
    OSError
        If the state cannot be written. The former state then stays valid.
    """
    watch = np.array(astuple(state.watch), dtype=np.float64)
    arrays = {key: getattr(state, key) for key in ("local_dictionary", "used", "split", "members")} | {"watch": watch}
    if folder is not None:
        head = {key: getattr(state, key) for key in ("run", "settings", "step", "n_global", "names", "asked")}
        write_record(folder / "state" / f"{state.step:08d}.npz", "state", VERSION, head, arrays)
        _prune(folder, state.step)
    scalars: dict[str, Scalar] = {"step": state.step, "n_global": state.n_global, "asked": state.asked}
    record = pack(arrays, run=state.run, settings=state.settings, names=state.names, **scalars)
    context.state[_STATE] = record[_STATE]


def find_state(run: str, context: Context, folder: Path | None, before: int | None = None) -> ClientState | None:
    """Return the newest state of a run, from Flower's context or else from the disk.

    Parameters
    ----------
    run : str
        The run's id.
    context : flwr.app.Context
        This node's context.
    folder : Path, optional
        The client's folder; None in a simulation.
    before : int, optional
        Only states that have not answered this round count.

    Returns
    -------
    ClientState, or None
        None if the client was never initialised in this run, or its states are lost or too new.

    Raises
    ------
    PerdlError
        If another version of perdl wrote them.
    """

    def fits(state: ClientState) -> bool:
        return state.run == run and (before is None or state.step < before)

    if _STATE in context.state:
        state = _unpack(context)
        if fits(state):
            return state
    for path in reversed(_files(folder)):
        found = _read(path)
        if found is not None and fits(found):
            return found
    return None


def forget_state(context: Context, folder: Path | None) -> None:
    """Forget the states of a run that is over.

    Parameters
    ----------
    context : flwr.app.Context
        This node's context.
    folder : Path, optional
        The client's folder; None in a simulation.
    """
    context.state.pop(_STATE, None)
    for path in _files(folder):
        path.unlink(missing_ok=True)


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
        members=payload.array("members", (-1,), "b"),
        watch=_watch(payload.arrays["watch"]),
        names=payload.scalar("names", str),
        asked=payload.scalar("asked", str),
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
    """Remove states of a former run, states newer than this round (the server went back), and old ones."""
    steps = {int(path.stem): path for path in _files(folder)}
    kept = sorted(steps)[: sorted(steps).index(step) + 1][-KEPT:] if step else [0]
    for other in steps.keys() - set(kept):
        steps[other].unlink(missing_ok=True)


def _watch(values: Floats) -> Watch:
    objective, previous, next_try, wait = values.tolist()
    return Watch(objective, previous, int(next_try), int(wait))
