"""Print the results of a command."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from statistics import quantiles
from typing import Any

from rich.console import Console

from common.evaluation import percent
from perdl.cli.tables import Column, print_table

_MANY, _WORST = 50, 10
"""Clients up to which each has a row, and how many have one if there are more."""


def print_line(console: Console, text: str) -> None:
    """Print a line unchanged, without wrapping it.

    Parameters
    ----------
    console : Console
        Where to print.
    text : str
        The line.
    """
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_summary(
    console: Console, summary: Mapping[str, Any], folder: Path | None, told: Collection[str] = ()
) -> None:
    """Print the results of a run and their folder.

    Parameters
    ----------
    console : Console
        Where to print.
    summary : mapping
        Content of ``summary.json``.
    folder : Path or None
        Folder of the results; None if they could not be saved.
    told : collection of str
        Notes that were printed before the run.
    """
    from rich.filesize import decimal

    from perdl.results.membership import members_of, who_shares

    final = summary["final"]
    clients, atoms = len(summary["clients"]), summary.get("n_global", 0)
    members = members_of(summary)
    print_line(console, f"{clients} client{'s' * (clients != 1)}, {atoms} global atom{'s' * (atoms != 1)}")
    _print_clients(console, summary["clients"], members, "local_distance_max" in final)
    if text := who_shares(members):
        print_line(console, text)
    if "evaluation" in summary:
        k, n = summary["settings"]["evaluation"]["n_nonzero"], summary["settings"]["evaluation"]["n_test"]
        print_line(console, f"relative error on the last {n} test images with {k} atoms")
        errors = [f"{value:.3f}" for value in summary["evaluation"].values()]
        print_table(console, [Column(name, right=True) for name in summary["evaluation"]], [errors])
    travelled = sum(sum(phase.values()) for phase in summary["bytes"].values())
    rounds = summary["rounds"]
    took = f"{rounds} round{'s' * (rounds != 1)}, {summary['seconds']:.1f} s in all, {decimal(travelled)}"
    lines = [f"{took}: {_why(summary)}"]
    if (final.get("consensus") or {}).get("min") is not None and rounds:
        change = f", last change {final['change']:.1e}" if final.get("change") is not None else ""
        lines.append(f"consensus of the least agreed atom {final['consensus']['min']:.3f}{change}")
    if "global_distance" in final:
        lines.append(f"distance of D^g to the truth: {final['global_distance']:.1e}")
    if "held_out" in summary:
        lines.append(summary["held_out"]["sentence"])
    lines += [f"note: {text}" for text in summary.get("warnings", []) if text not in told]
    if folder is not None:
        lines.append(f"results: {folder}")
    for line in lines:
        print_line(console, line)


def _print_clients(
    console: Console, clients: Mapping[str, Mapping[str, Any]], members: Mapping[str, Any], with_truth: bool
) -> None:
    """Print a row for each client; of many the worst ones, and what the others have."""
    everyone, clients = clients, _worst(clients)
    if len(clients) < len(everyone):
        errors = [facts["final_error"] for facts in everyone.values() if "final_error" in facts]
        if errors:
            cuts = quantiles(errors, n=20)
            print_line(console, f"error of clients: {cuts[0]:.3g} (5 %), {cuts[9]:.3g} (median), {cuts[18]:.3g} (95 %)")
        print_line(console, f"the {len(clients)} clients of the largest error (all are in summary.json):")
    names = ("samples", "atoms", *["global atoms"] * bool(members), "used", "shared", "own", "error")
    columns = [Column("client"), *(Column(name, right=True) for name in names)]
    with_files = any("file" in facts for facts in clients.values())
    evaluated = any("held_out" in facts for facts in clients.values())
    columns += [Column("held out", right=True), Column("gain", right=True)] * evaluated
    columns += [Column("file", wrap="anywhere")] * with_files + [Column("off truth", right=True)] * with_truth
    rows = []
    for name, facts in clients.items():
        cells = [name, str(facts["n_samples"]), str(facts["n_atoms"])]
        cells += [f"{members[name].sum()} of {len(members[name])}" if name in members else "-"] * bool(members)
        cells.append(f"{facts['nonzeros']:.1f}" if "nonzeros" in facts else "-")
        cells += [f"{round(100 * facts[key])}%" if key in facts else "-" for key in ("final_shared", "final_own")]
        cells.append(f"{facts['final_error']:.3g}" if "final_error" in facts else "-")
        if evaluated:
            told = facts.get("held_out")
            cells += [str(told["n_samples"]), percent(told["gain"])] if told else ["-", "-"]
        cells += [Path(facts.get("file", "")).name] * with_files
        cells += [f"{facts.get('final_local_distance', float('nan')):.1e}"] * with_truth
        rows.append(cells)
    print_table(console, columns, rows)


def _worst(clients: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """Return all clients; of more than a screen holds those of the largest error, in their order."""
    if len(clients) <= _MANY:
        return clients
    worst = set(sorted(clients, key=lambda name: -clients[name].get("final_error", 0.0))[:_WORST])
    return {name: facts for name, facts in clients.items() if name in worst}


def _why(summary: Mapping[str, Any]) -> str:
    tolerance = summary["settings"]["tolerance"]
    reasons = {"tolerance": f"no atom of D^g moved more than {tolerance:g}", "rounds": "all rounds done"}
    return reasons.get(summary["stop_reason"], str(summary["stop_reason"]))


def print_experiment(console: Console, results: Mapping[str, Any], folder: Path) -> None:
    """Print the tables and sentences of an experiment.

    Parameters
    ----------
    console : Console
        Where to print.
    results : mapping
        Content of ``results.json``.
    folder : Path
        Folder of the results.
    """
    from perdl.experiments.run import cell, columns_of

    for title, rows in results["tables"].items():
        names = columns_of(rows)
        numbers = [all(isinstance(row.get(name), (int, float, type(None))) for row in rows) for name in names]
        columns = [Column(name, right=right) for name, right in zip(names, numbers, strict=True)]
        cells = [[cell(row.get(name)) for name in names] for row in rows]
        if words := results.get("explained", {}).get(title):
            print_line(console, f"{title}: {words}")
        print_table(console, columns, cells, "" if words else title)
    for sentence in results["sentences"]:
        print_line(console, sentence)
    print_line(console, f"{results['seconds']:.0f} s; tables, figures and results.json: {folder}")
