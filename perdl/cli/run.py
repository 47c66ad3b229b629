"""The commands that run a federation: ``perdl simulate``, ``server``, ``client``, ``experiment``."""

from __future__ import annotations

import math
import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from common.errors import SettingsError, UnsavedError
from common.settings import Settings, parse_override
from perdl.cli.command import command, complete_preset, err, out, prepared, results_go_to
from perdl.cli.console import print_experiment, print_line

ENGINES = ("auto", "in-process", "processes", "ray")


MANY = 200
"""From so many clients on, processes that hold them pay for their start: see docs/performance.md."""


def _complete_experiment(incomplete: str) -> list[str]:
    from perdl.experiments.run import DEFAULT_PRESETS

    return [name for name in DEFAULT_PRESETS if name.startswith(incomplete)]


def _complete_engine(incomplete: str) -> list[str]:
    return [name for name in ENGINES if name.startswith(incomplete)]


ConfigArgument = Annotated[
    str,
    typer.Argument(
        help="a TOML file, or a preset, such as synthetic, mnist-best, surveillance", autocompletion=complete_preset
    ),
]
OverrideOption = Annotated[list[str], typer.Option("-c", "--set", help="key=value (see perdl settings)")]
OutputOption = Annotated[Path | None, typer.Option(help="folder of the results; default runs/NAME-DATE")]
SeedOption = Annotated[int | None, typer.Option(help="seed of every random stream")]
InsecureOption = Annotated[bool, typer.Option(help="plain text, and no keys: on this machine alone")]
OverwriteOption = Annotated[bool, typer.Option(help="replace the results of a former run in this folder")]
LogOption = Annotated[
    Path | None,
    typer.Option(help="file to which the log is added as JSON lines; a server's or a simulation's is OUTPUT/log.jsonl"),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="only errors, and in the end where the results are")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="JSON lines on standard output: one a round, the summary last")
]
SinkOption = Annotated[
    list[str], typer.Option(help="tensorboard, mlflow, or MODULE:CLASS of a perdl.Callback; may be repeated")
]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="show Flower's and perdl's own log")]


@command
def simulate(
    config: ConfigArgument = "synthetic",
    override: OverrideOption = [],  # noqa: B006 (typer copies it)
    output: OutputOption = None,
    seed: SeedOption = None,
    overwrite: OverwriteOption = False,
    engine: Annotated[
        str,
        typer.Option(
            help="what runs the clients: in-process, in threads; processes, for many clients; ray, Flower's simulation "
            "runtime",
            autocompletion=_complete_engine,
        ),
    ] = "auto",
    sink: SinkOption = [],  # noqa: B006
    quiet: QuietOption = False,
    json_lines: JsonOption = False,
    log: LogOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Simulate all clients on this machine."""
    from perdl.cli.view import View
    from perdl.engines import run
    from perdl.experiments.additions import complete

    if engine not in ENGINES:
        raise SettingsError(f"--engine {engine}: must be {', '.join(ENGINES)}")
    view = View(quiet=quiet, json_lines=json_lines, sinks=sink)
    with prepared(config, override, output, seed, overwrite) as told:
        settings = run.count_clients(told)
        folder = Path(settings.output)
        try:
            with view.watching(settings) as on_start:
                chosen = _engine(settings, sink) if engine == "auto" else cast(run.Engine, engine)
                summary = run.simulate(settings, chosen, on_start, view.doubts, complete)
                undrawn = _draw(folder)
        except UnsavedError as error:
            view.end(error.summary, folder, saved=False)
            raise
    view.end(summary, folder)
    if undrawn:
        raise undrawn


def _engine(settings: Settings, sinks: list[str]) -> Literal["in-process", "processes"]:
    """Return the engine for these clients. What a user's own module registers is known in this process alone."""
    from perdl.engines.in_process import cores

    many = settings.n_clients >= MANY and cores() > 1
    return "processes" if many and not any(":" in sink for sink in sinks) else "in-process"


@command
def server(
    config: ConfigArgument = "processes",
    address: Annotated[str, typer.Option(help="HOST:PORT on loopback for the clients")] = "127.0.0.1:8000",
    resume: Annotated[
        Path | None, typer.Option(help="go on with the run that was left unfinished in this folder")
    ] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="no run: choose settings by held-out error, in short runs with the clients")
    ] = False,
    tune_rounds: Annotated[int, typer.Option(min=1, help="rounds of each short run of --tune")] = 10,
    certs: Annotated[Path | None, typer.Option(help="folder made by perdl certs: TLS, and who may join")] = None,
    insecure: InsecureOption = False,
    override: OverrideOption = [],  # noqa: B006
    output: OutputOption = None,
    seed: SeedOption = None,
    overwrite: OverwriteOption = False,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="show the run on a page on this machine")] = False,
    dashboard_port: Annotated[int, typer.Option(min=0, max=65535, help="of that page; default a free one")] = 0,
    sink: SinkOption = [],  # noqa: B006
    quiet: QuietOption = False,
    json_lines: JsonOption = False,
    log: LogOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Wait for real clients, run one federation with them, write its results, end.

    With --tune, search settings with them instead, and write the chosen ones to tuned.toml in the results' folder.
    """
    from perdl.cli.view import View
    from perdl.engines.run import serve, server_log
    from perdl_server.checkpoint import load_checkpoint

    _check_trust(certs, insecure, "DIR made by `perdl certs DIR`")
    if tune:
        from perdl.cli.tune import tune_with_clients

        _refuse_with_tune({"--resume": resume, "--sink": sink, "--dashboard": dashboard or dashboard_port})
        fixed = {key for key, _ in map(parse_override, override)}
        with prepared(config, override, output, seed, overwrite, "server") as settings:
            _note_what_is_for_simulations(settings, View(quiet=quiet, json_lines=json_lines).line)
            tune_with_clients(settings, tune_rounds, fixed, address, certs, quiet=quiet, json_lines=json_lines)
        return
    view, done = View(quiet=quiet, json_lines=json_lines, sinks=sink), 0
    with (
        prepared(config, override, output, seed, overwrite, "server") if resume is None else _resumed(resume, override)
    ) as settings:
        if resume is not None:
            done = load_checkpoint(resume).round
            view.line(f"going on after round {done}")
        _note_what_is_for_simulations(settings, view.line)

        def ready() -> None:
            view.line(f"server on {address}, waiting for {settings.n_clients} clients")

        folder = Path(settings.output)
        with (
            _dashboard(settings, dashboard or dashboard_port > 0, dashboard_port),
            view.watching(settings, after=done, log=server_log(folder)),
        ):
            summary = serve(settings, address, ready, certs=certs, on_event=view.line, resume=resume is not None)
            undrawn = _draw(folder, report=dashboard or dashboard_port > 0)
    view.end(summary, folder)
    if undrawn:
        raise undrawn


@command
def client(
    name: Annotated[str, typer.Option(help="stable id, the same at every start; sorts the clients")],
    server: Annotated[str, typer.Option(help="HOST:PORT of the server or its gateway")] = "127.0.0.1:8000",
    certs: Annotated[Path | None, typer.Option(help="folder of ca.crt and key: TLS, and who this client is")] = None,
    insecure: InsecureOption = False,
    trust_network: Annotated[bool, typer.Option(help="with --insecure: plain text to another machine too")] = False,
    data: Annotated[
        Path | None, typer.Option(help="this client's samples: a file (see docs/data.md), or a folder")
    ] = None,
    samples_in: Annotated[str, typer.Option(help="rows or columns")] = "rows",
    variable: Annotated[str | None, typer.Option(help="name of the array in .npz, .mat and HDF5 files")] = None,
    drop: Annotated[str | None, typer.Option(help="columns of tables to leave out, names or numbers: id,time")] = None,
    missing: Annotated[str, typer.Option(help="refuse, or mask: NaN and empty cells were not measured")] = "refuse",
    folder: Annotated[
        Path | None, typer.Option(help="state and model of this client; default perdl-clients/NAME")
    ] = None,
    min_samples: Annotated[
        int | None,
        typer.Option(min=1, help="samples that must use an atom before it is sent; default 5, or the terms'"),
    ] = None,
    terms: Annotated[Path | None, typer.Option(help="TOML file of what it accepts (see docs/how-to/terms.md)")] = None,
    show_terms: Annotated[bool, typer.Option("--show-terms", help="print its terms, and what is used up; end")] = False,
    ledger: Annotated[
        Path | None, typer.Option(help="file that counts what its data served; default DATA.perdl-ledger.json")
    ] = None,
    secret: Annotated[
        Path | None, typer.Option(help="file that all clients of a masked run have; perdl certs makes one")
    ] = None,
    privacy: Annotated[
        str | None,
        typer.Option(help="take part in runs of this mode only: none, guarded, aggregated, masked or private"),
    ] = None,
    record: Annotated[bool, typer.Option("--record", help="keep a record of what leaves, for perdl audit")] = False,
    device: Annotated[
        str | None, typer.Option(help="where it computes, as cuda (needs perdl[gpu]); default: as the run says, cpu")
    ] = None,
    override: OverrideOption = [],  # noqa: B006
    wait: Annotated[float, typer.Option(min=0, max=1e9, help="seconds to wait for a server that is not there")] = 300.0,
    stock: Annotated[bool, typer.Option(help="run Flower's own flower-supernode instead")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="only errors, and in the end where the model is")
    ] = False,
    log: LogOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Take part in one federation with private data, write this client's own model, end."""
    from perdl_client.node.proxy import proxy_for
    from perdl_client.node.runner import node_config, run_client, run_stock
    from perdl_client.node.tls import check_plain_text, load_credentials

    if show_terms:
        _show_terms(name, data, folder, min_samples, terms, ledger)
        return
    if math.isnan(wait):  # typer's range check lets NaN pass
        raise SettingsError("--wait nan: must be a number of seconds")
    _check_trust(certs, insecure, "FOLDER that holds ca.crt and key")
    if certs is None:
        check_plain_text(server, trust_network)
    credentials = load_credentials(certs) if certs else None
    proxy_for(server, tls=credentials is not None)  # fails on a bad proxy before the data are read
    os.umask(0o077)  # only this user may read state, model and log

    def say(text: str) -> None:
        _line(f"{name}: {text}")

    def on_event(text: str) -> None:
        if not quiet:
            say(text)

    told, memory = node_config(
        name,
        data,
        samples_in,
        variable,
        folder,
        min_samples,
        [*override, *([f"device={device}"] if device else [])],
        lambda text: on_event(f"note: {text}"),
        drop,
        missing,
        terms,
        ledger,
        secret,
        record,
        privacy,
    )
    if certs is not None:  # with it the client signs its key for secure sums
        told["certs"] = str(certs.resolve())
    if stock:
        memory.clear()  # flower-supernode reads the file itself
        raise typer.Exit(run_stock(server, told, credentials))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    result = run_client(server, told, memory, stop=stop, max_wait=wait, on_event=on_event, credentials=credentials)
    if stop.is_set():
        raise KeyboardInterrupt
    say(f"done: {result}")


@command
def experiment(
    name: Annotated[str, typer.Argument(help="synthetic, mnist or surveillance", autocompletion=_complete_experiment)],
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
    """Run one of the paper's experiments, synthetic, mnist or surveillance: its figure, tables, and three sentences."""
    from perdl.experiments.run import preset_of, run_experiment

    preset, config = preset_of(name, preset)
    with (
        prepared(config, override, output, seed, overwrite) as settings,
        out.status("beginning") as status,
    ):

        def tell(text: str) -> None:
            status.update(text)
            if not out.is_terminal:
                _line(f"... {text}")

        results = run_experiment(name, settings, preset=preset, quick=quick, full=full, progress=tell)
    print_experiment(out, results, Path(settings.output))


def _show_terms(
    name: str, data: Path | None, folder: Path | None, min_samples: int | None, terms: Path | None, ledger: Path | None
) -> None:
    from perdl_client.ledger import ledger_path, read_ledger
    from perdl_client.node.runner import own_terms

    accepted = own_terms(terms, min_samples)
    out.write_line(accepted.toml())
    if data is not None or ledger is not None:
        path = ledger or ledger_path(cast(Path, data).resolve(), folder or Path("perdl-clients") / name)
        out.write_line("\n" + read_ledger(path).in_words(accepted))


def _draw(folder: Path, report: bool = False) -> OSError | None:
    """Draw a run's figures and write its report. Return an error instead of raising: the run is shown first."""
    from common.files import write_text
    from perdl.plots import draw_figures
    from perdl.report.page import REPORT, render_report

    try:
        draw_figures(folder, ["png"])
        if report:
            write_text(folder / REPORT, render_report(folder))
    except OSError as error:
        return error
    return None


@contextmanager
def _resumed(folder: Path, override: list[str]) -> Iterator[Settings]:
    """Return the settings to resume the run in a folder."""
    from perdl.engines.run import resumed_settings

    settings = resumed_settings(folder, override)
    results_go_to(folder)
    yield settings


@contextmanager
def _dashboard(settings: Settings, wanted: bool, port: int) -> Iterator[None]:
    """Show a server's run on a page, if wanted, and print the address."""
    if not wanted:
        yield
        return
    from perdl.engines.run import server_log
    from perdl.monitoring.dashboard import dashboard

    with dashboard(settings, server_log(Path(settings.output)), port) as url:
        print_line(err, f"dashboard: {url}")  # also with --quiet and --json, which keep standard output for results
        yield


def _check_trust(certs: Path | None, insecure: bool, folder: str) -> None:
    if insecure == (certs is not None):
        given = "both --certs and --insecure are given" if insecure else "neither --certs nor --insecure is given"
        raise SettingsError(f"{given}; use --certs {folder}, or --insecure for plain text on this machine alone")


def _note_what_is_for_simulations(settings: Settings, say: Callable[[str], object]) -> None:
    """Say which settings a server cannot heed."""
    for key, option in (
        ("samples_in", "--samples-in"),
        ("variable", "--variable"),
        ("drop", "--drop"),
        ("missing", "--missing"),
    ):
        if (value := getattr(settings.data, key)) not in (None, "rows", "refuse"):
            told = f"{option} {shlex.quote(value)}"
            say(f"note: data.{key} = {value} is for simulations: start each client with {told}")
    if settings.evaluation.pooled:
        say("note: evaluation.pooled is for simulations: no server has clients' samples")


def _refuse_with_tune(options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value:
            raise SettingsError(f"{name} is for a run, and --tune does none: leave one of them out")


def _line(text: str) -> None:
    print_line(out, text)
