"""Draw the figures of docs/concepts.md from real runs.

python docs/figures/draw.py [FOLDER]      # default: the folder of this file; under half a minute
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from common.dictionaries import atom_distances, dictionary_distance
from common.synthetic import generate, true_global_dictionary
from perdl import PerDL
from perdl_server.algorithm.matching import global_matching

SHARED, OTHER, ACCENT = "#1b5e8c", "#b9c2c9", "#c2541b"
NAMES = ("ada", "bob", "cy", "dee", "eli", "fay")
D, R_G, R_L, SEED = 8, 3, 3, 4


def samples(n=200, noise=0.05, names=NAMES):
    """Rows of each client: three shared atoms of eight features, three of its own."""
    made = {
        name: generate(SEED, name, n_features=D, n_global=R_G, n_local=R_L, n_samples=n, sparsity=0.25, noise=noise)
        for name in names
    }
    return {name: np.ascontiguousarray(one.data.T) for name, one in made.items()}


def alone(data):
    """Each client's dictionary (d, r) without the others."""
    model = PerDL(n_global=0, n_atoms=R_G + R_L).fit(data)
    return {name: atoms.T for name, atoms in model.local_components_.items()}


def paths() -> Figure:
    """Atoms of five clients, a column each; the three shortest paths; all other edges by their length."""
    dictionaries = alone(samples(names=NAMES[:5]))
    layers = list(dictionaries.values())
    found = global_matching(layers, R_G)
    figure = new_figure(7.2, 3.2)
    axes = figure.subplots()
    for i, (left, right) in enumerate(itertools.pairwise(layers)):
        for a, row in enumerate(atom_distances(left, right)):
            for b, length in enumerate(row):
                axes.plot([i, i + 1], [a, b], color=OTHER, linewidth=0.4, zorder=1)
                if any(found.indices[i, j] == a and found.indices[i + 1, j] == b for j in range(R_G)):
                    axes.plot([i, i + 1], [a, b], color=SHARED, linewidth=2, zorder=2)
                    axes.text(i + 0.5, (a + b) / 2 - 0.12, f"{length:.2f}", color=SHARED, ha="center", fontsize=7)
    for i, layer in enumerate(layers):
        for a in range(layer.shape[1]):
            on_path = a in found.indices[i]
            axes.scatter(
                i, a, s=70, color=SHARED if on_path else "white", edgecolor=SHARED if on_path else "0.5", zorder=3
            )
    axes.set(xticks=range(len(layers)), xticklabels=list(dictionaries), yticks=range(R_G + R_L), ylabel="atom")
    axes.set_yticklabels([str(a + 1) for a in range(R_G + R_L)])
    axes.invert_yaxis()
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    return figure


def jump() -> Figure:
    """Mean edge of every path between six clients, and what unrelated atoms cost."""
    model = PerDL(n_global="auto", n_atoms=R_G + R_L).fit(samples())
    edges = model.path_lengths_ / (len(NAMES) - 1)
    unrelated = model.summary_["unrelated_edges"]
    figure = new_figure(5, 2.8)
    axes = figure.subplots()
    colours = [SHARED if j < len(model.global_components_) else OTHER for j in range(len(edges))]
    axes.bar(range(1, len(edges) + 1), edges, color=colours)
    axes.step(
        np.arange(len(edges) + 1) + 0.5,
        [*unrelated[: len(edges)], unrelated[len(edges) - 1]],
        where="post",
        color=ACCENT,
    )
    axes.text(0.6, unrelated[0] + 0.02, "the best path through unrelated atoms", color=ACCENT, fontsize=8, va="bottom")
    axes.set(xlabel="path, in the order found", ylabel="mean edge", ylim=(0, 1.15))
    return figure


def averaging() -> Figure:
    """Distance of the shared atoms to the truth, by the number of clients: alone, and in the federation."""
    truth = true_global_dictionary(SEED, D, R_G)
    counts = [1, 2, 4, 8, 16, 32]
    data = samples(names=[f"client-{i + 1}" for i in range(counts[-1])])
    own = [dictionary_distance(one, truth) for one in alone(data).values()]
    together = []
    for n in counts[1:]:
        model = PerDL(n_global=R_G, n_atoms=R_G + R_L).fit({name: data[name] for name in list(data)[:n]})
        together.append(dictionary_distance(model.global_components_.T, truth))
    figure = new_figure(5, 2.8)
    axes = figure.subplots()
    axes.axhline(float(np.median(own)), color=OTHER, linewidth=2)
    axes.text(
        counts[-1], float(np.median(own)), "one client alone (median)", color="0.4", fontsize=8, ha="right", va="bottom"
    )
    axes.loglog(counts[1:], together, "o-", color=SHARED)
    axes.loglog(counts[1:], np.median(own) / np.sqrt(counts[1:]), "--", color=ACCENT, linewidth=1)
    axes.text(counts[1], np.median(own) / np.sqrt(2) / 1.6, r"alone / $\sqrt{N}$", color=ACCENT, fontsize=8, va="top")
    axes.set(xlabel="clients N", ylabel="distance of $D^g$ to the truth", xticks=counts[1:], xticklabels=counts[1:])
    axes.set(yticks=[0.005, 0.01, 0.015], yticklabels=["0.005", "0.010", "0.015"])
    axes.minorticks_off()
    return figure


def threshold() -> Figure:
    """Error and codes a sample, by threshold, at a client whose samples use 1.5 atoms on average."""
    data = samples()
    values = np.array([0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.2])
    errors, used = [], []
    for value in values:
        warnings.simplefilter("ignore")  # of thresholds that are too low, which are to be seen
        model = PerDL(
            n_global=R_G, n_atoms=R_G + R_L, threshold=float(value), warmup_threshold=max(0.8, 2 * value)
        ).fit(data)
        errors.append(1 - model.score(data["ada"], "ada"))
        used.append(np.count_nonzero(model.transform(data["ada"], "ada")) / len(data["ada"]))
    figure = new_figure(5, 2.8)
    left = figure.subplots()
    right = left.twinx()
    left.semilogx(values, used, "o-", color=SHARED)
    left.axhline(0.25 * (R_G + R_L), color=SHARED, linewidth=0.8, linestyle=":")
    left.set_ylabel("codes a sample (dotted: the truth)", color=SHARED)
    right.semilogx(values, errors, "s-", color=ACCENT)
    right.set_ylabel("share of energy not explained", color=ACCENT)
    for axes in (left, right):
        axes.minorticks_off()
        axes.set(xlabel="threshold", xticks=values, ylim=(0, None))
        axes.set_xticklabels([f"{value:g}" for value in values], fontsize=7)
    return figure


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, drawn without a screen."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


FIGURES = {"paths": paths, "jump": jump, "averaging": averaging, "threshold": threshold}


FOLDER = Path(__file__).resolve().parent


def main(folder: Path = FOLDER, names: Iterable[str] = FIGURES) -> list[Path]:
    """Draw figures; return their files."""
    drawn = []
    with matplotlib.rc_context({"axes.spines.top": False, "font.size": 9}):
        for name in names:
            drawn.append(folder / f"concepts_{name}.png")
            FIGURES[name]().savefig(drawn[-1], dpi=90)
    return drawn


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
