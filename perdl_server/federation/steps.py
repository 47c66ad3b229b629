"""The steps of a run that its server takes with the clients' answers: match their first dictionaries, take a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.logs import about
from common.protocol import UPDATE, Payload
from perdl_server.algorithm.matching import MatchingError
from perdl_server.algorithm.server import PermaServer
from perdl_server.federation.members import Member
from perdl_server.federation.messages import Question
from perdl_server.federation.rounds import Federation
from perdl_server.federation.validation import MEASURES, METRICS, check_update


def match_members(federation: Federation) -> dict[str, Any]:
    """Phase 0: find the shared atoms, give each member its own indices, and return facts for the summary.

    Parameters
    ----------
    federation : Federation
        The members with their first dictionaries, which are dropped: the server keeps no client's atoms.

    Raises
    ------
    MatchingError
        If they cannot be matched. The member that is the cause has it as its fault.
    """
    members = federation.members
    try:
        match = federation.server.match(
            {member.name: member.dictionary for member in members}, [member.usage for member in members]
        )
    except MatchingError as error:
        for member in members:
            if member.name == error.client:
                member.fault = str(error)
        raise
    for member, indices in zip(members, match.indices, strict=True):
        member.indices, member.dictionary = indices, np.empty((0, 0))
    return match.report


def take_round(federation: Federation, t: int) -> list[dict[str, Any]]:
    """Ask the members for round ``t``, aggregate their answers to a new D^g, and return the metrics of each.

    Parameters
    ----------
    federation : Federation
        The members, matched.
    t : int
        The round, from 1.

    Raises
    ------
    FederationError
        If fewer than the quorum answer.
    """
    server = federation.server
    with about(round=t):
        check = partial(_check, server, t)
        answers = federation.ask(Question(UPDATE, f"round {t}", check, arrays_of(server), {"round": t}))
    _aggregate(server, answers)
    return [
        {"round": t, "client": member.name}
        | {key: payload.scalars[key] for key in MEASURES + METRICS if key in payload.scalars}
        for member, payload in answers
    ]


def arrays_of(server: PermaServer) -> dict[str, NDArray[Any]]:
    """Return the arrays of D^g that are sent; empty before matching.

    Parameters
    ----------
    server : PermaServer
        Owner of D^g.
    """
    return {"global_dictionary": server.global_dictionary} if server.matched else {}


def _check(server: PermaServer, t: int, payload: Payload, name: str) -> None:
    """Raise ProtocolError if a client's answer to round ``t`` is not valid."""
    metrics = METRICS if server.settings.privacy.mode == "private" else METRICS + MEASURES
    check_update(payload, t, server.global_dictionary, server.aggregation, server.members(name), metrics)


def _aggregate(server: PermaServer, answers: Sequence[tuple[Member, Payload]]) -> None:
    arrays: list[Mapping[str, NDArray[Any]]] = [payload.arrays for _, payload in answers]
    own = [one["contribution"] for one in arrays]
    weights = [one.get("energies", np.ones(len(B.T), B.dtype)) for one, B in zip(arrays, own, strict=True)]
    told = [(one["spread"], one["nearest"]) for one in arrays if "spread" in one]
    server.aggregate(*server.gather([member.name for member, _ in answers], own, weights, told))
