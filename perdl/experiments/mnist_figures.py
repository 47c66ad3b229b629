"""Figures of the MNIST experiment: the paper's three rows of images, atoms, and errors by number of atoms used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.coders import omp
from perdl.experiments.images import Images
from perdl.experiments.strategies import Learned

Floats = NDArray[np.floating]

_SHOWN_ATOMS = 50


def draw(
    folder: Path, images: Images, results: Mapping[str, Learned], curves: Mapping[str, Floats], ours: str, k: int
) -> list[Path]:
    """Draw one data set's three figures.

    Parameters
    ----------
    folder : Path
        Folder of the figures, made if missing.
    images : Images
        The data set.
    results : mapping of str to Learned
        Result of each strategy; "alone" and ``ours`` are shown.
    curves : mapping of str to array
        Relative error of each strategy with 0, 1, ... atoms.
    ours : str
        The strategy in the paper's third row.
    k : int
        Atoms per image in the reconstructions.

    Returns
    -------
    list of Path
        The files written.
    """
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    stem = images.name.lower().replace(" ", "-")
    side = int(np.sqrt(len(images.test)))
    rows = {"original": None, "client 1 alone": results["alone"].shared, "PerMA": results[ours].shared}
    if f"{ours}, finished" in results:
        rows["PerMA, finished"] = results[f"{ours}, finished"].shared
    plots: dict[str, tuple[float, Callable[[Any], None]]] = {
        "reconstructions": (0.8 * len(rows), partial(_reconstructions, images=images, rows=rows, side=side, k=k)),
        "atoms": (5.2, partial(_atoms, learned=results[ours], side=side)),
        "curve": (4.0, partial(_curve, curves=curves, title=images.name, ours=ours, k=k)),
    }
    drawn = []
    for name, (height, plot) in plots.items():
        figure = Figure(figsize=(7.5, height), layout="constrained")
        plot(figure)
        drawn.append(folder / f"{stem}-{name}.png")
        figure.savefig(drawn[-1], dpi=120)
    return drawn


def _reconstructions(figure: Any, images: Images, rows: Mapping[str, Floats | None], side: int, k: int) -> None:
    """Draw a column for each digit: its first test image, and its reconstruction with each dictionary."""
    chosen = [int(np.flatnonzero(images.labels == digit)[0]) for digit in np.unique(images.labels)]
    Y = images.test[:, chosen]
    grid = figure.subplots(len(rows), len(chosen), squeeze=False)
    for axes, (name, D) in zip(grid, rows.items(), strict=True):
        shown = Y if D is None else D @ omp(Y, D, k)
        for one, image in zip(axes, shown.T, strict=True):
            one.imshow(image.reshape(side, side), cmap="gray", vmin=0, vmax=1)
            one.set(xticks=[], yticks=[])
        axes[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)


def _atoms(figure: Any, learned: Learned, side: int) -> None:
    """Draw the shared atoms, and the own atoms of the first two clients, as mosaics."""
    s = learned.n_shared
    parts = {"shared": learned.shared, "client 1's own": learned.dictionaries[0][:, s:]}
    if len(learned.dictionaries) > 1:
        parts["client 2's own"] = learned.dictionaries[1][:, s:]
    parts = {name: D for name, D in parts.items() if D.shape[1]}
    for axes, (name, D) in zip(np.ravel(figure.subplots(1, len(parts))), parts.items(), strict=True):
        axes.imshow(_mosaic(D[:, :_SHOWN_ATOMS], side), cmap="gray", vmin=-1, vmax=1)
        axes.set_title(f"{name} ({D.shape[1]})", fontsize=9)
        axes.axis("off")


def _mosaic(D: Floats, side: int, columns: int = 5) -> Floats:
    """Return atoms in a grid, each scaled to its peak; grey is zero, the larger part is bright."""
    n_rows = -(-D.shape[1] // columns)
    canvas = np.ones((n_rows * (side + 1), columns * (side + 1)))
    for j, atom in enumerate(D.T):
        bright = atom if atom.sum() >= 0 else -atom
        row, column = divmod(j, columns)
        place = np.s_[row * (side + 1) : row * (side + 1) + side, column * (side + 1) : column * (side + 1) + side]
        canvas[place] = (bright / (np.abs(bright).max() or 1)).reshape(side, side)
    return canvas


def _curve(figure: Any, curves: Mapping[str, Floats], title: str, ours: str, k: int) -> None:
    """Draw errors: solid as learned, dashed after the final rounds, thin for other aggregations than ours."""
    colours = {
        "alone": "tab:red",
        "pooled": "0.1",
        "averaged": "tab:orange",
        ours: "tab:blue",
        "personalized PCA": "tab:green",
    }
    others = iter(("#cfd8e3", "#b4c7dc", "#9fb3c8", "#829ab1", "#627d98", "#bcccdc"))
    axes = figure.subplots()
    for name, errors in curves.items():
        base = name.removesuffix(", finished")
        style = {"color": colours[base]} if base in colours else {"color": next(others), "linewidth": 0.9}
        axes.plot(np.arange(1, len(errors)), errors[1:], "-" if name == base else "--", label=name, **style)
    axes.axvline(k, color="0.8", linewidth=0.8, zorder=0)
    axes.set(xlabel="atoms an image", ylabel="relative error on unseen images", title=title, ylim=(0, None))
    figure.legend(loc="outside right upper", frameon=False, fontsize=7)
