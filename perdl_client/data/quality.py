"""Warn of problems in clients' samples that may spoil the result, though every file can be used.

The samples are checked before they are cut: row numbers and codes of missing values no longer show in windows and
patches.
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
from perdl_client.data.samples import plainly
from perdl_client.data.units import MOST, differ, how_they_differ, labels, pooled, spreads, untouched

Floats = NDArray[np.floating]

_MISSING = (-1e20, 1e20, *(sign * 10.0**k - sign for sign in (-1, 1) for k in range(2, 8)))
"""-99, -999, ..., 99, 999, ...: common codes of missing values."""

_ORDINARY = 255.0
"""A positive number up to this may be a brightness or a count, even if the rest of its feature is much smaller."""

_FEWEST = 8
"""Rows that are needed before counting up is not taken for chance."""

_UNITS = 100.0
"""Ratio of clients' root mean squares above which their units probably differ."""


@dataclass(frozen=True)
class SampleStatistics:
    """Statistics of one client's samples, for the warnings.

    Parameters
    ----------
    n_samples, n_features : int
        n_i and d.
    rms : float
        Root mean square, without codes of missing values.
    counting : tuple of int
        Features, from 0, that count the samples (row numbers).
    times : tuple of int
        Other features that rise or fall by whole numbers from sample to sample.
    missing : float, optional
        A number that often is the code of a missing value, far beyond all others of its feature.
    missing_in : tuple of int
        Features that hold this number; empty for images, which are checked as one.
    mark : bytes
        Hash of the samples; equal for equal samples.
    spreads : (d,) array, optional
        Spread of each feature; None for images, and for so many features that they are probably of one kind.
    image : bool
        Whether a sample is an image.
    names : tuple of str
        Names of the features, if the file has them.
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


def sample_statistics(Y: Floats, shape: Sequence[int] = (), names: tuple[str, ...] = ()) -> SampleStatistics:
    """Return the statistics of samples as they were read.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns, finite or NaN, which marks what is missing.
    shape : sequence of int
        Shape of a sample; of an image (h, w) or (h, w, c).
    names : tuple of str
        Names of the features.
    """
    d, n = Y.shape
    image = len(shape) > 1
    missing, missing_in = _missing(Y, image)
    rms = root_mean_square(Y if missing is None else Y[missing != Y].reshape(1, -1))
    mark = hashlib.blake2b(np.ascontiguousarray(Y.T).data, digest_size=16).digest()
    sizes = spreads(Y) if not image and d <= MOST else None
    counting = _all_along(Y, _counts) if d > 1 else ()
    times = tuple(j for j in _all_along(Y, _goes_one_way) if j not in counting)
    return SampleStatistics(n, d, rms, counting, times, missing, missing_in, mark, sizes, image, names)


def _all_along(Y: Floats, holds: Callable[[Floats], NDArray[np.bool_]]) -> tuple[int, ...]:
    """Return the features, from 0, for whose rows ``holds`` is true."""
    if Y.shape[1] < _FEWEST:
        return ()
    likely = np.flatnonzero(holds(Y[:, :_FEWEST]))  # a cheap first test
    return tuple(int(j) for j in likely if holds(Y[j : j + 1])[0])


def _counts(rows: Floats) -> NDArray[np.bool_]:
    counted: NDArray[np.bool_] = (np.diff(rows, axis=1) == 1).all(axis=1)
    return counted


def _goes_one_way(rows: Floats) -> NDArray[np.bool_]:
    """Return which rows are whole numbers that only rise, or only fall."""
    steps = np.diff(rows, axis=1)
    one_way = (steps > 0).all(axis=1) | (steps < 0).all(axis=1)
    whole: NDArray[np.bool_] = one_way & (rows == np.round(rows)).all(axis=1)
    return whole


def _missing(Y: Floats, image: bool) -> tuple[float | None, tuple[int, ...]]:
    """Return a number that codes missing values, and the features that hold it."""
    low, high = np.fmin.reduce(Y, axis=1), np.fmax.reduce(Y, axis=1)
    for value in _MISSING:
        which = np.flatnonzero((low == value) | (high == value))
        if image or 0 < value <= _ORDINARY:
            if len(which) and _stands_alone(Y.ravel(), value):
                return value, () if image else tuple(map(int, which))
        elif alone := tuple(int(j) for j in which if _stands_alone(Y[j], value)):
            return value, alone
    return None, ()


def _stands_alone(row: Floats, value: float) -> bool:
    """Return whether there are other numbers, and all are much smaller."""
    others = row[(row != value) & (row == row)]
    return len(others) > 0 and bool(max(-others.min(), others.max()) < abs(value) / 5)


LeaveOut = Callable[[Sequence[str]], str]
"""Returns the option that leaves out columns of these names."""


def data_warnings(
    clients: Mapping[str, SampleStatistics],
    turn: str,
    data: DataSettings | None = None,
    drop: LeaveOut | None = None,
) -> list[str]:
    """Return warnings of problems that may spoil the result, one line for each kind.

    Parameters
    ----------
    clients : mapping of str to SampleStatistics
        Statistics by client's name.
    turn : str
        What to do if samples are in columns, for the message.
    data : DataSettings, optional
        How samples are preprocessed. Without it there is no warning of different units.
    drop : callable, optional
        Returns the option that leaves columns of a table out by name.
    """
    found = [_counting(clients, drop), _times(clients, drop), _marks(clients), _the_same(clients), _wide(clients, turn)]
    if data is not None and untouched(data):
        found.append(unit_warning(clients))
    return [text for text in (*found, _other_units(clients)) if text]


def _counting(clients: Mapping[str, SampleStatistics], drop: LeaveOut | None) -> str:
    who = {name: one.counting for name, one in clients.items() if one.counting}
    if not who:
        return ""
    which, many = _features(who, clients)
    return (
        f"{which} {'count' if many else 'counts'} the samples (row numbers?): it will be a shared atom, and larger "
        f"than all that is measured; take it out{_how(who, clients, drop)}"
    )


def _times(clients: Mapping[str, SampleStatistics], drop: LeaveOut | None) -> str:
    who = {name: one.times for name, one in clients.items() if one.times}
    if not who:
        return ""
    which, many = _features(who, clients)
    one_way = f"{which} {'go' if many else 'goes'} up or down by whole numbers from sample to sample: times?"
    return f"{one_way} Take it out{_how(who, clients, drop)}"


def _how(who: Mapping[str, Collection[int]], clients: Mapping[str, SampleStatistics], drop: LeaveOut | None) -> str:
    """Say how features are left out, where the files are tables."""
    own = {(j, names[j]) for names, some in by_columns(who, clients) for j in _all(who, some) if j < len(names)}
    which = list(dict.fromkeys(name for _, name in sorted(own)))
    return f" ({drop(which)})" if drop is not None and 0 < len(which) <= 3 else ""


def _marks(clients: Mapping[str, SampleStatistics]) -> str:
    who = {name: one.missing_in for name, one in clients.items() if one.missing is not None}
    if not who:
        return ""
    which, many = _features(who, clients)
    values = listed(sorted({f"{one.missing:g}" for one in clients.values() if one.missing is not None}))
    return (
        f"{which} {'hold' if many else 'holds'} {values}, far beyond all other numbers there; if that stands for a "
        "missing value, fill it or drop those samples"
    )


def _the_same(clients: Mapping[str, SampleStatistics]) -> str:
    seen: dict[bytes, str] = {}
    first = {name: seen.setdefault(one.mark, name) for name, one in clients.items()}
    copies = [f"{name} has the very samples of {original}" for name, original in first.items() if original != name]
    return f"{listed(copies)}; give each client its own" if copies else ""


def _wide(clients: Mapping[str, SampleStatistics], turn: str) -> str:
    wide = [name for name, one in clients.items() if one.n_samples < one.n_features and not one.image]
    if not wide:
        return ""
    one = clients[wide[0]]
    if len(wide) > 1:
        has = f"{listed(wide)} have fewer samples than features ({one.n_samples} of {one.n_features} at {wide[0]})"
        return f"{has}; if their samples are in columns, {turn}"
    has = f"{wide[0]} has {one.n_samples} samples of {one.n_features} features, fewer samples than features"
    return f"{has}; if its samples are in columns, {turn}"


def unit_warning(clients: Mapping[str, SampleStatistics]) -> str:
    """Return a warning if the spreads of features suggest different units, else an empty string.

    Parameters
    ----------
    clients : mapping of str to SampleStatistics
        Statistics by client's name. If one has row numbers or times, there is no warning: these must go first.
    """
    sizes = pooled([one.spreads for one in clients.values() if one.spreads is not None])
    if not differ(sizes) or any(one.counting or one.times for one in clients.values()):
        return ""
    names = next((one.names for one in clients.values() if one.names), ())
    return (
        f"{how_they_differ(sizes, names)}; if they are in different units, set data.divide_by to constants that all "
        "clients agree on (perdl check proposes some): else atoms show the features of large numbers alone"
    )


def _other_units(clients: Mapping[str, SampleStatistics]) -> str:
    sized = sorted((one.rms, name) for name, one in clients.items() if one.rms > 0)
    if not sized or sized[-1][0] <= _UNITS * sized[0][0]:
        return ""
    (least, small), (most, large) = sized[0], sized[-1]
    return (
        f"the numbers of {large} are about {most / least:.0f} times those of {small}; if they are in other units, "
        "bring them to the same"
    )


def by_columns(
    who: Collection[str], clients: Mapping[str, SampleStatistics]
) -> list[tuple[tuple[str, ...], list[str]]]:
    """Return groups of clients whose columns have the same names: the names, and the clients.

    Clients without names are counted to the first that has some and as many features.

    Parameters
    ----------
    who : collection of str
        Clients to group.
    clients : mapping of str to SampleStatistics
        Statistics by client's name.
    """
    first = next((clients[name].names for name in who if clients[name].names), ())
    groups: dict[tuple[str, ...], tuple[tuple[str, ...], list[str]]] = {}
    for client in who:
        names = clients[client].names or (first if clients[client].n_features == len(first) else ())
        groups.setdefault(tuple(plainly(names)), (names, []))[1].append(client)
    return list(groups.values())


def _all(who: Mapping[str, Collection[int]], some: Collection[str]) -> list[int]:
    """Return the features of some of the clients, in order."""
    return sorted({j for client in some for j in who[client]})


def _features(who: Mapping[str, Collection[int]], clients: Mapping[str, SampleStatistics]) -> tuple[str, bool]:
    """Name features of clients, and say whether there are several. Without features, name the clients."""
    if not any(who.values()):
        return listed(who), len(who) > 1
    groups = [(_all(who, some), names, some) for names, some in by_columns(who, clients)]
    told = [
        f"feature{'s' * (len(which) > 1)} {labels(which, names)} of {listed(some)}" if which else listed(some)
        for which, names, some in groups
    ]
    return ", ".join(told[:-1]) + " and " * (len(told) > 1) + told[-1], len(groups) > 1 or len(groups[0][0]) > 1
