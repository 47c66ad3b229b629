"""Figures of a run, drawn from its folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def draw_figures(folder: Path) -> list[Path]:
    """Draw ``figures/convergence.png``, ``path_lengths.png`` and, for square images, ``atoms.png``.

    Parameters
    ----------
    folder : Path
        A run's folder.

    Returns
    -------
    list of Path
        What was drawn.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    summary = json.loads((folder / "summary.json").read_text())
    rows = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    target = folder / "figures"
    target.mkdir(exist_ok=True)
    drawn: list[Path] = []

    def save(figure: Figure, name: str) -> None:
        FigureCanvasAgg(figure)
        figure.savefig(target / name, dpi=120)
        drawn.append(target / name)

    if rows:
        figure = Figure(figsize=(7, 3.2), layout="constrained")
        _convergence(figure, rows)
        save(figure, "convergence.png")
    lengths = summary.get("path_lengths") or []
    if lengths and len(summary["clients"]) > 1:
        figure = Figure(figsize=(5, 3.2), layout="constrained")
        _path_lengths(figure, lengths, len(summary["clients"]) - 1, summary["n_global"])
        save(figure, "path_lengths.png")
    if (folder / "global_dictionary.npz").exists():
        with np.load(folder / "global_dictionary.npz") as file:
            D = file["dictionary"]
        side = int(np.sqrt(D.shape[0]))
        if side * side == D.shape[0] and side >= 4 and D.shape[1]:
            figure = Figure(figsize=(7, 7 * min(1.0, np.ceil(D.shape[1] / 10) / 10)), layout="constrained")
            _atoms(figure, D, side)
            save(figure, "atoms.png")
    return drawn


def _convergence(figure: Any, rows: Sequence[dict[str, Any]]) -> None:
    t = [row["round"] for row in rows]
    left, right = figure.subplots(1, 2)
    positive = [(i, row["change"]) for i, row in zip(t, rows, strict=True) if row["change"] > 0]
    if positive:
        left.semilogy(*zip(*positive, strict=True), color="0.1")
    left.set(xlabel="round", ylabel="largest move of an atom of $D^g$")
    errors = {key: [row["error_before_update"][key] for row in rows] for key in ("min", "median", "max")}
    right.fill_between(t, errors["min"], errors["max"], color="0.8", label="all clients")
    right.plot(t, errors["median"], color="0.1", label="median client")
    if min(errors["min"]) > 0:
        right.set_yscale("log")
    for axes in (left, right):
        axes.xaxis.get_major_locator().set_params(integer=True)
    right.set(xlabel="round", ylabel="relative error before the update")
    right.legend(frameon=False)


def _path_lengths(figure: Any, lengths: Sequence[float], n_edges: int, n_global: int) -> None:
    axes = figure.subplots()
    edges = np.asarray(lengths) / n_edges
    shared = np.arange(len(edges)) < n_global
    places = np.arange(1, len(edges) + 1)
    for chosen, colour, label in ((shared, "0.2", "shared"), (~shared, "0.75", "not shared")):
        if chosen.any():
            axes.bar(places[chosen], edges[chosen], color=colour, label=label)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="path, in the order found", ylabel="mean edge ($d_2$ between neighbours)", ylim=(0, None))
    axes.legend(frameon=False)


def _atoms(figure: Any, D: NDArray[np.floating], side: int) -> None:
    """One image an atom; grey is zero, signs are turned so that the larger part is bright."""
    shown = D[:, : min(D.shape[1], 100)]
    grid = np.atleast_1d(figure.subplots(int(np.ceil(shown.shape[1] / 10)), min(10, shown.shape[1]))).ravel()
    for axes in grid:
        axes.axis("off")
    for axes, atom in zip(grid, shown.T, strict=False):
        atom = atom if atom.sum() >= 0 else -atom
        peak = np.abs(atom).max() or 1.0
        axes.imshow(atom.reshape(side, side), cmap="gray", vmin=-peak, vmax=peak)
