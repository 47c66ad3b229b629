"""The tables and sentences of ``perdl benchmark real``, and docs/real-data.md, which they fill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from common.evaluation import percent
from perdl.experiments.run import cell, columns_of
from perdl.report.words import sentence_case

KS = (1, 3, 5)
COLUMNS = {
    "alone": "perdl at each site alone",
    "auto": 'federated, n_global = "auto"',
    "best": "federated, the best of a ladder of n_global",
    "pooled": "one dictionary from all samples",
    "PCA": "components of each site, k of r",
    "pers. PCA": "personalized PCA, the best of the same ladder",
    "AJIVE": "joint and own directions",
    "sklearn": "scikit-learn's dictionary learning at each site",
}
PERDL = ("alone", "auto", "best")
"""Columns of perdl itself, which are tried with atoms of any angle too."""

MAIN_K = 3
"""Atoms of a sample by which sets are judged."""

_HEAD = """# Real data

Data that packages ship, dealt to sites. The figures are relative errors of a site's own held-out samples, each written
with k atoms by orthogonal matching pursuit: the smaller, the better. Every method gets the same samples, centred at
each site. perdl learns as the docs advise, by the preset `files` and what `perdl check` suggests for each set; the last
line says with how many starts and rounds.

```bash
pip install "perdl[benchmark]"
perdl benchmark real --markdown
```

prints this page. `--quick` takes one small set, `--sets digits,wine` takes some, `-c key=value` changes a setting.
MNIST and videos come from the folder `PERDL_DATA`. Nothing is downloaded.
"""

_ABOUT = """`nearest path` is the mean edge of the shortest path through the sites' first atoms, over that of the best
path through unrelated atoms: 0 is the same atom everywhere, 1 is chance. `auto` and `best` are numbers of shared atoms,
`joint` is the number of AJIVE's joint directions. `best` and `pers. PCA` take the number that is best on the held-out
samples themselves, so they are bounds."""


WHICH = "Which settings"
"""Title of the table of two ways of learning."""


def any_angle(column: str) -> str:
    """Return what a column of `PERDL` is called when its atoms need not be orthogonal.

    Parameters
    ----------
    column : str
        Name of the column.
    """
    return f"{column}, any angle"


def which_settings(found: Sequence[Mapping[str, Any]]) -> str:
    """Say what atoms of any angle are, on how many sets they are better, and on how many federating then helps.

    Parameters
    ----------
    found : sequence of mapping
        Facts of each set.
    """

    def error(one: Mapping[str, Any], method: str) -> float:
        return float(one["errors"][method][MAIN_K])

    def count(better: str, worse: str) -> int:
        return sum(error(one, better) < error(one, worse) for one in found)

    ratios = [1 - error(one, any_angle("alone")) / error(one, "alone") for one in found]
    return (
        'atoms of any angle are those of `learner = "coordinate"` with `coder = "omp"`, `n_nonzero = '
        f'{MAIN_K}` and `aggregation = "normalized"`, all else as above; errors with {MAIN_K} atoms a sample. '
        f"They have the lower error alone on {count(any_angle('alone'), 'alone')} of {len(found)} sets "
        f"({percent(float(np.median(ratios)))} lower in the median), and federated, with the best number, on "
        f"{count(any_angle('best'), 'best')}. The best number of shared atoms lowers the error of a site alone on "
        f"{count('best', 'alone')} sets with the settings above, on {count(any_angle('best'), any_angle('alone'))} "
        "with atoms of any angle"
    )


def why(facts: Mapping[str, Any]) -> str:
    """Return one sentence: whether federating helps on a set, by how much, and why not.

    Parameters
    ----------
    facts : mapping
        Facts of the set, from `facts_of`.
    """
    name, gain, doubt = facts["name"], facts["gain"], 2 * facts["gain_error"]
    if not np.isfinite(gain):
        return f"{name}: sites use fewer atoms than any number of the ladder, so none federates."
    pooling = 1 - facts["errors"]["pooled"][MAIN_K] / facts["errors"]["alone"][MAIN_K]
    by = f"{abs(gain):.1%} (+- {doubt:.1%})"
    if gain > doubt:
        none = " auto finds no shared atom, though." if facts["n_auto"] == 0 else ""
        return (
            f"{name}: federating helps. The error falls by {by}, at {facts['gained']} of {facts['of']} sites; pooled "
            f"samples would change it by {-pooling:+.1%}.{none}"
        )
    said = f"federating makes it worse. The error grows by {by}"
    if gain >= -doubt:
        said = f"no clear difference, {-gain:+.1%} (+- {doubt:.1%})"
    per_atom = min(facts["n_train"]) / facts["n_atoms"]
    where = f"the nearest path is {facts['nearest']:.2f} of chance, with {per_atom:.1f} samples for an atom"
    if pooling <= 0.01:
        reason = f"one dictionary for all does not help either (pooled {-pooling:+.1%})"
    elif facts["nearest"] < 0.3:
        reason = f"pooled samples would help ({-pooling:+.1%}), and some atoms meet: {where}"
    else:
        reason = f"pooled samples would help ({-pooling:+.1%}), but what sites learn alone does not meet: {where}"
    return f"{name}: {said}; {reason}."


def tables(found: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the tables of the benchmark by title.

    Parameters
    ----------
    found : sequence of mapping
        Facts of each set.
    """
    facts = [
        {
            "set": one["name"],
            "d": one["n_features"],
            "sites": one["n_sites"],
            "samples": _span(one["n_train"]),
            "held out": _span(one["n_test"]),
            "atoms": one["n_atoms"],
            "nearest path": one["nearest"],
            "auto": one["n_auto"],
            "best": one["n_best"],
            "joint": one["n_joint"],
            "what": one["about"],
        }
        for one in found
    ]
    by_k = {
        f"Error with {k} atom{'s' * (k > 1)} a sample": [
            {"set": one["name"], **{method: _number(one["errors"][method][k]) for method in COLUMNS}} for one in found
        ]
        for k in (MAIN_K, *(k for k in KS if k != MAIN_K))
    }
    settings = [
        {
            "set": one["name"],
            **{column: _number(one["errors"][column][MAIN_K]) for column in PERDL},
            **{any_angle(column): _number(one["errors"][any_angle(column)][MAIN_K]) for column in PERDL},
            "auto, best number": f"{one['any_angle']['n_auto']}, {one['any_angle']['n_best'] or '-'}",
        }
        for one in found
    ]
    return {**by_k, WHICH: settings, "The sets": facts}


def _number(value: float) -> str:
    return f"{value:.3f}" if np.isfinite(value) else "-"


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def render_page(results: Mapping[str, Any]) -> str:
    """Return docs/real-data.md.

    Parameters
    ----------
    results : mapping
        Results of `perdl.experiments.real.run_real`.
    """
    lines = [_HEAD, "| column | what |", "|---|---|", *(f"| {name} | {what} |" for name, what in COLUMNS.items())]
    for title, rows in results["tables"].items():
        columns = columns_of(rows)
        words = results["explained"].get(title)
        text = [sentence_case(words), ""] if words else []
        lines += ["", f"## {title}", "", *text, f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
        lines += [f"| {' | '.join(cell(row.get(column)) for column in columns)} |" for row in rows]
    lines += ["", _ABOUT, "", "## Where federating helps, and where not", ""]
    lines += [f"- {sentence}" for sentence in results["sentences"]]
    told = results["settings"]
    coder = f"threshold {told['threshold']} {told['threshold_unit']}"
    if told["coder"] != "hard-threshold":
        coder = f"n_nonzero {told['n_nonzero']}"
    elif results["suggested"]:
        coder = "threshold by `perdl check`"
    deals = "once" if results["seeds"] == 1 else f"{results['seeds']} times"
    return "\n".join(
        [
            *lines,
            "",
            f"Each set was dealt {deals}. Learner {told['learner']}, coder {told['coder']}, {coder}; start "
            f"{told['start']}, {told['n_restarts']} random ones, {told['local_restarts']} local restarts, "
            f"{told['rounds']} rounds. {results['seconds'] / 60:.0f} minutes in all.",
            "",
        ]
    )
