"""Choose settings by held-out error (:mod:`perdl_server.algorithm.search`), in short simulated runs.

No messages are sent: runs are algorithm 1 on arrays, from first dictionaries that runs of the same learning settings
have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.blocks import in_memory
from common.errors import PerdlError, SettingsError
from common.settings import Settings, override_settings
from perdl.perma import perma
from perdl_client.data.held_out import HeldOut
from perdl_client.data.load import prepare
from perdl_client.data.sources import names_of, read_file
from perdl_client.formats.columns import Absent
from perdl_client.learning.client import ClientLearner
from perdl_client.learning.evaluation import held_out_error
from perdl_server.algorithm.search import Outcome, Sizes, Trial, search

Floats = NDArray[np.floating]


def read_clients(files: Sequence[Path], settings: Settings) -> tuple[dict[str, Floats], dict[str, HeldOut]]:
    """Read each client's file, and set samples aside as its run would.

    Parameters
    ----------
    files : sequence of Path
        One file or folder per client.
    settings : Settings
        Settings of the run.

    Returns
    -------
    training : dict of str to (d, n_i) array
        Preprocessed samples to learn from, by client.
    held_out : dict of str to HeldOut
        Preprocessed samples that were set aside; clients with too few samples have none.

    Raises
    ------
    DataError
        If a file cannot be read.
    SettingsError
        If the samples would need all clients' sums.
    """
    if settings.data.site_scale != "none":
        raise SettingsError(
            'data.site_scale = "agree": this search agrees on no scale; give data.divide_by, as perdl check suggests'
        )
    if settings.data.in_memory is False:
        raise SettingsError("data.in_memory = false: perdl tune learns from samples in memory; leave it out")
    settings, data = override_settings(settings, {"data.in_memory": True}), {}
    for name, file in zip(names_of(files), files, strict=True):
        samples = read_file(settings, file, Absent())
        data[name] = prepare(samples, settings, settings.for_client(name), name, in_place=True)
    held_out = {name: one.held_out for name, one in data.items() if one.held_out is not None}
    return {name: in_memory(one.Y) for name, one in data.items()}, held_out


def tune(
    training: Mapping[str, Floats],
    held_out: Mapping[str, HeldOut],
    settings: Settings,
    on_trial: Callable[[Trial], object] = lambda trial: None,
    fixed: Set[str] = frozenset(),
) -> tuple[list[Trial], Trial]:
    """Search settings by held-out error, in simulated runs.

    Parameters
    ----------
    training : mapping of str to (d, n_i) array
        Samples that clients learn from, preprocessed, by client in the order of names.
    held_out : mapping of str to HeldOut
        Samples that they held out; clients without any take part in the runs only.
    settings : Settings
        Where the search begins. ``rounds`` is the number of rounds of each run.
    on_trial : callable (Trial) -> object, optional
        Called after each run.
    fixed : set of str
        Settings that are not varied.

    Returns
    -------
    trials : list of Trial
        All runs, in their order.
    best : Trial
        The chosen one.

    Raises
    ------
    DataError
        If no client held samples out.
    PerdlError
        If every run of a group failed; the message is that of the first.
    SettingsError
        If the settings cannot be searched.
    """
    starts: dict[str, dict[str, Floats]] = {}  # first dictionaries by how clients learn
    sizes = Sizes(len(next(iter(training.values()))), min(Y.shape[1] for Y in training.values()))

    def measure(s: Settings) -> Outcome:
        try:
            ways = {name: s.for_client(name) for name in training}
            known = starts.setdefault("\n".join(way.model_dump_json() for way in ways.values()), {})
            clients = [
                ClientLearner(Y, ways[name], s.seed, name, dictionary=known.get(name), guarded=s.privacy.guarded)
                for name, Y in training.items()
            ]
            known.update({client.name: client.dictionary for client in clients})
            for client in clients:
                start = client.start()
                if not start.takes_part:  # a run refuses such a client
                    return Outcome(failed=f"{client.name} uses none of its atoms with these settings")
            D_g = perma(clients, s)
        except PerdlError as failure:
            return Outcome(failed=str(failure))
        own, k = {client.name: client.finish(D_g) for client in clients}, s.evaluation.n_nonzero
        return Outcome(D_g.shape[1], {name: held_out_error(one.Z, D_g, own[name], k) for name, one in held_out.items()})

    return search(measure, lambda: sizes, settings, on_trial, fixed)
