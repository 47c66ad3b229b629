"""The command ``perdl benchmark``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from common.errors import SettingsError
from perdl.cli.command import command, out, prepared
from perdl.cli.console import print_experiment, print_line
from perdl.cli.run import OutputOption, OverrideOption, OverwriteOption, SeedOption, VerboseOption

BENCHMARKS = ("real",)


def _complete_benchmark(incomplete: str) -> list[str]:
    return [name for name in BENCHMARKS if name.startswith(incomplete)]


@command
def benchmark(
    name: Annotated[
        str, typer.Argument(help="real: data that packages ship, dealt to sites", autocompletion=_complete_benchmark)
    ],
    sets: Annotated[str, typer.Option(help="names of sets, digits,wine; default: all that are here")] = "",
    seeds: Annotated[int, typer.Option(min=1, max=100, help="how often each set is dealt")] = 1,
    as_given: Annotated[
        bool, typer.Option("--as-given", help="keep the settings, else perdl check suggests some for each set")
    ] = False,
    override: OverrideOption = [],  # noqa: B006 (typer copies it)
    output: OutputOption = None,
    seed: SeedOption = None,
    overwrite: OverwriteOption = False,
    quick: Annotated[bool, typer.Option(help="one small set and few steps, under half a minute")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="print docs/real-data.md instead of tables")] = False,
    verbose: VerboseOption = False,
) -> None:
    """Compare perdl, alone and federated, with pooled data and other methods on real data that packages ship."""
    from perdl.experiments.real import run_real
    from perdl.experiments.real_page import render_page

    if name not in BENCHMARKS:
        raise SettingsError(f"there is no benchmark {name}; benchmarks are {', '.join(BENCHMARKS)}")
    with (
        prepared("files", override, output, seed, overwrite) as settings,
        out.status("beginning") as status,
    ):

        def tell(text: str) -> None:
            status.update(text)
            if not out.is_terminal and not markdown:
                print_line(out, f"... {text}")

        chosen = [one.strip() for one in sets.split(",") if one.strip()]
        results = run_real(settings, chosen, seeds=seeds, suggested=not as_given, quick=quick, progress=tell)
    if markdown:
        print_line(out, render_page(results))
    else:
        print_experiment(out, results, Path(settings.output))
