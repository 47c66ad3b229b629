"""Tables on screens of any width and in pipes: no name and no number is broken or cut."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from perdl.cli.console import print_experiment, print_summary
from perdl.cli.tables import Column, print_table

NAMES = [f"clie[nt]-{i}-of-the-north" for i in range(3)]


def shown(show, width, terminal=True):
    text = io.StringIO()
    show(Console(file=text, width=width, force_terminal=terminal, color_system=None))
    return re.sub(r"\x1b\[[0-9;]*m", "", text.getvalue())


def cells(text):
    return {cell.strip() for line in text.splitlines() for cell in re.split("[│┃]", line)[1:-1]}


def run_of(file):
    facts = {"n_samples": 123456, "n_atoms": 576, "nonzeros": 12.3, "final_shared": 0.512, "final_own": 0.5}
    facts |= {"final_error": 2.82e-8, "final_local_distance": 1e-9, "file": file}
    return {
        "clients": dict.fromkeys(NAMES, facts),
        "final": {"local_distance_max": 1e-9},
        "n_global": 3,
        "bytes": {},
        "rounds": 3,
        "seconds": 2.0,
        "settings": {"tolerance": 0.0, "evaluation": {"n_nonzero": 5, "n_test": 10}},
        "evaluation": {"client-1 alone": 0.7, "PerMA": 0.6, "pooled data": 0.5},
        "stop_reason": "rounds",
        "warnings": [],
    }


@pytest.mark.parametrize(("width", "terminal"), [(80, True), (50, True), (80, False)])
def test_no_cell_of_a_summary_is_broken(width, terminal):
    text = shown(lambda console: print_summary(console, run_of("folder/a.csv"), "x"), width, terminal)
    told = {*NAMES, "123456", "576", "12.3", "51%", "50%", "2.82e-08", "1.0e-09", "0.700", "a.csv", "off truth"}
    assert told <= cells(text)
    assert terminal == (max(len(line) for line in text.splitlines() if "│" in line) <= width)


def test_of_atoms_that_some_share_the_table_says_how_many_each_client_has():
    plain = shown(lambda console: print_summary(console, run_of("a.csv"), "x"), 200)
    assert "global atoms" not in cells(plain)
    assert "shared by" not in plain
    summary = {**run_of("a.csv"), "members": {name: [0, 2] if i else [0] for i, name in enumerate(NAMES[:-1])}}
    text = shown(lambda console: print_summary(console, summary, "x"), 200)
    assert {"global atoms", "1 of 3", "2 of 3", "-"} <= cells(text), "the last client was left out before matching"
    k = len(NAMES) - 1
    assert f"atom 1 is shared by all {k} clients; atom 3 by {k - 1}; atom 2 by 0" in text


def test_only_names_of_files_are_folded():
    file = "a-name-of-a-file-that-somebody-made-so-long-that-it-goes-on-in-the-next-line.csv"
    text = shown(lambda console: print_summary(console, run_of(file), "x"), 80)
    assert "…" not in text
    assert {*NAMES, "2.82e-08", "1.0e-09"} <= cells(text)
    assert file in shown(lambda console: print_summary(console, run_of(file), "x"), 80, terminal=False)


def test_a_table_that_is_too_wide_comes_in_parts_with_the_names_of_its_rows():
    results = {"tables": {"a title": [{"row": name, **{f"column {i}": 0.125 for i in range(9)}} for name in NAMES]}}
    results |= {"sentences": ["All is well."], "seconds": 1.0}
    text = shown(lambda console: print_experiment(console, results, "x"), 80)
    assert {f"column {i}" for i in range(9)} <= cells(text)
    parts = text.count("┏")
    assert parts > 1
    assert all(text.count(name) == parts for name in NAMES)
    assert text.count("a title") == 1
    assert max(map(len, text.splitlines())) <= 80


def test_a_name_wider_than_the_screen_is_whole():
    text = shown(lambda console: print_table(console, [Column("client")], [["x" * 60]]), 40)
    assert "x" * 60 in text


def test_words_go_on_in_the_next_line():
    columns = [Column("setting"), Column("what", wrap="words")]
    text = shown(lambda console: print_table(console, columns, [["n_global", "number of shared atoms " * 5]]), 40)
    assert {"n_global"} <= cells(text)
    words = " ".join(cells(text) - {"n_global", "setting", "what"}).split()
    assert set(words) == {"number", "of", "shared", "atoms"}


@pytest.mark.parametrize(("n", "rows"), [(50, 50), (51, 10), (2000, 10)])
def test_of_many_clients_the_worst_have_rows(n, rows):
    run = run_of("x.npy")
    facts = run["clients"][NAMES[0]]
    run["clients"] = {f"site-{i}": {**facts, "final_error": i / n} for i in range(1, n + 1)}
    text = shown(lambda console: print_summary(console, run, None), 300)
    named = [cell for cell in cells(text) if cell.startswith("site-")]
    assert set(named) == {f"site-{i}" for i in range(n - rows + 1, n + 1)}
    assert ("(median)" in text) == ("all are in summary.json" in text) == (rows < n)
