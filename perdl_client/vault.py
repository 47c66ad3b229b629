"""What a client keeps for secure sums: its secret, and what it did in each round. It is never sent.

A deployed client writes it to ``state/secure.json`` in its folder (mode 0600) *before* it answers, so a client that was
killed and restarted tells nothing that does not fit what it told before.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO

from flwr.app import ConfigRecord, Context

from common.files import write_atomically
from common.rng import stream
from common.secure_sum import SEED, derive
from common.simulation import is_simulation

_RECORD = "perdl.secure"
_FILE = Path("state", "secure.json")
_KEPT = 8
_log = logging.getLogger("perdl.client")


@dataclass(frozen=True)
class Turn:
    """What a client did in one round.

    Parameters
    ----------
    context : str
        Digest of all that its masks depend on: run, round, clients and their keys, D^g, fixed point.
    answer : str
        Digest of the numbers that it masked; empty before.
    opened : str
        Which clients are in the sum that it helped to open, as 0 and 1; empty before.
    """

    context: str
    answer: str = ""
    opened: str = ""


@dataclass(frozen=True)
class Vault:
    """What a client keeps for the secure sums of one run.

    Parameters
    ----------
    run : str
        The run's id.
    secret : str
        32 bytes in hexadecimal digits, from which all its keys and seeds are derived.
    card : str
        What it said of its key. A second signature of the same key would differ, and be taken for another key.
    exponent : int, optional
        e such that no number that it adds to a sum exceeds 2^e; None until it knows its samples.
    roster : str
        The clients of the last round and their keys, as sent and found valid.
    turns : mapping of int to Turn
        The last rounds.
    """

    run: str
    secret: str
    card: str = ""
    exponent: int | None = None
    roster: str = ""
    turns: Mapping[int, Turn] = field(default_factory=dict)

    @property
    def private_key(self) -> bytes:
        """The client's private key (X25519) of this run."""
        return self.derive("key")

    def derive(self, *purpose: str | bytes) -> bytes:
        """Return a seed or key for one purpose.

        Parameters
        ----------
        *purpose : str or bytes
            What it is for.
        """
        return derive(bytes.fromhex(self.secret), *purpose)

    def forgotten(self, t: int) -> bool:
        """Return whether a round is so old that the client no longer knows what it did in it.

        Parameters
        ----------
        t : int
            The round.
        """
        return len(self.turns) >= _KEPT and t < min(self.turns)

    def after(self, t: int, turn: Turn) -> Vault:
        """Return the vault with what the client did in a round.

        Parameters
        ----------
        t : int
            The round.
        turn : Turn
            What it did.
        """
        turns = {**self.turns, t: turn}
        return replace(self, turns={t: turns[t] for t in sorted(turns)[-_KEPT:]})


def find_vault(run: str, name: str, seed: int, context: Context, folder: Path | None) -> Vault:
    """Return the client's vault of a run; a new one if there is none.

    Parameters
    ----------
    run : str
        The run's id.
    name : str
        The client.
    seed : int
        The run's seed. Secrets of a simulation come from it; a deployed client's are random.
    context : flwr.app.Context
        This node's context.
    folder : Path, optional
        The client's folder; None in a simulation.
    """
    record = context.state.config_records.get(_RECORD)
    texts = [str(record["text"])] if record is not None else []
    if folder is not None and (folder / _FILE).exists():
        texts.append((folder / _FILE).read_text(encoding="utf-8"))
    for text in texts:
        vault = _read(text)
        if vault is not None and vault.run == run:
            return vault
    secret = stream(seed, name, "secure sums").bytes(SEED) if is_simulation() else secrets.token_bytes(SEED)
    return Vault(run, secret.hex())


def save_vault(vault: Vault, context: Context, folder: Path | None) -> None:
    """Keep the vault in Flower's context and, if a folder is given, on disk.

    Parameters
    ----------
    vault : Vault
        What to keep.
    context : flwr.app.Context
        This node's context.
    folder : Path, optional
        The client's folder.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    text = json.dumps(asdict(vault))

    def write(file: IO[bytes]) -> None:
        os.chmod(file.fileno() if os.chmod in os.supports_fd else file.name, 0o600)
        file.write(text.encode())

    if folder is not None:
        write_atomically(folder / _FILE, write)
    context.state.config_records[_RECORD] = ConfigRecord({"text": text})


def _read(text: str) -> Vault | None:
    try:
        values = json.loads(text)
        turns = {int(t): Turn(**turn) for t, turn in values.pop("turns").items()}
        return Vault(**values, turns=turns)
    except (ValueError, TypeError, KeyError, AttributeError):
        _log.warning("state/secure.json cannot be read: this client takes a new key")
        return None
