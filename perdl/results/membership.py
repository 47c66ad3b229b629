"""Which clients share which atom: from ``summary.json`` to arrays and words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.words import listed

Bools = NDArray[np.bool_]


def members_of(summary: Mapping[str, Any]) -> dict[str, Bools]:
    """Return which of the shared atoms each client shares; empty if all clients share all.

    Parameters
    ----------
    summary : mapping
        Content of ``summary.json``. Its ``members`` hold indices of atoms for each client; runs in which all clients
        share all atoms have none.

    Returns
    -------
    dict of str to (r_g,) bool array
    """
    atoms = np.arange(int(summary.get("n_global", 0)))
    return {name: np.isin(atoms, indices) for name, indices in summary.get("members", {}).items()}


def who_shares(members: Mapping[str, Bools]) -> str:
    """Say how many clients share which atom: ``atom 3 is shared by all 10 clients; atoms 1, 2 by 7 each``.

    Parameters
    ----------
    members : mapping of str to (r_g,) bool array
        The atoms that each client shares. Empty if it is not known, or if all share all.

    Returns
    -------
    str
        Empty if there is nothing to say.
    """
    table = np.array(list(members.values()), dtype=bool)
    if not table.size:
        return ""
    atoms: dict[int, list[int]] = {}
    for j, count in enumerate(table.sum(axis=0).tolist()):
        atoms.setdefault(count, []).append(j + 1)
    texts: list[str] = []
    for count, those in sorted(atoms.items(), reverse=True):
        several, every = len(those) > 1, count == len(table)
        verb = f" {'are' if several else 'is'} shared" if not texts else ""
        whose = f"{'all ' if every else ''}{count}{' clients' if not texts else ''}"
        texts.append(
            f"atom{'s' * several} {listed(those, 10)}{verb} by {whose}{' each' if several and not every else ''}"
        )
    return "; ".join(texts)


def all_and_some(members: Mapping[str, Bools]) -> str:
    """Return how many atoms all clients share, and how many only some: ``1 by all, 2 by some``; empty if not known.

    Parameters
    ----------
    members : mapping of str to (r_g,) bool array
        The atoms that each client shares.
    """
    table = np.array(list(members.values()), dtype=bool)
    if not table.size:
        return ""
    by_all = int(table.all(axis=0).sum())
    return f"{by_all} by all, {table.shape[1] - by_all} by some"
