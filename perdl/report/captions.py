"""What the figures show, in words; and why there is none where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np

from common.protocol import natural_key
from perdl.results.readings import MOST, Reading, kind_of

FIGURES = ("convergence", "path_lengths", "variance", "atoms", "own_atoms", "usage", "participation")

MOST_CLIENTS = 40
"""Rows or columns of clients that stay legible."""
MOST_USAGE = 30, 15
"""Shared atoms, and own atoms, of which the usage is drawn."""


def why_not(figure: str, reading: Reading, client: str | None = None) -> str:
    """Return why a figure cannot be drawn; empty if it can."""
    at_clients = "the clients keep their own models: see each client's own folder"
    run = bool(reading.summary)
    n_clients = len(reading.clients)
    if figure == "convergence" and not reading.rounds:
        return "no round was done" if run else "a client's folder tells nothing of the rounds: see the server's"
    if figure == "path_lengths":
        if not run:
            return "a client's folder tells nothing of the matching: see the server's"
        if not len(reading.path_edges):
            return "nothing was matched" if not reading.summary.get("n_global") else "it was not told how atoms matched"
        return "there is one client alone, and no path" if n_clients < 2 else ""
    if figure == "variance" and not shares(reading):
        return (
            "no client told what its atoms explain in the end"
            if run
            else "shares of a client are in the server's folder"
        )
    if figure == "atoms" and not reading.global_dictionary.size:
        return "there is no shared atom"
    if figure == "own_atoms":
        if client is not None and client in reading.own:
            return "" if reading.own[client].size else f"{client} has no atoms of its own"
        return at_clients if not reading.own else f"there is no client {client}; there are {', '.join(reading.own)}"
    if figure == "usage" and not any(u.size for u in reading.usage.values()):
        return at_clients if run and not reading.own else "it was not noted how much each atom carries"
    if figure == "participation" and not reading.metrics:
        return (
            "no round was done"
            if not reading.rounds
            else "who answered which round is in a run's folder alone; give that, see output"
        )
    return ""


def shares(reading: Reading) -> dict[str, tuple[float, float, float]]:
    """Return the shares of each client's energy that are shared, its own, and unexplained; of those who told."""
    found = {}
    for name, facts in reading.clients.items():
        if facts.get("final_shared") is not None and facts.get("final_own") is not None:
            shared, own = float(facts["final_shared"]), float(facts["final_own"])
            found[name] = (shared, own, 1.0 - shared - own)
    return found


def participants(reading: Reading) -> dict[str, list[int]]:
    """Return the rounds that each client answered, in the order of their names."""
    rounds: dict[str, list[int]] = {name: [] for name in reading.clients}
    for row in reading.metrics:
        rounds.setdefault(row["client"], []).append(row["round"])
    return dict(sorted(rounds.items(), key=lambda item: natural_key(item[0])))


def counted(n: int, thing: str) -> str:
    """Return a number and its thing: ``1 client``, ``3 clients``."""
    return f"{n} {thing}{'s' * (n != 1)}"


def first_of(shown: int, n: int) -> str:
    """Say how many of many are shown; empty if all are."""
    return f" The first {shown} of {n} are shown." if n > shown else ""


def sentences(figure: str, reading: Reading, client: str | None = None) -> str:
    """Say what a figure shows, with its numbers."""
    if figure in ("atoms", "own_atoms"):
        return _atoms(reading, client if figure == "own_atoms" else None)
    return {
        "convergence": _convergence,
        "path_lengths": _path_lengths,
        "variance": _variance,
        "usage": _usage,
        "participation": _participation,
    }[figure](reading)


def _convergence(reading: Reading) -> str:
    first, last = reading.rounds[0], reading.rounds[-1]
    before, after = first.get("error_before_update") or {}, last.get("error_before_update") or {}
    text = f"{counted(len(reading.rounds), 'round')}."
    if before and after:
        text += (
            f" The median client's relative error before its update went from {_number(before.get('median'))} to "
            f"{_number(after.get('median'))}; in the last round it was between {_number(after.get('min'))} and "
            f"{_number(after.get('max'))}."
        )
    text += f" The last round moved no shared atom by more than {_number(last.get('change'))}."
    if (last.get("consensus") or {}).get("min") is not None:
        text += (
            f" Consensus of the least agreed atom: {first['consensus']['min']:.3f} in the first round, "
            f"{last['consensus']['min']:.3f} in the last (1: all clients agree)."
        )
    return text


def _path_lengths(reading: Reading) -> str:
    edges, n_global = reading.path_edges, int(reading.summary["n_global"])
    unrelated = reading.summary.get("unrelated_edges") or []
    text = "How far matched atoms of neighbouring clients lay apart before the first round, on average along a path."
    if n_global:
        text += f" The {counted(n_global, 'shared path')}: {_range(edges[:n_global])}."
    if n_global < len(edges):
        text += f" The next path, not shared: {edges[n_global]:.2g}."
    if unrelated:
        text += f" Unrelated atoms would lie {_range(unrelated[: len(edges)])} apart (dashed)."
    return text


def _variance(reading: Reading) -> str:
    parts = shares(reading)
    shared, own, rest = np.array(list(parts.values())).T
    least, most = min(parts, key=lambda name: parts[name][0]), max(parts, key=lambda name: parts[name][0])
    text = (
        f"Of the energy of a client's data, shared atoms explain {np.median(shared):.0%} (median), own atoms "
        f"{np.median(own):.0%} more, and {np.median(rest):.1%} stays unexplained."
    )
    if len(parts) > 1:
        text += f" Least is shared at {least} ({parts[least][0]:.0%}), most at {most} ({parts[most][0]:.0%})."
    return text + first_of(MOST_CLIENTS, len(parts))


def _atoms(reading: Reading, client: str | None) -> str:
    D = reading.atoms(client)
    kind, (d, r) = kind_of(reading), D.shape
    size = "×".join(map(str, reading.shape))
    whose = f"{counted(r, 'shared atom')}" if client is None else f"{counted(r, 'atom')} of {client} alone"
    how = {
        "images": f"each an image of {size}: grey is zero, and the number on the left is that of the first in a row",
        "curves": f"each a curve over {counted(reading.shape[0], 'row')} about its own zero line"
        if reading.is_series
        else f"each a curve over {counted(d, 'feature')} about its own zero line",
        "bars": f"each with a bar for each of {counted(d, 'feature')}",
    }[kind]
    text = f"{whose}, {how}. Signs are turned so that the larger part is positive."
    if kind == "bars":
        largest = [_largest(reading, D[:, k]) for k in range(min(r, 3))]
        text += f" Largest: {'; '.join(f'{name} in atom {k + 1}' for k, name in enumerate(largest))}."
        if not reading.names and not reading.own:  # a server's
            text += " Features are numbered: their names stay with the clients; a client's own report has them."
    if unused := reading.unused(client):
        some = _listed([f"atom {k + 1}" for k in unused])
        text += f" Next to no sample uses {some}: {'they are' if len(unused) > 1 else 'it is'} pale or crossed out."
    return text + first_of(MOST[kind], r)


def _largest(reading: Reading, atom: Any) -> str:
    j = int(np.abs(atom).argmax())
    return reading.names[j] if len(reading.names) == len(atom) else f"feature {j + 1}"


def _usage(reading: Reading) -> str:
    r_g = reading.global_dictionary.shape[1]
    clients = list(reading.usage)
    whose = "the" if len(clients) == 1 else "each"
    text = f"How much of the energy of {whose} client's data each atom carries: shared atoms above the line, own below."
    if r_g:
        table = np.array([reading.usage[name][:r_g] for name in clients])
        mean = table.mean(axis=0)
        k = int(mean.argmax())
        text += (
            f" Shared atom {k + 1} carries most: {mean[k]:.1%}{' on average over the clients' * (len(clients) > 1)}."
        )
        dead = np.flatnonzero((table == 0).all(axis=0))
        if len(dead):
            text += f" No client uses {_listed([f'shared atom {j + 1}' for j in dead])}."
    most = max(len(u) - r_g for u in reading.usage.values())
    text += first_of(MOST_CLIENTS, len(clients))
    if r_g > MOST_USAGE[0] or most > MOST_USAGE[1]:
        text += f" At most {MOST_USAGE[0]} shared and {MOST_USAGE[1]} own atoms are shown."
    return text


def _participation(reading: Reading) -> str:
    answered = participants(reading)
    n = max(row["round"] for row in reading.metrics)
    away = {name: n - len(rounds) for name, rounds in answered.items() if len(rounds) < n}
    text = f"Who answered which of {counted(n, 'round')}: "
    if not away:
        text += f"all {counted(len(answered), 'client')} answered every round."
    else:
        worst = sorted(away, key=lambda name: -away[name])
        text += (
            f"{len(answered) - len(away)} of {counted(len(answered), 'client')} answered every round; "
            f"{_listed([f'{name} missed {away[name]}' for name in worst])}."
        )
    return text + first_of(MOST_CLIENTS, len(answered))


def _listed(things: list[str], most: int = 3) -> str:
    more = f" and {len(things) - most} more" if len(things) > most else ""
    return ", ".join(things[:most]) + more


def _range(values: Any) -> str:
    low, high = f"{min(values):.2g}", f"{max(values):.2g}"
    return low if low == high else f"{low} to {high}"


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.2g}"
