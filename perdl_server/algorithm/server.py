"""The server's half of algorithm 1, without messages: match the first dictionaries, aggregate T times."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.aggregations import AGGREGATIONS
from common.dictionaries import ABSENT, atom_distances
from common.errors import PerdlError
from common.settings import Settings
from perdl_server.algorithm.aggregation import combiner, consensus, first_average, idle_atoms, over_members
from perdl_server.algorithm.clusters import chance_distance, count_pairs, shared_groups
from perdl_server.algorithm.matching import Ints, align, check_dictionaries, global_matching, suggest_n_global
from perdl_server.algorithm.membership import Membership, among_all
from perdl_server.algorithm.null import path_null
from perdl_server.algorithm.star import misfits

Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]
_log = logging.getLogger("perdl.server")


@dataclass(frozen=True)
class Match:
    """Result of matching, for clients and for the summary.

    Parameters
    ----------
    indices : (N, r_g) int array
        For client i and global atom j: the matched one of the atoms that the client sent; -1 if it has none.
    report : dict
        Facts for the summary: ``n_global``, ``path_lengths``, ``next_path_length``, ``unrelated_edges``,
        ``unrelated_bound``, ``misfits``; ``n_edges``, the number of edges of a path: clients that use too few atoms
        are on none, and their atoms are paired with the others' average; and ``absent``, the number of paths for
        which such a client has no atom, by name.
    """

    indices: Ints
    report: dict[str, Any]


@dataclass(frozen=True)
class Evidence:
    """What the clients of a round say of their membership.

    Parameters
    ----------
    clients : sequence of str
        The n clients that answered.
    spread, nearest : (n, r_g) array
        See :meth:`perdl_server.algorithm.membership.Membership.update`.
    """

    clients: Sequence[str]
    spread: Floats
    nearest: Floats


class PermaServer:
    """The owner of D^g: it matches, aggregates, and decides when D^g is at rest.

    Parameters
    ----------
    settings : Settings
        Settings of the run. It uses ``n_global``, ``sharing``, ``matching``, ``aggregation``, ``trim`` and
        ``tolerance``.
    global_dictionary : (d, r_g) array, optional
        D^g of a run that is resumed.
    consensus : (r_g,) array, optional
        Consensus of a run that is resumed.
    membership : Membership, optional
        Members of a run that is resumed, with ``sharing = "some"``.
    names : sequence of str
        Clients of a run that is resumed, in the order of ``membership``.
    guarded : bool, optional
        Whether clients send atoms back as they came that their guard does not let move. Such atoms are left out of
        averages. Default: as ``privacy`` says.

    Attributes
    ----------
    global_dictionary : (d, r_g) array
        The present D^g; of shape (0, 0) before matching. With ``sharing = "some"`` it may hold atoms that fewer than
        two clients share by now; `shared` leaves them out.
    consensus : (r_g,) array
        How much the members agree on each atom, 0 to 1.
    change : float, optional
        Largest distance that an atom moved in the last round.
    idle : list of int
        Atoms that no client used in the last round.
    membership : Membership, optional
        Which clients share which atom; None if all share all.
    names : list of str
        Clients in the order of ``membership``.

    Notes
    -----
    All callers pass clients in the order of their names, both for matching and for sums.

    Source: Liang, Shi, Al Kontar, Fattahi, "Personalized Dictionary Learning for Heterogeneous Datasets", 2023,
    algorithm 1, the lines of the server; algorithm 2.
    """

    def __init__(
        self,
        settings: Settings,
        global_dictionary: Floats | None = None,
        consensus: Floats | None = None,
        membership: Membership | None = None,
        names: Sequence[str] = (),
        guarded: bool | None = None,
    ) -> None:
        self.settings = settings
        self._guarded = settings.privacy.guarded if guarded is None else guarded
        self.aggregation = AGGREGATIONS[settings.aggregation]
        self._combine = combiner(settings.aggregation, settings.trim)
        self.global_dictionary: Floats = np.empty((0, 0)) if global_dictionary is None else global_dictionary
        self.consensus: Floats = np.empty(0) if consensus is None else consensus
        self.change: float | None = None
        self.idle: list[int] = []
        self.membership, self.names = membership, list(names)
        self._regrouped = False

    @property
    def matched(self) -> bool:
        """Whether D^g exists."""
        return len(self.global_dictionary) > 0

    @property
    def at_rest(self) -> bool:
        """Whether no atom moved more than ``tolerance`` in the last round, and nobody joined or left one.

        With r^g = 0 it is always False.
        """
        still = self.change is not None and self.change <= self.settings.tolerance
        return self.global_dictionary.size > 0 and still and not self._regrouped

    @property
    def shared(self) -> Ints:
        """The atoms of ``global_dictionary`` that at least two clients share: all of them if all share all."""
        if self.membership is None:
            return np.arange(self.global_dictionary.shape[1])
        return np.flatnonzero(self.membership.shared)

    @property
    def shared_dictionary(self) -> Floats:
        """D^g without the atoms that fewer than two clients share, (d, k)."""
        return self.global_dictionary if self.membership is None else self.global_dictionary[:, self.shared]

    @property
    def shared_consensus(self) -> Floats:
        """Consensus of these atoms, (k,)."""
        return self.consensus if self.membership is None else self.consensus[self.shared]

    def members(self, name: str) -> Bools | None:
        """Return which atoms a client shares, (r_g,); None if all share all.

        Parameters
        ----------
        name : str
            The client.
        """
        return None if self.membership is None else self.membership.members[self.names.index(name)].copy()

    def match(self, dictionaries: Mapping[str, Floats], usages: Sequence[Floats]) -> Match:
        """Find the shared atoms, and aggregate them to D^{g,(0)}.

        Parameters
        ----------
        dictionaries : mapping of str to (d, m_i) array
            Atoms that the clients sent, by name, in the order of names.
        usages : sequence of (m_i,) arrays
            Energy of each atom.

        Returns
        -------
        Match

        Raises
        ------
        MatchingError
            If they cannot be matched. Its ``client`` names the cause.
        """
        self.names, Ds = list(dictionaries), list(dictionaries.values())
        check_dictionaries(Ds, 0, self.names)
        some = self.settings.sharing == "some"
        indices, signs, report = self._match_some(Ds) if some else self._match_all(Ds)
        A, D_g = first_average(Ds, usages, indices, signs, self.settings.aggregation, self.settings.trim)
        self.global_dictionary, self.consensus = np.ascontiguousarray(D_g), consensus(A)
        absent = {} if some else dict(zip(self.names, (indices < 0).sum(axis=1).tolist(), strict=True))
        return Match(indices, {**report, "absent": {name: count for name, count in absent.items() if count}})

    def _match_all(self, Ds: list[Floats]) -> tuple[Ints, Floats, dict[str, Any]]:
        """Match atoms that all clients share. Clients that use too few atoms are paired with the others' average."""
        method, n_global, names = self.settings.matching_method, self.settings.n_global, self.names
        sizes = np.array([D.shape[1] for D in Ds])
        # A client that uses few atoms must not decide for all how many are shared.
        able = np.flatnonzero(sizes >= (np.median(sizes) / 2 if n_global == "auto" else n_global))
        if len(able) < 2:
            able = np.arange(len(Ds))
        theirs, who = [Ds[i] for i in able], [names[i] for i in able]
        lengths: Floats | None = None
        if n_global == "auto":
            n_global, lengths = suggest_n_global(theirs, who, method)
            _log.info("n_global = auto: %d, from path lengths %s", n_global, np.round(lengths, 3).tolist())
        matching = global_matching(theirs, n_global, who, method)
        null = path_null(len(Ds[0]), tuple(D.shape[1] for D in theirs), method)
        indices, signs = np.full((len(Ds), n_global), ABSENT, dtype=np.intp), np.ones((len(Ds), n_global), Ds[0].dtype)
        indices[able], signs[able] = matching.indices, matching.signs
        for i in np.setdiff1d(np.arange(len(Ds)), able):
            indices[i] = align(matching.global_dictionary, Ds[i])
            has = indices[i] >= 0
            inner = (matching.global_dictionary[:, has] * Ds[i][:, indices[i, has]]).sum(axis=0)
            signs[i, has] = np.where(inner < 0, -1, 1)
        report = {
            "n_global": n_global,
            "path_lengths": matching.path_lengths if lengths is None else lengths,
            "next_path_length": matching.next_length,
            "unrelated_edges": null.mean,
            "unrelated_bound": null.bound,
            "misfits": [who[i] for i in misfits(theirs, matching.indices, null.mean)],
            "n_edges": len(who) - 1,
        }
        return indices, signs, report

    def _match_some(self, Ds: list[Floats]) -> tuple[Ints, Floats, dict[str, Any]]:
        """Find groups of near atoms."""
        sizes = [D.shape[1] for D in Ds]
        indices = shared_groups(Ds)
        signs = np.ones(indices.shape, Ds[0].dtype)
        for j, (i, *others) in enumerate(np.flatnonzero(column >= 0) for column in indices.T):
            atom = Ds[i][:, indices[i, j]]
            for k in others:
                signs[k, j] = -1 if atom @ Ds[k][:, indices[k, j]] < 0 else 1
        _log.info("shared by some: %d atoms, members %s", indices.shape[1], (indices >= 0).sum(axis=0).tolist())
        self.membership = Membership(indices >= 0, chance_distance(len(Ds[0]), count_pairs(sizes)) / 2)
        none: dict[str, Any] = {key: [] for key in ("path_lengths", "unrelated_edges", "unrelated_bound", "misfits")}
        return indices, signs, {"n_global": indices.shape[1], "next_path_length": None, **none}

    def admit(self, name: str, dictionary: Floats) -> Ints:
        """Return the atoms of a late client that continue D^g, (r_g,); -1 where it has none.

        Parameters
        ----------
        name : str
            The client. If it takes part already, its former atoms are forgotten.
        dictionary : (d, m) array
            Atoms that the client sent.
        """
        indices = align(self.global_dictionary, dictionary)
        if self.membership is not None:
            atoms = dictionary[:, indices]  # of absent ones any
            near = atom_distances(self.global_dictionary, atoms).diagonal() <= 2 * self.membership.reach
            members = near & (indices >= 0) & self.membership.shared
            indices = np.where(members, indices, ABSENT)
            if name not in self.names:
                self.names.append(name)
            self.membership.set_client(self.names.index(name), members)
        return indices

    def gather(
        self,
        names: Sequence[str],
        contributions: Sequence[Floats],
        weights: Sequence[Floats],
        told: Sequence[tuple[Floats, Floats]],
    ) -> tuple[Floats, Floats, Evidence | None]:
        """Return what the clients of a round sent as arrays over all atoms, for `aggregate`.

        Parameters
        ----------
        names : sequence of str
            The n clients that answered.
        contributions : sequence of (d, m_i) arrays
            Their contributions, for the atoms that they share.
        weights : sequence of (m_i,) arrays
            Their energies.
        told : sequence of pairs of (r_g,) arrays
            Their ``spread`` and ``nearest``; not read if all share all.

        Returns
        -------
        contributions : (n, d, r_g) array
        weights : (n, r_g) array
        evidence : Evidence, optional
        """
        members = [self.members(name) for name in names]
        A, w = (np.stack([*map(among_all, parts, members)]) for parts in (contributions, weights))
        if self.membership is None:
            return A, w, None
        spread, nearest = (np.stack(part) for part in zip(*told, strict=True))
        return A, w, Evidence(names, spread, nearest)

    def _without_unmoved(self, contributions: Floats, members: Bools) -> tuple[Floats, Bools]:
        """Leave out atoms that a client's guard sent back as they came: they would hold the others back."""
        moved = (contributions != self.global_dictionary).any(axis=1)
        if self.aggregation.orthonormal:  # it needs all atoms together, and takes a zero for nothing
            return np.where(moved[:, None], contributions, contributions.dtype.type(0)), members
        return contributions, members & moved

    def aggregate(self, contributions: Floats, weights: Floats, evidence: Evidence | None = None) -> None:
        """Aggregate one round's contributions to a new D^g. Update ``consensus``, ``change``, ``idle`` and members.

        Parameters
        ----------
        contributions : (n, d, r_g) array
            Contributions of the clients that answered; zero where a client is no member.
        weights : (n, r_g) array
            Their energies; ones if the aggregation has none.
        evidence : Evidence, optional
            With ``sharing = "some"``: what the clients say of their membership.

        Raises
        ------
        PerdlError
            If D^g would not be finite.
        """
        members = np.ones(weights.shape, dtype=bool)
        if self.membership is not None and evidence is not None:
            rows = [self.names.index(name) for name in evidence.clients]
            members = self.membership.members[rows]
        with np.errstate(over="ignore", invalid="ignore"):
            agreed, idle = consensus(contributions), idle_atoms(contributions, weights)
            present = self.global_dictionary
            if self._guarded:
                contributions, members = self._without_unmoved(contributions, members)
            new = np.ascontiguousarray(over_members(self._combine, contributions, weights, present, members))
        self._take(new, agreed, idle)
        if self.membership is not None and evidence is not None:
            self._regrouped = self.membership.update(rows, contributions, evidence.spread, evidence.nearest)

    def aggregate_sum(self, contributions: Floats, weights: Floats, n: int) -> None:
        """Aggregate one round of which only sums over the clients are known (``privacy = "aggregated"``).

        D^g is that of `aggregate`. Consensus is the norm of an atom's sum over the sum of the norms: 1 if all agree,
        with clients weighed by what they sent.

        Parameters
        ----------
        contributions : (d, r_g) array
            Sum of their contributions, each times its energies if the aggregation has these.
        weights : (r_g,) array
            Sum of their energies, or else of the norms of their atoms.
        n : int
            Number of clients.

        Raises
        ------
        PerdlError
            If D^g would not be finite.
        """
        present, some = self.global_dictionary, np.where(weights > 0, weights, 1)
        A = contributions / (some if self.aggregation.weighted else n)
        # Mean and polar factor of one client's atoms are those of the sum.
        new = self._combine(A[None].astype(present.dtype), weights[None].astype(present.dtype), present)
        idle = [] if self._plain else np.flatnonzero(weights <= 1e-12 * weights.max(initial=0.0)).tolist()
        self._take(np.ascontiguousarray(new), np.minimum(np.linalg.norm(contributions, axis=0) / some, 1.0), idle)

    @property
    def _plain(self) -> bool:
        """Whether clients send atoms, and nothing of how much of their data each carries."""
        return self.aggregation.contribution == "atoms" and not self.aggregation.weighted

    def _take(self, new: Floats, agreed: Floats, idle: list[int]) -> None:
        if not np.isfinite(new).all():
            raise PerdlError("D^g is not finite any more; rescale the data")
        self.change = float(np.linalg.norm(new - self.global_dictionary, axis=0).max(initial=0.0))
        self.global_dictionary, self.consensus, self.idle = new, agreed, idle
