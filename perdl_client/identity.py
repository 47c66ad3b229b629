"""Who a client is: its name, what it was told at its start, and whether it is simulated."""

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

SIMULATION = "PERDL_SIMULATION"
"""Environment variable that a simulation sets: server and clients are one user on one machine, so paths that the
settings name may be read and written by clients. A deployed client takes no path from the server."""

NAMES = "PERDL_NAMES"
"""Environment variable with the names of simulated clients as JSON, for engines that start clients by number."""


def is_simulation() -> bool:
    """Whether server and clients are one user on this machine."""
    return bool(os.environ.get(SIMULATION))


@dataclass(frozen=True)
class Identity:
    """Who this client is.

    Attributes
    ----------
    name : str
        Stable id; sorts the clients, seeds their random streams.
    partition : int
        Its number in a simulation or an experiment's partition, from 0.
    node_config : mapping
        What this node was told at its own start.
    """

    name: str
    partition: int
    node_config: Mapping[str, Any]

    @classmethod
    def of(cls, node_config: Mapping[str, Any]) -> Identity:
        """Read the identity from Flower's node configuration; without a name, ``client-1`` is partition 0.

        Parameters
        ----------
        node_config : mapping
            What the node was told at its start.
        """
        partition = int(node_config.get("partition-id", 0))
        names = json.loads(os.environ.get(NAMES) or "[]")
        name = names[partition] if partition < len(names) else f"client-{partition + 1}"
        return cls(check_name(str(node_config.get("name", name))), partition, node_config)

    def min_samples(self, learning: LearningSettings) -> int:
        """Samples that must use an atom before it is sent; no server can go below this client's own word.

        Parameters
        ----------
        learning : LearningSettings
            This client's settings.
        """
        own = 1 if is_simulation() else int(self.node_config.get("min-samples", 2))
        return max(own, learning.min_samples)

    def learning(self, settings: Settings) -> LearningSettings:
        """How this client learns: the run's settings, then its table in them, then its own.

        Parameters
        ----------
        settings : Settings
            The run's settings.
        """
        own = {key: value for key, value in self.node_config.items() if key in LearningSettings.model_fields}
        return settings.for_client(self.name, own)

    def folder(self, settings: Settings) -> Path:
        """Where this client's own model goes.

        Parameters
        ----------
        settings : Settings
            The run's settings.
        """
        return self.state_folder() or Path(settings.output) / "clients" / self.name

    def state_folder(self) -> Path | None:
        """Where a client keeps what it needs after a restart; none in a simulation, whose clients end with the run."""
        if is_simulation():
            return None
        return Path(str(self.node_config.get("folder", Path("perdl-clients") / self.name)))
