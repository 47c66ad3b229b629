"""Scales that all clients agree on: ask each for its sums, and combine them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from flwr.app import Message
from numpy.typing import NDArray

from common.errors import PerdlError
from common.protocol import SCALE, Payload, ProtocolError, check_name, natural_key, pack
from common.settings import Settings
from perdl_server.federation.admission import Node
from perdl_server.federation.messages import Exchange, GoneError, content_of
from perdl_server.federation.validation import largest_energy

Floats = NDArray[np.floating]
Sums = tuple[Floats, Floats]


def ask_for_scale(settings: Settings, run: str, exchange: Exchange, wait: Iterator[float]) -> list[float]:
    """Ask every node for its sums until ``n_clients`` have answered or the wait ends, and combine them.

    A node that fails here is not judged: it is asked for its first dictionary next, and says then what is wrong.

    Parameters
    ----------
    settings : Settings
        The run's settings.
    run : str
        The run's id.
    exchange : Exchange
        Connection to the nodes.
    wait : iterator of float
        Pauses between two looks; ends when the time is over.

    Returns
    -------
    list of float
        One constant for each feature or channel; empty if no client answered.
    """
    text = settings.model_dump_json(exclude_none=True)
    asked: dict[int, Node] = {}
    sums: dict[str, Sums] = {}
    failed: set[int] = set()
    for _ in wait:
        new = []
        for info in sorted(exchange.grid.get_nodes(), key=lambda info: info.node_id):
            former = asked.get(info.node_id)
            if former is None or former.session != info.last_activated_at:  # a new process
                asked[info.node_id] = Node(info.node_id, info.last_activated_at)
                failed.discard(info.node_id)
                new.append(asked[info.node_id])
        if new:
            exchange.ask("scale", {node: Message(pack(settings=text, run=run), node.id, SCALE) for node in new})
        for node, reply in exchange.receive():
            try:
                name, one = _sums_of(content_of(reply, SCALE))
                sums[name] = one
            except GoneError:
                asked.pop(node.id, None)
            except PerdlError:
                failed.add(node.id)
        if len(sums) + len(failed) >= settings.n_clients:
            break
    exchange.open.clear()
    return combined_scale([sums[name] for name in sorted(sums, key=natural_key)])


def combined_scale(sums: Sequence[Sums]) -> list[float]:
    r"""Return the pooled standard deviation within clients of each feature, 1 where it is zero.

    .. math:: s_a = \sqrt{\sum_i q_{i,a} / \sum_i n_{i,a}}

    Parameters
    ----------
    sums : sequence of (counts, squares)
        For each client n_i and q_i, each (c,). Clients with another number of features than most are left out.

    Returns
    -------
    list of float
        Empty if there are no sums.
    """
    if not sums:
        return []
    (length, _), *_ = Counter(len(counts) for counts, _ in sums).most_common(1)
    counts, squares = (sum(one[i] for one in sums if len(one[0]) == length) for i in (0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.sqrt(np.asarray(squares) / np.asarray(counts))
    return [float(one) for one in np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)]


def _sums_of(payload: Payload) -> tuple[str, Sums]:
    """Return a client's name and its sums after checking them."""
    name = check_name(payload.scalar("client", str))
    counts = payload.array("counts", (-1,))
    squares = payload.array("squares", counts.shape)
    most = largest_energy(squares.dtype)
    if not len(counts) or not ((counts >= 0) & (counts < 2**53) & (squares >= 0) & (squares <= most)).all():
        raise ProtocolError(f"{name} sent sums that cannot be")
    return name, (counts, squares)
