"""What docker-compose.yml and deploy/ promise: nobody sees what is another's, nothing but the gateway is reached."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from perdl import __version__

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CLIENTS = ["client-1", "client-2", "client-3"]


def plain(text: str) -> str:
    """Put in what ``.env`` would: here the defaults, and for what must be given its name."""
    text = re.sub(r"\$\{(\w+):-([^}]*)\}", r"\2", text)
    return re.sub(r"\$\{(\w+):\?\}", r"/given/\1", text)


def compose(name: str) -> dict:
    return yaml.safe_load(plain((ROOT / name).read_text()))


def services() -> dict[str, dict]:
    return compose("docker-compose.yml")["services"]


def mounts(service: dict) -> dict[str, str]:
    """Source of each target."""
    return {volume.split(":")[1]: volume.split(":")[0] for volume in service["volumes"]}


def test_every_composed_container_is_hardened():
    for name, service in services().items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "privileged" not in service, name
        assert "/tmp" in service["tmpfs"], name
        assert (service["user"] == "1000:1000") == (name != "certs"), name
    assert [name for name, service in services().items() if "cap_add" in service] == ["certs"]


def test_each_client_mounts_two_volumes_that_are_its_own():
    everything = services()
    assert [name for name in everything if name.startswith("client")] == CLIENTS
    for name in CLIENTS:
        assert mounts(everything[name]) == {"/certs": f"{name}-certs", "/state": name}
        assert f"{name}-certs:/certs:ro" in everything[name]["volumes"]
        for other in everything.keys() - {name, "certs"}:
            assert not set(mounts(everything[name]).values()) & set(mounts(everything[other]).values()), other
    # The service that makes the keys has no network, and does not see what clients learn.
    assert everything["certs"]["network_mode"] == "none"
    assert not set(CLIENTS) & set(mounts(everything["certs"]).values())


def test_the_authoritys_key_is_seen_by_the_service_that_makes_it_alone():
    assert [name for name, one in services().items() if "./certs" in mounts(one).values()] == ["certs"]
    script = (DEPLOY / "hand-out-certs.sh").read_text()
    assert "ca.key" not in script
    assert "/authority/*" not in script


def test_the_superlink_is_on_loopback_and_nothing_is_published():
    everything, networks = services(), compose("docker-compose.yml")["networks"]
    assert networks == {"federation": {"internal": True}}
    assert not any("ports" in service for service in everything.values())
    assert everything["server"]["network_mode"] == "service:gateway"
    assert "--address 127.0.0.1:8000 --certs /certs" in everything["server"]["command"][0]
    for name in ("gateway", *CLIENTS):
        assert everything[name]["networks"] == ["federation"]
    for name in CLIENTS:
        assert "--server gateway:8443 --certs /certs" in everything[name]["command"]
    assert "--insecure" not in (ROOT / "docker-compose.yml").read_text()


def test_for_other_hosts_the_gateways_port_alone_is_published():
    public = compose("deploy/public.yml")
    assert public["services"] == {"gateway": {"networks": ["federation", "public"], "ports": ["8443:8443"]}}


def test_a_client_of_another_host_is_as_hardened_and_mounts_its_own():
    service = compose("deploy/client.yml")["services"]["client"]
    assert service["read_only"] is True
    assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
    assert "--certs /certs" in service["command"]
    given = [volume for volume in service["volumes"] if isinstance(volume, dict)]
    assert all(volume["read_only"] for volume in given)
    assert [volume["source"] for volume in given] == ["/given/PERDL_CERTS", "/given/PERDL_DATA"]
    assert [volume for volume in service["volumes"] if isinstance(volume, str)] == ["client:/state"]


def test_nothing_secret_is_in_an_environment():
    for name in ("docker-compose.yml", "deploy/public.yml", "deploy/client.yml"):
        for service in compose(name)["services"].values():
            assert service.get("environment", {}).keys() <= {"OWNER", "HOSTS", "OTHER_CLIENTS"}
    for manifest in kubernetes():
        assert manifest["kind"] not in ("Secret", "ConfigMap")
        assert '"env"' not in json.dumps(manifest)
    assert "KEY" not in (ROOT / ".env.example").read_text()


def test_env_example_lists_every_variable_with_its_default():
    told = dict(re.findall(r"^#(\w+)=(.*)$", (ROOT / ".env.example").read_text(), flags=re.MULTILINE))
    files = "".join(path.read_text() for path in (ROOT / "docker-compose.yml", DEPLOY / "public.yml"))
    used = re.findall(r"\$\{(\w+):-([^}]*)\}", files)
    assert dict(used) == told
    assert len(set(used)) == len(told), "one variable has two defaults"


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not installed")
def test_docker_compose_reads_the_files():
    given = {"PERDL_NAME": "ada", "PERDL_SERVER": "a:8443", "PERDL_CERTS": "/ada", "PERDL_DATA": "/ada.npy"}
    for files in (["docker-compose.yml"], ["docker-compose.yml", "deploy/public.yml"], ["deploy/client.yml"]):
        command = ["docker-compose", *(word for file in files for word in ("-f", file)), "config"]
        done = subprocess.run(command, cwd=ROOT, env=os.environ | given, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert yaml.safe_load(done.stdout)["services"]


def kubernetes() -> list[dict]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))


def pods() -> dict[str, dict]:
    jobs = [manifest for manifest in kubernetes() if manifest["kind"] == "Job"]
    return {job["metadata"]["name"]: job["spec"]["template"] for job in jobs}


@pytest.mark.parametrize("version", ["1.29", "1.33"])
def test_the_manifests_keep_kubernetes_schemas(version):
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed (extra: dev)")
    manifests = kubernetes()
    assert len(manifests) == 11
    for manifest in manifests:
        validate.validate(manifest, version, strict=True)
    manifests[-1]["spec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    with pytest.raises(validate.ValidationError):
        validate.validate(manifests[-1], version, strict=True)


def test_every_pod_is_hardened_and_watched():
    assert list(pods()) == ["server", "client-1", "client-2"]
    for name, pod in pods().items():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            assert container["securityContext"] == {
                "readOnlyRootFilesystem": True,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }, (name, container["name"])
            assert container["resources"]["limits"]["memory"]
        for container in spec["containers"]:
            assert container["livenessProbe"]["exec"]["command"][:2] == ["perdl", "health"]


def test_each_client_pod_mounts_its_own_claim_and_secret():
    for name in ("client-1", "client-2"):
        sources = [volume for volume in pods()[name]["spec"]["volumes"] if "emptyDir" not in volume]
        assert [volume["name"] for volume in sources] == ["certs", "state"]
        assert sources[0]["secret"]["secretName"] == f"{name}-certs"
        assert sources[1]["persistentVolumeClaim"]["claimName"] == name
    server = json.dumps(pods()["server"])
    assert "client-1" not in server
    assert "client-2" not in server


def test_in_kubernetes_too_clients_reach_the_gateway_and_nobody_else():
    policies = {one["metadata"]["name"]: one["spec"] for one in kubernetes() if one["kind"] == "NetworkPolicy"}
    assert policies["nothing"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert policies["server"]["policyTypes"] == ["Ingress"]
    assert policies["server"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": 8443}]
    assert policies["clients"]["egress"][0]["ports"] == [{"protocol": "TCP", "port": 8443}]
    service = next(one for one in kubernetes() if one["kind"] == "Service")["spec"]
    assert service["selector"] == pods()["server"]["metadata"]["labels"]
    gateway = pods()["server"]["spec"]["initContainers"][1]
    assert gateway["ports"] == [{"name": service["ports"][0]["targetPort"], "containerPort": 8443}]
    server = pods()["server"]["spec"]["containers"][0]
    assert "ports" not in server
    assert "--address 127.0.0.1:8000 --certs /certs" in server["args"][0]


def test_all_name_the_same_images():
    images = [f"perdl:{__version__}", "nginxinc/nginx-unprivileged:1.28-alpine"]
    composed = {service["image"] for service in services().values()}
    containers = [
        one for pod in pods().values() for key in ("containers", "initContainers") for one in pod["spec"].get(key, [])
    ]
    assert composed == {container["image"] for container in containers} == set(images)
    assert compose("deploy/client.yml")["services"]["client"]["image"] == images[0]
    base = re.search(r"ARG PYTHON_IMAGE=(\S+)", (ROOT / "Dockerfile").read_text())[1]
    assert services()["certs"]["build"]["args"]["PYTHON_IMAGE"] == base


def test_the_image_takes_all_packages_and_nothing_else():
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"][
        "packages"
    ]
    dockerfile = (ROOT / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, flags=re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    assert names == {*packages, "configs", "pyproject.toml", "README.md", "LICENSE"}
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignore if line.startswith("!")} == names
    assert "\nUSER 1000:1000\n" in dockerfile
    assert "\nHEALTHCHECK " in dockerfile
