r"""Algorithm 1 of the paper, PerMA: the loop over its two halves.

.. math:: \min_{D^g, \{D^l_i\}, \{X_i\}} \sum_{i=1}^N \lVert Y_i - [D^g\ D^l_i] X_i\rVert_F^2, \qquad X_i \text{ sparse}

What client i computes is `perdl_client.learning.client.ClientLearner`; what the server computes is
`perdl_server.algorithm.server.PermaServer`. A federation sends between the two what is a call here, and ends on the
same bits.

Source: Liang, Shi, Al Kontar, Fattahi, "Personalized Dictionary Learning for Heterogeneous Datasets", 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from common.settings import Settings
from perdl_client.learning.client import ClientLearner
from perdl_server.algorithm.matching import align
from perdl_server.algorithm.server import PermaServer

Floats = NDArray[np.floating]


class Channel:
    """What reaches the server of what clients send: all of it, unless somebody lies or is absent."""

    def starts(self, dictionaries: list[Floats], usages: list[Floats]) -> tuple[list[Floats], list[Floats]]:
        """Return the first dictionaries, each of its own shape, and the energies of their atoms."""
        return dictionaries, usages

    def present(self, t: int, n: int) -> Sequence[int]:
        """Return which of ``n`` clients take part in round ``t``, ascending; the others compute nothing."""
        return range(n)

    def updates(self, t: int, who: Sequence[int], A: Floats, w: Floats) -> tuple[Floats, Floats]:
        """Return the contributions (len(who), d, r_g) and energies (len(who), r_g) of round ``t``."""
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
        ``rounds`` is T.
    on_round : callable ``(t, D_g)``
        Called after matching with 0, then after every round.
    channel : Channel, optional
        Between clients and server.

    Returns
    -------
    (d, r_g) array
        D^g.
    """
    server, channel = PermaServer(settings), channel or Channel()
    starts = [client.start() for client in clients]
    dictionaries, usages = channel.starts([start.atoms for start in starts], [start.usage for start in starts])
    names = [client.name for client in clients]
    match = server.match(dict(zip(names, dictionaries, strict=True)), usages)
    for client, start, indices in zip(clients, starts, match.indices, strict=True):
        client.split(start.used[indices])
    on_round(0, server.global_dictionary)
    for t in range(1, settings.rounds + 1):
        who = channel.present(t, len(clients))
        updates = [clients[i].update(server.global_dictionary, t) for i in who]
        A = np.stack([update.contribution(settings.aggregation) for update in updates])
        w = np.stack([update.energies for update in updates])
        server.aggregate(*channel.updates(t, who, A, w))
        on_round(t, server.global_dictionary)
        if server.at_rest:
            break
    return server.global_dictionary


def adapt(client: ClientLearner, global_dictionary: Floats, *, rounds: int, tolerance: float) -> Floats:
    """Learn the local dictionary of a client that was not in the federation, which keeps its D^g. Nothing is sent.

    The client begins as every client does, gives up the atoms that are nearest to D^g, and takes rounds of its own.

    Parameters
    ----------
    client : ClientLearner
    global_dictionary : (d, r_g) array
    rounds : int
        At most.
    tolerance : float
        Largest move of a local atom that counts as rest.

    Returns
    -------
    (d, r_l) array
    """
    client.split(align(global_dictionary, client.dictionary))
    for t in range(1, rounds + 1):
        before = client.finish(global_dictionary)
        client.update(global_dictionary, t)
        if np.linalg.norm(client.dictionary - before, axis=0).max(initial=0.0) <= tolerance:
            break
    return client.finish(global_dictionary)
