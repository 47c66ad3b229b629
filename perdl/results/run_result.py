"""`RunResult`: the results of a run, or one client's model, and the functions that read them."""

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
from perdl.results.membership import all_and_some, members_of
from perdl.results.search import read_search
from perdl_client.model import FILE, load_model

if TYPE_CHECKING:
    from perdl.estimator.estimator import PerDL

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]

UNUSED = 1e-4
"""An atom with a smaller share of the energy of the data is unused."""


@dataclass(frozen=True, repr=False)
class RunResult:
    """The results in a run's folder, or in a client's own folder. What is not known is empty.

    Parameters
    ----------
    folder : Path, optional
        The folder; None for a fitted `PerDL`.
    summary : dict
        Content of ``summary.json``; empty for a client's own folder.
    global_dictionary : (d, r_g) array
        D^g; columns are atoms, as in the files.
    consensus : (r_g,) array
        1 where all clients' versions of an atom agree.
    local_dictionaries : dict of str to (d, r_l) array
        Local dictionary of each client; empty for a server's folder, because clients keep theirs.
    usage : dict of str to (r,) array
        Share of the energy of a client's data that each of its atoms carries, global atoms first.
    members : dict of str to (r_g,) bool array
        The shared atoms that each client shares; empty if all clients share all (``sharing = "all"``).
    history : list of dict
        One row per round.
    metrics : list of dict
        One row per round and client.
    shape : tuple of int
        Shape of one sample; (d,) if samples are plain rows of features.
    feature_names : tuple of str
        Names of the features; empty if there are none, or if only the clients know them.
    is_series : bool
        Whether a sample of two axes is (time, channel) rather than an image.
    client : str
        Name of the client whose own folder it is; empty for a run.
    search : dict
        What was tried before the run, if its settings were searched by ``perdl tune``.
    measures : mapping of str to float
        Error of the client's model, and its shares of the energy; only for a client's own folder.
    """

    folder: Path | None
    summary: dict[str, Any]
    global_dictionary: Floats
    consensus: Floats
    local_dictionaries: dict[str, Floats] = field(default_factory=dict)
    usage: dict[str, Floats] = field(default_factory=dict)
    members: dict[str, Bools] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    shape: tuple[int, ...] = ()
    feature_names: tuple[str, ...] = ()
    is_series: bool = False
    client: str = ""
    search: dict[str, Any] = field(default_factory=dict)
    measures: Mapping[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        s, r_g = self.summary, self.global_dictionary.shape[1]
        where = "" if self.folder is None else f"{str(self.folder)!r}: "
        if self.client:
            own = self.local_dictionaries[self.client].shape[1]
            r_g = len(self.shared_atoms)
            return f"RunResult({where}{self.client}'s model, {r_g} global atoms, {own} of its own)"
        shared = f" ({text})" if (text := all_and_some(self.members)) else ""
        return (
            f"RunResult({where}{len(self.clients)} clients, {r_g} global atoms{shared}, {s.get('rounds', 0)} rounds, "
            f"{s.get('stop_reason')})"
        )

    @property
    def title(self) -> str:
        """The name of the folder, or of the estimator."""
        return "PerDL" if self.folder is None else self.folder.resolve().name

    @property
    def clients(self) -> dict[str, dict[str, Any]]:
        """What the server knows of each client."""
        return dict(self.summary.get("clients", {}))

    @property
    def shared_atoms(self) -> list[int]:
        """Indices of the shared atoms; of a client's own folder those that this client shares."""
        mine = self.members.get(self.client)
        return list(range(self.global_dictionary.shape[1])) if mine is None else np.flatnonzero(mine).tolist()

    def lacking(self, client: str) -> list[int]:
        """Return the indices of the shared atoms that a client does not share.

        Parameters
        ----------
        client : str
            Name of the client.
        """
        return np.flatnonzero(~self.members[client]).tolist() if client in self.members else []

    def atoms(self, client: str | None = None) -> Floats:
        """Return the atoms of a client (d, r_l), or the shared atoms (d, r_g).

        Parameters
        ----------
        client : str, optional
            Client whose own atoms are returned. By default the shared atoms are.
        """
        return self.global_dictionary if client is None else self.local_dictionaries[client]

    def energies(self, client: str | None = None) -> Floats | None:
        """Return the share of the energy that each of :meth:`atoms` carries; None if not known.

        Parameters
        ----------
        client : str, optional
            Client whose own atoms are meant. By default the shared atoms are, each with its largest share at any
            client.
        """
        r_g = self.global_dictionary.shape[1]
        if client is not None:
            return self.usage[client][r_g:] if client in self.usage else None
        return np.max([u[:r_g] for u in self.usage.values()], axis=0) if self.usage else None

    def unused(self, client: str | None = None) -> list[int]:
        """Return the indices of the :meth:`atoms` that next to no sample uses; none if not known.

        Parameters
        ----------
        client : str, optional
            Client whose own atoms are meant. By default the shared atoms are.
        """
        energies = self.energies(client)
        if energies is None:
            return []
        known = range(len(energies)) if client is not None else self.shared_atoms
        return [k for k in known if energies[k] < UNUSED]

    def by_energy(self, client: str | None = None) -> list[int]:
        """Return the indices of the :meth:`atoms` in use, those with most energy first; all of them if not known.

        Parameters
        ----------
        client : str, optional
            Client whose own atoms are meant. By default the shared atoms are.
        """
        energies = self.energies(client)
        if energies is None:
            return self.shared_atoms if client is None else list(range(self.atoms(client).shape[1]))
        order = np.argsort(-energies, kind="stable")
        return [int(k) for k in order if energies[k] >= UNUSED]


def read_run(folder: str | Path) -> RunResult:
    """Read the folder of a run.

    Parameters
    ----------
    folder : path
        Folder of `perdl simulate`, `perdl server` or :func:`perdl.simulate`. If the run failed before matching, the
        arrays are empty.

    Returns
    -------
    RunResult

    Raises
    ------
    PerdlError
        If the folder holds no run that ended.
    """
    folder = Path(folder)
    summary = read_summary(folder)
    D, consensus = np.empty((0, 0)), np.empty(0)
    if (folder / "global_dictionary.npz").exists():
        with np.load(folder / "global_dictionary.npz", allow_pickle=False) as file:
            D, consensus = file["dictionary"], file["consensus"]
    files = {name: folder / "clients" / name / FILE for name in summary.get("clients", {})}
    models = {name: load_model(path) for name, path in files.items() if path.exists()}
    shape = _shape(summary, len(D))
    return RunResult(
        folder=folder,
        summary=summary,
        global_dictionary=D,
        consensus=consensus,
        local_dictionaries={name: model.local_dictionary for name, model in models.items()},
        usage={name: model.usage for name, model in models.items()},
        members=members_of(summary),
        history=_rows(folder / "rounds.jsonl"),
        metrics=_rows(folder / "metrics.jsonl"),
        shape=shape,
        feature_names=next((model.names for model in models.values() if model.names), ()),
        is_series=_is_series(summary, shape),
        search=read_search(folder),
    )


def read_client(folder: str | Path) -> RunResult:
    """Read the model in a client's own folder.

    Parameters
    ----------
    folder : path
        ``perdl-clients/NAME``, or ``clients/NAME`` of a simulation.

    Returns
    -------
    RunResult

    Raises
    ------
    PerdlError
        If there is no model.
    """
    folder = Path(folder)
    model, name = load_model(folder), folder.resolve().name
    shares: Bools = np.any(model.global_dictionary, axis=0)  # atoms that the client does not share are zero
    return RunResult(
        folder=folder,
        summary={},
        global_dictionary=model.global_dictionary,
        consensus=np.empty(0),
        local_dictionaries={name: model.local_dictionary},
        usage={name: model.usage},
        members={} if shares.all() else {name: shares},
        shape=model.cut.piece,
        feature_names=model.names,
        is_series=model.cut.kind == "window",
        client=name,
        measures=model.measures,
    )


def as_result(source: Any) -> RunResult:
    """Return the results of a run or a model.

    Parameters
    ----------
    source : RunResult, PerDL or path
        A path is the folder of a simulation, a server or one client.

    Raises
    ------
    PerdlError
        If the source is none of these.
    """
    if isinstance(source, RunResult):
        return source
    if isinstance(source, str | Path):
        folder = Path(source)
        own = not (folder / "summary.json").exists() and (folder / "dictionary.npz").exists()
        return read_client(folder) if own else read_run(folder)
    if hasattr(source, "summary_"):
        return _of_estimator(source)
    raise PerdlError(
        f"a {type(source).__name__} cannot be drawn: give a run's folder, what simulate or read_run returned, or a "
        "fitted PerDL"
    )


def read_summary(folder: Path) -> dict[str, Any]:
    """Return ``summary.json`` of a run.

    Parameters
    ----------
    folder : Path
        Folder of the run.

    Raises
    ------
    PerdlError
        If the file is missing, or is not the summary of a run.
    """
    path = folder / "summary.json"
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise PerdlError(f"{folder} {what}: give the folder of a run or of a client's model")
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise PerdlError(
            f"{folder} holds no summary.json: the run did not end, or this is not a run's folder"
        ) from None
    except ValueError:
        raise PerdlError(f"{path} is not JSON: another program wrote it, or cut it short") from None
    tables = ("settings", "clients", "final", "bytes")
    known = isinstance(summary, dict) and all(isinstance(summary.get(key), dict) for key in tables)
    if not known or not all(isinstance(facts, dict) for facts in summary["clients"].values()):
        raise PerdlError(f"{path} is not of a run: give the folder of a simulation or a server")
    return dict(summary)


def _of_estimator(model: PerDL) -> RunResult:
    D: Floats = model.global_components_.T
    shape = _shape(model.summary_, len(D))
    return RunResult(
        folder=None,
        summary=model.summary_,
        global_dictionary=D,
        consensus=model.consensus_,
        local_dictionaries={name: components.T for name, components in model.local_components_.items()},
        usage=model.usage_,
        members=model._known().members,
        history=model.history_,
        shape=shape,
        feature_names=tuple(map(str, getattr(model, "feature_names_in_", ()))),
        is_series=_is_series(model.summary_, shape),
    )


def _shape(summary: Mapping[str, Any], d: int) -> tuple[int, ...]:
    shape = tuple(map(int, summary.get("shape") or ()))
    return shape if shape and np.prod(shape) == d else (d,)


def _is_series(summary: Mapping[str, Any], shape: tuple[int, ...]) -> bool:
    data = summary.get("settings", {}).get("data", {})
    return data.get("source") != "video" and len(shape) == 2 and data.get("window") == shape[0]


def _rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines, without lines that were cut short."""
    rows = []
    with suppress(FileNotFoundError):
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                rows.append(json.loads(line))
    return rows
