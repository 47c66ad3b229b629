"""The ``perdl`` command."""

from __future__ import annotations

from typing import Annotated

import click
import typer

from perdl import __version__
from perdl.cli import benchmark, deploy, inspect, models, run, tune
from perdl.cli.command import Command, Commands, out
from perdl.cli.console import print_line

app = typer.Typer(
    help="Find what many private datasets share and what each has alone.",
    cls=Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    suggest_commands=not hasattr(click.exceptions, "NoSuchCommand"),  # click 8.4 and later suggests commands itself
)
for function in (
    run.simulate,
    run.server,
    run.client,
    run.experiment,
    benchmark.benchmark,
    deploy.certs,
    deploy.gateway,
    deploy.health,
    models.reconstruct,
    models.samples,
    inspect.report,
    inspect.audit,
):
    app.command(cls=Command)(function)
app.command("check", cls=Command)(inspect.check)
app.command("tune", cls=Command)(tune.tune)
app.command("settings", cls=Command)(inspect.show_settings)


@app.callback(invoke_without_command=True)
def version(version: Annotated[bool, typer.Option("--version", help="show the version and end")] = False) -> None:
    """Find what many private datasets share and what each has alone."""
    if version:
        print_line(out, f"perdl {__version__}")
        raise typer.Exit
