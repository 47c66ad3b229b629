"""What commands print when they end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def print_line(console: Console, text: str) -> None:
    """Print a line as it is, however wide."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_table(console: Console, table: Table) -> None:
    """Print a table; as wide as it is where it goes to no screen, so that no cell is broken."""
    wide = console if console.is_terminal else Console(file=console.file, width=10_000)
    wide.print(table)


def print_summary(console: Console, summary: Mapping[str, Any], folder: Path | None) -> None:
    """Print what a run found, and in which folder it is."""
    from perdl.progress import human_bytes

    final = summary["final"]
    clients, atoms = len(summary["clients"]), summary["n_global"]
    print_line(console, f"{clients} client{'s' * (clients != 1)}, {atoms} global atom{'s' * (atoms != 1)}")
    table = Table()
    for column in ("client", "samples", "atoms", "used", "shared", "own", "error"):
        table.add_column(column, justify="left" if column == "client" else "right")
    with_files = any("file" in facts for facts in summary["clients"].values())
    if with_files:
        table.add_column("file", overflow="fold")
    with_truth = "local_distance_max" in final
    if with_truth:
        table.add_column("off truth", justify="right")
    for name, facts in summary["clients"].items():
        cells = [escape(name), str(facts["n_samples"]), str(facts["n_atoms"]), f"{facts['nonzeros']:.1f}"]
        cells += [f"{round(100 * facts[key])}%" if key in facts else "-" for key in ("final_shared", "final_own")]
        cells.append(f"{facts.get('final_error', float('nan')):.3g}")
        if with_files:
            cells.append(escape(Path(facts.get("file", "")).name))
        if with_truth:
            cells.append(f"{facts.get('final_local_distance', float('nan')):.1e}")
        table.add_row(*cells)
    console.print(table)
    if "evaluation" in summary:
        k, n = summary["settings"]["evaluation"]["n_nonzero"], summary["settings"]["evaluation"]["n_test"]
        print_line(console, f"relative error on the last {n} test images with {k} atoms")
        errors = Table()
        for name in summary["evaluation"]:
            errors.add_column(name, justify="right")
        errors.add_row(*(f"{value:.3f}" for value in summary["evaluation"].values()))
        console.print(errors)
    travelled = sum(sum(phase.values()) for phase in summary["bytes"].values())
    rounds = summary["rounds"]
    took = f"{rounds} round{'s' * (rounds != 1)}, {summary['seconds']:.1f} s in all, {human_bytes(travelled)}"
    lines = [f"{took}: {_why(summary)}"]
    if (final.get("consensus") or {}).get("min") is not None and rounds:
        change = f", last change {final['change']:.1e}" if final.get("change") is not None else ""
        lines.append(f"consensus of the least agreed atom {final['consensus']['min']:.3f}{change}")
    if "global_distance" in final:
        lines.append(f"distance of D^g to the truth: {final['global_distance']:.1e}")
    lines += [f"note: {text}" for text in summary["warnings"]]
    if folder is not None:
        lines.append(f"results: {folder}")
    for line in lines:
        print_line(console, line)


def _why(summary: Mapping[str, Any]) -> str:
    tolerance = summary["settings"]["tolerance"]
    reasons = {"tolerance": f"no atom of D^g moved more than {tolerance:g}", "rounds": "all rounds done"}
    return reasons.get(summary["stop_reason"], str(summary["stop_reason"]))


def print_experiment(console: Console, results: Mapping[str, Any], folder: Path) -> None:
    """Print an experiment's tables and its sentences."""
    from perdl.experiments.run import cell, columns_of

    for title, rows in results["tables"].items():
        columns = columns_of(rows)
        table = Table(title=escape(title), title_justify="left")
        for column in columns:
            numbers = all(isinstance(row.get(column), (int, float, type(None))) for row in rows)
            table.add_column(escape(column), justify="right" if numbers else "left")
        for row in rows:
            table.add_row(*(escape(cell(row.get(column))) for column in columns))
        console.print(table)
    for sentence in results["sentences"]:
        print_line(console, sentence)
    print_line(console, f"{results['seconds']:.0f} s; tables, figures and results.json: {folder}")
