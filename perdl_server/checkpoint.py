"""What a server needs to resume a run. It is written after every round, atomically, and the one before is kept."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import SettingsError
from common.files import ForeignFileError, read_record, write_record
from perdl_server.algorithm.membership import Membership

Floats = NDArray[np.floating]
_log = logging.getLogger("perdl.server")

VERSION = 5
NEWEST, BEFORE = "checkpoint.npz", "checkpoint-before.npz"


@dataclass(frozen=True)
class Checkpoint:
    """State of a run after a round.

    Parameters
    ----------
    run : str
        The run's id, by which clients recognise it.
    round : int
        The last complete round; 0 after matching.
    dictionary : (d, r_g) array
        D^g.
    consensus : (r_g,) array
        Agreement of the clients on each atom, 0 to 1.
    members : dict of str to dict
        What the server knows of each client, by name.
    matches : dict of str to (r_g,) int array
        Indices of clients that have not answered a round yet.
    report : dict
        The summary so far; its ``settings`` are the run's.
    membership : Membership, optional
        Which clients share which atom, if not all share all.
    sharers : list of str
        Clients in the order of ``membership``.
    bytes : dict
        Bytes sent so far, by phase and direction.
    seconds : float
        Duration of the run so far.
    ended : str
        Why there are no more rounds; empty if there are.
    """

    run: str
    round: int
    dictionary: Floats
    consensus: Floats
    members: Mapping[str, Mapping[str, Any]]
    matches: Mapping[str, NDArray[np.intp]]
    report: Mapping[str, Any]
    membership: Membership | None = None
    sharers: Sequence[str] = ()
    bytes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    seconds: float = 0.0
    ended: str = ""


def save_checkpoint(checkpoint: Checkpoint, folder: Path) -> None:
    """Write ``checkpoint.npz`` and keep the former one. If the process is killed, at least one complete file is left.

    Parameters
    ----------
    checkpoint : Checkpoint
        State of the run.
    folder : Path
        The run's folder.
    """
    names = list(checkpoint.members)
    keys = ("run", "round", "members", "report", "sharers", "bytes", "seconds", "ended")
    head = {key: getattr(checkpoint, key) for key in keys}
    arrays: dict[str, NDArray[Any]] = {"dictionary": checkpoint.dictionary, "consensus": checkpoint.consensus}
    arrays |= {f"indices {names.index(name)}": indices for name, indices in checkpoint.matches.items()}
    if checkpoint.membership is not None:
        arrays |= {f"membership {key}": np.asarray(value) for key, value in vars(checkpoint.membership).items()}
    if (folder / NEWEST).exists():
        os.replace(folder / NEWEST, folder / BEFORE)
    write_record(folder / NEWEST, "checkpoint", VERSION, head, arrays)


def load_checkpoint(folder: Path) -> Checkpoint:
    """Return the newest complete checkpoint.

    Parameters
    ----------
    folder : Path
        The run's folder.

    Raises
    ------
    SettingsError, PerdlError
        If there is none, or another version of perdl wrote it.
    """
    for name in (NEWEST, BEFORE):
        if (folder / name).exists():
            try:
                return _read(folder / name)
            except (OSError, ForeignFileError) as error:
                _log.warning("%s cannot be read (%s); the one before it is used", folder / name, error)
    raise SettingsError(
        f"{folder} holds no checkpoint that can be read: its run had not matched its clients yet, or this is not the "
        "folder of a `perdl server`; begin the run anew"
    )


def _read(path: Path) -> Checkpoint:
    head, arrays = read_record(path, "checkpoint", VERSION)
    matches = {name: arrays[f"indices {i}"] for i, name in enumerate(head["members"]) if f"indices {i}" in arrays}
    known = {key.removeprefix("membership "): arrays[key] for key in arrays if key.startswith("membership ")}
    membership = Membership(**{**known, "reach": float(known["reach"])}) if known else None  # type: ignore[arg-type]
    return Checkpoint(
        membership=membership, dictionary=arrays["dictionary"], consensus=arrays["consensus"], matches=matches, **head
    )
