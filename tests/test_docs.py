"""Every command that the README and the docs show is run; what they list is what there is."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from perdl.cli import commands_page
from perdl.cli.settings_page import render_page

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    "README.md",
    "docs/data.md",
    "docs/preprocessing.md",
    "docs/running.md",
    "docs/ray.md",
    "docs/experiments.md",
    "docs/security.md",
    "docs/privacy.md",
]


STORIES = [
    "docs/tutorial.md",
    "docs/alternatives.md",
    "docs/report.md",
    *sorted(f"docs/how-to/{path.name}" for path in (ROOT / "docs" / "how-to").glob("*.md")),
]
"""Pages whose blocks, of bash and of Python, go on from one another."""


ELSEWHERE = {
    "experiment synthetic --quick": "perdl/experiments/test_synthetic.py",
    "experiment mnist --quick": "perdl/experiments/test_mnist.py",
}
"""Commands that take long and that other tests give, to look at what comes out."""


def blocks(page):
    """Language and text of each fenced block of a page."""
    return re.findall(r"```(\w+)\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


def scripts(page):
    """The bash blocks of a page, without those that install (CI runs them) or that other tests run."""
    others = ("python3 -m venv", *ELSEWHERE)
    return [text for language, text in blocks(page) if language == "bash" and not any(word in text for word in others)]


def test_what_is_run_elsewhere_is():
    for command, file in ELSEWHERE.items():
        words = ", ".join(f'"{word}"' for word in command.split())
        assert words in (ROOT / "tests" / file).read_text()


def make_samples(folder):
    """Three clients' files, which share two atoms of eight features."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    shared = np.linalg.qr(rng.standard_normal((8, 8))).Q
    for i in (1, 2, 3):
        own = shared[:, 2:] @ np.linalg.qr(rng.standard_normal((6, 6))).Q[:, :2]
        X = rng.standard_normal((4, 300)) * (rng.random((4, 300)) < 0.3)
        np.savetxt(folder / f"{i}.csv", (np.hstack([shared[:, :2], own]) @ X).T, delimiter=",")


def free_ports(n):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def run_bash(script, folder, **environment):
    """Run a block in a folder, where `perdl` is this clone's; it must succeed, and fail nowhere in between."""
    shim = folder / "bin" / "perdl"
    shim.parent.mkdir(exist_ok=True)
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m perdl "$@"\n')
    shim.chmod(0o755)
    path = [str(shim.parent), str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"]
    environment = {**os.environ, "PATH": os.pathsep.join(path), "PYTHONPATH": str(ROOT), **environment}
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=480)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize(
    ("page", "number"), [(page, number) for page in PAGES for number in range(len(scripts(page)))], ids=str
)
def test_commands_of_the_docs_run(tmp_path, page, number, request):
    script = scripts(page)[number]
    if ("flwr run" in script or "ray" in script) and importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed (extra: simulation)")
    if "nginx" in script and shutil.which("nginx", path=os.pathsep.join([os.environ["PATH"], "/usr/sbin"])) is None:
        pytest.skip("nginx is not installed")
    if "mnist" in script:
        (tmp_path / "mnist").symlink_to(request.getfixturevalue("mnist"))
    if "frames" in script:
        (tmp_path / "frames").symlink_to(request.getfixturevalue("shared_data") / "video-vtest" / "frames")
    make_samples(tmp_path / "samples")
    port, flower_port, gateway_port = free_ports(3)
    script = script.replace(":8000", f":{port}").replace(":8443", f":{gateway_port}")
    # `ray stop` would end every Ray of this machine; what this one started ends below.
    script = re.sub(r":6379|=6379", lambda found: f"{found[0][0]}{port}", script).replace("ray stop\n", "")
    told = {"PERDL_CLONE": str(ROOT), "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(flower_port)}
    try:
        done = run_bash(script, tmp_path, **told)
        outputs = re.findall(r"runs/[\w-]+", script)
        assert outputs
        for output in outputs:
            held = [name for name in ("summary.json", "results.json") if (tmp_path / output / name).exists()]
            assert held, done.stdout + done.stderr
    finally:
        end_all_with("FLWR_LOCAL_SUPERLINK_HTTP_API_PORT", str(flower_port))


def end_all_with(variable, value):
    """End the processes whose environment has this value: the SuperLink that `flwr` leaves behind, and its children."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(variable) == value:
                process.kill()


@pytest.mark.parametrize("page", STORIES)
def test_pages_that_tell_a_story_run_from_their_first_block_to_their_last(tmp_path, page, monkeypatch):
    for package in re.findall(r'^from (sklearn)|find_spec\("(\w+)"\)', (ROOT / page).read_text(), flags=re.MULTILINE):
        pytest.importorskip("".join(package))  # extra: benchmark
    make_samples(tmp_path / "samples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = {"__name__": "page"}
    for language, text in blocks(page):
        if language == "bash" and "python3 -m venv" not in text:
            run_bash(text.replace(":8000", f":{free_ports(1)[0]}"), tmp_path)
        elif language == "python":
            exec(compile(text, page, "exec"), names)


def test_no_page_has_blocks_that_nothing_runs():
    read = {
        *PAGES,
        *STORIES,
        "docs/python.md",
        "docs/extending.md",
        "docs/real-data.md",
    }  # in estimator/test_estimator.py, test_extending.py, experiments/test_real.py (--quick)
    for path in (ROOT / "docs").rglob("*.md"):
        page = path.relative_to(ROOT).as_posix()
        languages = {language for language, _ in blocks(page)}
        assert page in read or not languages & {"bash", "python"}, page
        assert languages <= {"bash", "python", "text", "toml", "yaml", "json"}, f"{page}: {languages}"


def test_the_page_of_settings_is_the_schema():
    assert (ROOT / "docs" / "settings.md").read_text() == render_page()


def test_the_page_of_commands_is_the_command_line():
    assert (ROOT / "docs" / "commands.md").read_text() == commands_page.render_page()


def test_own_data_are_given_to_the_preset_for_files_and_never_to_the_synthetic_settings():
    shown = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / ".env.example", *(ROOT / "deploy").glob("*")]
    for page in shown:
        if page.name == "mistakes.md":
            continue
        for command in re.findall(r"data\.source='?files'?.*?(?=```|\n\n)", page.read_text(), flags=re.DOTALL):
            line = page.read_text().partition(command)[0].rpartition("\n\n")[2] + command
            assert "threshold_unit" in line, f"{page.name}: {line}"
    several = (ROOT / "docs" / "deployment.md").read_text().partition("## Several hosts")[2]
    assert "PERDL_CONFIG=files" in several.partition("docker compose")[0]


def test_pages_that_say_what_travels_name_the_first_message():
    pages = ("index.md", "concepts.md", "tutorial.md", "glossary.md", "privacy.md", "limits.md", "alternatives.md")
    for page in (ROOT / "README.md", *(ROOT / "docs" / page for page in pages)):
        assert re.search(r"first\s+dictionary", page.read_text()), page.name


def test_the_preset_that_the_page_on_own_files_shows_is_the_preset():
    shown = [tomllib.loads(text) for language, text in blocks("docs/how-to/own-files.md") if language == "toml"]
    preset = tomllib.loads((ROOT / "configs" / "files.toml").read_text())
    preset["data"]["path"] = "samples/*.csv"
    assert shown == [preset]


def test_no_table_waits_for_its_figures():
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"]:
        assert not re.search(r"\| (?!MNIST|OMP|SVD|JSON|AJIVE)[A-Z]{4,} \|", page.read_text()), page


def test_links_between_pages_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+?)(?:#[\w-]+)?\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_names_in_the_algorithm_table_exist():
    for name in re.findall(r"`((?:common|perdl\w*)\.[\w.]+)`", (ROOT / "docs" / "algorithms.md").read_text()):
        module, _, attribute = name.rpartition(".")
        try:
            found = hasattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError:
            found = False
        assert found or importlib.util.find_spec(name), name


def test_the_files_that_the_table_of_faults_names_are_there():
    table = [row for row in (ROOT / "docs" / "reliability.md").read_text().splitlines() if row.startswith("| ")]
    named = [file for row in table for file in re.findall(r"`([a-z_./0-9]+\.py)`", row.rsplit("|", 2)[1])]
    assert len(named) > 20
    for file in named:
        assert (ROOT / ("" if file.startswith("benchmarks") else "tests") / file).exists(), file
