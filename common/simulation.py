"""Whether this process is part of a simulation."""

from __future__ import annotations

import os

SIMULATION = "PERDL_SIMULATION"
"""Environment variable that a simulation sets. Its server and clients run as one user on one machine, so clients may
read and write the paths in the settings. A deployed client uses no path that the server names."""


def is_simulation() -> bool:
    """Return whether server and clients run as one user on this machine."""
    return bool(os.environ.get(SIMULATION))
