"""The commands that inspect data, results and settings: ``perdl check``, ``report``, ``settings``."""

from __future__ import annotations

import difflib
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from common.errors import DataError, SettingsError
from perdl.cli.command import command, err, find_config, out
from perdl.cli.console import print_line
from perdl.cli.tables import Column, print_table

if TYPE_CHECKING:
    from perdl.check.files import Report
    from perdl.check.profile import ClientProfile

_HERE = "127.0.0.1:8000"
_READ = ("path", "samples_in", "variable", "drop", "missing", "in_memory")
_DONE = ("window", "patch", "stride", "divide_by", "scale", "drop_constant", "whiten")


@command
def check(
    data: Annotated[
        list[str] | None,
        typer.Argument(help="files, folders or globs"),
    ] = None,
    samples_in: Annotated[str | None, typer.Option(help="rows or columns")] = None,
    variable: Annotated[str | None, typer.Option(help="name of the array in .npz, .mat and HDF5 files")] = None,
    drop: Annotated[str | None, typer.Option(help="columns of tables to leave out, names or numbers: id,time")] = None,
    override: Annotated[
        list[str], typer.Option("-c", "--set", help="key=value of the table data, all but center")
    ] = [],  # noqa: B006
    as_json: Annotated[bool, typer.Option("--json", help="print all of it as JSON")] = False,
) -> None:
    """Look at clients' data before a run: do they fit together, and which settings suit them?

    DATA is what data.path names, a folder or a glob whose entries are clients, or several files and folders, each of
    them a client. Exit code 3: a run of them would be refused.
    """
    from common.settings import load_settings
    from perdl.check import files as checks

    told = [*override, *([f"data.samples_in={samples_in}"] if samples_in else [])]
    told += [f"data.variable={json.dumps(variable)}"] if variable else []
    told += [f"data.drop={json.dumps(drop)}"] if drop else []
    for key in (one.partition("=")[0].strip() for one in told):
        if key.removeprefix("data.") not in (*_READ, *_DONE) or "." not in key:
            raise SettingsError(f"{key}: perdl check takes data.{', data.'.join((*_READ, *_DONE))} only")
    settings = load_settings(find_config("files"), told)
    places = data or ([settings.data.path] if settings.data.path else [])
    if not places:
        raise DataError("no data given: perdl check FOLDER, or files, or a glob")
    files = checks.find_clients(places, settings)
    with err.status("reading") as status:
        report = checks.check(files, settings, places[0] if len(places) == 1 else None, status.update)
    if as_json:
        out.write_line(json.dumps(report.as_dict(), indent=2))
    else:
        _print_report(report)
    if report.problems:
        raise typer.Exit(DataError.exit_code)


@command
def audit(
    folder: Annotated[Path, typer.Argument(help="a client's --folder, which it filled with --record")],
    as_json: Annotated[bool, typer.Option("--json", help="print all of it as JSON")] = False,
) -> None:
    """Show what left a client, by run and phase. Exit with 2 if more left than may travel."""
    from dataclasses import asdict

    from perdl.check.audit import audit as run_audit

    found = run_audit(folder)
    if as_json:
        out.write_line(json.dumps(asdict(found), indent=2))
    else:
        names = ("run", "phase", "answers", "refused", "bytes", "arrays", "first", "last")
        columns = [Column(name, right=name in ("answers", "refused", "bytes")) for name in names]
        rows = [
            [
                *(one.run, one.phase, str(one.answers), str(one.refused), str(one.bytes)),
                ", ".join(f"{name} {shape}" for name, shape in one.arrays.items()),
                *(one.first, one.last),
            ]
            for one in found.phases
        ]
        print_table(out, columns, rows)
        for fault in found.faults:
            print_line(out, f"problem: {fault}")
        if not found.faults:
            print_line(out, "nothing left that may not")
    if found.faults:
        raise typer.Exit(DataError.exit_code)


def _print_report(report: Report) -> None:
    names = ("samples", "features", "type", "scale (rms)", "missing", "constant", "rank")
    columns = [Column("client"), Column("file", wrap="anywhere")]
    columns += [Column(name, right=name != "type") for name in (*names, "energy of the mean", "largest feature")]
    if rows := [_cells(look) for look in report.clients if look.samples is not None]:
        print_table(out, columns, rows)
    for kind, lines in (("problem", report.problems), ("note", report.notes)):
        for line in lines:
            print_line(out, f"{kind}: {line}")
    if report.suggested:
        for line in report.refused or ["clients with default terms accept the settings below"]:
            print_line(out, f"terms: {line}")
        print_line(out, "\nsuggested, as a file of settings and as overrides:\n")
        print_line(out, report.toml())
        if "data.path" in report.suggested:
            print_line(out, f"\nperdl simulate files {_as_overrides(report)}")
            return
        server = f"perdl server files --insecure --address {_HERE} -c n_clients={len(report.clients)}"
        print_line(out, f"\n{server} {_as_overrides(report)}")
        print_line(
            out, "\nand each client by itself, while the server runs (on several hosts: --certs for --insecure):\n"
        )
        options = "".join(
            f" --{key.replace('_', '-')} {shlex.quote(str(report.suggested[f'data.{key}']))}"
            for key in ("samples_in", "variable")
            if f"data.{key}" in report.suggested
        )
        for look in report.clients:
            dropped = f" --drop {shlex.quote(look.drop)}" if look.drop else ""
            client = f"perdl client --insecure --server {_HERE} --name {shlex.quote(look.name)}"
            print_line(out, f"{client} --data {shlex.quote(look.file)}{options}{dropped}")


def _as_overrides(report: Report) -> str:
    values = {key: value for key, value in report.suggested.items() if key != "data.source"}  # the preset sets it
    texts = (f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in values.items())
    return " ".join(f"-c {shlex.quote(text)}" for text in texts)


def _cells(look: ClientProfile) -> list[str]:
    shape = "x".join(map(str, look.shape)) if len(look.shape) > 1 else ""
    features = "" if look.features is None else f"{look.features}{f' ({shape})' if shape else ''}"
    share = "" if look.largest_share is None else f"{look.largest_feature}: {look.largest_share:.0%}"
    numbers = [look.missing, look.constant, look.rank]
    return [
        look.name,
        look.file,
        "" if look.samples is None else str(look.samples),
        features,
        look.dtype or "",
        "" if look.rms is None else f"{look.rms:.3g}",
        *("" if number is None else str(number) for number in numbers),
        "" if look.mean_share is None else f"{look.mean_share:.1%}",
        share,
    ]


@command
def show_settings(word: Annotated[str, typer.Argument(help="show only settings that mention this")] = "") -> None:
    """List all settings: name, default, what is allowed, what it does."""
    from perdl.cli.settings_page import setting_rows

    rows = setting_rows()
    found = [row for row in rows if word.lower() in " ".join(row).lower()]
    if not found:
        parts = {part: row[0] for row in rows for part in (row[0], row[0].rpartition(".")[2])}
        near = list(dict.fromkeys(parts[part] for part in difflib.get_close_matches(word.lower(), parts, n=3)))
        cure = f"did you mean {' or '.join(near)}?" if near else "perdl settings lists them all"
        raise SettingsError(f"no setting mentions {word!r}; {cure}")
    columns = [Column("setting"), Column("default"), Column("allowed", wrap="words"), Column("what", wrap="words")]
    print_table(out, columns, found)


@command
def report(
    folder: Annotated[Path, typer.Argument(help="of a simulation, a server or one client")],
    output: Annotated[Path | None, typer.Option(help="file to write; default FOLDER/report.html")] = None,
) -> None:
    """Write one page of HTML about a run or a client's model, with all figures inside, and its atoms as CSV.

    The atoms go to atoms.csv in FOLDER: a row a feature, a column an atom.
    """
    from common.files import write_text
    from perdl.report.page import REPORT, render_report
    from perdl.results.atoms_table import write_atoms
    from perdl.results.run_result import as_result

    path = folder / REPORT if output is None else output
    if path.is_dir():
        raise SettingsError(f"--output {path}: is a folder; name a file")
    result = as_result(folder)
    if output is None:
        write_atoms(result, folder / "atoms.csv")
    write_text(path, render_report(result))
    print_line(out, f"report: {path}")
