"""The ``perdl`` command."""

from __future__ import annotations

import functools
import gc
import logging
import os
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ParamSpec, cast

# Before Flower is imported: no telemetry, no look for updates, no usage statistics.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from common.errors import PerdlError, SettingsError
from common.logs import LOG, start_log
from common.settings import Settings, load_settings, settings_from_values
from perdl import __version__
from perdl.__main__ import INTERRUPTED
from perdl.console import print_experiment, print_line, print_summary

P = ParamSpec("P")

app = typer.Typer(
    help="Find what many private datasets share and what each has alone.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_out = Console()
_err = Console(stderr=True)
_folder: Path | None = None
"""Where results of this command go, once known."""

ConfigArgument = Annotated[
    str, typer.Argument(help="a TOML file, or a preset, such as synthetic, mnist-best, surveillance")
]
OverrideOption = Annotated[list[str], typer.Option("-c", "--set", help="key=value (see perdl settings)")]
OutputOption = Annotated[Path | None, typer.Option(help="folder of the results; default runs/NAME-DATE")]
SeedOption = Annotated[int | None, typer.Option(help="seed of every random stream")]
InsecureOption = Annotated[bool, typer.Option(help="plain text, and no keys: on this machine alone")]
OverwriteOption = Annotated[bool, typer.Option(help="replace the results of a former run in this folder")]
LogOption = Annotated[Path | None, typer.Option(help="file to which the log is added as JSON lines")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="show Flower's and perdl's own log")]


def _command(function: Callable[P, None]) -> Callable[P, None]:
    """End with one line and an exit code, never a traceback, where a user can cure the failure."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        if kwargs.get("log"):
            os.environ[LOG] = str(Path(str(kwargs["log"])).resolve())
        _quiet(bool(kwargs.get("verbose")))
        try:
            function(*args, **kwargs)
        except PerdlError as error:
            _err.print(f"perdl: {error}", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(error.exit_code) from None
        except OSError as error:
            _err.print(f"perdl: {error.filename or 'system'}: {error.strerror or error}", markup=False, soft_wrap=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt as error:
            saved = _folder is not None and (_folder / "summary.json").exists()
            _err.print(f"perdl: interrupted{f'; what was done is in {_folder}' if saved else ''}", highlight=False)
            traceback.clear_frames(error.__traceback__)  # what they hold is given back: a pool's semaphores
            gc.collect()
            _err.file.flush()
            _out.file.flush()
            os._exit(INTERRUPTED)  # clients' threads may be deep in a long computation, and would be waited for

    return wrapped


@app.command()
@_command
def simulate(
    config: ConfigArgument = "synthetic",
    override: OverrideOption = [],  # noqa: B006 (typer copies it)
    output: OutputOption = None,
    seed: SeedOption = None,
    overwrite: OverwriteOption = False,
    engine: Annotated[str, typer.Option(help="in-process, or ray: Flower's simulation runtime")] = "in-process",
    log: LogOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Simulate all clients on this machine."""
    from perdl import run
    from perdl.progress import progress

    if engine not in ("in-process", "ray"):
        raise SettingsError(f"--engine {engine}: must be in-process or ray")
    settings = run.count_clients(_settings(config, override, output, seed, overwrite))
    with progress(Path(settings.output), settings.rounds, _out):
        summary = run.simulate(settings, cast(run.Engine, engine))
    print_summary(_out, summary, Path(settings.output))


@app.command()
@_command
def server(
    config: ConfigArgument = "processes",
    address: Annotated[str, typer.Option(help="HOST:PORT on loopback for the clients")] = "127.0.0.1:8000",
    resume: Annotated[
        Path | None, typer.Option(help="go on with the run that was left unfinished in this folder")
    ] = None,
    certs: Annotated[Path | None, typer.Option(help="folder made by perdl certs: TLS, and who may join")] = None,
    insecure: InsecureOption = False,
    override: OverrideOption = [],  # noqa: B006
    output: OutputOption = None,
    seed: SeedOption = None,
    overwrite: OverwriteOption = False,
    log: LogOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Wait for real clients, run one federation with them, write its results, end."""
    from perdl.progress import progress
    from perdl.run import resumed_settings, serve

    _check_trust(certs, insecure, "DIR made by `perdl certs DIR`")
    if resume is None:
        settings = _settings(config, override, output, seed, overwrite)
    else:
        settings = resumed_settings(resume, override)
        global _folder
        _folder = resume

    def ready() -> None:
        _line(f"server on {address}, waiting for {settings.n_clients} clients")

    with progress(Path(settings.output), settings.rounds, _out):
        summary = serve(settings, address, ready, certs=certs, on_event=_line, resume=resume is not None)
    print_summary(_out, summary, Path(settings.output))


@app.command()
@_command
def client(
    name: Annotated[str, typer.Option(help="stable id, the same at every start; sorts the clients")],
    server: Annotated[str, typer.Option(help="HOST:PORT of the server or its gateway")] = "127.0.0.1:8000",
    certs: Annotated[Path | None, typer.Option(help="folder of ca.crt and key: TLS, and who this client is")] = None,
    insecure: InsecureOption = False,
    trust_network: Annotated[bool, typer.Option(help="with --insecure: plain text to another machine too")] = False,
    data: Annotated[Path | None, typer.Option(help="this client's samples: .npy .npz .csv .mat, IDX, images")] = None,
    samples_in: Annotated[str, typer.Option(help="rows or columns")] = "rows",
    variable: Annotated[str | None, typer.Option(help="name of the array in .npz and .mat files")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="state and model of this client; default perdl-clients/NAME")
    ] = None,
    min_samples: Annotated[int, typer.Option(min=1, help="samples that must use an atom before it is sent")] = 2,
    override: OverrideOption = [],  # noqa: B006
    wait: Annotated[float, typer.Option(min=0, max=1e9, help="seconds to wait for a server that is not there")] = 60.0,
    stock: Annotated[bool, typer.Option(help="run Flower's own flower-supernode instead")] = False,
    log: LogOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Take part in one federation with private data, write this client's own model, end."""
    from perdl_client.runner import node_config, run_client, run_stock
    from perdl_client.trust import check_plain_text, load_credentials

    _check_trust(certs, insecure, "FOLDER that holds ca.crt and key")
    if certs is None:
        check_plain_text(server, trust_network)
    credentials = load_credentials(certs) if certs else None
    # A proxy for the world outside is none for this machine.
    for key in ("NO_PROXY", "no_proxy"):
        os.environ[key] = ",".join(filter(None, [os.environ.get(key), "127.0.0.1,localhost,::1"]))
    told = node_config(name, data, samples_in, variable, folder, min_samples, override)
    if stock:
        raise typer.Exit(run_stock(server, told, credentials))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    run_client(server, told, stop=stop, max_wait=wait, on_event=lambda text: _say(name, text), credentials=credentials)
    if stop.is_set():
        raise KeyboardInterrupt


@app.command()
@_command
def certs(
    folder: Annotated[Path, typer.Argument(help="the server's folder of certificates and keys")],
    host: Annotated[list[str], typer.Option(help="name or IP address under which clients reach the server")] = [],  # noqa: B006
    client: Annotated[list[str], typer.Option(help="name of a client that gets a key and may join")] = [],  # noqa: B006
    days: Annotated[int, typer.Option(min=1, max=3650, help="how long the server's certificate is valid")] = 365,
) -> None:
    """Make what is not there yet of a deployment's certificates and keys."""
    from perdl.certs import make_certs

    made = make_certs(folder, host, client, days)
    for path in made:
        _line(f"made {path}")
    if not made:
        _line(f"{folder} has all of that already")


@app.command()
@_command
def gateway(
    certs: Annotated[Path, typer.Option(help="the server's folder, made by perdl certs")],
    listen: Annotated[str, typer.Option(help="HOST:PORT for clients on other hosts, as 0.0.0.0:8443")],
    to: Annotated[str, typer.Option(help="HOST:PORT of perdl server")] = "127.0.0.1:8000",
    run: Annotated[Path, typer.Option(help="folder for nginx's own files")] = Path("gateway-run"),
) -> None:
    """Print an nginx configuration that lets clients in from other hosts, and nothing but clients."""
    from perdl.gateway import gateway_config

    config = gateway_config(certs, listen, to, run)
    run.mkdir(parents=True, exist_ok=True)
    typer.echo(config, nl=False)
    _err.print(f'run it as `nginx -e stderr -p {run} -c "$PWD/FILE"`', markup=False, highlight=False, soft_wrap=True)


@app.command()
@_command
def experiment(
    name: Annotated[str, typer.Argument(help="synthetic, mnist or surveillance")],
    preset: Annotated[
        str | None,
        typer.Option(help="text: as the paper says; published: as its code has it; best, fixed-camera: ours"),
    ] = None,
    override: OverrideOption = [],  # noqa: B006
    output: OutputOption = None,
    seed: SeedOption = None,
    overwrite: OverwriteOption = False,
    quick: Annotated[bool, typer.Option(help="a small version, under half a minute")] = False,
    full: Annotated[bool, typer.Option(help="all there is, however long it takes (synthetic)")] = False,
    verbose: VerboseOption = False,
) -> None:
    """Run one of the paper's experiments: its figure, tables, and three sentences."""
    from perdl.experiments.run import preset_of, run_experiment

    preset, config = preset_of(name, preset)
    settings = _settings(config, override, output, seed, overwrite)
    with _out.status("beginning") as status:

        def tell(text: str) -> None:
            status.update(text)
            if not _out.is_terminal:
                _line(f"... {text}")

        results = run_experiment(name, settings, preset=preset, quick=quick, full=full, progress=tell)
    print_experiment(_out, results, Path(settings.output))


@app.command()
@_command
def health(folder: Annotated[Path, typer.Argument(help="a client's --folder, or a server's --output")]) -> None:
    """Exit with 0 if a server or client at work in this folder gave a sign of life within the last minute."""
    from common.alive import check_sign

    check_sign(folder)


@app.command("settings")
def show_settings(word: Annotated[str, typer.Argument(help="show only settings that mention this")] = "") -> None:
    """List all settings: name, default, what is allowed, what it does."""
    from perdl.settings_page import setting_rows

    table = Table("setting", "default", "allowed", "what")
    for row in setting_rows():
        if word.lower() in " ".join(row).lower():
            table.add_row(*map(escape, row))
    _out.print(table)


@app.callback(invoke_without_command=True)
def version(version: Annotated[bool, typer.Option("--version", help="show the version and end")] = False) -> None:
    """Find what many private datasets share and what each has alone."""
    if version:
        _line(f"perdl {__version__}")
        raise typer.Exit


def _settings(config: str, override: list[str], output: Path | None, seed: int | None, overwrite: bool) -> Settings:
    global _folder
    path = find_config(config)
    changes = [*override, *([f"seed={seed}"] if seed is not None else [])]
    settings = load_settings(path, changes)
    if output is None and "output" not in settings.model_fields_set:
        output = Path("runs") / f"{path.stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    if output is not None:
        settings = settings_from_values({**settings.model_dump(exclude_unset=True), "output": str(output)})
    _folder = Path(settings.output)
    if any((_folder / name).exists() for name in ("summary.json", "results.json")):
        if not overwrite:
            raise SettingsError(f"{_folder} holds the results of a run: choose another --output, or add --overwrite")
        for name in ("clients", "figures"):
            shutil.rmtree(_folder / name, ignore_errors=True)
        for name in ("results.json", "tables.md"):
            (_folder / name).unlink(missing_ok=True)
    return settings


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
    stem = name.removeprefix("configs/").removesuffix(".toml") if name.startswith("configs/") else name
    if stem in presets:
        return presets[stem]
    raise SettingsError(f"there is no configuration {name}; presets are {', '.join(sorted(presets))}")


def _check_trust(certs: Path | None, insecure: bool, folder: str) -> None:
    if insecure == (certs is not None):
        given = "both --certs and --insecure are given" if insecure else "neither --certs nor --insecure is given"
        raise SettingsError(f"{given}; use --certs {folder}, or --insecure for plain text on this machine alone")


def _quiet(verbose: bool) -> None:
    for name in ("flwr", "httpx"):
        logging.getLogger(name).setLevel(logging.INFO if verbose else logging.ERROR)
    start_log(logging.INFO if verbose else logging.WARNING)


def _say(name: str, text: str) -> None:
    _line(f"{name}: {text}")


def _line(text: str) -> None:
    print_line(_out, text)
