"""A client's part of secure sums: it tells its key, sends masked numbers, and helps to open one sum a round.

What holds, whatever the server asks: of a round a client masks one vector of numbers, for one list of clients and one
D^g. It helps to open one sum of it, in which it takes part with enough others. For each other client it then tells a
share of that client's own seed, or the seed of their pair, never both.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from numpy.typing import NDArray

from common import fixed_point, shamir
from common import secure_sum as sums
from common.aggregations import AGGREGATIONS
from common.blocks import Columns, blocks
from common.errors import PerdlError
from common.protocol import Payload, ProtocolError, Scalar
from common.secure_sum import FEWEST, SEALED, SecureSumError
from common.settings import Settings
from common.simulation import is_simulation
from perdl_client.identity import Identity
from perdl_client.key_cards import is_signed, make_card
from perdl_client.learning.local_update import LocalUpdate
from perdl_client.roster import Roster, read_roster
from perdl_client.vault import Turn, Vault, find_vault, save_vault

Floats = NDArray[np.floating]
Arrays = dict[str, NDArray[Any]]
_MOST_BITS = 1100  # digits after the point; doubles have no more
_log = logging.getLogger("perdl.client")


def introduction(
    identity: Identity, settings: Settings, run: str, samples: Callable[[], Columns], context: Context
) -> dict[str, Scalar]:
    """Return what a client tells when it joins or comes back: its card, and a bound of its numbers.

    Parameters
    ----------
    identity : Identity
        The client.
    settings : Settings
        The run's settings.
    run : str
        The run's id.
    samples : callable () -> (d, n) array
        Returns its samples; called once in a run.
    context : flwr.app.Context
        This node's context.
    """
    vault = _vault(identity, settings, run, context)
    bound = exponent(settings.aggregation, samples()) if vault.exponent is None else vault.exponent
    certs = _certs(identity)
    card = vault.card
    if not card or is_signed(card) != (certs is not None):
        card = make_card(sums.public_key(vault.private_key), run, identity.name, certs)
        if certs is None and not is_simulation():
            _log.warning(
                "privacy = aggregated without certificates: keys are not signed, so a server that lies could play the "
                "other clients and see what this one sends; start all clients with --certs"
            )
    save_vault(replace(vault, card=card, exponent=bound), context, identity.state_folder())
    return {"card": card, "exponent": bound}


def exponent(aggregation: str, Y: Columns) -> int:
    r"""Return e such that no number of a client's contributions exceeds 2^e.

    Atoms have norms near 1. Energies and stretched atoms are second moments of codes, at most about
    :math:`\lVert Y\rVert_F^2`; a factor of 16 is left for codes that are larger than their samples.

    Parameters
    ----------
    aggregation : str
        Name of the aggregation.
    Y : (d, n) array or Stream
        The client's samples. NaN marks what was not measured.
    """
    kind = AGGREGATIONS[aggregation]
    if kind.contribution == "atoms" and not kind.weighted:
        return 6
    return math.frexp(sum(float(np.nansum(B.astype(np.float64) ** 2)) for B in blocks(Y)))[1] + 4


def begin_round(payload: Payload, identity: Identity, settings: Settings, t: int, context: Context) -> SecureRound:
    """Check what the server says of a round before any work, and write down that the client takes part.

    Parameters
    ----------
    payload : Payload
        The server's question.
    identity : Identity
        The client.
    settings : Settings
        The run's settings.
    t : int
        The round.
    context : flwr.app.Context
        This node's context.

    Raises
    ------
    ProtocolError
        If there are too few clients, a key is not valid, or the client was asked for this round in another way.
    """
    run, folder = payload.scalar("run", str), identity.state_folder()
    vault = _vault(identity, settings, run, context)
    told, bits = payload.scalar("roster", str), payload.scalar("bits", int)
    text = bytes(payload.array("clients", (-1,), "u")).decode(errors="replace") if "clients" in payload.arrays else ""
    text = text or vault.roster
    if sums.digest(text).hex() != told:
        raise ProtocolError(f"{identity.name} was not sent the list of this round's clients that was announced")
    roster = read_roster(
        text, vault, identity.name, None if text == vault.roster else _certs(identity), settings.n_clients
    )
    if abs(bits) > _MOST_BITS:
        raise ProtocolError(f"{identity.name} was asked for numbers of {bits} digits")
    least = max(FEWEST, settings.quorum or settings.n_clients)
    if len(roster.names) < least:
        raise ProtocolError(f"{identity.name} takes part in sums of {least} clients at least, not {len(roster.names)}")
    D_g = payload.array("global_dictionary", (-1, -1))
    mark = sums.digest(run, str(t), told, str(bits), f"{D_g.dtype} {D_g.shape}", D_g.tobytes()).hex()
    turn = vault.turns.get(t, Turn(mark))
    if turn.context != mark:
        raise ProtocolError(f"{identity.name} was asked for round {t} before, with other clients or another D^g")
    if vault.forgotten(t):
        raise ProtocolError(f"{identity.name} takes part in no round as old as {t} again")
    vault = replace(vault.after(t, turn), roster=text)
    save_vault(vault, context, folder)
    return SecureRound(vault, roster, t, bits, context, folder)


@dataclass(frozen=True)
class SecureRound:
    """One round in which a client takes part.

    Parameters
    ----------
    vault : Vault
        What the client keeps.
    roster : Roster
        The clients of the round.
    t : int
        The round.
    bits : int
        Binary digits after the point.
    context : flwr.app.Context
        This node's context.
    folder : Path, optional
        The client's folder.
    """

    vault: Vault
    roster: Roster
    t: int
    bits: int
    context: Context
    folder: Path | None

    def answer(self, new: LocalUpdate, aggregation: str) -> Arrays:
        """Return the masked numbers of an update, and shares of the seed of their own mask, one for each client.

        Parameters
        ----------
        new : LocalUpdate
            The update.
        aggregation : str
            Name of the aggregation.

        Raises
        ------
        PerdlError
            If a number is too large, or they are others than those sent for this round before.
        """
        try:
            x = numbers(new, aggregation, self.bits, self.vault.exponent or 0)
        except fixed_point.TooLargeError as error:
            raise PerdlError(f"{self.roster.names[self.roster.own]}: {error}; rescale the data") from None
        turn, own, n = self.vault.turns[self.t], self.roster.own, len(self.roster.names)
        mark = sums.digest(x.tobytes()).hex()
        if turn.answer not in ("", mark):
            raise ProtocolError(
                f"{self.roster.names[own]} would answer round {self.t} otherwise than before: its data have changed"
            )
        save_vault(self.vault.after(self.t, replace(turn, answer=mark)), self.context, self.folder)
        context = bytes.fromhex(turn.context)
        seed = self.vault.derive("own", context)
        masked = x + sums.mask(seed, len(x)) + sums.pair_masks(self.roster.pair_seeds(context), own, len(x))
        shares = np.zeros((n, SEALED), dtype=np.uint8)
        for j, share in enumerate(_own_shares(self.vault, context, n)):
            if j != own:
                sealed = sums.seal(self.roster.seal_key(own, j, context), share, context)
                shares[j] = np.frombuffer(sealed, dtype=np.uint8)
        commitment = np.frombuffer(sums.digest("own seed", seed), dtype=np.uint8)
        return {"masked": masked, "shares": shares, "commitment": commitment}


def numbers(new: LocalUpdate, aggregation: str, bits: int, bound: int) -> NDArray[np.uint64]:
    """Return all that a client adds to a round's sum, in fixed point: r^g (d + 1) numbers, and three of how it fared.

    Parameters
    ----------
    new : LocalUpdate
        The update.
    aggregation : str
        Name of the aggregation.
    bits : int
        Binary digits after the point; the last three numbers have ``METRIC_BITS``.
    bound : int
        No number is above 2^bound.
    """
    A = new.contribution(aggregation).astype(np.float64)
    w = new.energies if AGGREGATIONS[aggregation].weighted else np.linalg.norm(A, axis=0)
    A = A * w if AGGREGATIONS[aggregation].weighted else A
    told = np.array([new.error, new.nonzeros, new.reassigned], dtype=np.float64)
    parts = (
        fixed_point.encode(np.concatenate([A.ravel(), w]), bits, bound),
        fixed_point.encode(told, fixed_point.METRIC_BITS, 20),
    )
    return np.concatenate(parts)


def open_sum(payload: Payload, identity: Identity, settings: Settings, context: Context) -> Arrays:
    """Return what the server needs of this client to open a round's sum.

    Parameters
    ----------
    payload : Payload
        The server's question: the round, which clients are in the sum, and their shares for this client.
    identity : Identity
        The client.
    settings : Settings
        The run's settings.
    context : flwr.app.Context
        This node's context.

    Raises
    ------
    ProtocolError
        If it takes no part in this sum, there are too few clients in it, it helped to open another sum of this round,
        or a share is not valid.
    """
    run, t, folder = payload.scalar("run", str), payload.scalar("round", int), identity.state_folder()
    vault = _vault(identity, settings, run, context)
    turn = vault.turns.get(t)
    if turn is None or not turn.answer or payload.scalar("roster", str) != sums.digest(vault.roster).hex():
        raise ProtocolError(f"{identity.name} has sent nothing for round {t} among these clients")
    roster = read_roster(vault.roster, vault, identity.name, None, settings.n_clients)  # checked when it came
    n, own, mark = len(roster.names), roster.own, bytes.fromhex(turn.context)
    present = payload.array("present", (n,), "b")
    least = max(sums.threshold(n), settings.quorum or settings.n_clients)
    if not present[own] or np.count_nonzero(present) < least:
        raise ProtocolError(f"{identity.name} opens sums with itself and {least - 1} others at least")
    text = "".join("1" if one else "0" for one in present)
    if turn.opened not in ("", text):
        raise ProtocolError(f"{identity.name} has helped to open another sum of round {t}")
    sealed = payload.array("shares", (n, SEALED), "u")
    told = np.zeros((n, shamir.SHARE), dtype=np.uint8)
    seeds, mine = roster.pair_seeds(mark), _own_shares(vault, mark, n)
    for j in range(n):
        if j == own:
            part = mine[own]
        elif present[j]:
            part = _unsealed(roster, j, sealed[j].tobytes(), mark)
        else:
            part = seeds[j]
        told[j, : len(part)] = np.frombuffer(part, dtype=np.uint8)
    save_vault(vault.after(t, replace(turn, opened=text)), context, folder)
    return {"told": told}


def _unsealed(roster: Roster, sender: int, sealed: bytes, context: bytes) -> bytes:
    try:
        return sums.unseal(roster.seal_key(sender, roster.own, context), sealed, context)
    except SecureSumError as error:
        raise ProtocolError(f"{roster.names[roster.own]} got from {roster.names[sender]}: {error}") from None


def _own_shares(vault: Vault, context: bytes, n: int) -> list[bytes]:
    """Return the n shares of the seed of the client's own mask; the same whenever they are asked."""
    t = sums.threshold(n)
    noise = sums.keystream(vault.derive("shares", context), shamir.NOISE * (t - 1))
    return shamir.split_secret(vault.derive("own", context), n, t, noise)


def _vault(identity: Identity, settings: Settings, run: str, context: Context) -> Vault:
    return find_vault(run, identity.name, settings.seed, context, identity.state_folder())


def _certs(identity: Identity) -> Path | None:
    """Return the folder of the client's certificates, if it was started with one."""
    told = "" if is_simulation() else str(identity.node_config.get("certs", ""))
    return Path(told) if told else None
