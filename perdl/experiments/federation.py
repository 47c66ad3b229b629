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
from common.learners import LEARNERS
from common.learning_settings import LearningSettings
from common.settings import Settings, changed
from perdl.perma import Channel
from perdl.perma import perma as algorithm_1
from perdl_client.learning.client import ClientLearner
from perdl_client.learning.initialization import first_dictionary, rms, usage, used_atoms

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
    channel: Channel | None = None,
) -> Model:
    """Run PerMA (:func:`perdl.perma.perma`) from given starts.

    Parameters
    ----------
    clients : sequence of Client
        In the order of the chain.
    starts : sequence of (d, r_i) arrays
    settings : Settings
    on_round : callable, optional
    channel : Channel, optional
        Between clients and server.

    Returns
    -------
    Model
    """
    learners = [
        ClientLearner(c.data, c.learning, settings.seed, c.name, dictionary=D)
        for c, D in zip(clients, starts, strict=True)
    ]

    def tell(t: int, D_g: Floats) -> None:
        if on_round:
            on_round(t, Model(D_g, [learner.dictionary for learner in learners]))

    D_g = algorithm_1(learners, settings, tell, channel)
    return Model(D_g, [learner.finish(D_g) for learner in learners])


def match(clients: Sequence[Client], starts: Sequence[Floats], settings: Settings) -> tuple[Floats, list[Floats]]:
    """Phase 0 alone: find the shared atoms among those that clients use.

    Returns
    -------
    global_dictionary : (d, r_g) array
    local_dictionaries : list of (d, r_i - r_g) arrays
        All other atoms of each client, used or not.
    """
    model: list[Model] = []
    perma(clients, starts, changed(settings, rounds=0), lambda t, start: model.append(start))
    return model[0].global_dictionary, model[0].local_dictionaries


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
