"""The clients of a round and what a client shares with each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common import secure_sum as sums
from common.protocol import ProtocolError, check_name
from common.secure_sum import SecureSumError
from perdl_client.key_cards import read_card
from perdl_client.vault import Vault


@dataclass(frozen=True)
class Roster:
    """The clients of a round, in the order of their names, as a client sees them.

    Parameters
    ----------
    names : sequence of str
        All clients of the round.
    secrets : sequence of bytes
        What it shares with each; empty for itself.
    own : int
        Its own place.
    """

    names: Sequence[str]
    secrets: Sequence[bytes]
    own: int

    def pair_seeds(self, context: bytes) -> dict[int, bytes]:
        """Return the seed with each other client for one round, by place.

        Parameters
        ----------
        context : bytes
            The round.
        """
        return {j: sums.derive(s, "pair", context) for j, s in enumerate(self.secrets) if j != self.own}

    def seal_key(self, sender: int, receiver: int, context: bytes) -> bytes:
        """Return the key of the share that one client sends to another, of which one is this client.

        Parameters
        ----------
        sender, receiver : int
            Their places.
        context : bytes
            The round.
        """
        other = receiver if sender == self.own else sender
        return sums.derive(self.secrets[other], "share", context, self.names[sender], self.names[receiver])


def read_roster(text: str, vault: Vault, name: str, certs: Path | None, most: int) -> Roster:
    """Read the list of a round's clients and check their cards.

    Parameters
    ----------
    text : str
        The list, as it was sent.
    vault : Vault
        What the client keeps.
    name : str
        The client.
    certs : Path, optional
        Folder of the client's certificates. Without it no signature is checked.
    most : int
        Most clients that the run may have.

    Raises
    ------
    ProtocolError
        If it cannot be read, a key is not valid, or it holds not this client with its key.
    """
    try:
        pairs = [(check_name(str(who)), str(card)) for who, card in json.loads(text)]
    except (ValueError, TypeError, RecursionError):
        raise ProtocolError(f"{name} was sent a list of clients that cannot be read") from None
    names = [who for who, _ in pairs]
    if len(names) > most:
        raise ProtocolError(f"{name} was sent a list of {len(names)} clients, and the run has {most} at most")
    if len(set(names)) < len(names) or name not in names:
        raise ProtocolError(f"{name} was sent a list of clients that holds it not, or one twice")
    keys = [read_card(card, vault.run, who, certs) for who, card in pairs]
    own, private = names.index(name), vault.private_key
    if keys[own] != sums.public_key(private):
        raise ProtocolError(f"{name} was sent a list of clients with another key of its own")
    if len(set(keys)) < len(keys):
        raise ProtocolError(f"{name} was sent a list of clients with one key twice")
    try:
        shared = [b"" if i == own else sums.agreed_secret(private, key) for i, key in enumerate(keys)]
    except SecureSumError as error:
        raise ProtocolError(f"{name} was sent a list of clients in which {error}") from None
    return Roster(names, shared, own)
