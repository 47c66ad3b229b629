"""The command ``perdl tune``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from common.errors import DataError, SettingsError
from common.evaluation import gain, percent
from perdl.cli.command import command, err, find_config, out
from perdl.cli.console import print_line
from perdl.cli.run import OverrideOption, SeedOption
from perdl.cli.tables import Column, print_table

if TYPE_CHECKING:
    from perdl.check.tune import Trial


@command
def tune(
    data: Annotated[list[str], typer.Argument(help="files, folders or globs; quote a glob")],
    rounds: Annotated[int, typer.Option(min=1, help="rounds of each run")] = 10,
    override: OverrideOption = [],  # noqa: B006 (typer copies it)
    seed: SeedOption = None,
    output: Annotated[Path, typer.Option(help="file of the chosen settings")] = Path("tuned.toml"),
    overwrite: Annotated[bool, typer.Option(help="replace this file")] = False,
) -> None:
    """Choose settings by the error of held-out samples, in short simulated runs.

    DATA is as for perdl check. The chosen settings go to a TOML file, for perdl simulate and perdl server.
    """
    from common.files import write_text
    from common.settings import load_settings, override_settings, parse_override
    from perdl.check import files as checks
    from perdl.check import tune as search
    from perdl.results.search import search_file, write_search

    if output.exists() and not overwrite:
        raise SettingsError(f"{output} exists: add --overwrite, or name another file with --output")
    by_hand = dict(map(parse_override, override)) | ({} if seed is None else {"seed": seed})
    settings = override_settings(load_settings(find_config("files")), by_hand)
    files = checks.find_clients(data, settings)
    with err.status("reading") as status:
        report = checks.check(files, settings, data[0] if len(data) == 1 else None, status.update)
        if report.problems:
            raise DataError("; ".join(report.problems))
        begin = {**report.suggested, **by_hand}
        settings = override_settings(settings, {**begin, "rounds": rounds, "n_clients": len(files)})
        done: list[Trial] = []

        def tell(trial: Trial) -> None:
            done.append(trial)
            status.update(f"run {len(done) + 1}, after {trial.group}")

        training, held_out = search.read_clients(files, settings)
        trials, best = search.tune(training, held_out, settings, tell, by_hand.keys())
    _print_trials(trials, best)
    print_line(out, _sentence(trials, best, settings.evaluation.n_nonzero))
    chosen = {**begin, "n_clients": len(files), **best.values, "evaluation.held_out": settings.evaluation.held_out}
    write_text(output, replace(report, suggested=chosen).toml() + "\n")
    judged = [name for name in training if name in held_out]
    facts = {"data": data, "seed": settings.seed, "rounds": rounds, "n_nonzero": settings.evaluation.n_nonzero}
    write_search(output, judged, trials, best, **facts)
    print_line(out, f"settings: {output}; what was tried: {search_file(output)}")
    print_line(out, f"judge them by other samples: perdl simulate {output} --seed {settings.seed + 1}")


def _print_trials(trials: Sequence[Trial], best: Trial) -> None:
    columns = [Column("varied", wrap="words"), Column("settings", wrap="words"), Column("shared", right=True)]
    columns += [Column("error", right=True), Column("seconds", right=True), Column("")]
    rows = []
    for trial in trials:
        error = f"{trial.error:.3f}" if len(trial.errors) else "-"
        what = trial.failed or _in_words(trial.values)
        mark = "chosen" if trial is best else ""
        rows.append([trial.group, what, str(trial.n_global), error, f"{trial.seconds:.1f}", mark])
    print_table(out, columns, rows)


def _in_words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {json.dumps(value)}" for key, value in values.items()) or "what perdl check suggests"


def _sentence(trials: Sequence[Trial], best: Trial, k: int) -> str:
    """Say what the chosen settings are worth, against where the search began and against nothing shared."""
    first = trials[0]
    text = f"{_in_words(best.values)}: error {best.error:.3g} with {k} atoms a sample"
    if len(first.errors) and best is not first:
        text += f", {first.error:.3g} with what perdl check suggests"
    alone = next((one for one in trials if one.values.get("n_global") == 0), None)
    if alone is None or not len(alone.errors):
        return text
    if best.n_global and best.score < alone.score:
        return text + f"; sharing {best.n_global} atoms lowers it by {percent(gain(alone.error, best.error))}"
    return text + "; with shared atoms it is no lower: on these data, clients are as good alone"
