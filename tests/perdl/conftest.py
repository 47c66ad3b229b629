"""Server and clients as processes of their own, ended with the test that started them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}


class Processes:
    """Starts perdl commands in a folder; ends what still runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: dict[str, subprocess.Popen] = {}
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"

    def start(self, label: str, *arguments, env: dict[str, str] | None = None) -> subprocess.Popen:
        return self.command(label, sys.executable, "-m", "perdl", *arguments, env=env)

    def command(self, label: str, *command, env: dict[str, str] | None = None) -> subprocess.Popen:
        with (self.folder / f"{label}.log").open("a") as log:
            self.started[label] = subprocess.Popen(
                list(map(str, command)), cwd=self.folder, env={**ENVIRONMENT, **(env or {})}, stdout=log, stderr=log
            )
        return self.started[label]

    def server(self, *arguments, label: str = "server", config="synthetic") -> subprocess.Popen:
        """A server in plain text on this test's port, with its results in ``served``."""
        arguments = [config, *arguments] if "--resume" not in arguments else arguments
        output = [] if "--resume" in arguments else ["--output", "served"]
        return self.start(label, "server", *arguments, "--insecure", "--address", self.address, *output)

    def client(self, name: str, *arguments, label: str | None = None, env=None) -> subprocess.Popen:
        plain = ["--insecure", "--server", self.address, "--name", name]
        return self.start(label or name, "client", *plain, *arguments, env=env)

    def run(self, *arguments) -> None:
        command = [sys.executable, "-m", "perdl", *map(str, arguments)]
        subprocess.run(command, cwd=self.folder, env=ENVIRONMENT, check=True, timeout=240, capture_output=True)

    def wait(self, label: str, seconds: float = 240) -> int:
        try:
            return self.started[label].wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{label} did not end:\n{self.log(label)}")

    def wait_for_round(self, t: int, folder: str = "served", seconds: float = 120) -> None:
        self.wait_for(lambda: len(self.rounds(folder)) >= t, seconds)

    def wait_for(self, condition, seconds: float = 120.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                logs = "\n".join(f"--- {label}\n{self.log(label)}" for label in self.started)
                pytest.fail(f"it did not happen in {seconds:g} s\n{logs}")
            time.sleep(0.03)

    def rounds(self, folder: str = "served") -> list[dict]:
        path = self.folder / folder / "rounds.jsonl"
        return (
            [json.loads(row) for row in path.read_text().splitlines(keepends=True) if row.endswith("\n")]
            if (path.exists())
            else []
        )

    def summary(self, folder: str = "served") -> dict:
        return json.loads((self.folder / folder / "summary.json").read_text())

    def dictionary(self, folder: str | Path = "served"):
        with np.load(self.folder / folder / "global_dictionary.npz") as file:
            return file["dictionary"]

    def own(self, name: str):
        with np.load(self.folder / "perdl-clients" / name / "dictionary.npz") as file:
            return {key: file[key] for key in file}

    def log(self, label: str) -> str:
        return (self.folder / f"{label}.log").read_text()

    def of(self, home: Path) -> list[int]:
        """Numbers of the processes whose Flower home this is."""
        mine = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if f"FLWR_HOME={home}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    mine.append(int(process.name))
            except OSError:
                continue
        return mine

    def end(self) -> None:
        for process in self.started.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.started.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture
def processes(tmp_path):
    started = Processes(tmp_path)
    yield started
    started.end()


@pytest.fixture(scope="session")
def chromium():
    """A browser without a window."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra: test)")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no chromium on PATH")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium):
    """A page of 360 pixels; what its console said is in ``page.said``."""
    opened = chromium.new_page(viewport={"width": 360, "height": 800})
    opened.said = []
    opened.on("console", lambda message: opened.said.append(message.text))
    opened.on("pageerror", lambda error: opened.said.append(str(error)))
    yield opened
    opened.close()
