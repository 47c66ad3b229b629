"""PerMA on arrays, without messages, and the strategies that it is compared with, all from the same starts.

The steps are those of the Flower strategy and the ClientApp, in the same order: the same settings give the same numbers
to the last bit. Experiments run thousands of federations, so they avoid the cost of messages. Their data have one
owner: there is no privacy (mode ``none``).
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
from common.statistics import atom_energies, rms, used_atoms
from perdl.perma import Channel
from perdl.perma import perma as algorithm_1
from perdl_client.learning.client import ClientLearner
from perdl_client.learning.initialization import first_dictionary

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Client:
    """One client of an experiment.

    Parameters
    ----------
    name : str
        Stable id; it names the client's random streams.
    data : (d, n) array
        Samples in columns.
    learning : LearningSettings
        How the client learns.
    """

    name: str
    data: Floats
    learning: LearningSettings

    @property
    def coder(self) -> Coder:
        """The coder that finds the client's codes."""
        return self.learning.make_coder(rms(self.data))


@dataclass(frozen=True)
class Model:
    """The result of a federation.

    Parameters
    ----------
    global_dictionary : (d, r_g) array
        D^g.
    local_dictionaries : list of (d, r_i - r_g) arrays
        Local dictionary of each client.
    """

    global_dictionary: Floats
    local_dictionaries: list[Floats]


OnRound = Callable[[int, Model], object]
"""Called with 0 and the start, then after every round with its number and the model. Local dictionaries are those of
the clients' updates: they become orthogonal to the last D^g only at the end."""


OnDictionaries = Callable[[int, list[Floats]], object]
"""The same, with each client's whole dictionary."""


def first_dictionaries(clients: Sequence[Client], seed: int) -> list[Floats]:
    """Return every client's D_i^(0), (d, r_i).

    Parameters
    ----------
    clients : sequence of Client
        Clients with their data, in any order.
    seed : int
        Seed of the run.
    """
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
        The clients, in the order of the chain.
    starts : sequence of (d, r_i) arrays
        First dictionary of each client.
    settings : Settings
        Settings of the run.
    on_round : callable (int, Model) -> object, optional
        Called after matching with 0, then after every round.
    channel : Channel, optional
        Changes what the server receives. By default it receives all.

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
    """Do phase 0 alone: find the shared atoms among those that clients use.

    Parameters
    ----------
    clients : sequence of Client
        The clients, in the order of the chain.
    starts : sequence of (d, r_i) arrays
        First dictionary of each client.
    settings : Settings
        Settings of the run.

    Returns
    -------
    global_dictionary : (d, r_g) array
        D^g.
    local_dictionaries : list of (d, r_i - r_g) arrays
        All other atoms of each client, used or not.
    """
    model: list[Model] = []
    perma(clients, starts, changed(settings, rounds=0), lambda t, start: model.append(start))
    return model[0].global_dictionary, model[0].local_dictionaries


def used(client: Client, D: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Return the indices of the atoms that a client would send (m,), and their energies (m,).

    Parameters
    ----------
    client : Client
        Client with its data and coder.
    D : (d, r) array
        Its dictionary.
    """
    X = client.coder(client.data, D)
    kept = used_atoms(X, client.learning.min_usage, client.learning.min_samples)
    return kept, atom_energies(X)[kept]


def independent(
    clients: Sequence[Client], starts: Sequence[Floats], rounds: int, on_round: OnDictionaries | None = None
) -> list[Floats]:
    """Let every client continue alone from its start; return their dictionaries.

    Parameters
    ----------
    clients : sequence of Client
        Clients with their data, which learn alone.
    starts : sequence of (d, r_i) arrays
        First dictionary of each client.
    rounds : int
        Number of steps.
    on_round : callable (int, list of arrays) -> object, optional
        Called with 0 and the starts, then after every step.
    """
    D = list(starts)
    for t in range(rounds + 1):
        if t:
            D = [_step(client, one) for client, one in zip(clients, D, strict=True)]
        if on_round:
            on_round(t, D)
    return D


def pooled(clients: Sequence[Client], settings: Settings, on_round: OnDictionaries | None = None) -> Floats:
    """Learn one dictionary from all clients' samples, which nobody may have in practice.

    Parameters
    ----------
    clients : sequence of Client
        Clients whose samples are pooled.
    settings : Settings
        Settings of the run; ``rounds`` is the number of steps.
    on_round : callable (int, list of arrays) -> object, optional
        Called with 0 and the start, then after every step.
    """
    every = Client("pooled", np.hstack([client.data for client in clients]), settings.for_client("pooled"))
    return independent([every], first_dictionaries([every], settings.seed), settings.rounds, on_round)[0]


def averaged(
    clients: Sequence[Client], starts: Sequence[Floats], rounds: int, on_round: OnDictionaries | None = None
) -> Floats:
    """Average whole dictionaries every round, without matching: atom j of one client with atom j of all others.

    Parameters
    ----------
    clients : sequence of Client
        Clients whose dictionaries are averaged.
    starts : sequence of (d, r) arrays
        First dictionary of each client.
    rounds : int
        Number of rounds.
    on_round : callable (int, list of arrays) -> object, optional
        Called with 0 and the start, then after every round.

    Returns
    -------
    (d, r) array
        The average, atoms of unit norm.
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
