"""TensorBoard and MLflow get what the run's folder has; their own files are read back."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import perdl
from common.errors import PerdlError, SettingsError
from common.settings import settings_from_values
from perdl.cli.app import app
from perdl.monitoring.trackers import MLflow, TensorBoard, load_sink, numbers

SMALL = {"n_clients": 2, "n_restarts": 2, "rounds": 3, "tolerance": 0.0}


def test_numbers_of_a_row_are_flat_and_finite():
    row = {"round": 3, "change": 0.5, "error": {"min": 1, "median": 2.0}, "text": "x", "none": None}
    assert dict(numbers(row)) == {"change": 0.5, "error/min": 1.0, "error/median": 2.0}


def events(folder: Path):
    """The events of all of TensorBoard's files in a folder."""
    from tensorboardX.proto.event_pb2 import Event

    for path in folder.glob("events.*"):
        raw = path.read_bytes()
        while raw:
            (length,) = struct.unpack("<Q", raw[:8])
            yield Event.FromString(raw[12 : 12 + length])
            raw = raw[16 + length :]


def test_tensorboard_reads_every_round(tmp_path):
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed (extra: tensorboard)")
    run = perdl.simulate("synthetic", SMALL, output=tmp_path / "run", callbacks=[TensorBoard()])
    values = [(v.tag, e.step, v) for e in events(tmp_path / "run" / "tensorboard") for v in e.summary.value]
    scalars = {(tag, step): v.simple_value for tag, step, v in values if v.HasField("simple_value")}
    for row in run.history:
        for name, value in numbers(row):
            assert scalars.pop((name, row["round"])) == pytest.approx(value, rel=1e-6)
    assert scalars.pop(("final/global_distance", 3)) == pytest.approx(run.summary["final"]["global_distance"])
    assert all(name.startswith("final/") for name, _ in scalars)
    texts = {tag: v.tensor.string_val[0].decode() for tag, _, v in values if v.tensor.string_val}
    assert "| n_clients | 2 |" in texts["settings/text_summary"]
    assert texts["stop_reason/text_summary"] == "rounds"


def test_mlflow_has_settings_rounds_summary_and_figures(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="MLflow is not installed (extra: mlflow)")
    from mlflow import MlflowClient

    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # for the client that reads it back
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        app,
        ["simulate", "--sink", "mlflow", "--output", "here", "--quiet"]
        + [word for key, value in SMALL.items() for word in ("-c", f"{key}={value}")]
        + ["-c", "clients.client-2.n_nonzero=2"],
    )
    assert done.exit_code == 0, done.output
    result = perdl.read_run("here")
    client = MlflowClient((tmp_path / "mlruns").as_uri())
    (found,) = client.search_runs([client.get_experiment_by_name("perdl").experiment_id])
    assert (found.info.run_name, found.info.status) == ("here", "FINISHED")
    assert found.data.tags["stop_reason"] == "rounds"
    flat = settings_from_values(result.summary["settings"]).flat()
    assert found.data.params == {key: str(value) for key, value in flat.items()}
    for name, value in numbers(result.history[-1]):
        history = client.get_metric_history(found.info.run_id, name)
        assert [m.step for m in history] == [1, 2, 3]
        assert history[-1].value == value
    assert found.data.metrics["final/global_distance"] == result.summary["final"]["global_distance"]
    assert {f.path for f in client.list_artifacts(found.info.run_id)} == {"summary.json", "figures"}
    figures = {Path(f.path).name for f in client.list_artifacts(found.info.run_id, "figures")}
    assert figures == {p.name for p in Path("here/figures").iterdir()}


def test_mlflow_goes_where_the_user_says(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="MLflow is not installed (extra: mlflow)")
    from mlflow import MlflowClient

    place = (tmp_path / "store").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", place)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    sink = MLflow()
    sink.on_start(settings_from_values({"output": "nowhere"}))
    sink.on_end({"stop_reason": "failed: nobody came", "rounds": 0})
    client = MlflowClient(place)
    (found,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert (found.info.status, found.data.tags["stop_reason"]) == ("FAILED", "failed: nobody came")
    assert not (tmp_path / "mlruns").exists()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("tensorbord", "there is no such sink; did you mean tensorboard?"),
        ("wandb", "there is no such sink; use tensorboard, mlflow or MODULE:CLASS"),
        ("nosuch:Class", r"cannot import nosuch \(ModuleNotFoundError: .*\); is nosuch.py in /"),
        ("broken_sink:Class", r"cannot import broken_sink \(ZeroDivisionError: .*"),
        ("perdl.monitoring.callbacks:Nothing", "perdl.monitoring.callbacks has no Nothing; correct the name"),
        ("json:loads", "is not a class that inherits from perdl.Callback"),
        ("broken_sink_2:Needy", r"cannot be made without arguments \(.*\); give them defaults"),
    ],
)
def test_wrong_names_of_sinks_are_told(tmp_path, monkeypatch, name, says):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_sink.py").write_text("1 / 0\n")
    (tmp_path / "broken_sink_2.py").write_text(
        "import perdl\nclass Needy(perdl.Callback):\n    def __init__(self, x): pass\n"
    )
    with pytest.raises(SettingsError, match=f"--sink {name}: {says}"):
        load_sink(name)


@pytest.mark.parametrize(("name", "package"), [("tensorboard", "tensorboardX"), ("mlflow", "mlflow-skinny")])
def test_a_package_that_is_not_there_is_named(monkeypatch, name, package):
    for module in ("tensorboardX", "torch.utils.tensorboard", "mlflow"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(PerdlError, match=f"the sink {name} needs a package: pip install {package}$"):
        load_sink(name)
