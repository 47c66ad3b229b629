"""The server's part of secure sums: it asks for a round's masked numbers, and opens their sum and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common import fixed_point, shamir
from common import secure_sum as sums
from common.errors import FederationError
from common.protocol import OPEN, UPDATE, Payload, ProtocolError
from common.secure_sum import FEWEST, SEALED, SEED
from common.shamir import SHARE, SharesError
from perdl_server.federation.members import Member, State
from perdl_server.federation.messages import Question
from perdl_server.federation.rounds import Federation
from perdl_server.federation.validation import MEASURES, METRICS, check_holds_only, check_sum

Floats = NDArray[np.floating]
Arrays = Mapping[str, NDArray[Any]]
_log = logging.getLogger("perdl.server")

ONLY_SUMS = (
    "of rounds the server saw sums over clients alone: errors are means, consensus weighs clients by what they sent, "
    "and no client is judged by what it sent"
)
"""What the summary says of diagnostics that need single clients' answers."""


@dataclass(frozen=True)
class RoundSum:
    """Sums over the clients of a round.

    Parameters
    ----------
    names : sequence of str
        The clients.
    contributions : (d, r_g) array
        Sum of their contributions, each times its energies if the aggregation has these.
    weights : (r_g,) array
        Sum of their energies, or else of the norms of their atoms.
    means : dict of str to float
        Mean over the clients of ``error_before_update``, ``nonzeros`` and ``reassigned``.
    """

    names: Sequence[str]
    contributions: Floats
    weights: Floats
    means: Mapping[str, float]


class SecureRounds:
    """Asks for rounds of a federation whose clients mask what they send.

    Parameters
    ----------
    federation : Federation
        The members and the connection to them.
    """

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self._void = False

    def round(self, t: int, arrays: Arrays) -> RoundSum | None:
        """Return the sums of a round.

        Parameters
        ----------
        t : int
            The round.
        arrays : mapping
            Holds D^g.

        Returns
        -------
        RoundSum, or None
            None if the round is void: enough clients are there, but some of them cannot answer this round (one came
            back with another key, or too many were lost while it was opened). The next one may do.

        Raises
        ------
        FederationError
            If there are too few clients, or the round before was void too.
        """
        try:
            found = self._round(t, arrays)
        except FederationError as error:
            here = sum(member.state is not State.AWAY for member in self._federation.members)
            if self._void or here < self._federation.members.quorum:
                raise
            _log.warning("round %d is void, and its sum stays closed: %s", t, error)
            self._void = True
            return None
        self._void = False
        return found

    def _round(self, t: int, arrays: Arrays) -> RoundSum:
        roster = self._roster()
        names = list(roster)
        text = sums.roster_text({name: member.card for name, member in roster.items()})
        mark = sums.digest(text).hex()
        list_of_clients = np.frombuffer(text.encode(), dtype=np.uint8)
        cards = {name: member.card for name, member in roster.items()}
        bits = fixed_point.fraction_bits(member.exponent for member in roster.values())
        shape = arrays["global_dictionary"].shape

        def asked(member: Member) -> bool:
            return cards.get(member.name) == member.card

        def own(member: Member) -> dict[str, NDArray[Any]]:
            return {} if member.roster == mark else {"clients": list_of_clients}

        length = shape[1] * (shape[0] + 1) + len(MEASURES + METRICS)
        check = partial(_check_masked, t, length, len(names))
        scalars: dict[str, int | str] = {"round": t, "roster": mark, "bits": bits}
        question = Question(UPDATE, f"round {t}", check, dict(arrays), scalars, asked, own)
        answers = {member.name: payload.arrays for member, payload in self._federation.ask(question)}
        for name in answers:
            roster[name].roster = mark
        present = np.array([name in answers for name in names])
        told = self._open(t, mark, names, present, answers, asked)
        total = unmasked(answers, told, names, present)
        found = _read_sum(total, [name for name in names if name in answers], shape, bits)
        check_sum(
            found.contributions, found.weights, found.means, arrays["global_dictionary"], len(answers), self._kind
        )
        return found

    @property
    def _kind(self) -> Any:
        return self._federation.server.aggregation

    def _roster(self) -> dict[str, Member]:
        """Return the clients of a round by name: all members, but for some that are away if enough are not."""
        members = [member for member in self._federation.members if member.card]
        here = [member for member in members if member.state is not State.AWAY]
        quorum = max(FEWEST, self._federation.members.quorum)
        chosen = here if len(here) >= quorum else members
        if len(chosen) < quorum:
            raise FederationError(f"a sum needs {quorum} clients at least, and {len(chosen)} have sent a key")
        return {member.name: member for member in chosen}

    def _open(
        self,
        t: int,
        mark: str,
        names: Sequence[str],
        present: NDArray[np.bool_],
        answers: Mapping[str, Arrays],
        asked: Any,
    ) -> dict[str, NDArray[np.uint8]]:
        """Ask the clients of a sum for what opens it, and return what they told, by name."""
        n = len(names)

        def own(member: Member) -> dict[str, NDArray[Any]]:
            place = names.index(member.name)
            shares = np.zeros((n, SEALED), dtype=np.uint8)
            for j in map(int, np.flatnonzero(present)):
                if j != place:
                    shares[j] = answers[names[j]]["shares"][place]
            return {"present": present, "shares": shares}

        # The seeds of pairs with a client that is not in the sum are known to the other of the two alone.
        quorum = sums.threshold(n) if present.all() else len(answers)
        question = Question(
            OPEN,
            f"opening round {t}",
            partial(_check_told, t, n),
            {},
            {"round": t, "roster": mark},
            lambda member: member.name in answers and asked(member),
            own,
            quorum,
        )
        return {member.name: payload.arrays["told"] for member, payload in self._federation.ask(question)}


def unmasked(
    answers: Mapping[str, Arrays],
    told: Mapping[str, NDArray[np.uint8]],
    names: Sequence[str],
    present: NDArray[np.bool_],
) -> NDArray[np.uint64]:
    """Return the sum of the clients' numbers, modulo 2^64.

    Parameters
    ----------
    answers : mapping of str to mapping
        By client: ``masked`` (m,), and ``commitment``, the digest of the seed of its own mask.
    told : mapping of str to (n, 33) array
        By client: shares of the seeds of those in the sum, and its seeds with the others.
    names : sequence of str
        The n clients of the round.
    present : (n,) bool array
        Which of them are in the sum.

    Raises
    ------
    FederationError
        If a client's shares do not belong together.
    """
    total: NDArray[np.uint64] = np.stack([arrays["masked"] for arrays in answers.values()]).sum(axis=0)
    openers = {names.index(name): rows for name, rows in told.items()}
    sharers = sorted(openers)[: sums.threshold(len(names))]
    for i in map(int, np.flatnonzero(present)):
        shares = {j: openers[j][i].tobytes() for j in sharers}
        committed = answers[names[i]]["commitment"].tobytes()
        try:
            seed = shamir.join_shares(shares)
        except SharesError:
            seed = b""
        if sums.digest("own seed", seed) != committed:
            raise FederationError(f"the sum cannot be opened: shares of the seed of {names[i]} do not belong together")
        total -= sums.mask(seed, len(total))
    gone = [int(k) for k in np.flatnonzero(~present)]
    if gone:
        for i, rows in openers.items():
            total -= sums.pair_masks({k: rows[k, :SEED].tobytes() for k in gone}, i, len(total))
    return total


def _read_sum(total: NDArray[np.uint64], names: list[str], shape: tuple[int, ...], bits: int) -> RoundSum:
    d, r = shape
    values = fixed_point.decode(total[: r * (d + 1)], bits)
    means = fixed_point.decode(total[r * (d + 1) :], fixed_point.METRIC_BITS) / len(names)
    return RoundSum(
        names,
        values[: d * r].reshape(d, r),
        values[d * r :],
        dict(zip(MEASURES + METRICS, means.tolist(), strict=True)),
    )


def _check_masked(t: int, length: int, n: int, payload: Payload, name: str) -> None:
    """Raise ProtocolError if a client's answer to a round has not the right form. Masked numbers may have any value."""
    check_holds_only(payload, {"round", "masked", "shares", "commitment"})
    _check_round(payload, t)
    for key, shape in (("masked", (length,)), ("shares", (n, SEALED)), ("commitment", (SEED,))):
        kind = np.uint64 if key == "masked" else np.uint8
        if payload.array(key, shape, "u").dtype != kind:
            raise ProtocolError(f"{key} has type {payload.arrays[key].dtype}")


def _check_told(t: int, n: int, payload: Payload, name: str) -> None:
    _check_round(payload, t)
    if payload.array("told", (n, SHARE), "u").dtype != np.uint8:
        raise ProtocolError(f"told has type {payload.arrays['told'].dtype}")


def _check_round(payload: Payload, t: int) -> None:
    if (answered := payload.scalar("round", int)) != t:
        raise ProtocolError(f"answered round {answered}, was asked for round {t}")
