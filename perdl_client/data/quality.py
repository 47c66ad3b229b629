"""What in clients' samples makes a result doubtful, though nothing is wrong with any file: said, not refused.

Samples are looked at as they were read: what counts from row to row, or stands for a missing value, can no longer be
seen in windows and patches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.data_settings import DataSettings
from common.words import listed
from perdl_client.data.moments import root_mean_square
from perdl_client.data.units import MOST, differ, how_they_differ, labels, pooled, spreads, untouched

Floats = NDArray[np.floating]

_MISSING = (-1e20, 1e20, *(sign * 10.0**k - sign for sign in (-1, 1) for k in range(2, 8)))
"""-99, -999, ..., 99, 999, ...: what people and programs write for missing values."""

_ORDINARY = 255.0
"""Up to this a positive number may be a brightness or a count, though none of its feature comes near it."""

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
        Root mean square of what stands for no missing value.
    counting : tuple of int
        Features, from 0, that count the samples.
    times : tuple of int
        Those that otherwise go up or down by whole numbers from sample to sample.
    missing : float, optional
        A number that often stands for a missing value, far beyond all others of its feature.
    missing_in : tuple of int
        Features that hold it; of images, all are looked at as one, and it is empty.
    mark : bytes
        The same for the same samples.
    spreads : (d,) array, optional
        Of each feature; none of images, and of more features than are likely to be of different kinds.
    image : bool
        Whether a sample is an image.
    names : tuple of str
        Of the features, where the file has them.
    """

    n_samples: int
    n_features: int
    rms: float
    counting: tuple[int, ...]
    times: tuple[int, ...]
    missing: float | None
    missing_in: tuple[int, ...]
    mark: bytes
    spreads: Floats | None
    image: bool
    names: tuple[str, ...]


def facts(Y: Floats, shape: Sequence[int] = (), names: tuple[str, ...] = ()) -> Facts:
    """Look at samples as they were read.

    Parameters
    ----------
    Y : (d, n) array
        Finite.
    shape : sequence of int
        Of a sample; of images (h, w) or (h, w, c).
    names : tuple of str
        Of the features.
    """
    d, n = Y.shape
    image = len(shape) > 1
    missing, missing_in = _missing(Y, image)
    rms = root_mean_square(Y if missing is None else Y[missing != Y].reshape(1, -1))
    mark = hashlib.blake2b(np.ascontiguousarray(Y.T).data, digest_size=16).digest()
    sizes = spreads(Y) if not image and d <= MOST else None
    counting = _all_along(Y, _counts) if d > 1 else ()
    times = tuple(j for j in _all_along(Y, _goes_one_way) if j not in counting)
    return Facts(n, d, rms, counting, times, missing, missing_in, mark, sizes, image, names)


def _all_along(Y: Floats, holds: Callable[[Floats], NDArray[np.bool_]]) -> tuple[int, ...]:
    """Features, from 0, of whose rows something holds."""
    if Y.shape[1] < _FEWEST:
        return ()
    likely = np.flatnonzero(holds(Y[:, :_FEWEST]))  # few are left for a look at all samples
    return tuple(int(j) for j in likely if holds(Y[j : j + 1])[0])


def _counts(rows: Floats) -> NDArray[np.bool_]:
    counted: NDArray[np.bool_] = (np.diff(rows, axis=1) == 1).all(axis=1)
    return counted


def _goes_one_way(rows: Floats) -> NDArray[np.bool_]:
    """Whether rows are whole numbers that only rise, or only fall."""
    steps = np.diff(rows, axis=1)
    one_way = (steps > 0).all(axis=1) | (steps < 0).all(axis=1)
    whole: NDArray[np.bool_] = one_way & (rows == np.round(rows)).all(axis=1)
    return whole


def _missing(Y: Floats, image: bool) -> tuple[float | None, tuple[int, ...]]:
    """Return the mark of missing values that samples hold, and the features that hold it."""
    low, high = Y.min(axis=1), Y.max(axis=1)
    for value in _MISSING:
        which = np.flatnonzero((low == value) | (high == value))
        if image or 0 < value <= _ORDINARY:
            if len(which) and _stands_alone(Y.ravel(), value):
                return value, () if image else tuple(map(int, which))
        elif alone := tuple(int(j) for j in which if _stands_alone(Y[j], value)):
            return value, alone
    return None, ()


def _stands_alone(row: Floats, value: float) -> bool:
    """Whether there are other numbers, and all are much smaller."""
    others = row[row != value]
    return len(others) > 0 and bool(max(-others.min(), others.max()) < abs(value) / 5)


LeaveOut = Callable[[Sequence[str]], str]
"""Returns the option that leaves out columns of these names."""


def doubts(
    clients: Mapping[str, Facts], turn: str, data: DataSettings | None = None, drop: LeaveOut | None = None
) -> list[str]:
    """Return in words for people what is doubtful, one line for each kind.

    Parameters
    ----------
    clients : mapping of str to Facts
    turn : str
        What to do if samples are in columns.
    data : DataSettings, optional
        What is done to samples before they are learnt from; without it nothing is said of features in different units.
    drop : callable, optional
        Returns the option that leaves columns of a table out by name.
    """
    found = [_counting(clients, drop), _times(clients, drop), _marks(clients), _the_same(clients), _wide(clients, turn)]
    if data is not None and untouched(data):
        found.append(different_units(clients))
    return [text for text in (*found, _other_units(clients)) if text]


def _counting(clients: Mapping[str, Facts], drop: LeaveOut | None) -> str:
    who = {name: one.counting for name, one in clients.items() if one.counting}
    if not who:
        return ""
    which, many = _features(who, clients)
    return (
        f"{which} {'count' if many else 'counts'} the samples (row numbers?): it will be a shared atom, and larger "
        f"than all that is measured; take it out{_how(who, clients, drop)}"
    )


def _times(clients: Mapping[str, Facts], drop: LeaveOut | None) -> str:
    who = {name: one.times for name, one in clients.items() if one.times}
    if not who:
        return ""
    which, many = _features(who, clients)
    one_way = f"{which} {'go' if many else 'goes'} up or down by whole numbers from sample to sample: times?"
    return f"{one_way} Take it out{_how(who, clients, drop)}"


def _how(who: Mapping[str, Collection[int]], clients: Mapping[str, Facts], drop: LeaveOut | None) -> str:
    """Say how features are left out, where the files are tables."""
    names = next((clients[name].names for name in who if clients[name].names), ())
    which = [names[j] for j in sorted(set().union(*who.values())) if j < len(names)]
    return f" ({drop(which)})" if drop is not None and 0 < len(which) <= 3 else ""


def _marks(clients: Mapping[str, Facts]) -> str:
    who = {name: one.missing_in for name, one in clients.items() if one.missing is not None}
    if not who:
        return ""
    which, many = _features(who, clients)
    values = listed(sorted({f"{one.missing:g}" for one in clients.values() if one.missing is not None}))
    return (
        f"{which} {'hold' if many else 'holds'} {values}, far beyond all other numbers there; if that stands for a "
        "missing value, fill it or drop those samples"
    )


def _the_same(clients: Mapping[str, Facts]) -> str:
    seen: dict[bytes, str] = {}
    first = {name: seen.setdefault(one.mark, name) for name, one in clients.items()}
    copies = [f"{name} has the very samples of {original}" for name, original in first.items() if original != name]
    return f"{listed(copies)}; give each client its own" if copies else ""


def _wide(clients: Mapping[str, Facts], turn: str) -> str:
    wide = [name for name, one in clients.items() if one.n_samples < one.n_features and not one.image]
    if not wide:
        return ""
    one = clients[wide[0]]
    if len(wide) > 1:
        has = f"{listed(wide)} have fewer samples than features ({one.n_samples} of {one.n_features} at {wide[0]})"
        return f"{has}; if their samples are in columns, {turn}"
    has = f"{wide[0]} has {one.n_samples} samples of {one.n_features} features, fewer samples than features"
    return f"{has}; if its samples are in columns, {turn}"


def different_units(clients: Mapping[str, Facts]) -> str:
    """Return in words that features' spreads are so far apart that their units may differ; empty if they are not.

    Parameters
    ----------
    clients : mapping of str to Facts
        Where one has row numbers or times, nothing is said: that feature has to go first.
    """
    sizes = pooled([one.spreads for one in clients.values() if one.spreads is not None])
    if not differ(sizes) or any(one.counting or one.times for one in clients.values()):
        return ""
    names = next((one.names for one in clients.values() if one.names), ())
    return (
        f"{how_they_differ(sizes, names)}; if they are in different units, set data.divide_by to constants that all "
        "clients agree on (perdl check proposes some): else atoms show the features of large numbers alone"
    )


def _other_units(clients: Mapping[str, Facts]) -> str:
    sized = sorted((one.rms, name) for name, one in clients.items() if one.rms > 0)
    if not sized or sized[-1][0] <= _UNITS * sized[0][0]:
        return ""
    (least, small), (most, large) = sized[0], sized[-1]
    return (
        f"the numbers of {large} are about {most / least:.0f} times those of {small}; if they are in other units, "
        "bring them to the same"
    )


def _features(who: Mapping[str, Collection[int]], clients: Mapping[str, Facts]) -> tuple[str, bool]:
    """Name features of clients, and say whether they are several; where no feature is told, the clients alone."""
    which = sorted(set().union(*who.values()))
    if not which:
        return listed(who), len(who) > 1
    names = next((clients[name].names for name in who if clients[name].names), ())
    return f"feature{'s' * (len(which) > 1)} {labels(which, names)} of {listed(who)}", len(which) > 1
