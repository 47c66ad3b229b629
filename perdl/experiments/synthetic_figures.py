"""Figures of the synthetic experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = Sequence[Mapping[str, Any]]

_FLOOR = 1e-16
"""Smaller errors are drawn here, because a logarithmic axis cannot show zero."""
_WEAK = 1e-3
"""A client is drawn as weak if its own dictionary ends farther than this from the shared atoms."""


def draw_recovery(path: Path, found: Sequence[Mapping[str, Mapping[str, Any]]]) -> None:
    """Draw error against round: one seed's clients alone, and PerMA over all seeds.

    Parameters
    ----------
    path : Path
        File to write.
    found : sequence of dict
        For each seed, the ``curve`` of each strategy.
    """
    figure = _figure(9, 3.4)
    left, right = figure.subplots(1, 2, sharey=True)
    # The paper's figure shows one run with three weak clients: take the seed that comes nearest to it.
    alone = [np.array(one["independent clients"]["curve"]) for one in found]
    chosen = int(np.argmin([abs(int((curve[-1] > _WEAK).sum()) - 3) for curve in alone]))
    curve = np.maximum(alone[chosen], _FLOOR)
    weak = curve[-1] > _WEAK
    for shown, colour, label in ((~weak, "0.7", "a client alone"), (weak, "C3", "a weak client alone")):
        for i, line in enumerate(curve.T[shown]):
            left.semilogy(line, color=colour, lw=0.9, label=label if i == 0 else None)
    for name, style in (("none (algorithm 1)", "--"), ("restart, star around the medoid", "-")):
        left.semilogy(np.maximum(found[chosen][name]["curve"], _FLOOR), "k" + style, label=f"PerMA, {_short(name)}")
    left.set(xlabel="round", ylabel="$d_{1,2}(D^g, D^{g*})$", title="one seed")
    for name, colour in (("none (algorithm 1)", "C1"), ("restart, star around the medoid", "C0")):
        curves = _padded([one[name]["curve"] for one in found])
        low, middle, high = np.quantile(curves, [0.05, 0.5, 0.95], axis=0)
        right.fill_between(np.arange(len(low)), low, high, color=colour, alpha=0.25, lw=0)
        right.semilogy(middle, color=colour, label=f"PerMA, {_short(name)}")
    right.set(xlabel="round", title=f"{len(found)} seeds: median, 5 % to 95 %")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=140)


def draw_weak(path: Path, rows: Rows) -> None:
    """Draw error against the samples of the weak clients, without and with noise.

    Parameters
    ----------
    path : Path
        File to write.
    rows : sequence of mapping
        For each noise and number of samples, the median error by strategy.
    """
    figure = _figure(9, 3.4)
    panels = figure.subplots(1, 2)
    for axes, noise in zip(panels, (0.0, 0.05), strict=True):
        chosen = [row for row in rows if row["noise"] == noise]
        n = [row["weak samples"] for row in chosen]
        for name in chosen[0]:
            if name in ("noise", "weak samples") or (name == "oracle" and noise == 0):
                continue
            style = {"weak clients alone": "k:", "oracle": "k--"}.get(name, "-")
            axes.loglog(n, [max(row[name], _FLOOR) for row in chosen], style, marker="o", ms=3, label=name)
        axes.set(xlabel="samples of the three weak clients", title=f"noise {noise:g}")
        axes.set_xticks(n, [str(k) for k in n], minor=False)
        axes.minorticks_off()
    panels[0].set(ylabel="$d_{1,2}(D^g, D^{g*})$, median of seeds")
    panels[1].legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=140)


def draw_crowd(path: Path, rows: Rows) -> None:
    """Draw error against the number of clients, with the oracle and the slope of 1/sqrt(N).

    Parameters
    ----------
    path : Path
        File to write.
    rows : sequence of mapping
        For each number of clients, the median error by strategy.
    """
    figure = _figure(4.8, 3.4)
    axes = figure.subplots()
    n = np.array([row["clients"] for row in rows], dtype=float)
    for name, style in (("alone", "C3:"), ("mean", "C1-"), ("procrustes", "C0-"), ("oracle", "k--")):
        axes.loglog(n, [row[name] for row in rows], style, marker="o", ms=3, label=name)
    axes.loglog(n, rows[0]["procrustes"] * np.sqrt(n[0] / n), color="0.7", label=r"$1/\sqrt{N}$")
    axes.set(xlabel="clients N", ylabel="$d_{1,2}(D^g, D^{g*})$, noise 0.05")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=140)


def draw_phase(path: Path, rows: Rows) -> None:
    """Draw the share of recoveries over samples and sparsity, alone and together. The line marks one half.

    Parameters
    ----------
    path : Path
        File to write.
    rows : sequence of mapping
        For each noise, number of samples and sparsity, the share of recoveries by number of clients.
    """
    crowds = [key for key in rows[0] if key.startswith("N = ")]
    noises = sorted({row["noise"] for row in rows})
    n, p = (sorted({row[key] for row in rows}) for key in ("samples", "p"))
    figure = _figure(2.6 * len(crowds) + 0.8, 2.4 * len(noises))
    panels = np.atleast_2d(figure.subplots(len(noises), len(crowds), sharex=True, sharey=True))
    for line, noise in zip(panels, noises, strict=True):
        for axes, crowd in zip(line, crowds, strict=True):
            share = {(row["samples"], row["p"]): row[crowd] for row in rows if row["noise"] == noise}
            grid = np.array([[share[a, b] for a in n] for b in p])
            image = axes.imshow(grid, origin="lower", aspect="auto", vmin=0, vmax=1, cmap="viridis")
            if min(grid.shape) > 1 and grid.min() < 0.5 < grid.max():
                axes.contour(grid, levels=[0.5], colors="w", linewidths=1)
            axes.set_xticks(range(len(n)), n, fontsize=7)
            axes.set_yticks(range(len(p)), p, fontsize=7)
            axes.set_title(f"{'alone' if crowd == 'N = 1' else crowd}, noise {noise:g}", fontsize=8)
    for axes in panels[-1]:
        axes.set_xlabel("samples of a client", fontsize=8)
    for axes in panels[:, 0]:
        axes.set_ylabel("sparsity p", fontsize=8)
    figure.colorbar(image, ax=panels, label="share that recover $D^g$")
    figure.savefig(path, dpi=140)


def _padded(curves: Sequence[Sequence[float]]) -> NDArray[np.floating]:
    """Extend the curves of runs that ended early by their last values."""
    length = max(map(len, curves))
    return np.maximum([list(curve) + [curve[-1]] * (length - len(curve)) for curve in curves], _FLOOR)


def _short(name: str) -> str:
    return {"none (algorithm 1)": "as written", "restart, star around the medoid": "restart and star"}[name]


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure
