"""The ``perdl`` command."""

from __future__ import annotations

import functools
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ParamSpec, cast

# Before Flower is imported: no telemetry, no look for updates, no usage statistics.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

import typer
from rich.console import Console
from rich.table import Table

from common.errors import PerdlError, SettingsError
from common.settings import Settings, load_settings

P = ParamSpec("P")

app = typer.Typer(
    help="Find what many private datasets share and what each has alone.", no_args_is_help=True, add_completion=False
)
_out = Console()
_err = Console(stderr=True)

INTERRUPTED = 130

ConfigArgument = Annotated[str, typer.Argument(help="a TOML file, or the name of a preset that perdl brings")]
OverrideOption = Annotated[list[str], typer.Option("-c", "--set", help="key=value, as in -c n_global=3; may repeat")]
OutputOption = Annotated[Path | None, typer.Option(help="folder of the results; default runs/NAME-DATE")]
SeedOption = Annotated[int | None, typer.Option(help="seed of every random stream")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="show Flower's and perdl's own log")]


def _command(function: Callable[P, None]) -> Callable[P, None]:
    """End with one line and an exit code, never a traceback, where a user can cure the failure."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        _quiet(bool(kwargs.get("verbose")))
        try:
            function(*args, **kwargs)
        except PerdlError as error:
            _err.print(f"perdl: {error}", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(error.exit_code) from None
        except OSError as error:
            _err.print(f"perdl: {error.filename or 'system'}: {error.strerror or error}", markup=False, soft_wrap=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            _err.print("perdl: interrupted; what was done is saved", highlight=False)
            raise typer.Exit(INTERRUPTED) from None

    return wrapped


@app.command()
@_command
def simulate(
    config: ConfigArgument = "synthetic",
    override: OverrideOption = [],  # noqa: B006 (typer copies it)
    output: OutputOption = None,
    seed: SeedOption = None,
    engine: Annotated[str, typer.Option(help="in-process, or ray: Flower's simulation runtime")] = "in-process",
    verbose: VerboseOption = False,
) -> None:
    """Simulate all clients on this machine."""
    from perdl import run
    from perdl.progress import progress

    if engine not in ("in-process", "ray"):
        raise SettingsError(f"--engine {engine}: must be in-process or ray")
    settings = _settings(config, override, output, seed)
    with progress(Path(settings.output), settings.rounds, _out):
        summary = run.simulate(settings, cast(run.Engine, engine))
    _report(summary, Path(settings.output))


@app.command()
@_command
def server(
    config: ConfigArgument = "processes",
    address: Annotated[str, typer.Option(help="HOST:PORT on loopback for the clients")] = "127.0.0.1:8000",
    override: OverrideOption = [],  # noqa: B006
    output: OutputOption = None,
    seed: SeedOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Wait for real clients, run one federation with them, write its results, end."""
    from perdl.progress import progress
    from perdl.run import serve

    settings = _settings(config, override, output, seed)
    _interrupt_on_sigterm()
    _line(f"server on {address}, waiting for {settings.n_clients} clients")
    with progress(Path(settings.output), settings.rounds, _out):
        summary = serve(settings, address)
    _report(summary, Path(settings.output))


@app.command()
@_command
def client(
    name: Annotated[str, typer.Option(help="stable id, the same at every start; sorts the clients")],
    server: Annotated[str, typer.Option(help="HOST:PORT of the server")] = "127.0.0.1:8000",
    data: Annotated[Path | None, typer.Option(help="this client's samples: .npy .npz .csv .mat, IDX, images")] = None,
    samples_in: Annotated[str, typer.Option(help="rows or columns")] = "rows",
    variable: Annotated[str | None, typer.Option(help="name of the array in .npz and .mat files")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="state and model of this client; default perdl-clients/NAME")
    ] = None,
    override: OverrideOption = [],  # noqa: B006
    wait: Annotated[float, typer.Option(help="seconds to wait for a server that is not there")] = 60.0,
    stock: Annotated[bool, typer.Option(help="run Flower's own flower-supernode instead")] = False,
    verbose: VerboseOption = False,
) -> None:
    """Take part in one federation with private data, write this client's own model, end."""
    from perdl_client.runner import node_config, run_client, run_stock

    told = node_config(name, data, samples_in, variable, folder, override)
    if stock:
        raise typer.Exit(run_stock(server, told))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    run_client(server, told, stop=stop, max_wait=wait, on_event=lambda text: _say(name, text))
    if stop.is_set():
        raise KeyboardInterrupt


def main() -> None:
    """Entry point of the ``perdl`` command."""
    app(prog_name="perdl")


def _settings(config: str, override: list[str], output: Path | None, seed: int | None) -> Settings:
    path = find_config(config)
    changes = [*override, *([f"seed={seed}"] if seed is not None else [])]
    settings = load_settings(path, changes)
    if output is None and "output" not in settings.model_fields_set:
        output = Path("runs") / f"{path.stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    return settings.model_copy(update={"output": str(output)}) if output else settings


def find_config(name: str) -> Path:
    """Return the TOML file of this path, or else perdl's own preset of this name.

    Raises
    ------
    SettingsError
        If there is neither; it lists the presets.
    """
    if Path(name).is_file():
        return Path(name)
    here = Path(__file__).parent
    presets = {path.stem: path for root in (here.parent / "configs", here / "configs") for path in root.glob("*.toml")}
    stem = Path(name).stem if Path(name).parent in (Path(), Path("configs")) else ""
    if stem in presets:
        return presets[stem]
    raise SettingsError(f"there is no configuration {name}; presets are {', '.join(sorted(presets))}")


def _quiet(verbose: bool) -> None:
    level = logging.INFO if verbose else logging.ERROR
    logging.basicConfig(level=level, format="%(asctime)s %(name)s %(message)s")
    for name in ("flwr", "httpx"):
        logging.getLogger(name).setLevel(level)
    logging.getLogger("perdl").setLevel(logging.INFO if verbose else logging.WARNING)


def _interrupt_on_sigterm() -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def _say(name: str, text: str) -> None:
    _line(f"{name}: {text}")


def _report(summary: dict[str, Any], folder: Path) -> None:
    from perdl.figures import draw_figures
    from perdl.progress import human_bytes

    final = summary["final"]
    _line(f"{len(summary['clients'])} clients, {summary['n_global']} global atoms")
    table = Table()
    for column in ("client", "samples", "atoms", "final error"):
        table.add_column(column, justify="left" if column == "client" else "right")
    with_truth = "local_distance_max" in final
    if with_truth:
        table.add_column("local distance to truth", justify="right")
    for name, facts in summary["clients"].items():
        cells = [name, str(facts["n_samples"]), str(facts["n_atoms"]), f"{facts.get('final_error', float('nan')):.3g}"]
        if with_truth:
            cells.append(f"{facts.get('final_local_distance', float('nan')):.1e}")
        table.add_row(*cells)
    _out.print(table)
    if "evaluation" in summary:
        k, n = summary["settings"]["evaluation"]["n_nonzero"], summary["settings"]["evaluation"]["n_test"]
        _line(f"relative error on the last {n} test images with {k} atoms")
        errors = Table()
        for name in summary["evaluation"]:
            errors.add_column(name, justify="right")
        errors.add_row(*(f"{value:.3f}" for value in summary["evaluation"].values()))
        _out.print(errors)
    travelled = sum(sum(phase.values()) for phase in summary["bytes"].values())
    lines = [f"{summary['rounds']} rounds in {summary['seconds']:.1f} s, {human_bytes(travelled)}: {_why(summary)}"]
    if "global_distance" in final:
        lines.append(f"distance of D^g to the truth: {final['global_distance']:.1e}")
    draw_figures(folder)
    lines.append(f"results: {folder}")
    for line in lines:
        _line(line)


def _line(text: str) -> None:
    _out.print(text, markup=False, highlight=False, soft_wrap=True)


def _why(summary: dict[str, Any]) -> str:
    tolerance = summary["settings"]["tolerance"]
    reasons = {"tolerance": f"no atom of D^g moved more than {tolerance:g}", "rounds": "all rounds done"}
    return reasons.get(summary["stop_reason"], str(summary["stop_reason"]))


if __name__ == "__main__":
    main()
