"""The command ``perdl tune``, and ``perdl server --tune``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
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
    from common.settings import Settings
    from perdl_server.algorithm.search import Trial


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
    from perdl.check import tune as simulated
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

        training, held_out = simulated.read_clients(files, settings)
        trials, best = simulated.tune(training, held_out, settings, tell, by_hand.keys())
    _print_trials(trials, best, _SUGGESTED)
    print_line(out, _sentence(trials, best, settings.evaluation.n_nonzero, _SUGGESTED))
    chosen = {**begin, "n_clients": len(files), **best.values, "evaluation.held_out": settings.evaluation.held_out}
    write_text(output, replace(report, suggested=chosen).toml() + "\n")
    judged = [name for name in training if name in held_out]
    facts = {"data": data, "seed": settings.seed, "rounds": rounds, "n_nonzero": settings.evaluation.n_nonzero}
    write_search(output, judged, trials, best, **facts)
    print_line(out, f"settings: {output}; what was tried: {search_file(output)}")
    print_line(out, f"judge them by other samples: perdl simulate {output} --seed {settings.seed + 1}")


def tune_with_clients(
    settings: Settings,
    rounds: int,
    fixed: Set[str],
    address: str,
    certs: Path | None,
    *,
    quiet: bool = False,
    json_lines: bool = False,
) -> None:
    """Search settings with the clients that join a server, tell what was tried, and write the chosen ones.

    Parameters
    ----------
    settings : Settings
        Where the search begins; ``output`` is the folder of the results.
    rounds : int
        Rounds of each trial.
    fixed : set of str
        Settings that are not varied.
    address : str
        ``HOST:PORT`` on loopback.
    certs : Path, optional
        Folder of the server's certificates; plain text without it.
    quiet : bool
        Print only where the chosen settings are.
    json_lines : bool
        Print only the result as one line of JSON to standard output.
    """
    from common.settings import override_settings
    from perdl.engines.run import serve, server_log
    from perdl.monitoring.callbacks import watch
    from perdl_server.algorithm.search import check_searchable
    from perdl_server.results import TRIALS

    check_searchable(settings)
    folder, begin = Path(settings.output), override_settings(settings, {"rounds": rounds})

    def say(text: str) -> None:
        if not quiet:
            print_line(err if json_lines else out, text)

    def news(line: Mapping[str, Any]) -> None:
        """Say what goes wrong, each trial, and who comes in the first one."""
        if line["level"] != "info" or "tried" in line or ("client" in line and line.get("trial") == 1):
            say(" ".join([*([line["client"]] if "client" in line else []), line["text"]]))

    def ready() -> None:
        say(f"server on {address}, waiting for {settings.n_clients} clients to try settings with")

    try:
        with watch(begin, [], say, log=server_log(folder), on_log=news):
            serve(begin, address, ready, certs=certs, on_event=say, tune=fixed)
    finally:  # also of a search that was cut off, what was done is told
        if (folder / TRIALS).exists():
            _tell_of_clients(settings, folder, certs, quiet=quiet, json_lines=json_lines)


def _tell_of_clients(settings: Settings, folder: Path, certs: Path | None, *, quiet: bool, json_lines: bool) -> None:
    """Show the trials in a server's folder, and write the chosen settings, or the best of a search that was cut off."""
    from common.files import write_text
    from perdl.check.toml import settings_toml
    from perdl.engines.run import read_tuning
    from perdl_server.results import CHOSEN

    result, file = read_tuning(folder), folder / CHOSEN
    trials = [_trial_of(row) for row in result["trials"]]
    best = min(trials, key=lambda one: one.score, default=None)
    if best is None or not len(best.errors):  # the error that follows says why
        return
    if whole := result["chosen"] is not None:
        best = trials[result["chosen"]]
    values = {key: value for key, value in settings.flat(given=True).items() if key != "output"}
    write_text(file, settings_toml({**values, "n_clients": settings.n_clients, **best.values}) + "\n")
    if json_lines:
        out.write_line(json.dumps({"folder": str(folder), "file": str(file), **result}))
    elif not quiet:
        _print_trials(trials, best, _GIVEN, "chosen" if whole else "best so far")
        print_line(out, _sentence(trials, best, settings.evaluation.n_nonzero, _GIVEN))
        if shown := max(result["first_dictionaries"].values(), default=0):
            print_line(out, f"first dictionaries of each client that the server has seen: {shown}")
    if not json_lines:
        print_line(out, f"settings{'' if whole else ', the best of a search that was cut off'}: {file}")
    if whole and not quiet and not json_lines:
        trust = f"--certs {certs}" if certs else "--insecure"
        again = f"perdl server {file} --seed {settings.seed + 1} {trust}"
        print_line(out, f"judge them by other samples: {again}, and each client once more")


def _trial_of(row: Mapping[str, Any]) -> Trial:
    import numpy as np

    from perdl_server.algorithm.search import Trial

    errors = np.array(list(row["errors"].values()))
    return Trial(row["group"], row["values"], row["n_global"], errors, row["seconds"], row["failed"])


_SUGGESTED, _GIVEN = "what perdl check suggests", "the settings as given"
"""Where a search began, in words."""


def _print_trials(trials: Sequence[Trial], best: Trial, start: str, mark: str = "chosen") -> None:
    columns = [Column("varied", wrap="words"), Column("settings", wrap="words"), Column("shared", right=True)]
    columns += [Column("error", right=True), Column("seconds", right=True), Column("")]
    rows = []
    for trial in trials:
        error = f"{trial.error:.3f}" if len(trial.errors) else "-"
        what = trial.failed or _in_words(trial.values, start)
        place = mark if trial is best else ""
        rows.append([trial.group, what, str(trial.n_global), error, f"{trial.seconds:.1f}", place])
    print_table(out, columns, rows)


def _in_words(values: Mapping[str, Any], start: str) -> str:
    return ", ".join(f"{key} = {json.dumps(value)}" for key, value in values.items()) or start


def _sentence(trials: Sequence[Trial], best: Trial, k: int, start: str) -> str:
    """Say what the chosen settings are worth, against where the search began and against nothing shared."""
    first = trials[0]
    text = f"{_in_words(best.values, start)}: error {best.error:.3g} with {k} atoms a sample"
    if len(first.errors) and best is not first:
        text += f", {first.error:.3g} with {start}"
    alone = next((one for one in trials if one.values.get("n_global") == 0), None)
    if alone is None or not len(alone.errors):
        return text
    if best.n_global and best.score < alone.score:
        return text + f"; sharing {best.n_global} atoms lowers it by {percent(gain(alone.error, best.error))}"
    return text + "; with shared atoms it is no lower: on these data, clients are as good alone"
