"""The report of a run or a client's model: one self-contained page of HTML, without network and scripts."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from common.evaluation import evaluation_of
from common.settings import Settings
from perdl.report.figure import FigureKind, Row, chosen_clients, chosen_of
from perdl.report.figures import FIGURES
from perdl.report.figures.participation import answered_rounds
from perdl.report.figures.variance import explained_parts, main_finding
from perdl.report.words import counted, first_of, sentence_case
from perdl.results.membership import who_shares
from perdl.results.run_result import RunResult, as_result

REPORT = "report.html"
"""File name of the report in the folder of a run or a client."""
_MOST_SVG = 1_000_000
"""A figure with more bytes than this as SVG is smaller as PNG."""
_MOST_OWN = 8
"""Largest number of clients whose own atoms are drawn."""

_PREPARED = {
    "window": "cut into windows of {} rows",
    "patch": "cut into patches of {} pixels a side",
    "center": "centred by each client's own mean",
    "divide_by": "divided by {}",
    "site_scale": "divided by a scale that all clients agreed on",
    "whiten": "whitened",
}
_MODES = {
    "none": "clients sent their atoms as learnt",
    "guarded": "of no message one sample, for no atom moved by few samples",
    "aggregated": "of rounds the server saw only sums over clients, and no atom moved by few samples",
    "masked": "the server saw atoms only in coordinates that it does not know, and none moved by few samples",
    "private": "differential privacy for each sample of a client",
}
_OF_SOURCES = {
    "synthetic": ("synthetic.",),
    "mnist": ("evaluation.n_test", "data.majority"),
    "video": ("data.layout", "data.every", "data.n_frames", "data.masks"),
}
"""Settings that matter only for one kind of data."""
_WHAT = {
    "summary.json": "settings, versions, why it ended, final numbers",
    "metrics.jsonl": "a row for each round and client",
    "rounds.jsonl": "a row for each round",
    "global_dictionary.npz": "the shared atoms and their consensus",
    "dictionary.npz": "the client's model: shared and own atoms, what is done to samples",
    "atoms.csv": "the atoms as a table: a row a feature, a column an atom",
    "log.jsonl": "the server's log",
    "superlink.log": "the log of Flower's SuperLink",
    "checkpoint.npz": "what a server needs to resume",
    "checkpoint-before.npz": "the same, one round before",
    "search.json": "what perdl tune tried to find these settings",
    "clients": "each client's own model",
    "figures": "the figures of this page",
    "state": "what the client needs to go on",
    "client.txt": "whose folder this is",
}


@dataclass(frozen=True)
class Picture:
    """A figure of the page.

    Parameters
    ----------
    title : str
        Title of the figure.
    text : str
        Caption: what the figure shows.
    html : str
        HTML element of the figure.
    numbers : list of rows
        The numbers drawn, as a table; may be empty.
    """

    title: str
    text: str
    html: str
    numbers: list[Row]


@dataclass(frozen=True)
class Section:
    """A section of the page with figures of one kind.

    Parameters
    ----------
    name : str
        Key of ``FIGURES``.
    title : str
        Title of the section.
    hint : str
        How to read the figures.
    pictures, more : list of Picture
        The figure that is shown, and those that are folded away.
    why_not : str
        Why there are no figures; empty if there are.
    note : str
        How many figures are left out; may be empty.
    """

    name: str
    title: str
    hint: str
    pictures: list[Picture]
    more: list[Picture]
    why_not: str
    note: str


def render_report(source: Any) -> str:
    """Return the page as HTML.

    Parameters
    ----------
    source : RunResult, PerDL or path
        The run or model, as in :mod:`perdl.plots`. The run may have failed or been interrupted.

    Raises
    ------
    PerdlError
        If there is neither a run that ended nor a model.
    """
    from jinja2 import Environment, PackageLoader

    result = as_result(source)
    page = Environment(loader=PackageLoader("perdl.report", ""), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    changed, default = _settings(result.summary.get("settings", {}))
    return page.get_template("report.html").render(
        result=result,
        lead=_lead(result),
        source=_source(result),
        failed=_failure(result),
        notes=_notes(result),
        changed=changed,
        default=default,
        sections=list(_sections(result)),
        evaluation=result.summary.get("evaluation", {}),
        participants=_participants(result),
        chosen=chosen_of(len(result.clients)),
        files=_files(result.folder),
        traffic=_traffic(result.summary.get("bytes", {})),
        versions=result.summary.get("versions", {}),
    )


def _lead(result: RunResult) -> str:
    """Return the result in words."""
    s, r_g, d = result.summary, result.global_dictionary.shape[1], len(result.global_dictionary)
    if result.client:
        own, used = result.local_dictionaries[result.client].shape[1], len(result.by_energy(result.client))
        mine = f"{len(result.shared_atoms)} of " if result.lacking(result.client) else ""
        text = (
            f"The model of {result.client}: {mine}{counted(r_g, 'shared atom')} and {own} of its own over {d} features."
        )
        text += f" Its samples use {used} of its own." if used < own else ""
        u = result.usage.get(result.client)
        if u is not None and r_g:
            shared, rest = float(u[:r_g].sum()), float(u[r_g:].sum())
            text += f" Codes of shared atoms carry {shared:.0%} of the energy of its data, those of its own {rest:.0%}."
        if "error" in result.measures:
            text += f" The relative error of its data is {result.measures['error']:.2g}."
        evaluation = evaluation_of(result.measures)
        return text + (f" {sentence_case(evaluation.in_words())}" if evaluation else "")
    rounds, shared_by = int(s.get("rounds", 0)), who_shares(result.members)
    found = counted(r_g, "shared atom") + f" over {d} features" if d else "no shared atoms: nothing was matched"
    text = f"{counted(len(result.clients), 'client')}, {found}, {counted(rounds, 'round')}"
    text += f" in {s['seconds']:.1f} s. " if "seconds" in s else ". "
    text += f"{sentence_case(shared_by)} " if shared_by else ""
    if s.get("masked"):
        text += "The server knows them in other coordinates only (privacy = masked): clients' reports show them. "
    text += {
        "tolerance": f"It ended because no shared atom moved more than {s.get('settings', {}).get('tolerance', 0):g}.",
        "rounds": "It ended because all rounds were done.",
    }.get(str(s.get("stop_reason")), "It did not come to its end.")
    consensus = s.get("final", {}).get("consensus", {}).get("min")
    if consensus is not None and rounds:
        agree = "Clients agree on every shared atom" if consensus >= 0.9 else "Clients do not agree on all shared atoms"
        text += f" {agree} (least consensus {consensus:.3f})."
    if sums := s.get("secure_sums"):
        text += f" {sentence_case(sums['note'])}"
        if void := sums["void_rounds"]:
            text += f" {counted(len(void), 'round')} could not be opened and counted for nothing."
    if explained_parts(result):
        text += f" {main_finding(result)}"
    if "held_out" in s:
        text += f" {s['held_out']['sentence']}"
    error = s.get("final", {}).get("error") or {}
    if error:
        text += (
            f" The relative error of the clients' data is {error['median']:.2g} (median), {error['max']:.2g} at worst."
        )
    truth = s.get("final", {}).get("global_distance")
    return text + (f" The data are made up, and the shared atoms are {truth:.1e} from the truth." if truth else "")


def _failure(result: RunResult) -> str:
    """Return why the run did not come to its end; empty if it did."""
    reason = str(result.summary.get("stop_reason", ""))
    if result.client or reason in ("tolerance", "rounds"):
        return ""
    if reason == "interrupted":
        return "The run was interrupted. What is here was done until then."
    if reason.startswith("failed: "):
        return f"The run failed: {reason.removeprefix('failed: ')}"
    return f"The run was ended before its time: {reason}." if reason else "It is not known why the run ended."


def _notes(result: RunResult) -> list[str]:
    """Return warnings: those of the server, and one that only the clients' models can show."""
    notes = list(result.summary.get("warnings", []))
    r_g = result.global_dictionary.shape[1]
    if r_g and result.usage and not any("codes use" in note for note in notes):
        dead = [j for j in result.shared_atoms if not any(u[j] for u in result.usage.values())]
        if dead:
            named = ", ".join(str(j + 1) for j in dead[:10]) + (", ..." if len(dead) > 10 else "")
            notes.append(
                f"no client's codes use shared atom{'s' * (len(dead) > 1)} {named}: nothing was learnt there, and "
                "what it holds means nothing; lower n_global or the threshold"
            )
    return notes


def _settings(settings: Mapping[str, Any]) -> tuple[list[tuple[str, str, str]], list[tuple[str, str]]]:
    """Return the settings that differ from their defaults (with these), and the others, without irrelevant ones."""
    defaults = dict(_flat(Settings().model_dump(exclude_none=True)))
    foreign = tuple(
        name
        for source, names in _OF_SOURCES.items()
        if source != settings.get("data", {}).get("source")
        for name in names
    )
    changed, default = [], []
    for name, value in _flat(settings):
        if name.startswith(foreign) or name == "output":
            continue
        if name in defaults and defaults[name] == value:
            default.append((name, value))
        else:
            changed.append((name, value, defaults.get(name, "")))
    return changed, default


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, str(value).lower() if isinstance(value, bool) else str(value)


def _source(result: RunResult) -> list[tuple[str, str]]:
    """Return when the run began, its data, their units and its mode of privacy, as names and texts."""
    summary = result.summary
    data = summary.get("settings", {}).get("data", {})
    rows = (
        [("began", str(summary["started"]).replace("T", " ").replace("+00:00", " UTC"))] if "started" in summary else []
    )
    if result.client and result.folder is not None:
        written = datetime.fromtimestamp((result.folder / "dictionary.npz").stat().st_mtime, UTC)
        rows.append(("written", f"{written:%Y-%m-%d %H:%M:%S} UTC"))
    if data:
        where = f", {data['path']}" if data.get("path") else ""
        samples = [facts["n_samples"] for facts in result.clients.values() if "n_samples" in facts]
        rows.append(("data", f"{data['source']}{where}; {counted(sum(samples), 'sample')} in all"))
        rows.append(("units", _units(data)))
    if "privacy" in summary:
        rows.append(("privacy", _privacy(summary["privacy"])))
    rows.append(("error", "relative: the norm of what the atoms leave, over that of the data they are learnt from"))
    return rows


def _privacy(facts: Mapping[str, Any]) -> str:
    """Return which mode of privacy was on, and in a private run what it spent."""
    text = f"{facts['mode']}: {_MODES.get(facts['mode'], '')}"
    if "epsilon_spent" in facts:
        text += f"; spent epsilon = {facts['epsilon_spent']:g} with delta = {facts['delta_spent']:g}"
    return text


def _units(data: Mapping[str, Any]) -> str:
    """Say how the samples were preprocessed: atoms are in the units of the preprocessed samples."""
    texts = [text.format(data[key]) for key, text in _PREPARED.items() if data.get(key)]
    if data.get("scale", "none") != "none":
        texts.append(f"scaled ({data['scale']})")
    return f"samples were {', '.join(texts)}; atoms are of samples so prepared" if texts else "those of the samples"


def _sections(result: RunResult) -> Iterator[Section]:
    """Draw all figures that can be drawn, in the order of the page."""
    for name, kind in FIGURES.items():
        if result.client and not kind.of_model:
            continue
        clients: list[str | None] = [*result.local_dictionaries] if kind.per_client else [None]
        drawable = [client for client in clients if not kind.why_not(result, client)]
        reason = "" if drawable else kind.why_not(result, clients[0] if clients else None)
        pictures = [_picture(name, kind, result, client) for client in drawable[:_MOST_OWN]]
        note = first_of(_MOST_OWN, len(drawable)).strip()
        yield Section(name, kind.title, kind.hint, pictures[:1], pictures[1:], reason, note)


def _picture(name: str, kind: FigureKind, result: RunResult, client: str | None) -> Picture:
    from html import escape

    from perdl import plots
    from perdl.report.drawing import inline, to_png, to_svg

    text, svg = kind.caption(result, client), to_svg(plots.draw(name, result, client))
    title = kind.title if client is None else f"{kind.title} of {client}"
    mark = name if client is None else f"{name}-{list(result.local_dictionaries).index(client)}"
    alt = escape(f"{title}. {text}")
    if len(svg) <= _MOST_SVG:
        html = inline(svg, mark).replace("<svg", f'<svg role="img" aria-label="{alt}"', 1)
    else:
        data = base64.b64encode(to_png(plots.draw(name, result, client))).decode()
        html = f'<img alt="{alt}" src="data:image/png;base64,{data}">'
    return Picture(title, text, html, kind.numbers(result, client))


def _participants(result: RunResult) -> list[dict[str, str]]:
    """Return a row for each client: its samples and atoms, the rounds it answered, its results."""
    answered = answered_rounds(result)
    with_files = any("file" in facts for facts in result.clients.values())
    rows = []
    for name in chosen_clients(result, result.clients):
        facts = result.clients[name]
        rounds = len(answered.get(name, ()))
        row = {
            "client": name,
            "samples": str(facts.get("n_samples", "-")),
            "atoms": str(facts.get("n_atoms", "-")),
            "used": f"{facts['nonzeros']:.1f}" if "nonzeros" in facts else "-",
            "rounds": f"{rounds} of {result.summary.get('rounds', 0)}" if result.metrics else "-",
            "came back": str(facts.get("returns", 0)),
        }
        if result.members:
            own = result.members.get(name)
            row["shared atoms"] = "-" if own is None else f"{own.sum()} of {len(own)}"
        row |= {
            key: f"{round(100 * facts[f'final_{key}'])}%" if f"final_{key}" in facts else "-"
            for key in ("shared", "own")
        }
        row["error"] = f"{facts['final_error']:.3g}" if "final_error" in facts else "-"
        if with_files:
            row["file"] = Path(facts.get("file", "")).name
        rows.append(row)
    return rows


def _files(folder: Path | None) -> list[tuple[str, str, str]]:
    """Return name, size and purpose of each file in the folder."""
    rows = []
    for path in sorted(folder.iterdir()) if folder is not None and folder.is_dir() else ():
        if path.name.startswith(".") or path.name == REPORT:
            continue
        sizes = [one.stat().st_size for one in path.rglob("*") if one.is_file()] if path.is_dir() else []
        size = f"{counted(len(sizes), 'file')}, {decimal(sum(sizes))}"
        rows.append((path.name, size if path.is_dir() else decimal(path.stat().st_size), _WHAT.get(path.name, "")))
    return rows


def _traffic(phases: Mapping[str, Mapping[str, int]]) -> list[tuple[str, str, str]]:
    """Return the bytes by phase and direction, and their sums."""
    rows = [(phase, way.get("to_clients", 0), way.get("to_server", 0)) for phase, way in phases.items()]
    if rows:
        rows.append(("all", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    return [(phase, decimal(down), decimal(up)) for phase, down, up in rows]
