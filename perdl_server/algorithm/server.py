"""The server's half of algorithm 1, without messages: match the first dictionaries, aggregate T times."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.aggregations import AGGREGATIONS
from common.errors import PerdlError
from common.settings import Settings
from perdl_server.algorithm.aggregation import combiner, consensus, first_average, idle_atoms
from perdl_server.algorithm.matching import Ints, align, global_matching, suggest_n_global
from perdl_server.algorithm.null import path_null
from perdl_server.algorithm.star import misfits

Floats = NDArray[np.floating]
_log = logging.getLogger("perdl.server")


@dataclass(frozen=True)
class Match:
    """Result of matching, for clients and for the summary.

    Parameters
    ----------
    indices : (N, r_g) int array
        For client i and global atom j: the matched one of the atoms that the client sent.
    report : dict
        Facts for the summary: ``n_global``, ``path_lengths``, ``next_path_length``, ``unrelated_edges``,
        ``unrelated_bound``, ``misfits``.
    """

    indices: Ints
    report: dict[str, Any]


class PermaServer:
    """The owner of D^g: it matches, aggregates, and decides when D^g is at rest.

    Parameters
    ----------
    settings : Settings
        Settings of the run. It uses ``n_global``, ``matching``, ``aggregation``, ``trim`` and ``tolerance``.
    global_dictionary : (d, r_g) array, optional
        D^g of a run that is resumed.
    consensus : (r_g,) array, optional
        Consensus of a run that is resumed.

    Attributes
    ----------
    global_dictionary : (d, r_g) array
        The present D^g; of shape (0, 0) before matching.
    consensus : (r_g,) array
        How much the clients agree on each atom, 0 to 1.
    change : float, optional
        Largest distance that an atom moved in the last round.
    idle : list of int
        Atoms that no client used in the last round.

    Notes
    -----
    All callers pass clients in the order of their names, both for matching and for sums.

    Source: Liang, Shi, Al Kontar, Fattahi, "Personalized Dictionary Learning for Heterogeneous Datasets", 2023,
    algorithm 1, the lines of the server; algorithm 2.
    """

    def __init__(
        self, settings: Settings, global_dictionary: Floats | None = None, consensus: Floats | None = None
    ) -> None:
        self.settings = settings
        self.aggregation = AGGREGATIONS[settings.aggregation]
        self._combine = combiner(settings.aggregation, settings.trim)
        self.global_dictionary: Floats = np.empty((0, 0)) if global_dictionary is None else global_dictionary
        self.consensus: Floats = np.empty(0) if consensus is None else consensus
        self.change: float | None = None
        self.idle: list[int] = []

    @property
    def matched(self) -> bool:
        """Whether D^g exists."""
        return len(self.global_dictionary) > 0

    @property
    def at_rest(self) -> bool:
        """Whether no atom moved more than ``tolerance`` in the last round. With r^g = 0 it is always False."""
        return self.global_dictionary.size > 0 and self.change is not None and self.change <= self.settings.tolerance

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
        names, Ds = list(dictionaries), list(dictionaries.values())
        method, n_global = self.settings.matching_method, self.settings.n_global
        lengths: Floats | None = None
        if n_global == "auto":
            n_global, lengths = suggest_n_global(Ds, names, method)
            _log.info("n_global = auto: %d, from path lengths %s", n_global, np.round(lengths, 3).tolist())
        matching = global_matching(Ds, n_global, names, method)
        A, D_g = first_average(Ds, usages, matching, self.settings.aggregation, self.settings.trim)
        self.global_dictionary, self.consensus = np.ascontiguousarray(D_g), consensus(A)
        null = path_null(len(Ds[0]), tuple(D.shape[1] for D in Ds), method)
        report = {
            "n_global": n_global,
            "path_lengths": matching.path_lengths if lengths is None else lengths,
            "next_path_length": matching.next_length,
            "unrelated_edges": null.mean,
            "unrelated_bound": null.bound,
            "misfits": [names[i] for i in misfits(Ds, matching.indices, null.mean)],
        }
        return Match(matching.indices, report)

    def align(self, dictionary: Floats) -> Ints:
        """Return the atoms of a late client that continue D^g, (r_g,).

        Parameters
        ----------
        dictionary : (d, m) array
            Atoms that the client sent, ``m >= r_g``.
        """
        return align(self.global_dictionary, dictionary)

    def aggregate(self, contributions: Floats, weights: Floats) -> None:
        """Aggregate one round's contributions to a new D^g. Update ``consensus``, ``change`` and ``idle``.

        Parameters
        ----------
        contributions : (n, d, r_g) array
            Contributions of the clients that answered.
        weights : (n, r_g) array
            Their energies; ones if the aggregation has none.

        Raises
        ------
        PerdlError
            If D^g would not be finite.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            agreed, idle = consensus(contributions), idle_atoms(contributions, weights)
            new = np.ascontiguousarray(self._combine(contributions, weights, self.global_dictionary))
        if not np.isfinite(new).all():
            raise PerdlError("D^g is not finite any more; rescale the data")
        self.change = float(np.linalg.norm(new - self.global_dictionary, axis=0).max(initial=0.0))
        self.global_dictionary, self.consensus, self.idle = new, agreed, idle
