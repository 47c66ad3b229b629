"""Identity of a client: its name, its own settings, and whether it is simulated."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.accounting import noise_multiplier
from common.errors import SettingsError
from common.learning_settings import LearningSettings
from common.mask import Mask, read_secret, simulated_mask, simulated_secret
from common.protocol import check_name
from common.settings import Settings
from common.simulation import is_simulation
from perdl_client.learning.private import PrivateProduct, private_learning, releases
from perdl_client.ledger import ledger_path
from perdl_client.terms import DEFAULT_TERMS, Terms

NAMES = "PERDL_NAMES"
"""Environment variable with the names of simulated clients as JSON, for engines that start clients by number."""


@functools.lru_cache(1)
def _names(text: str) -> list[str]:
    return list(json.loads(text))


@dataclass(frozen=True)
class Identity:
    """Identity of this client.

    Parameters
    ----------
    name : str
        Stable id. It gives the client's place in the order of clients, and its random streams.
    partition : int
        Number in a simulation or in an experiment's partition, from 0.
    node_config : mapping
        Settings that this node was started with.
    """

    name: str
    partition: int
    node_config: Mapping[str, Any]

    @classmethod
    def of(cls, node_config: Mapping[str, Any]) -> Identity:
        """Read the identity from Flower's node configuration. Without a name, partition 0 is called ``client-1``.

        Parameters
        ----------
        node_config : mapping
            Settings that the node was started with.
        """
        partition = int(node_config.get("partition-id", 0))
        name = node_config.get("name")
        if name is None:
            names = _names(os.environ.get(NAMES) or "[]")
            name = names[partition] if partition < len(names) else f"client-{partition + 1}"
        return cls(check_name(str(name)), partition, node_config)

    def min_samples(self, learning: LearningSettings) -> int:
        """Return how many samples must use an atom before it is sent.

        The server cannot go below the client's own minimum.

        Parameters
        ----------
        learning : LearningSettings
            This client's settings.
        """
        own = 1 if is_simulation() else int(self.node_config.get("min-samples", self._terms.min_samples))
        return max(own, learning.min_samples)

    @property
    def _terms(self) -> Terms:
        told = self.node_config.get("terms")
        return DEFAULT_TERMS if told is None else Terms.model_validate_json(str(told))

    def terms(self) -> Terms | None:
        """Return the terms that this client holds to.

        None in a simulation, where one owner has all the data, and without data of its own: synthetic samples show
        nothing.
        """
        return None if is_simulation() or "data" not in self.node_config else self._terms

    def ledger(self) -> Path:
        """Return the file in which a deployed client counts what its data served."""
        if "ledger" in self.node_config:
            return Path(str(self.node_config["ledger"]))
        return ledger_path(Path(str(self.node_config["data"])), self.state_folder() or Path())

    def learning(self, settings: Settings) -> LearningSettings:
        """Return how this client learns. Its own settings win over its table in the run's, and that over the run's.

        Parameters
        ----------
        settings : Settings
            The run's settings.
        """
        own = {key: value for key, value in self.node_config.items() if key in LearningSettings.model_fields}
        return settings.for_client(self.name, own)

    def check_privacy(self, settings: Settings) -> None:
        """Raise SettingsError if the client was told to take part in runs of another mode of privacy only.

        Parameters
        ----------
        settings : Settings
            The run's settings.
        """
        wanted, mode = self.node_config.get("privacy"), settings.privacy.mode
        if wanted and wanted != mode:
            raise SettingsError(
                f'{self.name} takes part in runs with privacy = "{wanted}" only, and this one has "{mode}": set it at '
                "the server, or start the client with another --privacy"
            )

    def mask(self, settings: Settings, run: str, d: int) -> Mask | None:
        """Return the change of coordinates of what this client sends; None if the run is not masked.

        Parameters
        ----------
        settings : Settings
            The run's settings.
        run : str
            The run's id.
        d : int
            Number of features.
        """
        secret = self.secret(settings)
        if not secret:
            return None
        return simulated_mask(settings.seed, d) if is_simulation() else Mask(secret, run, d)

    def private(self, settings: Settings, run: str, purpose: str) -> PrivateProduct | None:
        """Return what makes this client's learning differentially private; None if the run is not private.

        Parameters
        ----------
        settings : Settings
            The run's settings.
        run : str
            The run's id.
        purpose : str
            What is released: "start", or a round and its D^g. The same purpose draws the same noise.
        """
        asked = settings.privacy
        if asked.mode != "private" or asked.epsilon is None or asked.clip is None:
            return None
        count = releases(private_learning(self.learning(settings)), settings.rounds)
        z = noise_multiplier(asked.epsilon, asked.delta, count)
        return PrivateProduct(asked.clip, z, self._noise_key(settings), f"{self._run(run)}{purpose}")

    def _run(self, run: str) -> str:
        """Return what makes the noise of a run new. That of a simulation is the same for the same seed."""
        return "" if is_simulation() else f"run {run} "

    def _noise_key(self, settings: Settings) -> bytes:
        """Return the key of this client's noise, which nobody else may know."""
        folder = self.state_folder()
        if folder is None:
            return hashlib.sha256(f"perdl simulation {settings.seed} {self.name}".encode()).digest()
        path = folder / "noise.key"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
                path.write_bytes(secrets.token_bytes(32))
        key = path.read_bytes()
        if len(key) != 32:
            raise SettingsError(f"{path} holds no key of {self.name}'s noise: remove it, and start a new run")
        return key

    def secret(self, settings: Settings) -> bytes:
        """Return the secret that clients share; empty if the run is not masked.

        Parameters
        ----------
        settings : Settings
            The run's settings.

        Raises
        ------
        SettingsError
            If the run is masked and this client has no secret, or the other way round.
        """
        masked, path = settings.privacy.mode == "masked", str(self.node_config.get("secret", ""))
        if masked and is_simulation():
            return simulated_secret(settings.seed)
        if masked and not path:
            raise SettingsError(
                f'{self.name} has no secret, which privacy = "masked" needs: give it the file of the other clients '
                "as --secret (`perdl certs DIR --secret FILE` makes one)"
            )
        if path and not masked:
            raise SettingsError(
                f'{self.name} was started with --secret, and the run has privacy = "{settings.privacy.mode}": set it '
                'to "masked" at the server, or start the client without --secret'
            )
        return read_secret(path) if masked else b""

    def folder(self, settings: Settings) -> Path:
        """Return the folder of this client's model.

        Parameters
        ----------
        settings : Settings
            The run's settings.
        """
        return self.state_folder() or Path(settings.output) / "clients" / self.name

    def record_folder(self) -> Path | None:
        """Return the folder of the record of what leaves; None if the client keeps none."""
        return self.state_folder() if self.node_config.get("record") else None

    def state_folder(self) -> Path | None:
        """Return the folder that survives a restart; None in a simulation, whose clients end with the run."""
        if is_simulation():
            return None
        return Path(str(self.node_config.get("folder", Path("perdl-clients") / self.name)))
