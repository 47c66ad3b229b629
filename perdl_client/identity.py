"""Identity of a client: its name, its own settings, and whether it is simulated."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.learning_settings import LearningSettings
from common.protocol import check_name
from common.settings import Settings
from perdl_client.ledger import ledger_path
from perdl_client.terms import DEFAULT_TERMS, Terms

SIMULATION = "PERDL_SIMULATION"
"""Environment variable that a simulation sets. Its server and clients run as one user on one machine, so clients may
read and write the paths in the settings. A deployed client uses no path that the server names."""

NAMES = "PERDL_NAMES"
"""Environment variable with the names of simulated clients as JSON, for engines that start clients by number."""


def is_simulation() -> bool:
    """Return whether server and clients run as one user on this machine."""
    return bool(os.environ.get(SIMULATION))


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
        names = json.loads(os.environ.get(NAMES) or "[]")
        name = names[partition] if partition < len(names) else f"client-{partition + 1}"
        return cls(check_name(str(node_config.get("name", name))), partition, node_config)

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

    def folder(self, settings: Settings) -> Path:
        """Return the folder of this client's model.

        Parameters
        ----------
        settings : Settings
            The run's settings.
        """
        return self.state_folder() or Path(settings.output) / "clients" / self.name

    def state_folder(self) -> Path | None:
        """Return the folder that survives a restart; None in a simulation, whose clients end with the run."""
        if is_simulation():
            return None
        return Path(str(self.node_config.get("folder", Path("perdl-clients") / self.name)))
