"""What in clients' samples makes a result doubtful, though nothing is wrong with any file: said, not refused."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_MISSING = (-1e20, 1e20, *(sign * 10.0**k - sign for sign in (-1, 1) for k in range(2, 8)))
"""-99, -999, ..., 99, 999, ...: what people and programs write for missing values."""

_FEWEST = 8
"""Rows from which on counting is no chance."""

_UNITS = 100.0
"""Ratio of clients' root mean squares from which on they are likely to be in other units."""


@dataclass(frozen=True)
class Facts:
    """What is remembered of one client's samples.

    Attributes
    ----------
    n_samples, n_features : int
    rms : float
        Root mean square.
    counting : int, optional
        Feature, from 1, that counts the samples.
    missing : float, optional
        A number far beyond the others that often stands for a missing value.
    mark : bytes
        The same for the same samples.
    """

    n_samples: int
    n_features: int
    rms: float
    counting: int | None
    missing: float | None
    mark: bytes


def facts(Y: NDArray[np.floating]) -> Facts:
    """Look at samples (d, n)."""
    counting = None
    if Y.shape[1] >= _FEWEST and len(Y) > 1:
        likely = (np.diff(Y[:, :_FEWEST], axis=1) == 1).all(axis=1)
        counting = next((int(j) + 1 for j in np.flatnonzero(likely) if (np.diff(Y[j]) == 1).all()), None)
    ends = Y.min(), Y.max()
    largest = float(max(-ends[0], ends[1])) or 1.0  # divided by first: numbers may be too large to be squared
    scaled = Y / largest
    rms = largest * float(np.sqrt(np.mean(np.square(scaled, out=scaled))))
    del scaled
    missing = next((value for value in _MISSING if value in ends and _stands_alone(Y, value)), None)
    mark = hashlib.blake2b(np.ascontiguousarray(Y.T).data, digest_size=16).digest()
    return Facts(Y.shape[1], len(Y), rms, counting, missing, mark)


def _stands_alone(Y: NDArray[np.floating], value: float) -> bool:
    """Whether all other numbers are much smaller."""
    others = np.abs(Y[value != Y])
    return bool(others.max(initial=0.0) < abs(value) / 5)


def doubts(clients: Mapping[str, Facts], turn: str) -> list[str]:
    """Return in words for people what is doubtful.

    Parameters
    ----------
    clients : mapping of str to Facts
    turn : str
        What to do if samples are in columns.
    """
    found = []
    counting = [name for name, one in clients.items() if one.counting]
    if counting:
        found.append(
            f"feature {clients[counting[0]].counting} of {_and_others(counting)} counts the samples (row numbers?): it "
            "will be a shared atom, and larger than all that is measured; take it out"
        )
    marked = [name for name, one in clients.items() if one.missing is not None]
    if marked:
        found.append(
            f"{_and_others(marked)} holds {clients[marked[0]].missing:g}, far beyond all its other numbers; if that "
            "stands for a missing value, fill it or drop those samples"
        )
    seen: dict[bytes, str] = {}
    for name, one in clients.items():
        if seen.setdefault(one.mark, name) != name:
            found.append(f"{name} has the very samples of {seen[one.mark]}; give each client its own")
    wide = [name for name, one in clients.items() if one.n_samples < one.n_features]
    if wide:
        one = clients[wide[0]]
        found.append(
            f"{_and_others(wide)} has {one.n_samples} samples of {one.n_features} features, fewer samples than "
            f"features; if its samples are in columns, {turn}"
        )
    sized = sorted((one.rms, name) for name, one in clients.items() if one.rms > 0)
    if sized and sized[-1][0] > _UNITS * sized[0][0]:
        (least, small), (most, large) = sized[0], sized[-1]
        found.append(
            f"the numbers of {large} are about {most / least:.0f} times those of {small}; if they are in other units, "
            "bring them to the same"
        )
    return found


def _and_others(names: list[str]) -> str:
    return names[0] + (" (and others)" if len(names) > 1 else "")
