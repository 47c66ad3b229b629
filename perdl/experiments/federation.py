"""PerMA without messages, on arrays, and the strategies that it is compared with, all from the same starts.

The steps are those of the Flower strategy and the ClientApp, called in the same order: the same settings give the
same numbers to the last bit, without what a message costs. Experiments run thousands of federations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.coders import Coder
from common.settings import LearningSettings, Settings
from perdl_client.learners import LEARNERS
from perdl_client.local_update import retract
from perdl_client.round import NOTHING_SEEN, client_round
from perdl_client.start import first_dictionary, rms, usage, used_atoms
from perdl_server.aggregation import AGGREGATIONS, combiner, first_average
from perdl_server.matching import global_matching, suggest_n_global

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Client:
    """One client of an experiment.

    Attributes
    ----------
    name : str
        Stable id; names its random streams.
    data : (d, n) array
        Columns are samples.
    learning : LearningSettings
    """

    name: str
    data: Floats
    learning: LearningSettings

    @property
    def coder(self) -> Coder:
        """What finds its codes."""
        return self.learning.make_coder(rms(self.data))


@dataclass(frozen=True)
class Model:
    """What a federation ends with.

    Attributes
    ----------
    global_dictionary : (d, r_g) array
    local_dictionaries : list of (d, r_i - r_g) arrays
    """

    global_dictionary: Floats
    local_dictionaries: list[Floats]


OnRound = Callable[[int, Model], object]
"""Called with 0 and the start, then after every round with its number and what it gave, local blocks as they were sent
from: only at the end are they moved off the last D^g."""


class Wire:
    """What reaches the server of what clients send: all of it, unless somebody lies or is absent."""

    def starts(self, dictionaries: list[Floats], energies: list[Floats]) -> tuple[list[Floats], list[Floats]]:
        """Return the first dictionaries, each of its own shape, and the energies of their atoms."""
        return dictionaries, energies

    def present(self, t: int, n: int) -> Sequence[int]:
        """Return which of ``n`` clients take part in round ``t``, ascending; the others compute nothing."""
        return range(n)

    def updates(self, t: int, who: Sequence[int], A: Floats, w: Floats) -> tuple[Floats, Floats]:
        """Return the contributions (len(who), d, r_g) and energies (len(who), r_g) of round ``t``."""
        return A, w


OnDictionaries = Callable[[int, list[Floats]], object]
"""The same, with dictionaries that are not split."""


def first_dictionaries(clients: Sequence[Client], seed: int) -> list[Floats]:
    """Return every client's D_i^(0), (d, r_i)."""
    return [first_dictionary(c.data, c.learning, seed, c.name) for c in clients]


def perma(
    clients: Sequence[Client],
    starts: Sequence[Floats],
    settings: Settings,
    on_round: OnRound | None = None,
    wire: Wire | None = None,
) -> Model:
    """Run PerMA (algorithm 1): match, then ``settings.rounds`` rounds of local update and aggregation.

    Parameters
    ----------
    clients : sequence of Client
        In the order of the chain.
    starts : sequence of (d, r_i) arrays
    settings : Settings
        ``n_global``, ``rounds``, ``tolerance``, ``matching``, ``aggregation`` and ``trim`` are read.
    on_round : callable, optional
    wire : Wire, optional

    Returns
    -------
    Model
    """
    wire = wire or Wire()
    aggregation, combine = AGGREGATIONS[settings.aggregation], combiner(settings.aggregation, settings.trim)
    D_g, local = match(clients, starts, settings, wire)
    if on_round:
        on_round(0, Model(D_g, local))
    watches = [NOTHING_SEEN] * len(clients)
    for t in range(1, settings.rounds + 1):
        contributions, energies = [], []
        who = wire.present(t, len(clients))
        for i in who:
            client = clients[i]
            D_l = retract(D_g, local[i]) if LEARNERS[client.learning.learner].orthonormal else local[i]
            new, watches[i] = client_round(
                client.data, D_g, D_l, client.learning, watches[i], t, settings.seed, client.name
            )
            local[i] = new.local_dictionary
            contributions.append(new.stretched if aggregation.contribution == "stretched" else new.global_dictionary)
            energies.append(new.energies)
        before, D_g = D_g, combine(*wire.updates(t, who, np.stack(contributions), np.stack(energies)), D_g)
        if on_round:
            on_round(t, Model(D_g, local))
        if D_g.size and np.linalg.norm(D_g - before, axis=0).max() <= settings.tolerance:
            break
    return _off(clients, D_g, local)


def match(
    clients: Sequence[Client], starts: Sequence[Floats], settings: Settings, wire: Wire | None = None
) -> tuple[Floats, list[Floats]]:
    """Phase 0: find the shared atoms among those that clients use.

    Returns
    -------
    global_dictionary : (d, r_g) array
    local_dictionaries : list of (d, r_i - r_g) arrays
        All other atoms of each client, used or not.
    """
    kept, usages = zip(*(used(client, D) for client, D in zip(clients, starts, strict=True)), strict=True)
    honest = [D[:, mine] for D, mine in zip(starts, kept, strict=True)]
    dictionaries, energies = (wire or Wire()).starts(honest, list(usages))
    names = [client.name for client in clients]
    n_global = settings.n_global
    if n_global == "auto":
        n_global, _ = suggest_n_global(dictionaries, names, settings.matching_method)
    matching = global_matching(dictionaries, n_global, names, settings.matching_method)
    _, D_g = first_average(dictionaries, energies, matching, settings.aggregation, settings.trim)
    rest = [np.delete(D, mine[index], axis=1) for D, mine, index in zip(starts, kept, matching.indices, strict=True)]
    return D_g, rest


def used(client: Client, D: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Return the atoms that a client would send, (m,), and their energies, (m,)."""
    X = client.coder(client.data, D)
    kept = used_atoms(X, client.learning.min_usage, client.learning.min_samples)
    return kept, usage(X)[kept]


def independent(
    clients: Sequence[Client], starts: Sequence[Floats], rounds: int, on_round: OnDictionaries | None = None
) -> list[Floats]:
    """Every client goes on alone from its start; return each one's dictionary after ``rounds`` steps."""
    D = list(starts)
    for t in range(rounds + 1):
        if t:
            D = [_step(client, one) for client, one in zip(clients, D, strict=True)]
        if on_round:
            on_round(t, D)
    return D


def pooled(clients: Sequence[Client], settings: Settings, on_round: OnDictionaries | None = None) -> Floats:
    """One learner on all clients' samples, which nobody may have; its own start and ``settings.rounds`` steps."""
    every = Client("pooled", np.hstack([client.data for client in clients]), settings.for_client("pooled"))
    return independent([every], first_dictionaries([every], settings.seed), settings.rounds, on_round)[0]


def averaged(
    clients: Sequence[Client], starts: Sequence[Floats], rounds: int, on_round: OnDictionaries | None = None
) -> Floats:
    """Federated averaging of whole dictionaries, atom by atom as they are numbered, without matching.

    Returns
    -------
    (d, r) array
        With atoms of unit norm.
    """
    D = _unit(np.mean(starts, axis=0))
    for t in range(rounds + 1):
        if t:
            D = _unit(np.mean([_step(client, D) for client in clients], axis=0))
        if on_round:
            on_round(t, [D])
    return D


def _step(client: Client, D: Floats) -> Floats:
    learning = client.learning
    return LEARNERS[learning.learner].step(client.data, D, client.coder, learning.step_size).dictionary


def _unit(D: Floats) -> Floats:
    norms = np.linalg.norm(D, axis=0)
    return np.asarray(D / np.where(norms > 0, norms, 1))


def _off(clients: Sequence[Client], D_g: Floats, local: Sequence[Floats]) -> Model:
    """Models as clients would write them: orthonormal learners keep the local block off D^g."""
    return Model(
        D_g,
        [
            retract(D_g, D_l) if LEARNERS[c.learning.learner].orthonormal else D_l
            for c, D_l in zip(clients, local, strict=True)
        ],
    )
