r"""Algorithm 1 of the paper, PerMA: the loop over its two halves.

.. math:: \min_{D^g, \{D^l_i\}, \{X_i\}} \sum_{i=1}^N \lVert Y_i - [D^g\ D^l_i] X_i\rVert_F^2, \qquad X_i \text{ sparse}

`perdl_client.learning.client.ClientLearner` computes what client i does, `perdl_server.algorithm.server.PermaServer`
what the server does. Here they call each other; in a federation they send messages. The results are the same to the
last bit.

Source: Liang, Shi, Al Kontar, Fattahi, "Personalized Dictionary Learning for Heterogeneous Datasets", 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from common.dictionaries import ABSENT, atom_distances, chosen
from common.settings import Settings
from perdl_client.learning.client import ClientLearner
from perdl_server.algorithm.clusters import chance_distance
from perdl_server.algorithm.matching import align
from perdl_server.algorithm.membership import EXACT, noise_factor
from perdl_server.algorithm.server import PermaServer

Floats = NDArray[np.floating]


class Channel:
    """What the server receives. By default all that clients send; subclasses simulate liars and absent clients."""

    def starts(self, dictionaries: list[Floats], usages: list[Floats]) -> tuple[list[Floats], list[Floats]]:
        """Return the first dictionaries and the energies of their atoms, as the server receives them.

        Parameters
        ----------
        dictionaries : list of (d, m_i) arrays
            The used atoms of each client's first dictionary.
        usages : list of (m_i,) arrays
            Energies of these atoms.
        """
        return dictionaries, usages

    def present(self, t: int, n: int) -> Sequence[int]:
        """Return the clients that take part in a round, ascending; the others compute nothing.

        Parameters
        ----------
        t : int
            The round, from 1.
        n : int
            Number of clients.
        """
        return range(n)

    def updates(self, t: int, who: Sequence[int], A: Floats, w: Floats) -> tuple[Floats, Floats]:
        """Return the contributions and energies of a round, as the server receives them.

        Parameters
        ----------
        t : int
            The round, from 1.
        who : sequence of int
            The m clients that take part, ascending.
        A : (m, d, r_g) array
            Their contributions.
        w : (m, r_g) array
            Energies of the atoms.
        """
        return A, w


def perma(
    clients: Sequence[ClientLearner],
    settings: Settings,
    on_round: Callable[[int, Floats], object] = lambda t, D_g: None,
    channel: Channel | None = None,
) -> Floats:
    """Run algorithm 1: match, then T rounds of local updates and averaging.

    Parameters
    ----------
    clients : sequence of ClientLearner
        In the order of their names. Each keeps its own D^l_i: ``client.finish(D_g)`` returns it.
    settings : Settings
        Settings of the run; ``rounds`` is T.
    on_round : callable (int, array) -> object
        Called with the round and D^g: with 0 after matching, then after every round.
    channel : Channel, optional
        Changes what the server receives. By default it receives all.

    Returns
    -------
    (d, r_g) array
        D^g. With ``sharing = "some"``, ``client.members`` says which of its atoms a client shares.
    """
    server = PermaServer(settings, guarded=any(client.guard is not None for client in clients))
    channel = channel or Channel()
    starts = [client.start() for client in clients]
    dictionaries, usages = channel.starts([start.atoms for start in starts], [start.usage for start in starts])
    names = [client.name for client in clients]
    match = server.match(dict(zip(names, dictionaries, strict=True)), usages)
    for client, start, indices in zip(clients, starts, match.indices, strict=True):
        client.split(chosen(start.used, indices), settings.sharing)
    on_round(0, server.global_dictionary)
    for t in range(1, settings.rounds + 1):
        who = channel.present(t, len(clients))
        present, D_g = [clients[i] for i in who], server.global_dictionary
        for client in present:
            if (members := server.members(client.name)) is not None:
                client.share(members, D_g)
        updates = [client.update(D_g, t) for client in present]
        A, w, evidence = server.gather(
            [client.name for client in present],
            [update.contribution(settings.aggregation) for update in updates],
            [update.energies for update in updates],
            [c.evidence(update, D_g) for c, update in zip(present, updates, strict=True) if c.members is not None],
        )
        server.aggregate(*channel.updates(t, who, A, w), evidence)
        on_round(t, server.global_dictionary)
        if server.at_rest:
            break
    for client in clients:
        if (members := server.members(client.name)) is not None:
            client.share(members, server.global_dictionary)
            client.keep(server.shared)
    return server.shared_dictionary


def adapt(
    client: ClientLearner, global_dictionary: Floats, *, rounds: int, tolerance: float, sharing: str = "all"
) -> Floats:
    r"""Learn the local dictionary of a client that joins after the run. D^g does not change, and nothing is sent.

    The client starts like every other. Then it drops the atoms nearest to D^g, and takes rounds alone.

    With ``sharing = "some"`` this has three steps, each with rounds. (1) The client drops the atoms that are nearer to
    D^g than unrelated atoms are by chance, as :meth:`.PermaServer.admit` does, and shares these: with D^g's help it
    leaves wrong basins. (2) It takes all atoms for its own, starting from there. (3) It shares D^g_j if the own atom
    that is paired with it has come to lie within :math:`q \sqrt{2} s_{ij}`, where q is :func:`.noise_factor` and
    :math:`s_{ij}` the standard error of its own atom (D^g_j counts as no more exact). ``client.members`` says which.
    Step 2 is needed because a wrong atom makes all errors larger, and so hides that it is wrong.

    Parameters
    ----------
    client : ClientLearner
        The new client, with its first dictionary.
    global_dictionary : (d, r_g) array
        D^g of the run.
    rounds : int
        Largest number of rounds.
    tolerance : float
        Stop when no local atom moves more than this.
    sharing : {"all", "some"}
        Whether the client takes part in all global atoms, or in those that its data carry.

    Returns
    -------
    (d, r_l) array
    """
    indices = align(global_dictionary, client.dictionary)
    if sharing != "some":
        client.split(indices)
        client.take_rounds(global_dictionary, rounds, tolerance)
        return client.finish(global_dictionary)
    d, r_g = global_dictionary.shape
    distances = atom_distances(global_dictionary, client.dictionary[:, indices]).diagonal()
    near = (indices >= 0) & (distances <= chance_distance(d, r_g * client.dictionary.shape[1]))
    client.split(np.where(near, indices, ABSENT), sharing)
    client.take_rounds(global_dictionary, rounds, tolerance)
    client.share(np.zeros(r_g, dtype=bool), global_dictionary)
    update = client.take_rounds(global_dictionary, rounds, tolerance)
    if update is None:
        members = near
    else:
        spread, nearest = client.evidence(update, global_dictionary)
        own = align(global_dictionary, client.dictionary)
        distances = atom_distances(global_dictionary, client.dictionary[:, own]).diagonal()
        paired = (own >= 0) & (distances <= nearest + EXACT)
        members = paired & (nearest <= noise_factor(d) * np.sqrt(2) * spread + EXACT)
    client.share(members, global_dictionary)
    client.take_rounds(global_dictionary, rounds, tolerance)
    return client.finish(global_dictionary)
