"""Federations over arrays in this process: run them, keep their result, save and load it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from common.errors import PerdlError
from common.files import ForeignFileError, read_record, write_record
from common.mask import simulated_mask
from common.settings import Settings, settings_from_values
from common.statistics import rms
from perdl.perma import adapt
from perdl_client.data.load import ClientData, prepare
from perdl_client.data.preprocessing import Preprocessing
from perdl_client.data.samples import Samples
from perdl_client.data.windows_patches import Cut
from perdl_client.learning.client import ClientLearner
from perdl_client.learning.evaluation import evaluate_client
from perdl_client.learning.measures import measured
from perdl_client.model import ClientModel

if TYPE_CHECKING:
    from flwr.app import RecordDict

    from perdl.monitoring.callbacks import Callback
    from perdl_server.checkpoint import Checkpoint

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]
State = dict[str, Any]

VERSION = 4
"""Version of the file format."""

_NOT_OF_THE_REPORT = ("clients", "final", "stop_reason", "bytes", "seconds")


@dataclass(frozen=True)
class Fitted:
    """The result of a federation.

    Parameters
    ----------
    summary : dict
        Content of ``summary.json``.
    history : list of dict
        One row per round.
    global_dictionary : (d, r_g) array
        D^g.
    consensus : (r_g,) array
        1 where all clients' versions of an atom agree.
    local_dictionaries : dict of str to (d, r_l) array
        Local dictionary of each client, in the order given.
    preprocessings : dict of str to Preprocessing
        Preprocessing of each client.
    scales : dict of str to float
        Root mean square of each client's data, for thresholds in its units.
    usage : dict of str to (r,) array
        Share of the energy of a client's data that each of its atoms carries, global atoms first.
    states : dict of str to dict
        Scalars and arrays from which a client that took part can continue.
    held_out : dict of str to dict
        What each client found on its held-out samples; those that held out nothing are left out.
    members : dict of str to (r_g,) bool array
        The shared atoms that each client shares; empty if all clients share all.
    """

    summary: dict[str, Any]
    history: list[dict[str, Any]]
    global_dictionary: Floats
    consensus: Floats
    local_dictionaries: dict[str, Floats]
    preprocessings: dict[str, Preprocessing]
    scales: dict[str, float]
    usage: dict[str, Floats]
    states: dict[str, State]
    held_out: dict[str, dict[str, Any]]
    members: dict[str, Bools] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """The run's settings, with the scale that clients agreed on."""
        return settings_from_values(self.summary["settings"]).with_agreed_scale(self.summary.get("agreed_scale", []))

    def model(self, name: str) -> ClientModel:
        """Return one client's model. In its D^g, atoms that it does not share are zero.

        Parameters
        ----------
        name : str
            Name of the client.
        """
        coder = self.settings.for_client(name).make_coder(self.scales[name])
        whole = Cut("", 0, 0, (len(self.global_dictionary),))
        D_g = (
            np.where(self.members[name], self.global_dictionary, 0) if name in self.members else self.global_dictionary
        )
        return ClientModel(D_g, self.local_dictionaries[name], self.preprocessings[name], coder, whole)

    def joined_by(self, name: str, rows: Floats) -> Fitted:
        """Return this result with one more client, aligned to D^g. D^g does not change.

        Parameters
        ----------
        name : str
            Name of the new client.
        rows : (n, d) array
            Its samples, in rows.
        """
        s = self.settings
        data, learning = _prepared(name, rows, s), s.for_client(name)
        client = ClientLearner(data.Y, learning, s.seed, name)
        first = client.dictionary
        D_l = adapt(client, self.global_dictionary, rounds=s.rounds, tolerance=s.tolerance, sharing=s.sharing)
        joined = replace(
            self,
            local_dictionaries={**self.local_dictionaries, name: D_l},
            preprocessings={**self.preprocessings, name: data.preprocessing},
            scales={**self.scales, name: rms(data.Y)},
            members=self.members if client.members is None else {**self.members, name: client.members},
        )
        one = joined.model(name)
        usage = {**self.usage, name: measured(data.Y, one.dictionary, one.coder).carried}
        if data.held_out is None:
            return replace(joined, usage=usage)
        began = ClientLearner(data.Y, learning, s.seed, name, dictionary=first)
        found = evaluate_client(data.held_out, began, one.global_dictionary, D_l, s.rounds, s)
        return replace(joined, usage=usage, held_out={**self.held_out, name: found.facts()})


def federate(
    samples: Mapping[str, Floats],
    settings: Settings,
    former: Fitted | None = None,
    callbacks: Sequence[Callback] = (),
    note: Callable[[str], object] = lambda text: None,
    data_warnings: Sequence[str] = (),
) -> Fitted:
    """Run a federation over arrays, with the same server, strategy and clients as every other mode.

    Parameters
    ----------
    samples : mapping of str to (n, d) array
        Samples of each client, in rows.
    settings : Settings
        Settings with ``data.source = "memory"``. Without ``output`` the run's folder is temporary.
    former : Fitted, optional
        Run to continue. New clients join like those that come after matching.
    callbacks : sequence of Callback
        Called during the run.
    note : callable (str) -> object
        Gets a line for each callback that fails.
    data_warnings : sequence of str
        Warnings about the samples; the summary holds them beside those of the run.

    Returns
    -------
    Fitted
    """
    if "output" not in settings.model_fields_set:
        with tempfile.TemporaryDirectory(prefix="perdl-", ignore_cleanup_errors=True) as folder:
            return federate(
                samples, settings.model_copy(update={"output": folder}), former, callbacks, note, data_warnings
            )
    from perdl.engines.claim import held
    from perdl.monitoring.callbacks import watch

    after = former.summary["rounds"] if former else 0
    with held(Path(settings.output)), watch(settings, callbacks, note, after=after) as on_start:
        return _federate(samples, settings, former, data_warnings, on_start)


def _federate(
    samples: Mapping[str, Floats],
    settings: Settings,
    former: Fitted | None,
    data_warnings: Sequence[str],
    on_start: Callable[[int, int], object],
) -> Fitted:
    # Flower is slow to import.
    from flwr.app import RecordDict

    from common.protocol import unpack
    from perdl.engines.in_process import run_in_process
    from perdl.engines.run import add_warnings, check_models
    from perdl.results.run_result import read_run
    from perdl_client.app import app as client_app
    from perdl_client.data.sources import SAMPLES
    from perdl_server.app import app, resuming

    configs = [
        {"partition-id": i, "num-partitions": len(samples), "name": name, SAMPLES: rows.T}
        for i, (name, rows) in enumerate(samples.items())
    ]
    before, before_it = (former.states, former.history) if former else ({}, [])
    # The old ones name the former run's folder.
    known = settings.with_agreed_scale(former.summary.get("agreed_scale", []) if former else [])
    told = {"settings": known.model_dump_json(exclude_none=True)}
    kept = [_packed(before[name] | told) if name in before else RecordDict() for name in samples]
    server_app = resuming(_checkpoint(former)) if former else app
    states = run_in_process(server_app, client_app, settings, node_configs=configs, states=kept, on_start=on_start)
    if data_warnings:
        add_warnings(Path(settings.output), data_warnings)
    run = read_run(settings.output)
    check_models(Path(settings.output), run.summary)
    after = [unpack(state) for state in states]
    settings = settings.with_agreed_scale(run.summary.get("agreed_scale", []))
    scaled: dict[str, tuple[Preprocessing, float]] = {}
    for name, rows in samples.items():  # one client's samples at a time
        data = _prepared(name, rows, settings)
        scaled[name] = data.preprocessing, rms(data.Y)
    return Fitted(
        summary=run.summary,
        history=[*before_it, *(row for row in run.history if row["round"] > len(before_it))],
        global_dictionary=run.global_dictionary,
        consensus=run.consensus,
        local_dictionaries={name: run.local_dictionaries[name] for name in samples},
        preprocessings={name: preprocessing for name, (preprocessing, _) in scaled.items()},
        scales={name: scale for name, (_, scale) in scaled.items()},
        usage={name: run.usage[name] for name in samples},
        states={name: {**p.scalars, **p.arrays} for name, p in zip(samples, after, strict=True)},
        held_out={name: facts["held_out"] for name, facts in run.clients.items() if "held_out" in facts},
        members={name: run.members[name] for name in samples if name in run.members},
    )


def _prepared(name: str, rows: Floats, settings: Settings) -> ClientData:
    """Return a client's samples, prepared as a client of the run does."""
    Y = rows.T.astype(settings.dtype, copy=False)
    return prepare(Samples(Y, (len(Y),)), settings, settings.for_client(name), name)


def _packed(state: State) -> RecordDict:
    from common.protocol import pack

    arrays, scalars = _parted(state)
    return pack(arrays, **scalars)


def _parted(state: State) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    arrays = {key: value for key, value in state.items() if isinstance(value, np.ndarray)}
    return arrays, {key: value for key, value in state.items() if key not in arrays}


def _checkpoint(former: Fitted) -> Checkpoint:
    """Return the checkpoint that a server would have written after the last round."""
    from perdl_server.checkpoint import Checkpoint

    s, D_g = former.summary, former.global_dictionary
    if s["settings"]["privacy"]["mode"] == "masked":  # the server knows D^g in other coordinates
        D_g = simulated_mask(s["settings"]["seed"], len(D_g)).hide(D_g)
    return Checkpoint(
        run=next(iter(former.states.values()))["run"],
        round=s["rounds"],
        dictionary=D_g,
        consensus=former.consensus,
        members=s["clients"],
        matches={},
        report={key: value for key, value in s.items() if key not in _NOT_OF_THE_REPORT},
        bytes=s["bytes"],
        seconds=s["seconds"],
    )


def save_fitted(path: Path, head: Mapping[str, Any], fitted: Fitted) -> None:
    """Write a result as one ``.npz`` without pickled objects.

    Parameters
    ----------
    path : Path
        File to write.
    head : mapping
        Plain values to keep with the result.
    fitted : Fitted
        The result.
    """
    arrays = {"global": fitted.global_dictionary, "consensus": fitted.consensus}
    clients = []
    for i, name in enumerate(fitted.local_dictionaries):
        own: dict[str, NDArray[Any]] = {"local": fitted.local_dictionaries[name], "usage": fitted.usage[name]}
        own |= fitted.preprocessings[name].arrays()
        own |= {"members": fitted.members[name]} if name in fitted.members else {}
        arrays |= {f"{i} {key}": value for key, value in own.items()}
        kept, state = _parted(fitted.states.get(name, {}))
        arrays |= {f"{i} state {key}": value for key, value in kept.items()}
        told = fitted.held_out.get(name)
        clients.append({"name": name, "scale": fitted.scales[name], "state": state, "held_out": told})
    values = {"summary": fitted.summary, "history": fitted.history, "clients": clients, **head}
    write_record(path, "estimator", VERSION, values, arrays)


def load_fitted(path: Path) -> tuple[dict[str, Any], Fitted]:
    """Read the head and the result that :func:`save_fitted` wrote.

    Parameters
    ----------
    path : Path
        File to read.

    Raises
    ------
    PerdlError
        If the file is missing, is not such a file, or another version of perdl wrote it.
    """
    try:
        head, arrays = read_record(path, "estimator", VERSION)
    except OSError as error:
        raise PerdlError(f"{path}: {error.strerror or 'cannot be read'}; correct the path") from None
    except ForeignFileError:
        raise PerdlError(f"{path} is not a model that PerDL.save wrote") from None
    clients = {client["name"]: (f"{i} ", client) for i, client in enumerate(head.pop("clients"))}
    states: dict[str, State] = {}
    for name, (mark, client) in clients.items():
        prefix = f"{mark}state "
        own = {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}
        states |= {name: {**client["state"], **own}} if own else {}
    fitted = Fitted(
        summary=head.pop("summary"),
        history=head.pop("history"),
        global_dictionary=arrays["global"],
        consensus=arrays["consensus"],
        local_dictionaries={name: arrays[f"{mark}local"] for name, (mark, _) in clients.items()},
        preprocessings={name: Preprocessing.of(arrays, mark) for name, (mark, _) in clients.items()},
        scales={name: client["scale"] for name, (_, client) in clients.items()},
        usage={name: arrays[f"{mark}usage"] for name, (mark, _) in clients.items()},
        states=states,
        held_out={name: told for name, (_, client) in clients.items() if (told := client.get("held_out"))},
        members={name: arrays[f"{mark}members"] for name, (mark, _) in clients.items() if f"{mark}members" in arrays},
    )
    return head, fitted
