"""What may travel from a client to the server, in each phase: names of arrays with their axes, and names of scalars.

The table of docs/privacy.md in a form that tests and ``perdl audit`` hold messages to.
"""

from __future__ import annotations

from dataclasses import dataclass

from common.protocol import FINISH, INITIALISE, MEASURE, OPEN, SCALE, UPDATE


@dataclass(frozen=True)
class Allowed:
    """What an answer of one phase may hold.

    Parameters
    ----------
    arrays : dict of str to int
        Names of arrays, and how many axes they have.
    scalars : frozenset of str
        Names of scalars.
    counted : frozenset of str
        Beginnings of names that end in a number of atoms, as "alone_3".
    """

    arrays: dict[str, int]
    scalars: frozenset[str]
    counted: frozenset[str] = frozenset()

    def scalar(self, name: str) -> bool:
        """Return whether a scalar of this name may travel.

        Parameters
        ----------
        name : str
            Name of the scalar.
        """
        begin, _, number = name.rpartition("_")
        return name in self.scalars | {"client", "protocol"} or (begin in self.counted and number.isdecimal())


ALLOWED: dict[str, Allowed] = {
    SCALE: Allowed({"counts": 1, "squares": 1}, frozenset()),
    INITIALISE: Allowed(
        {"dictionary": 2, "usage": 1},
        frozenset({"step", "returning", "n_features", "n_samples", "n_atoms", "start_error", "nonzeros", "mean_share"})
        | {"largest_feature_share", "shape", "names", "secret", "card", "exponent"},
    ),
    UPDATE: Allowed(
        {"contribution": 2, "energies": 1, "spread": 1, "nearest": 1, "masked": 1, "shares": 2, "commitment": 1},
        frozenset({"round", "error_before_update", "nonzeros", "reassigned"}),
    ),
    OPEN: Allowed({"told": 2}, frozenset({"round"})),
    MEASURE: Allowed({}, frozenset({"held_out", "held_out_error"})),
    FINISH: Allowed(
        {},
        frozenset({"error", "shared", "own", "local_distance", "held_out", "held_out_k", "gain_low", "gain_high"}),
        frozenset({"alone", "federated", "shared"}),
    ),
}
"""By kind of message."""
