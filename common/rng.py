"""Independent random streams. They do not depend on the engine or on the order of arrival."""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, client: str, purpose: str) -> np.random.Generator:
    """Return the random generator of one client for one purpose.

    Parameters
    ----------
    seed : int
        The run's seed.
    client : str
        Stable id of the client; ``""`` for numbers that all clients share.
    purpose : str
        What the numbers are for, such as ``"start"``.

    Returns
    -------
    numpy.random.Generator
        Seeded by ``SeedSequence([seed, hash(client), hash(purpose)])``. The hash is the same in every process, so a
        client draws the same numbers wherever it runs.
    """
    return np.random.default_rng(np.random.SeedSequence([seed, _digest(client), _digest(purpose)]))


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
