"""What there is to show: of a run's folder, a client's own folder, a `RunResult` or a fitted `PerDL`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from common.errors import PerdlError

if TYPE_CHECKING:
    from perdl.estimator.estimator import PerDL

Floats = NDArray[np.floating]


UNUSED = 1e-4
"""Share of the energy below which an atom is as good as unused."""

SHORT = 24
"""Features that can have a bar and a name each."""
MOST = {"images": 100, "curves": 30, "bars": 8}
"""Atoms that can be told apart in one figure."""


@dataclass(frozen=True)
class Reading:
    """What is known of a run, or of one client's model. What is not known is empty.

    Attributes
    ----------
    title : str
    summary : dict
        ``summary.json``; empty for a client's own folder.
    rounds, metrics : list of dict
        Rows of each round, and of each round and client.
    global_dictionary : (d, r_g) array
    consensus : (r_g,) array
    own : dict of str to (d, r_l) array
        By client.
    usage : dict of str to (r,) array
        By client: the share of its data's energy that each atom carries, global atoms first.
    shape : tuple of int
        Of one sample, (d,) if it is nothing but features.
    names : tuple of str
        Of the features, if they have any.
    is_series : bool
        Whether a sample of two axes is (time, channel) and no image.
    client : str
        Whose own folder it is; empty for a run.
    folder : Path, optional
    """

    title: str
    summary: Mapping[str, Any]
    rounds: list[dict[str, Any]]
    metrics: list[dict[str, Any]]
    global_dictionary: Floats
    consensus: Floats
    own: dict[str, Floats] = field(default_factory=dict)
    usage: dict[str, Floats] = field(default_factory=dict)
    shape: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    is_series: bool = False
    client: str = ""
    folder: Path | None = None

    @property
    def clients(self) -> dict[str, dict[str, Any]]:
        """What the server knows of each client."""
        return dict(self.summary.get("clients", {}))

    def atoms(self, client: str | None) -> Floats:
        """Own atoms of a client; without one the shared atoms."""
        return self.global_dictionary if client is None else self.own[client]

    def unused(self, client: str | None) -> list[int]:
        """Which of these atoms carry next to nothing; none if that is not known."""
        r_g = self.global_dictionary.shape[1]
        told = (
            [u[:r_g] for u in self.usage.values()]
            if client is None
            else [u[r_g:] for u in [self.usage.get(client)] if u is not None]
        )
        return [] if not told else np.flatnonzero(np.max(told, axis=0) < UNUSED).tolist()

    @property
    def path_edges(self) -> Floats:
        """Mean distance of neighbours on each path: ``path_lengths`` are sums over the N - 1 edges of a path."""
        edges: Floats = np.asarray(self.summary.get("path_lengths") or [], dtype=float) / max(len(self.clients) - 1, 1)
        return edges


def kind_of(reading: Reading) -> str:
    """Return what the atoms of a reading are drawn as: a key of ``MOST``."""
    if len(reading.shape) in (2, 3) and not reading.is_series:
        return "images"
    return "bars" if np.prod(reading.shape) <= SHORT and not reading.is_series else "curves"


def read(source: Any) -> Reading:
    """Read a run or a model.

    Parameters
    ----------
    source : RunResult, PerDL, Reading, or path
        A path is the folder of a simulation, a server or one client.

    Raises
    ------
    PerdlError
        If there is nothing of the kind.
    """
    if isinstance(source, Reading):
        return source
    if isinstance(source, (str, Path)):
        return _read_folder(Path(source))
    if hasattr(source, "summary_"):
        return _read_estimator(source)
    folder = getattr(source, "folder", None)
    if folder is None:
        raise PerdlError(
            f"a {type(source).__name__} cannot be drawn: give a run's folder, what simulate or read_run returned, or "
            "a fitted PerDL"
        )
    return _read_folder(folder)


def _read_folder(folder: Path) -> Reading:
    if not (folder / "summary.json").exists() and (folder / "dictionary.npz").exists():
        return _read_client(folder)
    from perdl.engines.run import read_summary

    summary = read_summary(folder)
    D, consensus = np.empty((0, 0)), np.empty(0)
    if (folder / "global_dictionary.npz").exists():
        with np.load(folder / "global_dictionary.npz", allow_pickle=False) as file:
            D, consensus = file["dictionary"], file["consensus"]
    own, usage = {}, {}
    names: tuple[str, ...] = ()
    for name in summary.get("clients", {}):
        path = folder / "clients" / name / "dictionary.npz"
        if path.exists():
            model = _Model(path)
            own[name] = model.own
            if model.usage is not None:
                usage[name] = model.usage
            names = names or model.names
    return Reading(
        title=folder.resolve().name,
        summary=summary,
        rounds=_rows(folder / "rounds.jsonl"),
        metrics=_rows(folder / "metrics.jsonl"),
        global_dictionary=D,
        consensus=consensus,
        own=own,
        usage=usage,
        shape=(shape := _shape(summary, len(D))),
        names=names,
        is_series=_is_series(summary, shape),
        folder=folder,
    )


def _read_client(folder: Path) -> Reading:
    model = _Model(folder / "dictionary.npz")
    name = folder.resolve().name
    return Reading(
        title=name,
        summary={},
        rounds=[],
        metrics=[],
        global_dictionary=model.shared,
        consensus=np.empty(0),
        own={name: model.own},
        usage={} if model.usage is None else {name: model.usage},
        shape=model.shape or (len(model.shared),),
        names=model.names,
        is_series=model.is_series,
        client=name,
        folder=folder,
    )


def _read_estimator(model: PerDL) -> Reading:
    D: Floats = model.global_components_.T
    return Reading(
        title="PerDL",
        summary=model.summary_,
        rounds=model.history_,
        metrics=[],
        global_dictionary=D,
        consensus=model.consensus_,
        own={name: components.T for name, components in model.local_components_.items()},
        usage=model.usage_,
        shape=(shape := _shape(model.summary_, len(D))),
        is_series=_is_series(model.summary_, shape),
        names=tuple(map(str, getattr(model, "feature_names_in_", ()))),
    )


class _Model:
    """``dictionary.npz`` of a client."""

    def __init__(self, path: Path) -> None:
        try:
            with np.load(path, allow_pickle=False) as file:
                self.shared: Floats = file["global"]
                self.own: Floats = file["local"]
                self.usage: Floats | None = file.get("usage")
                self.shape = tuple(map(int, file["shape"])) if "shape" in file else ()
                self.names = tuple(map(str, file["names"])) if "names" in file else ()
                head = json.loads(str(file["head"])) if "head" in file else {}
                self.is_series = head.get("cut", [""])[0] == "window"
        except OSError as error:
            raise PerdlError(f"{path}: {error.strerror or 'cannot be read'}") from None
        except Exception:  # NumPy and zipfile raise many kinds
            raise PerdlError(f"{path} is not a model that a client of perdl wrote") from None


def _shape(summary: Mapping[str, Any], d: int) -> tuple[int, ...]:
    shape = tuple(map(int, summary.get("shape") or ()))
    if not shape and summary.get("settings", {}).get("data", {}).get("source") == "mnist":
        shape = (28, 28)  # of runs that did not say
    return shape if shape and np.prod(shape) == d else (d,)


def _is_series(summary: Mapping[str, Any], shape: tuple[int, ...]) -> bool:
    data = summary.get("settings", {}).get("data", {})
    return data.get("source") != "video" and len(shape) == 2 and data.get("window") == shape[0]


def _rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a file of JSON lines; a line that is cut short is left out."""
    rows = []
    with suppress(FileNotFoundError):
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                rows.append(json.loads(line))
    return rows
