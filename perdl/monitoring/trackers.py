"""Callbacks that send a run to other programs: TensorBoard, MLflow, and the user's own classes by name."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.errors import PerdlError, SettingsError
from perdl.monitoring.callbacks import Callback

if TYPE_CHECKING:
    from common.settings import Settings


class TensorBoard(Callback):
    """Write event files for TensorBoard.

    Parameters
    ----------
    folder : path, optional
        Folder of the event files; default ``tensorboard`` in the run's folder.

    Raises
    ------
    PerdlError
        If neither tensorboardX nor PyTorch's writer is installed.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = folder
        self._open = _writer()

    def on_start(self, settings: Settings) -> None:
        """Open the files and write the settings as a text.

        Parameters
        ----------
        settings : Settings
            Settings of the run.
        """
        self._writer = self._open(str(self._folder or Path(settings.output) / "tensorboard"))
        lines = (f"| {name} | {value} |" for name, value in settings.flat().items())
        self._writer.add_text("settings", "\n".join(["| setting | value |", "|---|---|", *lines]))

    def on_round(self, row: Mapping[str, Any]) -> None:
        """Write a round's numbers.

        Parameters
        ----------
        row : mapping
            A row of ``rounds.jsonl``.
        """
        for name, value in numbers(row):
            self._writer.add_scalar(name, value, row["round"])
        self._writer.flush()

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Write the final numbers and close the files.

        Parameters
        ----------
        summary : mapping
            Content of ``summary.json``; empty if nothing was saved.
        """
        for name, value in numbers({"final": summary.get("final", {})}):
            self._writer.add_scalar(name, value, summary["rounds"])
        self._writer.add_text("stop_reason", str(summary.get("stop_reason", "nothing was saved")))
        self._writer.close()


class MLflow(Callback):
    """Write a run of MLflow: its settings, the numbers of every round, the summary and the figures.

    ``MLFLOW_TRACKING_URI`` or ``mlflow.set_tracking_uri`` says where it is written; the default is the folder
    ``mlruns``. ``MLFLOW_EXPERIMENT_NAME`` names the experiment; the default is ``perdl``.

    Raises
    ------
    PerdlError
        If MLflow is not installed.
    """

    def __init__(self) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        try:
            import mlflow
        except ImportError:
            raise _missing("mlflow", "mlflow-skinny") from None
        uri = mlflow.get_tracking_uri()
        if not mlflow.is_tracking_uri_set():
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow's default needs a database
            uri = Path("mlruns").resolve().as_uri()
        self._client = mlflow.MlflowClient(uri)

    def on_start(self, settings: Settings) -> None:
        """Begin an MLflow run with the name of the run's folder.

        Parameters
        ----------
        settings : Settings
            Settings of the run.
        """
        from mlflow.entities import Param

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "perdl")
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
        self._folder = Path(settings.output)
        self._run = self._client.create_run(experiment, run_name=self._folder.resolve().name).info.run_id
        params = [Param(_name(key), str(value)) for key, value in settings.flat().items()]
        for i in range(0, len(params), 100):  # MLflow accepts at most 100 at once
            self._client.log_batch(self._run, params=params[i : i + 100])

    def on_round(self, row: Mapping[str, Any]) -> None:
        """Write a round's numbers.

        Parameters
        ----------
        row : mapping
            A row of ``rounds.jsonl``.
        """
        self._log(row, row["round"])

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """Write the final numbers and the files, and end the MLflow run.

        Parameters
        ----------
        summary : mapping
            Content of ``summary.json``; empty if nothing was saved.
        """
        reason = str(summary.get("stop_reason", "failed"))
        self._log({"final": summary.get("final", {})}, summary.get("rounds", 0))
        self._client.set_tag(self._run, "stop_reason", reason)
        for path in (self._folder / "summary.json", *sorted((self._folder / "figures").glob("*"))):
            if path.exists():
                place = "figures" if path.parent.name == "figures" else None
                self._client.log_artifact(self._run, str(path), place)
        bad = {"interrupted": "KILLED"}.get(reason, "FAILED" if reason.startswith("failed") else "FINISHED")
        self._client.set_terminated(self._run, bad)

    def _log(self, values: Mapping[str, Any], step: int) -> None:
        import time

        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(_name(name), value, now, step) for name, value in numbers(values)]
        self._client.log_batch(self._run, metrics=metrics)


SINKS: dict[str, type[Callback]] = {"tensorboard": TensorBoard, "mlflow": MLflow}


def load_sink(name: str) -> Callback:
    """Return the callback that ``--sink`` names.

    Parameters
    ----------
    name : str
        A key of :data:`SINKS`, or ``MODULE:CLASS``.

    Raises
    ------
    SettingsError
        If there is no such class, or it is not a callback.
    PerdlError
        If it needs a package that is not installed.
    """
    module, colon, attribute = name.partition(":")
    if not colon:
        if name in SINKS:
            return SINKS[name]()
        near = difflib.get_close_matches(name, SINKS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"use {', '.join(SINKS)} or MODULE:CLASS"
        raise SettingsError(f"--sink {name}: there is no such sink; {hint}")
    here = os.getcwd()
    if here not in sys.path:  # as `python -m` does
        sys.path.insert(0, here)
    try:
        held = importlib.import_module(module)
    except Exception as error:  # the user's module may raise anything
        why = f"{type(error).__name__}: {error}"
        raise SettingsError(f"--sink {name}: cannot import {module} ({why}); is {module}.py in {here}?") from None
    if not hasattr(held, attribute):
        raise SettingsError(f"--sink {name}: {module} has no {attribute}; correct the name after the colon")
    found = getattr(held, attribute)
    if not (isinstance(found, type) and issubclass(found, Callback)):
        raise SettingsError(f"--sink {name}: is not a class that inherits from perdl.Callback; make it one")
    try:
        return found()
    except TypeError as error:
        raise SettingsError(f"--sink {name}: cannot be made without arguments ({error}); give them defaults") from None


def numbers(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield names and numbers of a row. Nested names are joined: ``error_before_update/median``.

    Parameters
    ----------
    row : mapping
        A row of ``rounds.jsonl``, or a part of it.
    prefix : str
        Put before every name.
    """
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{prefix}{key}/")
        elif isinstance(value, (int, float)) and key != "round":
            yield f"{prefix}{key}", float(value)


def _writer() -> Any:
    for module in ("tensorboardX", "torch.utils.tensorboard"):
        try:
            return importlib.import_module(module).SummaryWriter
        except ImportError:
            continue
    raise _missing("tensorboard", "tensorboardX")


def _name(key: str) -> str:
    """Replace characters that MLflow does not accept; clients' names may hold them."""
    return "".join(c if c.isalnum() or c in "_-. /" else "_" for c in key)


def _missing(sink: str, package: str) -> PerdlError:
    return PerdlError(f"the sink {sink} needs a package: pip install {package}")
