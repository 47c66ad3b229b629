"""Audit of a client: what left it, by its own record, held to what may travel."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.errors import DataError
from common.protocol import FINISH, INITIALISE, MEASURE, OPEN, SCALE, UPDATE
from common.travels import ALLOWED
from perdl_client.record import FILE

PHASES = {
    SCALE: "scale",
    INITIALISE: "initialise",
    UPDATE: "update",
    OPEN: "open",
    MEASURE: "measure",
    FINISH: "finish",
}


@dataclass
class Phase:
    """What left in one phase of one run.

    Parameters
    ----------
    run : str
        The run's id.
    phase : str
        Name of the phase.
    answers : int
        Number of answers with content.
    refused : int
        Number of questions that were refused.
    bytes : int
        Size of all arrays.
    arrays : dict of str to str
        Shapes by name of array.
    first, last : str
        Times of the first and the last answer.
    """

    run: str
    phase: str
    answers: int = 0
    refused: int = 0
    bytes: int = 0
    arrays: dict[str, str] = field(default_factory=dict)
    first: str = ""
    last: str = ""


@dataclass(frozen=True)
class Audit:
    """Result of an audit.

    Parameters
    ----------
    phases : list of Phase
        What left, in the order of the record.
    faults : list of str
        What may not have left, one sentence each.
    """

    phases: list[Phase]
    faults: list[str]


def audit(folder: Path) -> Audit:
    """Read a client's record, and hold it to the table of what travels.

    Parameters
    ----------
    folder : Path
        The client's folder.

    Returns
    -------
    Audit

    Raises
    ------
    DataError
        If there is no record, or it is damaged.
    """
    path = folder / FILE
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        cure = "start the client with --record to have one" if not path.exists() else "look at its permissions"
        raise DataError(f"cannot read {path}: {error.strerror}; {cure}") from None
    phases: dict[tuple[str, str], Phase] = {}
    faults: list[str] = []
    widths: dict[str, set[int]] = {}
    firsts: dict[str, set[str]] = {}
    for number, line in enumerate(lines, 1):
        row = _row(path, number, line)
        kind, run = row["kind"], row["run"]
        one = phases.setdefault((run, kind), Phase(run, PHASES.get(kind, kind), first=row["time"]))
        one.last = row["time"]
        if "refused" in row:
            one.refused += 1
            continue
        one.answers += 1
        one.bytes += sum(array["bytes"] for array in row["arrays"].values())
        one.arrays |= {name: "x".join(map(str, array["shape"])) for name, array in row["arrays"].items()}
        faults += [f"line {number}, run {run}, {one.phase}: {fault}" for fault in _faults(kind, row)]
        for name in {"contribution", "energies"} & row["arrays"].keys():
            widths.setdefault(run, set()).add(row["arrays"][name]["shape"][-1])
        if "dictionary" in row["arrays"]:
            firsts.setdefault(run, set()).add(row["arrays"]["dictionary"]["sha256"])
    members = any("spread" in phase.arrays for phase in phases.values())
    for run, found in widths.items():
        if len(found) > 1 and not members:  # with sharing = "some" members come and go
            faults.append(f"run {run}: rounds sent {listed_numbers(found)} atoms, and one number was agreed")
    for run, hashes in firsts.items():
        if len(hashes) > 1:
            faults.append(f"run {run}: {len(hashes)} first dictionaries left, and one may")
    return Audit(list(phases.values()), faults)


def listed_numbers(numbers: Iterable[int]) -> str:
    """Return numbers in words.

    Parameters
    ----------
    numbers : iterable of int
        The numbers.
    """
    return " and ".join(map(str, sorted(numbers)))


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
        if not {"time", "run", "kind"} <= row.keys() or not ("refused" in row or {"arrays", "scalars"} <= row.keys()):
            raise ValueError
        for array in row.get("arrays", {}).values():
            if not {"shape", "bytes", "sha256"} <= array.keys():
                raise ValueError
    except (ValueError, AttributeError):
        raise DataError(f"{path}: line {number} is damaged: the record was cut short or changed") from None
    return dict(row)


def _faults(kind: str, row: dict[str, Any]) -> list[str]:
    """Return what an answer holds that may not travel."""
    allowed = ALLOWED.get(kind)
    if allowed is None:
        return [f"the protocol knows no message {kind}"]
    found = [f"the scalar {name} left" for name in row["scalars"] if not allowed.scalar(name)]
    for name, array in row["arrays"].items():
        if name not in allowed.arrays:
            found.append(f"the array {name} left")
        elif len(array["shape"]) != allowed.arrays[name]:
            found.append(f"the array {name} left with {len(array['shape'])} axes")
    n_atoms, n_samples = row["scalars"].get("n_atoms"), row["scalars"].get("n_samples")
    if "dictionary" in row["arrays"] and n_atoms is not None:
        m = row["arrays"]["dictionary"]["shape"][-1]
        if m > n_atoms:
            found.append(f"{m} atoms left, and it has {n_atoms}")
        if n_samples is not None and m >= n_samples:
            found.append(f"{m} atoms left, of {n_samples} samples: as many as that can hold the samples themselves")
    return found
