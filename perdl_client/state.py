"""What a client keeps between messages, and where its own model lies. None of it is ever sent."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from pathlib import Path

import numpy as np
from flwr.app import Context
from numpy.typing import NDArray

from common.errors import PerdlError
from common.files import write_npz
from common.protocol import pack, unpack
from perdl_client.round import NOTHING_SEEN, Watch

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]

_STATE = "perdl"
_FILE = "state.npz"


@dataclass(frozen=True)
class ClientState:
    """State of one client in one run.

    Attributes
    ----------
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
    watch : Watch
        Its own evidence of being stuck.
    """

    settings: str
    step: int
    local_dictionary: Floats
    n_global: int = -1
    used: Ints = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    watch: Watch = NOTHING_SEEN


def save_state(state: ClientState, context: Context, folder: Path | None) -> None:
    """Keep the state in Flower's context and, if a folder is given, on the client's own disk.

    Parameters
    ----------
    state : ClientState
    context : flwr.app.Context
    folder : Path, optional
        A restarted client finds its state there; files are written whole or not at all.
    """
    watch = np.array(astuple(state.watch), dtype=np.float64)
    arrays = {"local_dictionary": state.local_dictionary, "used": state.used, "watch": watch}
    record = pack(arrays, settings=state.settings, step=state.step, n_global=state.n_global)
    context.state.config_records[_STATE] = record.config_records[_STATE]
    if folder is not None:
        head = np.array([state.settings, str(state.step), str(state.n_global), str(context.run_id)])
        write_npz(folder / _FILE, head=head, **arrays)


def load_state(context: Context, folder: Path | None) -> ClientState:
    """Return the state of this run, from Flower's context or else from the client's own disk.

    Raises
    ------
    PerdlError
        If there is none: the client was never initialised in this run, or its state is lost.
    """
    if _STATE in context.state.config_records:
        payload = unpack(context.state)
        return ClientState(
            settings=payload.scalar("settings", str),
            step=payload.scalar("step", int),
            local_dictionary=payload.array("local_dictionary", (-1, -1)),
            n_global=payload.scalar("n_global", int),
            used=payload.array("used", (-1,), "i"),
            watch=_watch(payload.arrays["watch"]),
        )
    if folder is not None and (folder / _FILE).exists():
        with np.load(folder / _FILE, allow_pickle=False) as file:
            settings, step, n_global, run_id = file["head"].tolist()
            if run_id == str(context.run_id):
                watch = _watch(file["watch"])
                return ClientState(settings, int(step), file["local_dictionary"], int(n_global), file["used"], watch)
    raise PerdlError("this client has no state of this run: it was restarted without its folder, or joined too late")


def _watch(values: Floats) -> Watch:
    objective, previous, next_try, wait = values.tolist()
    return Watch(objective, previous, int(next_try), int(wait))


def has_state(context: Context, folder: Path | None) -> bool:
    """Whether this client has been initialised in this run."""
    try:
        load_state(context, folder)
    except PerdlError:
        return False
    return True


def save_model(folder: Path, global_dictionary: Floats, local_dictionary: Floats) -> None:
    """Write the client's own model, ``dictionary.npz`` with ``global`` (d, r^g) and ``local`` (d, r^l)."""
    write_npz(folder / "dictionary.npz", **{"global": global_dictionary, "local": local_dictionary})
