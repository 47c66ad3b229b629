"""The image and the compose files with a real container engine: minutes long, so only where PERDL_CONTAINERS=1.

``DOCKER_HOST`` says which engine, ``PYTHON_IMAGE`` and ``GATEWAY_IMAGE`` which base images (as for the compose file):
ones with Python 3.11 or later and its venv, and with nginx. Without a registry both can be made from Debian, with::

    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates,nginx-light bookworm rootfs
    tar -C rootfs -c . | docker import - perdl-base:bookworm
"""

from __future__ import annotations

import ipaddress
import json
import os
import secrets
import shutil
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(os.environ.get("PERDL_CONTAINERS") != "1", reason="needs PERDL_CONTAINERS=1")

ROOT = Path(__file__).resolve().parents[2]
OWNER = 4242  # nobody's: neither the image's user nor root
IMAGE = "perdl:test"
# What a client finds out about its own container and its network.
LOOK = """
import json, os, socket, ssl, http.client
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
def reaches(host, port):
    try:
        socket.create_connection((host, port), 3).close()
    except OSError:
        return False
    return True
def answer(path):
    context = ssl.create_default_context(cafile="/certs/ca.crt")
    connection = http.client.HTTPSConnection("gateway", 8443, context=context, timeout=10)
    connection.request("POST", path, b"", {"Content-Type": "application/protobuf"})
    return connection.getresponse().status
def writable(path):
    try:
        open(path + "/probe", "w").close()
    except OSError:
        return False
    os.unlink(path + "/probe")
    return True
print(json.dumps({
    "user": os.getuid(),
    "capabilities": int(status["CapEff"], 16),
    "no new privileges": int(status["NoNewPrivs"]),
    "certs": sorted(os.listdir("/certs")),
    "writable": [path for path in ("/", "/opt/perdl", "/certs", "/state", "/tmp") if writable(path)],
    "gateway": reaches("gateway", 8443),
    "superlink": reaches("gateway", 8000),
    "control": answer("/v1/control/list-runs"),
    "fleet": answer("/v1/fleet/pull-messages"),
}))
"""


def run(*command, cwd: Path | None = None, seconds: float = 120, **environment: str) -> str:
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=os.environ | {"DOCKER_BUILDKIT": os.environ.get("DOCKER_BUILDKIT", "0")} | environment,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def wait_for(condition, seconds: float, what: str) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not within {seconds:g} s: {what}"
        time.sleep(0.5)


def compose_command() -> list[str]:
    """Return the plugin's command, or else the older one's."""
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True)
    return ["docker", "compose"] if plugin.returncode == 0 else ["docker-compose"]


class Deployment:
    """One project of the compose files in a folder."""

    def __init__(self, folder: Path, files: list[str], **environment: str) -> None:
        self.folder, self.project = folder, f"perdl-{secrets.token_hex(4)}"
        self.environment = {
            "PERDL_UID": str(OWNER),
            "PERDL_GID": str(OWNER),
            "PERDL_IMAGE": IMAGE,
            "COMPOSE_DOCKER_CLI_BUILD": "0",
            **environment,
        }
        self.command = [*compose_command(), "-p", self.project, *(word for file in files for word in ("-f", file))]

    def compose(self, *arguments, seconds: float = 120) -> str:
        return run(*self.command, *arguments, cwd=self.folder, seconds=seconds, **self.environment)

    def container(self, service: str) -> str:
        listing = run("docker", "ps", "-aq", *self._filter(service))
        return listing.split()[0]

    def state(self, service: str) -> dict:
        return json.loads(run("docker", "inspect", "-f", "{{json .State}}", self.container(service)))

    def health(self, service: str) -> str:
        return self.state(service)["Health"]["Status"]

    def exit_code(self, service: str, seconds: float) -> int:
        return int(run("docker", "wait", self.container(service), seconds=seconds))

    def rounds(self, name: str) -> list[dict]:
        path = self.folder / "results" / name / "rounds.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def summary(self, name: str) -> dict:
        return json.loads((self.folder / "results" / name / "summary.json").read_text())

    def file_of(self, service: str, path: str, to: Path) -> Path:
        run("docker", "cp", f"{self.container(service)}:{path}", to)
        return to

    def _filter(self, service: str) -> list[str]:
        labels = {"project": self.project, "service": service}
        return [word for key, value in labels.items() for word in ("-f", f"label=com.docker.compose.{key}={value}")]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of what a build needs, with the image built."""
    folder = tmp_path_factory.mktemp("checkout")
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line.startswith("!"):
            source = ROOT / line[1:]
            (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / line[1:])
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    for name in ("Dockerfile", ".dockerignore", "docker-compose.yml"):
        shutil.copy(ROOT / name, folder / name)
    Deployment(folder, ["docker-compose.yml"]).compose("build", seconds=900)
    return folder


@pytest.fixture
def deploy(checkout):
    """Starts deployments, and takes them down with their volumes."""
    started: list[Deployment] = []

    def start(files: list[str], **environment: str) -> Deployment:
        started.append(Deployment(checkout, files, **environment))
        return started[-1]

    yield start
    for deployment in reversed(started):
        deployment.compose("down", "-v", "-t", "5")


def test_the_image_is_small_of_rights_and_works_on_a_read_only_root(checkout):
    look = "import os, importlib.util as u; print(os.getuid(), *[m for m in ('torch', 'ray', 'pip') if u.find_spec(m)])"
    assert run("docker", "run", "--rm", "--entrypoint", "python", IMAGE, "-c", look).split() == ["1000"]
    found = "command -v cc gcc g++ make || true"
    assert run("docker", "run", "--rm", "--entrypoint", "sh", IMAGE, "-c", found) == ""
    options = ["--rm", "--read-only", "--tmpfs", "/tmp", "--network", "none", "--cap-drop", "ALL"]
    done = run("docker", "run", *options, IMAGE, "simulate", "-c", "n_clients=3", "--output", "/state/run")
    assert "3 clients, 3 global atoms" in done


def test_up_runs_the_synthetic_default_and_leaves_its_results_on_the_host(deploy, tmp_path):
    deployment = deploy(["docker-compose.yml"], PERDL_RUN="first")
    deployment.compose("up", "-d")
    assert deployment.exit_code("server", 180) == 0, deployment.compose("logs", "server")
    for name in ("client-1", "client-2", "client-3"):
        assert deployment.exit_code(name, 30) == 0, deployment.compose("logs", name)
        with np.load(deployment.file_of(name, "/state/dictionary.npz", tmp_path / f"{name}.npz")) as own:
            assert own["local"].shape == (6, 3)
    summary = deployment.summary("first")
    assert summary["stop_reason"] == "tolerance"
    assert list(summary["clients"]) == ["client-1", "client-2", "client-3"]
    assert summary["final"]["global_distance"] < 1e-11
    assert summary["final"]["local_distance_max"] < 1e-11
    results = deployment.folder / "results" / "first"
    assert {path.stat().st_uid for path in [results.parent, results, *results.rglob("*")]} == {OWNER}
    authority = deployment.folder / "certs" / "ca.key"
    assert (authority.stat().st_uid, authority.stat().st_mode & 0o777) == (OWNER, 0o600)


def test_the_others_go_on_without_a_client_that_is_cut_off_and_take_it_back(deploy):
    options = "-c n_clients=2 -c quorum=1 -c tolerance=0 -c rounds=1000000"
    deployment = deploy(["docker-compose.yml"], PERDL_RUN="split", PERDL_OPTIONS=options)
    deployment.compose("up", "-d", "certs", "gateway", "server", "client-1", "client-2")
    wait_for(lambda: len(deployment.rounds("split")) >= 5, 120, "five rounds")
    for service in ("server", "client-1", "client-2"):
        wait_for(lambda service=service: deployment.health(service) == "healthy", 60, f"{service} is healthy")

    seen = json.loads(run("docker", "exec", deployment.container("client-1"), "python", "-c", LOOK))
    assert seen == {
        "user": OWNER,
        "capabilities": 0,
        "no new privileges": 1,
        "certs": ["ca.crt", "key", "key.pub"],
        "writable": ["/state", "/tmp"],
        "gateway": True,
        "superlink": False,
        "control": 403,
        "fleet": seen["fleet"],
    }
    assert seen["fleet"] not in (403, 502)  # it passed the gateway, and the SuperLink refused it
    held = run("docker", "exec", deployment.container("server"), "ls", "/certs").split()
    assert sorted(held) == ["ca.crt", "gateway.conf", "keys", "server.crt", "server.key"]

    network, lost = f"{deployment.project}_federation", deployment.container("client-2")
    assert run("docker", "network", "inspect", "-f", "{{.Internal}}", network).strip() == "true"
    run("docker", "network", "disconnect", network, lost)
    cut = len(deployment.rounds("split"))
    alone = lambda: sum(row["clients"] == 1 for row in deployment.rounds("split")) >= 3  # noqa: E731
    wait_for(alone, 120, "three rounds without the client that is cut off")
    assert deployment.health("client-2") == "healthy"
    run("docker", "network", "connect", network, lost)
    first_alone = next(row["round"] for row in deployment.rounds("split") if row["clients"] == 1)
    back = lambda: sum(row["clients"] == 2 for row in deployment.rounds("split")[first_alone:]) >= 3  # noqa: E731
    wait_for(back, 60, "three rounds with it again")
    assert cut < first_alone + 3

    run("docker", "kill", deployment.container("server"))  # by SIGKILL
    done = len(deployment.rounds("split"))
    deployment.compose("up", "-d", "server")
    wait_for(lambda: len(deployment.rounds("split")) >= done + 3, 120, "the run goes on after its server was killed")
    run("docker", "exec", deployment.container("server"), "touch", "/results/split/stop")
    deployment.exit_code("server", 60)
    summary = deployment.summary("split")
    assert summary["stop_reason"] == "interrupted"
    assert summary["rounds"] >= done + 3
    assert summary["final"]["global_distance"] < 1e-11


def test_clients_of_other_hosts_come_in_by_the_published_port(deploy, tmp_path):
    # This host, as containers on other networks know it.
    subnet = json.loads(run("docker", "network", "inspect", "bridge"))[0]["IPAM"]["Config"][0]["Subnet"]
    bridge = str(next(ipaddress.ip_network(subnet).hosts()))
    with socket.socket() as probe:
        probe.bind((bridge, 0))
        address = f"{bridge}:{probe.getsockname()[1]}"
    rng = np.random.default_rng(0)
    shared = np.linalg.qr(rng.standard_normal((8, 8))).Q
    server = deploy(
        ["docker-compose.yml", "deploy/public.yml"],
        PERDL_RUN="files",
        PERDL_OPTIONS="-c n_clients=2 -c data.source=files -c n_global=2",
        PERDL_HOSTS=bridge,
        PERDL_CLIENTS="ada bob",
        PERDL_LISTEN=address,
    )
    server.compose("up", "-d", "certs", "gateway", "server")
    for name in ("ada", "bob"):
        own = shared[:, 2:] @ np.linalg.qr(rng.standard_normal((6, 6))).Q[:, :2]
        X = rng.standard_normal((4, 300)) * (rng.random((4, 300)) < 0.3)
        data = tmp_path / f"{name}.npy"
        np.save(data, (np.hstack([shared[:, :2], own]) @ X).T)
        for folder in (tmp_path, *tmp_path.parents[:2]):
            folder.chmod(0o755)
        given = {
            "PERDL_NAME": name,
            "PERDL_SERVER": address,
            "PERDL_CERTS": str(server.folder / "certs" / "clients" / name),
            "PERDL_DATA": str(data),
        }
        deploy(["deploy/client.yml"], **given).compose("up", "-d")
    assert server.exit_code("server", 180) == 0, server.compose("logs", "server")
    assert list(server.summary("files")["clients"]) == ["ada", "bob"]
