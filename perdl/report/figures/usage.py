"""Figure: the share of each client's energy that each shared atom carries, and that all its own atoms carry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perdl.report.figure import NO_MODELS, FigureKind, Row, chosen_clients, chosen_of
from perdl.report.words import counted, some_of
from perdl.results.run_result import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_ATOMS = 30


def _why_not(result: RunResult, client: str | None) -> str:
    if any(u.size for u in result.usage.values()):
        return ""
    if result.summary and not result.local_dictionaries:
        return NO_MODELS
    return "it is not known how much each atom carries"


def _draw(result: RunResult, client: str | None) -> Figure:
    from matplotlib.patches import Rectangle

    from perdl.report.drawing import label, new_figure

    names = chosen_clients(result, result.usage)
    r_g = result.global_dictionary.shape[1]
    # Own atoms of different clients are different atoms: they have no rows in common.
    own = np.array([[result.usage[name][r_g:].sum() for name in names]])
    shared = np.array([result.usage[name][:r_g] for name in names]).T[:_MOST_ATOMS]
    table = np.vstack([shared, own])
    below = 0.08 * max(len(label(name)) for name in names)  # inches of the names, which stand upright
    figure = new_figure(min(0.3 + below + max(1.1, 0.6 + 0.16 * len(table)), 9.5))
    axes = figure.subplots()
    image = axes.imshow(np.cbrt(table), cmap="Blues", vmin=0, aspect="auto", interpolation="nearest")
    lacks = np.array([np.isin(range(len(shared)), result.lacking(name)) for name in names]).T
    rows, columns = np.nonzero((shared == 0) & ~lacks)
    axes.plot(columns, rows, "x", color="0.3", markersize=4)
    for row, column in zip(*np.nonzero(lacks), strict=True):
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor="white", edgecolor="0.7", hatch="////"))
    if len(shared):
        axes.axhline(len(shared) - 0.5, color="k", linewidth=1.2)
    step = -(-len(table) // 25)
    labels = [f"shared {k + 1}" for k in range(len(shared))]
    places = [*range(0, len(shared), step), len(shared)]
    axes.set_yticks(places, [*labels[::step], "all own"])
    every = -(-len(names) // 20)
    axes.set_xticks(range(0, len(names), every), [label(name) for name in names[::every]], rotation=90)
    bar = figure.colorbar(image, ax=axes, label="share of\nthe energy", aspect=40, pad=0.02)
    marks = [mark for mark in (0, 0.001, 0.01, 0.1, 0.3, 1) if mark <= np.nanmax(table)]
    bar.set_ticks(np.cbrt(marks).tolist(), labels=[f"{mark:g}" for mark in marks])
    return figure


def _caption(result: RunResult, client: str | None) -> str:
    r_g, clients = result.global_dictionary.shape[1], list(result.usage)
    whose = "the" if len(clients) == 1 else "each"
    if not r_g:
        text = (
            f"How much of the energy of {whose} client's data all its own atoms carry together: there is no shared "
            "atom."
        )
    else:
        text = (
            f"How much of the energy of {whose} client's data each shared atom carries, and in the last row all own "
            "atoms of a client together."
        )
        table = np.array([result.usage[name][:r_g] for name in clients])
        mean = table.mean(axis=0)
        k = int(mean.argmax())
        text += (
            f" Shared atom {k + 1} carries most: {mean[k]:.1%}{' on average over the clients' * (len(clients) > 1)}."
        )
        dead = [j for j in result.shared_atoms if not table[:, j].any()]
        if dead:
            text += f" No client uses {some_of([f'shared atom {j + 1}' for j in dead])}."
        if any(map(result.lacking, clients)):
            text += " Hatched: the client does not share that atom."
    text += chosen_of(len(clients))
    return text + (f" Of {counted(r_g, 'shared atom')} the first {_MOST_ATOMS} are shown." if r_g > _MOST_ATOMS else "")


def _numbers(result: RunResult, client: str | None) -> list[Row]:
    r_g = result.global_dictionary.shape[1]
    return [
        {
            "client": name,
            **{
                f"shared {k + 1}": "-" if k in result.lacking(name) else f"{u[k]:.1%}"
                for k in range(min(r_g, _MOST_ATOMS))
            },
            "all own": f"{u[r_g:].sum():.1%}",
            "own atoms in use": f"{len(result.by_energy(name))} of {len(u) - r_g}",
        }
        for name in chosen_clients(result, result.usage)
        for u in (result.usage[name],)
    ]


USAGE = FigureKind(
    "How much each atom carries",
    "A row that is dark for one client only is hardly shared. A cross: no sample uses that atom. Hatched: the client "
    "does not share it.",
    _why_not,
    _caption,
    _draw,
    _numbers,
    of_model=True,
)
