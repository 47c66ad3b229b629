"""Which clients share which atom: ``sharing = "some"`` against an oracle that knows it, and against "all".

    python benchmarks/membership.py [--seeds 100]

Three truths with orthonormal atoms, with and without noise. The oracle is the same run, but its members are those of
the truth from the start to the end. About half an hour of one core.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from common.dictionaries import ABSENT, atom_distances
from common.errors import PerdlError
from common.rng import stream
from common.settings import Settings, settings_from_values
from perdl.perma import perma
from perdl_client.learning.client import ClientLearner
from perdl_server.algorithm import membership, server

Floats = NDArray[np.floating]
TRUTHS = ("one lacks an atom", "all subsets", "random subsets")


@dataclass(frozen=True)
class Truth:
    """Shared atoms (d, r_g), each one's members, and each client's data and own atoms."""

    atoms: Floats
    members: NDArray[np.bool_]
    data: list[Floats]
    own: list[Floats]


def truth(which: str, seed: int, noise: float = 0.0) -> Truth:
    """Draw a truth: members (N, r_g), orthonormal atoms at each client, and sparse codes as in the paper."""
    if which == TRUTHS[0]:  # the last of ten; it has one more of its own
        d, n, r, members = 6, 200, np.full(10, 6), np.ones((10, 3), dtype=bool)
        members[9, 2] = False
    elif which == TRUTHS[1]:  # all eleven subsets of two to four clients
        sets = [S for size in (4, 3, 2) for S in itertools.combinations(range(4), size)]
        d, n, r, members = 12, 400, np.full(4, 9), np.array([[i in S for S in sets] for i in range(4)])
    else:
        rng = np.random.default_rng(seed)
        d, n, members = 10, 400, np.zeros((10, 5), dtype=bool)
        for j in range(5):
            members[rng.choice(10, rng.integers(2, 11), replace=False), j] = True
        r = members.sum(axis=1) + 4
    atoms = np.linalg.qr(stream(seed, "", "atoms").standard_normal((d, members.shape[1]))).Q
    data, own = [], []
    for i, mine in enumerate(members):
        rng = stream(seed, f"c{i}", "data")
        D = np.linalg.qr(np.hstack([atoms[:, mine], rng.standard_normal((d, r[i] - mine.sum()))])).Q
        D[:, : mine.sum()] = atoms[:, mine]
        X = rng.standard_normal((D.shape[1], n))
        X = np.where(np.abs(X) < 0.3, np.copysign(0.3, X), X) * (rng.random(X.shape) < 0.2)
        data.append(D @ X + noise * rng.standard_normal((d, n)))
        own.append(D[:, mine.sum() :])
    return Truth(atoms, members, data, own)


def learners(known: Truth, settings: Settings, seed: int) -> list[ClientLearner]:
    """Return the clients of a truth."""
    return [ClientLearner(Y, settings, seed, f"c{i}") for i, Y in enumerate(known.data)]


def options(known: Truth, **values: object) -> Settings:
    """Return the settings of a run with ``sharing = "some"``."""
    sizes = {"n_clients": len(known.data), "synthetic": {"n_features": len(known.atoms)}}
    return settings_from_values({"n_global": "auto", "sharing": "some", "rounds": 60, **sizes, **values})


def found_members(clients: Sequence[ClientLearner], r_g: int) -> NDArray[np.bool_]:
    """Return the members that a run found, (N, r_g)."""
    return np.array([client.members for client in clients], dtype=bool).reshape(len(clients), r_g)


def is_exact(members: NDArray[np.bool_], known: Truth) -> bool:
    """Return whether these are the members of the truth, in any order of the atoms."""
    return sorted(members.T.tolist()) == sorted(known.members.T.tolist())


def oracle(known: Truth, settings: Settings, seed: int) -> Floats:
    """Return D^g of the same run with the members of the truth, from the start to the end."""

    def groups(dictionaries: Sequence[Floats], chance: float = 0.05) -> NDArray[np.intp]:
        indices = np.full(known.members.shape, ABSENT, dtype=np.intp)
        for i, D in enumerate(dictionaries):
            mine = known.members[i]
            indices[i, mine] = server.align(known.atoms[:, mine], D)
        return indices

    with (
        mock.patch.object(server, "shared_groups", groups),
        mock.patch.object(membership.Membership, "update", return_value=False),
    ):
        return perma(learners(known, settings, seed), settings)


def everybody(known: Truth, seed: int) -> Floats:
    """Return D^g of a run in which all clients are taken to share all atoms; none if they use too few."""
    settings = options(known, sharing="all", n_global=known.atoms.shape[1])
    try:
        return perma(learners(known, settings, seed), settings)
    except PerdlError:
        return known.atoms[:, :0]


def nearest(found: Floats, atoms: Floats) -> float:
    """Return the largest distance of a true atom to the nearest one found."""
    return float(atom_distances(atoms, found).min(axis=1).max()) if found.shape[1] else float("nan")


def main() -> None:
    """Print a row for each truth and noise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    seeds = parser.parse_args().seeds
    print("| truth | noise | members exact | D^g off, median / worst | oracle | all share all |\n" + "|---" * 6 + "|")
    for which, noise in itertools.product(TRUTHS, (0.0, 0.05)):
        exact, off, best, plain = 0, [], [], []
        for seed in range(seeds):
            known = truth(which, seed, noise)
            settings = options(known)
            clients = learners(known, settings, seed)
            D = perma(clients, settings)
            exact += is_exact(found_members(clients, D.shape[1]), known)
            off.append(nearest(D, known.atoms))
            best.append(nearest(oracle(known, settings, seed), known.atoms))
            plain.append(nearest(everybody(known, seed), known.atoms))
        columns = ([value for value in values if value == value] for values in (off, best, plain))
        cells = (f"{np.median(values):.1e} / {max(values):.1e}" if values else "refused" for values in columns)
        print(f"| {which} | {noise} | {exact} of {seeds} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
