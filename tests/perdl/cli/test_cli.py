"""The command line as people use it: commands end well, mistakes end in one line and a code."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from common.settings import Settings, load_settings, settings_from_flat
from common.synthetic import generate
from perdl.cli.app import app
from perdl.cli.command import find_config
from perdl.engines.ray import _own_environment
from perdl_client.node.supernode import stock_command

ROOT = Path(__file__).resolve().parents[3]


def perdl(*arguments, cwd, timeout=120, **keywords):
    """Run the command in its own process."""
    command = [sys.executable, "-m", "perdl", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout, check=False, **keywords
    )


def test_simulate_runs_the_default_and_says_where_the_results_are(tmp_path):
    done = perdl("simulate", "--seed", 3, "-c", "rounds=20", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("synthetic-")
    assert f"results: runs/{folder.name}" in done.stdout
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["settings"]["seed"] == 3
    assert summary["settings"]["rounds"] == 20
    drawn = ("convergence", "path_lengths", "variance", "atoms", "own_atoms", "usage", "participation")
    assert {p.name for p in (folder / "figures").iterdir()} == {f"{name}.png" for name in drawn}
    assert re.search(r"consensus of the least agreed atom 1\.000, last change \d\.\de-\d+", done.stdout)
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in (folder / "figures").iterdir())


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["simulate", "nowhere.toml"], 2, "there is no configuration nowhere.toml; presets are files, mnist, "),
        (["simulate", "--output", "/proc/no"], 1, "cannot write results to /proc/no"),
        (["client", "--insecure", "--name", "a", "--data", "none.npy"], 3, "none.npy"),
        (["client", "--insecure", "--name", "a", "--server", "127.0.0.1:9", "--wait", "0.1"], 4, "127.0.0.1:9"),
        (["client", "--insecure", "--name", "", "--data", "none.npy"], 2, "'' cannot be a client's name"),
        (["client", "--insecure", "--name", "a", "--data", "none.npy", "--device", "gpu"], 2, 'and is "gpu"'),
        (["client", "--insecure", "--name", "a", "--wait", "nan"], 2, "--wait nan: must be a number of seconds"),
        (["settings", "treshold"], 2, "no setting mentions 'treshold'; did you mean threshold or"),
        (["settings", "xyzzy"], 2, "no setting mentions 'xyzzy'; perdl settings lists them all"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_end_in_one_line_and_a_code(tmp_path, arguments, code, line):
    """One of each kind, in a process of its own; all others are in tests/mistakes."""
    done = perdl(*arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert line in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_help_names_the_experiments_and_no_cell_of_the_settings_is_broken(tmp_path):
    assert "synthetic, mnist or surveillance" in perdl("experiment", "--help", cwd=tmp_path).stdout
    told = perdl("settings", "algorithms.md", cwd=tmp_path).stdout
    assert "how the server combines clients' atoms, see docs/algorithms.md" in told


@pytest.mark.parametrize("arguments", [[], ["simulate"], ["settings"], ["certs"]], ids=" ".join)
def test_h_is_help(arguments):
    short, long = (CliRunner().invoke(app, [*arguments, option]) for option in ("-h", "--help"))
    assert (short.exit_code, short.output) == (0, long.output)
    assert "Usage: " in short.output


@pytest.mark.parametrize("command", ["check", "reconstruct"])
def test_help_breaks_its_lines_where_the_screen_ends(command):
    lines = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80"}).output.splitlines()
    text = lines[: next(i for i, line in enumerate(lines) if line.startswith("╭"))]
    for line, following in itertools.pairwise(text):
        if line.strip() and following.strip():
            assert len(f"{line.rstrip()} {following.split()[0]}") >= 80, line


def test_what_is_doubtful_about_data_is_said_before_the_run_and_once(tmp_path):
    (tmp_path / "data").mkdir()
    for name, n in (("ada", 12), ("bob", 80)):
        made = generate(0, name, n_features=5, n_global=2, n_local=2, n_samples=n, sparsity=0.3)
        np.savetxt(tmp_path / "data" / f"{name}.csv", made.data.T + 9, delimiter=",")
    told = ["data.path=data", "data.center=false", "rounds=2", "n_restarts=2", "n_global=1"]
    done = perdl("simulate", "files", "--output", "run", *(word for one in told for word in ("-c", one)), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines, warnings = done.stdout.splitlines(), json.loads((tmp_path / "run/summary.json").read_text())["warnings"]
    for note in ("few samples for their atoms (12 for 5) at ada", "the mean carries "):
        (place,) = [i for i, line in enumerate(lines) if line.startswith(f"note: {note}")]
        assert place < next(i for i, line in enumerate(lines) if line.startswith("round 1"))
        assert any(text.startswith(note) for text in warnings)


def test_a_suggestion_is_said_once():
    done = CliRunner().invoke(app, ["simulat"])
    assert done.exit_code == 2
    assert done.output.count("Did you mean") == 1
    assert "'simulate'" in done.output


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("perdl simulate mnist-b", "mnist-best"),
        ("perdl experiment sur", "surveillance"),
        ("perdl simulate --engine r", "ray"),
    ],
)
def test_the_shell_completes_presets_experiments_and_engines(tmp_path, words, found):
    told = {"_PERDL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    command = [sys.executable, "-m", "perdl"]
    done = subprocess.run(command, env={**os.environ, **told}, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == [found]
    assert "--show-completion" in CliRunner().invoke(app, ["--help"]).output


def test_overwrite_takes_nothing_from_a_server_at_work(tmp_path):
    from common.locks import locked

    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "checkpoint.npz").touch()
    with locked(tmp_path / "served", "run"):
        done = perdl("server", "synthetic", "--insecure", "--output", "served", "--overwrite", cwd=tmp_path)
    assert done.returncode == 2
    assert "served is in use by another run that is still running: take another folder" in done.stderr
    assert (tmp_path / "served" / "checkpoint.npz").exists()


def test_bad_toml_is_named(tmp_path):
    (tmp_path / "bad.toml").write_text("n_global = = 3\n")
    done = perdl("simulate", "bad.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "bad.toml is not valid TOML" in done.stderr


def test_ctrl_c_ends_a_simulation_with_what_was_done_saved(tmp_path):
    command = [sys.executable, "-m", "perdl", "simulate", "--output", "out"]
    command += ["-c", "rounds=1000000", "-c", "tolerance=0", "-c", "synthetic.noise=0.1"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True
    )
    rounds = tmp_path / "out" / "rounds.jsonl"
    wait_for(lambda: rounds.exists() and rounds.read_text().count("\n") > 3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["stop_reason"] == "interrupted"
    assert summary["rounds"] > 3


LOSES_AN_INTERRUPT = """
import signal, time, weakref
from perdl.cli.command import command

class Thing: ...

@command
def work():
    thing = Thing()
    dies = weakref.ref(thing, lambda _: signal.raise_signal(signal.{signal}))
    del thing  # an exception in the callback cannot reach us
    time.sleep(20)

work()
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_an_interrupt_that_python_drops_is_repeated(tmp_path, number):
    script = tmp_path / "work.py"
    script.write_text(LOSES_AN_INTERRUPT.replace("{signal}", number))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 130
    assert done.stderr == "perdl: interrupted\n"


def wait_for(condition, seconds=60.0):
    """Wait until a condition holds."""
    import time

    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


@pytest.mark.parametrize("preset", sorted(path.stem for path in (ROOT / "configs").glob("*.toml")))
def test_presets_are_valid(preset):
    load_settings(find_config(preset))


def test_synthetic_preset_is_the_default():
    assert load_settings(find_config("synthetic")) == Settings(
        **{"data": load_settings(None, ["data.n_samples=200"]).data}
    )


def test_flower_app_table_is_the_default_settings():
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    flat = dict(flatten(table))
    assert settings_from_flat(flat) == Settings()
    assert set(flat) == set(setting_names(Settings))


def flatten(table, prefix=""):
    for key, value in table.items():
        yield from flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]


def setting_names(model, prefix=""):
    for name, field in model.model_fields.items():
        nested = hasattr(field.annotation, "model_fields")
        if nested:
            yield from setting_names(field.annotation, f"{prefix}{name}.")
        elif name != "clients":
            yield prefix + name


def test_mnist_published_beats_one_client_alone(tmp_path, mnist):
    overrides = [f"data.path={mnist}", "rounds=10", "warmup_steps=40", "n_global=50", "aggregation=procrustes"]
    arguments = [argument for override in overrides for argument in ("-c", override)]
    done = perdl("simulate", "mnist-published", "--output", "out", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "relative error on the last 1000 test images with 5 atoms" in done.stdout
    errors = json.loads((tmp_path / "out" / "summary.json").read_text())["evaluation"]
    assert set(errors) == {"client-1 alone", "PerMA", "pooled data"}
    assert errors["PerMA"] < 0.64 < errors["client-1 alone"]
    assert (tmp_path / "out" / "figures" / "atoms.png").exists()


def test_imports_stay_light():
    heavy = ("torch", "ray", "matplotlib", "PIL", "torchvision", "pyarrow", "h5py", "scipy")
    code = f"import sys, {{}}; print(*[m for m in {heavy} if m in sys.modules])"
    sides = ("perdl_client.app", "perdl_client.node.loop", "perdl_server.app")
    for module in ("perdl", "perdl.cli.app", "perdl.plots", "perdl.report.page", "perdl.report.figures", *sides):
        done = subprocess.run(
            [sys.executable, "-c", code.format(module)], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "", module


def test_a_misspelt_command_is_suggested_once(tmp_path):
    assert perdl("chek", cwd=tmp_path).stderr.count("Did you mean") == 1


def test_a_module_of_the_users_that_hides_a_package_of_perdls_is_named(tmp_path):
    (tmp_path / "common.py").write_text("")
    for script in ("import perdl", "import common, perdl"):
        done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
        last = done.stderr.strip().splitlines()[-1]
        assert last.startswith(f"ImportError: {tmp_path}/common.py hides perdl's own package"), done.stderr


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_what_an_encoding_lacks_ends_no_command(tmp_path, encoding):
    for arguments, code in ((("settings",), 0), (("check", "no-Ω.csv"), 3)):
        command = [sys.executable, "-m", "perdl", *arguments]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True)
        assert done.returncode == code, done.stderr
        assert b"Traceback" not in done.stderr


def test_a_log_that_cannot_be_written_is_named(tmp_path):
    done = perdl("simulate", "--log", "/proc/no/log", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "perdl: /proc/no: No such file or directory\n"


def test_flower_and_ray_need_no_home(tmp_path, monkeypatch):
    monkeypatch.delenv("FLWR_HOME", raising=False)
    with _own_environment(tmp_path):
        assert os.environ["FLWR_HOME"] == str(tmp_path / "flower")
    assert "FLWR_HOME" not in os.environ
    _, environment = stock_command("127.0.0.1:1", {"folder": str(tmp_path)})
    assert environment["FLWR_HOME"] == str(tmp_path / "flower")
