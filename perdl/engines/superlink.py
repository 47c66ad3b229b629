"""Flower's SuperLink on this machine: start it, submit a run, watch the run, and end all its processes.

The SuperLink's Control API has no authentication and shares its port with the clients' API: whoever reaches the port
can run code here. So the SuperLink listens only on loopback; other hosts come in by a gateway that passes only
``/v1/fleet/``. Runs are submitted as a bundle without code, whose components name installed modules.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from flwr.cli.build import build_fab_from_disk
from flwr.proto.control_pb2 import ListRunsRequest, ListRunsResponse, StartRunRequest, StartRunResponse
from flwr.proto.fab_pb2 import Fab

from common.addresses import is_loopback, split_address
from common.errors import FederationError, SettingsError
from perdl import __version__
from perdl.deploy.certs import CA, CERTIFICATE, KEY
from perdl_client.node.proxy import without_proxies
from perdl_client.node.supernode import Scalar, flower_environment, toml_value

START_LIMIT = 60.0  # seconds; usually it takes two
STOP_LIMIT = 5.0  # seconds, first for the SuperLink, then for its children
CALL_LIMIT = 60.0  # long: a SuperLink may hang while the machine swaps; a dead one refuses at once


@contextmanager
def superlink(
    address: str, home: Path, *, log: Path, certs: Path | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Run a SuperLink inside the context. It is ready on entry; on exit it and all its children are gone.

    Parameters
    ----------
    address : str
        ``HOST:PORT`` with a loopback host.
    home : Path
        Folder for Flower's own files (``FLWR_HOME``). Each run has its own, to keep runs apart.
    log : Path
        File to which the output of the SuperLink and the ServerApp is appended.
    certs : Path, optional
        Folder of the server's certificates, already checked by `perdl.deploy.certs.check_certs`. With it the SuperLink
        uses TLS, and clients need a registered key. Without it, connections are plain text and any client may join.
    environment : mapping, optional
        Environment variables for the SuperLink and the ServerApp.

    Raises
    ------
    SettingsError
        If the host is not loopback.
    FederationError
        If the port is taken, or the SuperLink does not start; it then shows the end of the log.
    """
    host, port = check_address(address)
    home.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    module = "perdl.engines.superlink_process"
    command = [sys.executable, "-P", "-m", module, str(os.getpid()), "--host", host, "--port", str(port)]
    if certs is None:
        command += ["--insecure"]
    else:
        files = {"--ssl-ca-certfile": CA, "--ssl-certfile": CERTIFICATE, "--ssl-keyfile": KEY}
        command += [word for flag, name in files.items() for word in (flag, str((certs / name).resolve()))]
        command += ["--enable-supernode-auth"]
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*command, "--disable-runtime-dependency-installation"],
            env=_environment(home) | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # only this process handles Ctrl-C
        )
    try:
        _wait_until_healthy(process, address, log, certs)
        yield
    finally:
        _end(process)


def write_bundle(
    folder: Path,
    config: dict[str, Scalar],
    *,
    serverapp: str = "perdl_server.app:app",
    clientapp: str = "perdl_client.app:app",
) -> Path:
    """Write a Flower app without code: its components are installed modules.

    Parameters
    ----------
    folder : Path
        An empty folder, or one with an earlier bundle, because Flower sends every file in it. Made if missing.
    config : dict
        Becomes ``Context.run_config`` of the ServerApp. Values are texts, numbers and booleans.
    serverapp, clientapp : str
        The apps, as ``module:attribute``.

    Returns
    -------
    Path
        The folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if others := sorted(path.name for path in folder.iterdir() if path.name != "pyproject.toml"):
        raise SettingsError(f"{folder} holds {others[0]}; a bundle needs a folder of its own, for Flower sends it all")
    lines = ["[project]", 'name = "perdl"', f"version = {toml_value(__version__)}", 'license = "Apache-2.0"']
    lines += ["[tool.flwr.app]", 'publisher = "perdl"', "[tool.flwr.app.components]"]
    lines += [f"serverapp = {toml_value(serverapp)}", f"clientapp = {toml_value(clientapp)}"]
    lines += ["[tool.flwr.app.config]", *(f"{toml_value(key)} = {toml_value(value)}" for key, value in config.items())]
    (folder / "pyproject.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def submit(bundle: Path, address: str, certs: Path | None = None) -> int:
    """Start a run and return its id. This does what ``flwr run`` does, without a process that takes a second to start.

    Parameters
    ----------
    bundle : Path
        Folder that `write_bundle` wrote.
    address : str
        ``HOST:PORT`` of the SuperLink.
    certs : Path, optional
        Folder of the server's certificates; plain text without it.

    Raises
    ------
    FederationError
        If Flower does not accept the run. It quotes Flower's message.
    """
    content = build_fab_from_disk(bundle)
    fab = Fab(hash_str=hashlib.sha256(content).hexdigest(), content=content)
    answer = StartRunResponse.FromString(
        control("start-run", StartRunRequest(fab=fab).SerializeToString(), address, certs)
    )
    if not answer.HasField("run_id"):
        raise FederationError(f"Flower did not take the run on {address}: {answer.note or 'it gave no reason'}")
    return int(answer.run_id)


def run_status(run_id: int, address: str, certs: Path | None = None) -> tuple[str, str]:
    """Return the status of a run, such as ``running`` or ``finished:completed``, and Flower's details.

    Parameters
    ----------
    run_id : int
        Id that `submit` returned.
    address : str
        ``HOST:PORT`` of the SuperLink.
    certs : Path, optional
        Folder of the server's certificates; plain text without it.
    """
    answer = control("list-runs", ListRunsRequest(run_id=run_id).SerializeToString(), address, certs)
    status = ListRunsResponse.FromString(answer).run_dict[run_id].status
    return ":".join(part for part in (status.status, status.sub_status) if part), status.details


def control(call: str, request: bytes, address: str, certs: Path | None = None) -> bytes:
    """Call the Control API. Flower's own client would use a proxy from the environment, even for loopback.

    Parameters
    ----------
    call : str
        Name of the call, as ``list-runs``.
    request : bytes
        Serialized request.
    address : str
        ``HOST:PORT`` of the SuperLink.
    certs : Path, optional
        Folder of the server's certificates; plain text without it.
    """
    connection = _connection(address, certs, CALL_LIMIT)
    kind = {"Content-Type": "application/protobuf", "Accept": "application/protobuf"}
    try:
        connection.request("POST", f"/v1/control/{call}", request, kind)
        answer = connection.getresponse()
        content = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise FederationError(f"the SuperLink on {address} does not answer ({error}); see its log") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise FederationError(f"the SuperLink on {address} refused {call}: {content[:300].decode(errors='replace')}")
    return content


def _connection(address: str, certs: Path | None, timeout: float) -> http.client.HTTPConnection:
    host, port = split_address(address)
    if certs is None:
        return http.client.HTTPConnection(host, port, timeout=timeout)
    context = ssl.create_default_context(cafile=certs / CA)
    return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)


def _environment(home: Path) -> dict[str, str]:
    return without_proxies(flower_environment()) | {"FLWR_HOME": str(home.resolve())}


def check_address(address: str) -> tuple[str, int]:
    """Return host and port of a loopback address whose port is free.

    Parameters
    ----------
    address : str
        ``HOST:PORT``.

    Raises
    ------
    SettingsError
        If it is not ``HOST:PORT`` or not loopback.
    FederationError
        If the port is taken.
    """
    host, port = split_address(address)
    host = "127.0.0.1" if host == "localhost" else host
    if not is_loopback(host):
        raise SettingsError(
            f"{address} is not a loopback address, and whoever reaches a SuperLink's port can run code on this "
            f"machine; use 127.0.0.1:{port} and let clients in by `perdl gateway`"
        )
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise FederationError(
                f"port {port} of {host} cannot be had ({error.strerror}); end what listens there or choose another port"
            ) from error
    return host, port


def _wait_until_healthy(process: subprocess.Popen[bytes], address: str, log: Path, certs: Path | None) -> None:
    until = time.monotonic() + START_LIMIT
    while process.poll() is None and time.monotonic() < until:
        connection = _connection(address, certs, 1.0)
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        connection.close()
        time.sleep(0.1)
    state = f"took more than {START_LIMIT:g} s" if process.poll() is None else f"ended with code {process.returncode}"
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    raise FederationError(f"the SuperLink on {address} {state} before it was ready; the end of {log}:\n{tail}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the SuperLink and its children. Its SuperExec has its own session, so killing the group is not enough."""
    family = set(_descendants(process.pid))
    process.terminate()
    try:
        process.wait(STOP_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    until = time.monotonic() + STOP_LIMIT
    while left := {child for child in family if _lives(child)}:
        family |= {late for child in left for late in _descendants(child.pid)}
        if time.monotonic() > until:
            for child in left:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        time.sleep(0.05)


def _descendants(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return list(psutil.Process(pid).children(recursive=True))
    return []


def _lives(process: psutil.Process) -> bool:
    """Whether a process runs; a zombie does not."""
    with suppress(psutil.NoSuchProcess):
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return False
