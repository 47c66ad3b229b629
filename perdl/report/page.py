"""One page of HTML about a run or a client's model: everything inside, no network, no script."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from common.settings import Settings
from perdl.monitoring.progress import human_bytes
from perdl.report.captions import counted, first_of, participants, sentences, shares, why_not
from perdl.results.readings import Reading, read

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_SVG = 1_000_000
"""Bytes of a figure from which on its pixels are smaller."""
_MOST_OWN = 8
"""Clients whose own atoms are drawn."""

_TITLES = {
    "convergence": "Convergence",
    "path_lengths": "How near the matched atoms lay",
    "variance": "Shared, own, unexplained",
    "atoms": "Shared atoms",
    "own_atoms": "Own atoms",
    "usage": "How much each atom carries",
    "participation": "Who took part",
}
_HINTS = {
    "convergence": "A good run falls and then rests: the error of all clients, the largest move of a shared atom. "
    "Consensus is 1 where all clients' versions of an atom agree; it cannot tell a wrong match.",
    "path_lengths": "What is shared lies near across clients; the lengths jump where shared atoms end. Paths as long "
    "as those of unrelated atoms hold nothing that was shared from the start.",
    "variance": "The energy of each client's data, after its preprocessing, that shared atoms explain, that its own "
    "atoms add, and that neither explains.",
    "atoms": "What all clients have in common.",
    "own_atoms": "What a client has alone.",
    "usage": "A row that is dark for one client only is hardly shared. A cross: no sample uses that atom.",
    "participation": "Gaps are rounds that a client did not answer.",
}
_WHAT = {
    "summary.json": "settings, versions, why it ended, final numbers",
    "metrics.jsonl": "a row for each round and client",
    "rounds.jsonl": "a row for each round",
    "global_dictionary.npz": "the shared atoms and their consensus",
    "dictionary.npz": "the client's model: shared and own atoms, what is done to samples",
    "log.jsonl": "the server's log",
    "superlink.log": "the log of Flower's SuperLink",
    "checkpoint.npz": "what a server needs to resume",
    "checkpoint-before.npz": "the same, one round before",
    "clients": "each client's own model",
    "figures": "the figures of this page",
    "state": "what the client needs to go on",
    "client.txt": "whose folder this is",
}


@dataclass(frozen=True)
class Picture:
    """A figure of the page: its element, and what it shows in words."""

    title: str
    text: str
    html: str


@dataclass(frozen=True)
class Section:
    """A part of the page that is made of figures; ``why_not`` says why there are none."""

    name: str
    title: str
    hint: str
    pictures: list[Picture]
    more: list[Picture]
    why_not: str
    note: str


def render_report(source: Any) -> str:
    """Return the page.

    Parameters
    ----------
    source : RunResult, PerDL or path
        As in :mod:`perdl.plots`; also the folder of a run that failed or was interrupted.

    Raises
    ------
    PerdlError
        If there is neither a run that ended nor a model.
    """
    from jinja2 import Environment, PackageLoader

    reading = read(source)
    page = Environment(loader=PackageLoader("perdl.report", ""), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    changed, default = _settings(reading.summary.get("settings", {}))
    return page.get_template("report.html").render(
        reading=reading,
        lead=_lead(reading),
        failed=_failure(reading),
        notes=_notes(reading),
        changed=changed,
        default=default,
        sections=list(_sections(reading)),
        evaluation=reading.summary.get("evaluation", {}),
        participants=_participants(reading),
        files=_files(reading.folder),
        traffic=_traffic(reading.summary.get("bytes", {})),
        versions=reading.summary.get("versions", {}),
    )


def _lead(reading: Reading) -> str:
    """What came out, in words."""
    s, r_g, d = reading.summary, reading.global_dictionary.shape[1], len(reading.global_dictionary)
    if reading.client:
        own = reading.own[reading.client].shape[1]
        text = f"The model of {reading.client}: {counted(r_g, 'shared atom')} and {own} of its own over {d} features."
        u = reading.usage.get(reading.client)
        if u is not None and r_g:
            shared, rest = float(u[:r_g].sum()), float(u[r_g:].sum())
            text += f" Codes of shared atoms carry {shared:.0%} of the energy of its data, those of its own {rest:.0%}."
        return text
    rounds = int(s.get("rounds", 0))
    found = counted(r_g, "shared atom") + f" over {d} features" if d else "no shared atoms: nothing was matched"
    text = f"{counted(len(reading.clients), 'client')}, {found}, {counted(rounds, 'round')}"
    text += f" in {s['seconds']:.1f} s. " if "seconds" in s else ". "
    text += {
        "tolerance": f"It ended because no shared atom moved more than {s.get('settings', {}).get('tolerance', 0):g}.",
        "rounds": "It ended because all rounds were done.",
    }.get(str(s.get("stop_reason")), "It did not come to its end.")
    consensus = s.get("final", {}).get("consensus", {}).get("min")
    if consensus is not None and rounds:
        agree = "Clients agree on every shared atom" if consensus >= 0.9 else "Clients do not agree on all shared atoms"
        text += f" {agree} (least consensus {consensus:.3f})."
    if shares(reading):
        text += f" {sentences('variance', reading).partition('. ')[0].rstrip('.')}."
    error = s.get("final", {}).get("error") or {}
    if error:
        text += (
            f" The relative error of the clients' data is {error['median']:.2g} (median), {error['max']:.2g} at worst."
        )
    truth = s.get("final", {}).get("global_distance")
    return text + (f" The data are made up, and the shared atoms are {truth:.1e} from the truth." if truth else "")


def _failure(reading: Reading) -> str:
    """Why the run did not come to its end; empty if it did."""
    reason = str(reading.summary.get("stop_reason", ""))
    if reading.client or reason in ("tolerance", "rounds"):
        return ""
    if reason == "interrupted":
        return "The run was interrupted. What is here was done until then."
    if reason.startswith("failed: "):
        return f"The run failed: {reason.removeprefix('failed: ')}"
    return f"The run was ended before its time: {reason}." if reason else "It is not known why the run ended."


def _notes(reading: Reading) -> list[str]:
    """What makes the result doubtful: what the server saw, and what only the clients' own models tell."""
    notes = list(reading.summary.get("warnings", []))
    r_g = reading.global_dictionary.shape[1]
    if r_g and reading.usage and not any("codes use" in note for note in notes):
        dead = np.flatnonzero((np.array([u[:r_g] for u in reading.usage.values()]) == 0).all(axis=0))
        if len(dead):
            named = ", ".join(str(j + 1) for j in dead[:10]) + (", ..." if len(dead) > 10 else "")
            notes.append(
                f"no client's codes use shared atom{'s' * (len(dead) > 1)} {named}: nothing was learnt there, and "
                "what it holds means nothing; lower n_global or the threshold"
            )
    return notes


def _settings(settings: Mapping[str, Any]) -> tuple[list[tuple[str, str, str]], list[tuple[str, str]]]:
    """Settings that differ from their defaults, with these; and the others."""
    defaults = dict(_flat(Settings().model_dump(exclude_none=True)))
    changed, default = [], []
    for name, value in _flat(settings):
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


def _sections(reading: Reading) -> Iterator[Section]:
    """Draw what there is to draw, in the order of the page."""
    from perdl import plots

    first = next(iter(reading.own), None)
    for name, title in _TITLES.items():
        if reading.client and name in ("convergence", "path_lengths", "variance", "participation"):
            continue  # of a run, not of a model
        reason = why_not(name, reading, first)
        pictures, more, note = [], [], ""
        if not reason and name == "own_atoms":
            clients = [client for client in reading.own if not why_not(name, reading, client)]
            drawn = [_picture(name, reading, plots.atoms(reading, client), client) for client in clients[:_MOST_OWN]]
            pictures, more, note = drawn[:1], drawn[1:], first_of(_MOST_OWN, len(clients)).strip()
        elif not reason:
            pictures = [_picture(name, reading, getattr(plots, name)(reading))]
        yield Section(name, title, _HINTS[name], pictures, more, reason, note)


def _picture(name: str, reading: Reading, figure: Figure, client: str | None = None) -> Picture:
    from html import escape

    from perdl.report.drawing import inline, to_png, to_svg

    text, svg = sentences(name, reading, client), to_svg(figure)
    title = _TITLES[name] if client is None else f"{_TITLES[name]} of {client}"
    mark = name if client is None else f"{name}-{list(reading.own).index(client)}"
    alt = escape(f"{title}. {text}")
    if len(svg) <= _MOST_SVG:
        html = inline(svg, mark).replace("<svg", f'<svg role="img" aria-label="{alt}"', 1)
    else:
        data = base64.b64encode(to_png(figure)).decode()
        html = f'<img alt="{alt}" src="data:image/png;base64,{data}">'
    return Picture(title, text, html)


def _participants(reading: Reading) -> list[dict[str, str]]:
    """A row for each client: what it brought, when it was there, what came out."""
    answered = participants(reading)
    with_files = any("file" in facts for facts in reading.clients.values())
    rows = []
    for name, facts in reading.clients.items():
        rounds = len(answered.get(name, ()))
        row = {
            "client": name,
            "samples": str(facts.get("n_samples", "-")),
            "atoms": str(facts.get("n_atoms", "-")),
            "used": f"{facts['nonzeros']:.1f}" if "nonzeros" in facts else "-",
            "rounds": f"{rounds} of {reading.summary.get('rounds', 0)}" if reading.metrics else "-",
            "came back": str(facts.get("returns", 0)),
        }
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
    """Name, size and purpose of what lies in the folder."""
    rows = []
    for path in sorted(folder.iterdir()) if folder is not None and folder.is_dir() else ():
        if path.name.startswith(".") or path.name == "report.html":
            continue
        sizes = [one.stat().st_size for one in path.rglob("*") if one.is_file()] if path.is_dir() else []
        size = f"{counted(len(sizes), 'file')}, {human_bytes(sum(sizes))}"
        rows.append((path.name, size if path.is_dir() else human_bytes(path.stat().st_size), _WHAT.get(path.name, "")))
    return rows


def _traffic(phases: Mapping[str, Mapping[str, int]]) -> list[tuple[str, str, str]]:
    """Bytes by phase and direction, and their sums."""
    rows = [(phase, way.get("to_clients", 0), way.get("to_server", 0)) for phase, way in phases.items()]
    if rows:
        rows.append(("all", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    return [(phase, human_bytes(down), human_bytes(up)) for phase, down, up in rows]
