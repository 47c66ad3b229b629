"""Figures: the shared atoms, and a client's own. Atoms are drawn as images, as curves, or as bars with names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perdl.report.figure import NO_MODELS, FigureKind, Row
from perdl.report.words import counted, first_of, sentence_case, some_of
from perdl.results.membership import who_shares
from perdl.results.run_result import RunResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.floating]

SHORT = 24
"""Largest number of features for which each gets a bar and a name."""
MOST = {"images": 100, "curves": 30, "bars": 8}
"""Largest number of atoms in one figure."""
_CHANNELS = ("-", "--", ":", "-.")


def kind_of(result: RunResult) -> str:
    """Return how the atoms are drawn: "images", "curves" or "bars".

    Parameters
    ----------
    result : RunResult
        The run or model.
    """
    if len(result.shape) in (2, 3) and not result.is_series:
        return "images"
    return "bars" if np.prod(result.shape) <= SHORT and not result.is_series else "curves"


def turned(D: Floats) -> Floats:
    """Return atoms with signs turned so that the part with more energy is positive.

    Parameters
    ----------
    D : (d, r) array
        Atoms in columns.
    """
    signs = np.where((D * np.abs(D)).sum(axis=0) < 0, -1.0, 1.0)
    out: Floats = D * signs
    return out


def atoms_to_draw(result: RunResult, client: str | None, unused: bool = False) -> list[int]:
    """Return the indices of the atoms to draw, in order.

    Parameters
    ----------
    result : RunResult
        The run or model.
    client : str, optional
        Client whose own atoms are drawn: those in use, the one with most energy first. By default all shared atoms are
        drawn, in their order; of a client's own folder those that it shares.
    unused : bool
        Whether to add unused own atoms at the end.
    """
    if client is None:
        return result.shared_atoms
    return result.by_energy(client) + (result.unused(client) if unused else [])


def draw_atoms(result: RunResult, client: str | None, unused: bool = False) -> Figure:
    """Return a figure of atoms, numbered as in the dictionary. Unused ones are pale or crossed out.

    Parameters
    ----------
    result : RunResult
        The run or model.
    client : str or None
        Client whose own atoms are drawn; None draws the shared atoms.
    unused : bool
        Whether to add unused own atoms at the end.
    """
    kind, chosen = kind_of(result), atoms_to_draw(result, client, unused)
    chosen = chosen[: MOST[kind]]
    D = turned(result.atoms(client)[:, chosen].astype(float))
    pale = {place for place, k in enumerate(chosen) if k in set(result.unused(client))}
    return {"images": _images, "curves": _curves, "bars": _bars}[kind](D, result, [k + 1 for k in chosen], pale)


def _why_no_shared(result: RunResult, client: str | None) -> str:
    if result.summary.get("masked"):
        return "the server knows the shared atoms in other coordinates only; the reports of clients show them"
    if result.global_dictionary.size and not result.shared_atoms:
        return f"{result.client} shares none of the {result.global_dictionary.shape[1]} shared atoms"
    return "" if result.global_dictionary.size else "there is no shared atom"


def _why_no_own(result: RunResult, client: str | None) -> str:
    own = result.local_dictionaries
    if client is None or client not in own:
        if not own:
            return NO_MODELS
        return f"there is no client {client}; there are {', '.join(own)}"
    if not own[client].size:
        return f"{client} has no atoms of its own"
    return "" if result.by_energy(client) else f"{client} uses none of its {own[client].shape[1]} own atoms"


def _shared_caption(result: RunResult, client: str | None) -> str:
    n = len(result.shared_atoms)
    text = _what_is_drawn(result, None, f"{counted(n, 'shared atom')}")
    if shared := who_shares({} if result.client else result.members):
        text += f" {sentence_case(shared)}"
    if unused := result.unused():
        some = some_of([f"atom {k + 1}" for k in unused])
        text += f" Next to no sample uses {some}: {'they are' if len(unused) > 1 else 'it is'} pale or crossed out."
    return text + first_of(MOST[kind_of(result)], n)


def _own_caption(result: RunResult, client: str | None) -> str:
    assert client is not None
    used, r_l = result.by_energy(client), result.atoms(client).shape[1]
    text = _what_is_drawn(result, client, f"{counted(len(used), 'atom')} of {client} alone")
    energies = result.energies(client)
    if energies is not None:
        most = [f"atom {k + 1} ({energies[k]:.1%})" for k in used]
        text += f" In the order of the share of its data's energy that they carry: {some_of(most, 5)}."
        if len(used) < r_l:
            text += f" Left out: {counted(r_l - len(used), 'atom')} that next to no sample uses."
    return text + first_of(MOST[kind_of(result)], len(used))


def _what_is_drawn(result: RunResult, client: str | None, whose: str) -> str:
    kind, D = kind_of(result), result.atoms(client)
    size = "×".join(map(str, result.shape))
    first = ", and the number on the left is that of the first in a row" if client is None else ""
    how = {
        "images": f"each an image of {size}: grey is zero{first}",
        "curves": f"each a curve over {counted(result.shape[0], 'row')} about its own zero line"
        if result.is_series
        else f"each a curve over {counted(len(D), 'feature')} about its own zero line",
        "bars": f"each with a bar for each of {counted(len(D), 'feature')}",
    }[kind]
    text = f"{whose}, {how}. Signs are turned so that the larger part is positive."
    if kind == "bars":
        largest = [(k, _largest(result, D[:, k])) for k in atoms_to_draw(result, client)[:3]]
        text += f" Largest: {'; '.join(f'{name} in atom {k + 1}' for k, name in largest)}."
        if not result.feature_names and not result.local_dictionaries:  # a server's folder
            text += " Features are numbered: their names stay with the clients; a client's own report has them."
    return text


def _largest(result: RunResult, atom: Any) -> str:
    return names_of(result)[int(np.abs(atom).argmax())]


def names_of(result: RunResult) -> list[str]:
    """Return the names of the features, or ``feature 1``, ``feature 2``, ...

    Parameters
    ----------
    result : RunResult
        The run or model.
    """
    d = len(result.global_dictionary) or max((len(D) for D in result.local_dictionaries.values()), default=0)
    names = list(result.feature_names)
    return names if len(names) == d else [f"feature {j + 1}" for j in range(d)]


def _numbers(result: RunResult, client: str | None) -> list[Row]:
    if kind_of(result) != "bars":
        return []
    chosen, D = atoms_to_draw(result, client), turned(result.atoms(client).astype(float))
    return [
        {"feature": name, **{f"atom {k + 1}": f"{D[j, k]:.3f}" for k in chosen[: MOST["bars"]]}}
        for j, name in enumerate(names_of(result))
    ]


def _images(D: Floats, result: RunResult, numbers: list[int], unused: set[int]) -> Figure:
    """Draw one image per atom, row by row; grey is zero."""
    from perdl.report.drawing import new_figure

    height, width, *channels = result.shape
    n = D.shape[1]
    across = min(n, 5 if n <= 20 else 10)
    down = -(-n // across)
    gap = max(1, width // 14)
    colour = channels == [3]
    page = np.ones((down * (height + gap) - gap, across * (width + gap) - gap, 3))
    for k, atom in enumerate(D.T):
        peak = np.abs(atom).max() or 1.0
        image = atom.reshape(height, width, -1) / (2 * peak) + 0.5
        if not colour:
            image = image.mean(axis=2, keepdims=True)
        top, left = (k // across) * (height + gap), (k % across) * (width + gap)
        page[top : top + height, left : left + width] = image
    figure = new_figure(min(4.9 * page.shape[0] / page.shape[1] + 0.2, 9.0))
    axes = figure.subplots()
    axes.imshow(page, interpolation="nearest")
    for k in sorted(unused & set(range(n))):
        top, left = (k // across) * (height + gap) - 0.5, (k % across) * (width + gap) - 0.5
        for ends in ((top, top + height), (top + height, top)):
            axes.plot((left, left + width), ends, color="0.3", linewidth=0.8)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xticks([])
    axes.tick_params(length=0)
    if numbers == sorted(numbers):
        places = [k * (height + gap) + height / 2 for k in range(down)]
        axes.set_yticks(places, [str(numbers[k * across]) for k in range(down)])
    else:
        axes.set_yticks([])
    return figure


def _curves(D: Floats, result: RunResult, numbers: list[int], unused: set[int]) -> Figure:
    """Draw one curve per atom, each about its own zero line; channels of a series differ in their dashes."""
    from perdl.report.drawing import INK, PALE, new_figure

    n = D.shape[1]
    figure = new_figure(min(0.8 + 0.42 * n, 9.0))
    axes = figure.subplots()
    length = result.shape[0] if result.is_series else len(D)
    channels = min(len(D) // length, len(_CHANNELS))
    for k, atom in enumerate(D.T):
        curves = atom.reshape(length, -1)[:, :channels] / (2.1 * (np.abs(atom).max() or 1.0))
        axes.axhline(k, color=PALE, linewidth=0.5)
        for curve, dashes in zip(curves.T, _CHANNELS, strict=False):
            colour = PALE if k in unused else INK
            axes.plot(np.arange(1, length + 1), k - curve, dashes, color=colour, linewidth=0.9)
    if channels > 1:
        names = [f"channel {c + 1}" for c in range(channels)]
        axes.legend(
            axes.lines[1 : 1 + channels], names, ncols=4, frameon=False, loc="lower left", bbox_to_anchor=(0, 1)
        )
    axes.set_yticks(range(n), [str(numbers[k]) + " unused" * (k in unused) for k in range(n)])
    axes.set(xlabel="row of the window" if result.is_series else "feature", ylabel="atom", ylim=(n - 0.4, -0.6))
    return figure


def _bars(D: Floats, result: RunResult, numbers: list[int], unused: set[int]) -> Figure:
    """Draw a row per feature and a column per atom; all bars have the same scale."""
    from perdl.report.drawing import PALE, SHARED, label, new_figure

    d, n = D.shape
    figure = new_figure(0.7 + 0.2 * d)
    axes: Axes = figure.subplots()
    peak = np.abs(D).max() or 1.0
    for k in range(n):
        axes.axvline(k, color=PALE, linewidth=0.5)
        look: Any = {"color": "white", "edgecolor": "0.6", "hatch": "////"} if k in unused else {"color": SHARED}
        axes.barh(range(d), D[:, k] / (2.1 * peak), left=k, height=0.7, **look)
    axes.set_xticks(range(n), [str(numbers[k]) + "\nunused" * (k in unused) for k in range(n)])
    axes.set(xlabel="atom (each about its own zero line)", ylim=(d - 0.5, -0.5), xlim=(-0.55, n - 0.45))
    named = len(result.feature_names) == d
    axes.set_yticks(
        range(d), [label(name) for name in result.feature_names] if named else [str(j + 1) for j in range(d)]
    )
    axes.set_ylabel("" if named else "feature")
    return figure


def _draw(result: RunResult, client: str | None) -> Figure:
    return draw_atoms(result, client)


ATOMS = FigureKind(
    "Shared atoms",
    "What clients have in common.",
    _why_no_shared,
    _shared_caption,
    _draw,
    _numbers,
    of_model=True,
)
OWN_ATOMS = FigureKind(
    "Own atoms",
    "What a client has alone: the atoms that its samples use.",
    _why_no_own,
    _own_caption,
    _draw,
    _numbers,
    of_model=True,
    per_client=True,
)
