"""The command line of Flower's SuperNode, an alternative to `perdl_client.node.loop`."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sysconfig
from pathlib import Path

from common.addresses import is_loopback, split_address
from common.errors import FederationError, SettingsError
from perdl_client.node.proxy import without_proxies
from perdl_client.node.tls import CA, KEY

Scalar = str | int | float | bool


def stock_command(
    server: str, node_config: dict[str, Scalar], port: int | None = None, *, certs: Path | None = None
) -> tuple[list[str], dict[str, str]]:
    """Return arguments and environment to start ``flower-supernode`` of this Python environment.

    Parameters
    ----------
    server : str
        ``HOST:PORT`` of the SuperLink.
    node_config : dict
        Becomes ``Context.node_config`` of the ClientApp. Values may hold any text.
    port : int, optional
        Loopback port for the SuperNode's own use, one for each; default a free port.
    certs : Path, optional
        Folder with ``ca.crt`` and ``key``; plain text without it.

    Returns
    -------
    argv : list of str
    environment : dict
        The complete environment for ``subprocess.Popen(argv, env=environment)``.

    Notes
    -----
    A SuperNode asks for the server's code. A bundle of `perdl.engines.superlink.write_bundle` has none.
    """
    environment = flower_environment()
    if is_loopback(split_address(server, "the server's address")[0]):
        environment = without_proxies(environment)
    if "folder" in node_config:  # the user may have no home directory
        environment.setdefault("FLWR_HOME", str(Path(str(node_config["folder"])) / "flower"))
    argv = [flower_command("flower-supernode", environment), "--superlink", server]
    if certs is None:
        argv += ["--insecure"]
    else:
        argv += ["--root-certificates", str(certs / CA), "--auth-supernode-private-key", str(certs / KEY)]
    argv += ["--host", "127.0.0.1", "--port", str(port or _free_port())]
    if node_config:
        argv += ["--node-config", " ".join(f"{_bare(key)}={toml_value(value)}" for key, value in node_config.items())]
    return argv, environment


def flower_environment() -> dict[str, str]:
    """Return an environment in which Flower's commands find each other and perdl, and contact nobody else.

    Flower starts its helpers by bare name, so this Python's scripts come first on PATH. If perdl is not installed, its
    checkout is put on PYTHONPATH, so that the helpers import the same perdl as this process.
    """
    scripts, root = sysconfig.get_path("scripts"), str(Path(__file__).resolve().parents[2])
    environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **os.environ}
    environment |= {
        "PATH": os.pathsep.join([scripts, environment.get("PATH", os.defpath)]),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",  # seconds: at 0.05, waiting takes a tenth of a core
    }
    if root not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        paths = [root, environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return environment


def flower_command(name: str, environment: dict[str, str]) -> str:
    """Return the path of one of Flower's commands.

    Parameters
    ----------
    name : str
        Name of the command.
    environment : dict of str to str
        Environment whose PATH is searched.

    Raises
    ------
    FederationError
        If Flower is not installed beside this Python.
    """
    path = shutil.which(name, path=environment["PATH"])
    if path is None:
        raise FederationError(f"the command {name} is missing; install it with `pip install 'flwr~=1.42.0'`")
    return path


def toml_value(value: Scalar) -> str:
    """Return a scalar as TOML that Flower's ``key=value`` parser can read too.

    That parser ends quoted text at the next quote, escaped or not. So quotes are written as code points.

    Parameters
    ----------
    value : str, int, float or bool
        The scalar.
    """
    if isinstance(value, str):
        inner = json.dumps(value, ensure_ascii=False)[1:-1].replace("\x7f", "\\u007f")  # JSON leaves DEL as it is
        return '"' + inner.replace('\\"', "\\u0022") + '"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    raise SettingsError(f"{value!r} is a {type(value).__name__}; Flower carries texts, numbers and truth values only")


def _bare(key: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", key):
        raise SettingsError(f"node setting {key!r}: use letters, digits, '-', '_' and '.' in its name")
    return key


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
