"""Run a federation on this machine, simulated or as a server for real clients, and collect its results."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from common.errors import FederationError, SettingsError, UnsavedError
from common.files import remove_leftovers, write_json
from common.heartbeat import signs_of_life
from common.logs import LOG
from common.settings import Settings, override_settings, settings_from_values
from common.words import listed
from perdl.results.run_result import read_summary
from perdl_client.data.check import check_data
from perdl_client.data.memory import Memory
from perdl_client.data.sources import client_files, client_names, video_frames
from perdl_server.checkpoint import NEWEST, load_checkpoint
from perdl_server.diagnostics import doubtful_data
from perdl_server.results import FIXED, LAST_ROUND, NEW, RESUMED, SERVED, STOP, TRIALS, TUNING, stop_run_in

RESUMABLE = ("rounds", "tolerance", "quorum", "join_timeout", "round_timeout")
Engine = Literal["in-process", "processes", "ray"]


def simulate(
    settings: Settings,
    engine: Engine = "in-process",
    on_start: Callable[[int, int], object] = lambda done, total: None,
    on_doubts: Callable[[list[str]], object] = lambda doubts: None,
    complete: Callable[[dict[str, Any], Settings], object] = lambda summary, settings: None,
) -> dict[str, Any]:
    """Simulate all clients on this machine.

    Parameters
    ----------
    settings : Settings
        Settings of the run.
    engine : {"in-process", "processes", "ray"}
        Engine that runs the clients; all give the same numbers.
    on_start : callable (int, int) -> object
        Called with the number of clients that have learnt their first dictionary, and with that of all. Ray does not
        call it.
    on_doubts : callable (list of str) -> object
        Called before the run with what is doubtful about the data. The summary's ``warnings`` have it too.
    complete : callable (dict, Settings) -> object
        Called after the run with its summary, to add to it, see `perdl.experiments.additions.complete`.

    Returns
    -------
    dict
        Content of ``summary.json``.
    """
    from perdl.engines.claim import held

    _check_names(settings)
    memories = [Memory() for _ in range(settings.n_clients if engine == "in-process" else 0)]  # others read them again
    known: dict[str, dict[str, float]] = {}
    data_warnings = check_data(settings, memories, known)
    on_doubts([*data_warnings, *doubtful_data(known, settings)])
    folder = Path(settings.output)
    with held(folder):
        _run(settings, engine, memories, on_start)
        summary = read_summary(folder)
        check_models(folder, summary)
        before = json.dumps(summary)
        if settings.data.source == "files":  # the server knows no client's file
            for name, path in zip(client_names(settings), client_files(settings), strict=True):
                summary["clients"].get(name, {})["file"] = str(path)
            summary["warnings"] = [*summary.get("warnings", []), *data_warnings]
        complete(summary, settings)
        if json.dumps(summary) != before:
            try:
                write_json(folder / "summary.json", summary)
            except OSError as error:
                text = f"cannot write all of {error.filename}: {error.strerror}; make room"
                raise UnsavedError(text, summary) from None
    return summary


def check_models(folder: Path, summary: Mapping[str, Any]) -> None:
    """Raise if a client of a simulation could not write its model.

    Parameters
    ----------
    folder : Path
        Folder of the results.
    summary : mapping
        Content of ``summary.json``.

    Raises
    ------
    UnsavedError
        It names a model that is missing.
    """
    lost = [path for name in summary["clients"] if not (path := folder / "clients" / name / "dictionary.npz").exists()]
    if lost:
        more = f" (nor those of {len(lost) - 1} others)" if len(lost) > 1 else ""
        raise UnsavedError(f"cannot write {lost[0]}{more}: make room, and run it again", summary)


def _run(
    settings: Settings, engine: Engine, memories: Sequence[Memory], on_start: Callable[[int, int], object]
) -> None:
    log = server_log(Path(settings.output))
    if engine == "ray":
        from perdl.engines.ray import run_in_ray

        run_in_ray(settings, log)
        return
    from perdl.engines.in_process import run_in_process
    from perdl_client.app import app as client_app
    from perdl_server.app import app as server_app

    processes = engine == "processes"
    run_in_process(server_app, client_app, settings, memories=memories, log=log, on_start=on_start, processes=processes)


def add_warnings(folder: Path, data_warnings: Sequence[str]) -> None:
    """Add warnings about the samples to ``summary.json``.

    Parameters
    ----------
    folder : Path
        Folder of the results.
    data_warnings : sequence of str
        Warnings to add.
    """
    summary = read_summary(folder)
    write_json(folder / "summary.json", summary | {"warnings": [*summary.get("warnings", []), *data_warnings]})


def serve(
    settings: Settings,
    address: str,
    on_ready: Callable[[], None] = lambda: None,
    *,
    certs: Path | None = None,
    on_event: Callable[[str], None] = lambda text: None,
    resume: bool = False,
    tune: Set[str] | None = None,
) -> dict[str, Any]:
    """Start Flower's SuperLink on loopback, run one federation over the clients that join, and end.

    Parameters
    ----------
    settings : Settings
        Settings of the run.
    address : str
        ``HOST:PORT`` on loopback.
    on_ready : callable, optional
        Called when clients can join.
    certs : Path, optional
        Folder of the server's certificates and its clients' keys (`perdl.deploy.certs`); plain text without it.
    on_event : callable (str) -> None, optional
        Gets a line for each client added to or removed from those that may join.
    resume : bool
        Whether to resume the run whose checkpoint is in the folder, see :func:`resumed_settings`.
    tune : set of str, optional
        If given, there is no run: settings are searched (:mod:`perdl_server.tuning`), except these.

    Returns
    -------
    dict
        Content of ``summary.json``; of ``tuning.json`` if settings are searched.

    Raises
    ------
    SettingsError
        If the address is not loopback or a certificate is not valid.
    FederationError
        If the SuperLink does not start or the run fails.
    """
    from perdl.deploy.certs import KEYS, check_certs
    from perdl.deploy.registered_keys import Members
    from perdl.engines.claim import held
    from perdl.engines.superlink import check_address, control, run_status, submit, superlink, write_bundle

    host, _ = check_address(address)
    if certs is not None:
        check_certs(certs, host)
    folder = Path(settings.output).resolve()
    settings = settings.model_copy(update={"output": str(folder)})
    home, log = folder / "flower", folder / "superlink.log"
    environment = {SERVED: RESUMED if resume else NEW, LOG: str(server_log(folder))}
    app, last, more = "perdl_server.app:app", "summary.json", {}
    if tune is not None:
        app, last, more = "perdl_server.tuning:app", TUNING, {FIXED: ",".join(sorted(tune))}
    with (
        held(folder),
        _cleared(folder),
        signs_of_life(folder) as give_sign,
        superlink(address, home, log=log, certs=certs, environment=environment),
    ):
        members = None
        if certs is not None:
            members = Members(certs / KEYS, lambda call, request: control(call, request, address, certs), on_event)
            members.update()
        on_ready()
        bundle = write_bundle(home / "bundle", {**settings.flat(), **more}, serverapp=app)
        run_id = submit(bundle, address, certs)
        status, details, next_look = "", "", 0.0
        try:
            while not status.startswith("finished"):
                give_sign()
                time.sleep(0.2)
                if members is not None:
                    members.update()
                # Each look is a request, which the clients' requests wait for.
                if time.monotonic() >= next_look or (folder / last).exists():
                    next_look = time.monotonic() + 1.0
                    status, details = run_status(run_id, address, certs)
        except KeyboardInterrupt:
            # The ServerApp is another process, which Flower ends without notice: tell it to save first.
            stop_run_in(folder, last=last)
            raise
        except FederationError as error:
            raise FederationError(f"{error}{_cure(folder)}") from None
    if not (folder / last).exists():
        raise FederationError(f"the run ended ({status} {details}) without results; the log is {log}{_cure(folder)}")
    summary = read_summary(folder) if tune is None else read_tuning(folder)
    if status != "finished:completed":
        reason = str(summary["stop_reason"]).removeprefix("failed: ")
        if reason == "interrupted":
            raise KeyboardInterrupt
        raise FederationError(f"{reason} (what was done is in {folder}){_cure(folder)}")
    return summary


@contextmanager
def _cleared(folder: Path) -> Iterator[None]:
    remove_leftovers(folder)
    for name in ("summary.json", TUNING, TRIALS, STOP, LAST_ROUND):
        (folder / name).unlink(missing_ok=True)
    yield


def read_tuning(folder: Path) -> dict[str, Any]:
    """Return the result of a search of settings; of one that was cut off, the trials alone.

    Parameters
    ----------
    folder : Path
        Folder of the server's results.
    """
    if (folder / TUNING).exists():
        result: dict[str, Any] = json.loads((folder / TUNING).read_text(encoding="utf-8"))
        return result
    rows = (folder / TRIALS).read_text(encoding="utf-8").splitlines()
    return {"trials": list(map(json.loads, rows)), "chosen": None, "first_dictionaries": {}}


def server_log(folder: Path) -> Path:
    """Return the file to which a server appends its log as JSON lines.

    Parameters
    ----------
    folder : Path
        Folder of the server's results.
    """
    return Path(os.environ.get(LOG) or folder.resolve() / "log.jsonl")


def _cure(folder: Path) -> str:
    return f"; go on with `perdl server --resume {folder}`" if (folder / NEWEST).exists() else ""


def resumed_settings(folder: Path, overrides: Sequence[str] = ()) -> Settings:
    """Return the settings of a run that a server left unfinished.

    Parameters
    ----------
    folder : Path
        Folder of the results.
    overrides : sequence of str
        Settings to change, as ``key=value``. Only those in ``RESUMABLE``: clients already have the others.

    Raises
    ------
    PerdlError
        If there is no checkpoint, the run has come to its end, or an override is not allowed.
    """
    checkpoint = load_checkpoint(folder)
    keys = [override.partition("=")[0].strip() for override in overrides]
    if wrong := [key for key in keys if key not in RESUMABLE]:
        raise SettingsError(f"{wrong[0]}: a run that is resumed can change {', '.join(RESUMABLE)} only")
    settings = settings_from_values({**checkpoint.report["settings"], "output": str(folder)})
    settings = override_settings(settings, overrides)
    if (checkpoint.ended == "tolerance" or checkpoint.round >= settings.rounds) and (folder / "summary.json").exists():
        reason = read_summary(folder)["stop_reason"]
        if reason in ("tolerance", "rounds"):
            raise SettingsError(f"the run in {folder} has come to its end ({reason}): there is nothing to resume")
    return settings


def count_clients(settings: Settings) -> Settings:
    """Return settings with one client per file or frame, if ``n_clients`` was not given.

    Parameters
    ----------
    settings : Settings
        Settings of a simulation.
    """
    source = settings.data.source
    if source not in ("files", "video") or "n_clients" in settings.model_fields_set or not settings.data.path:
        return settings
    n = len(client_files(settings) if source == "files" else video_frames(settings))
    return settings_from_values({**settings.model_dump(exclude_unset=True), "n_clients": n})


def _check_names(settings: Settings) -> None:
    names = client_names(settings)
    if unknown := sorted(set(settings.clients) - set(names)):
        raise SettingsError(f"clients.{unknown[0]}: no client has this name; their names are {listed(names)}")
