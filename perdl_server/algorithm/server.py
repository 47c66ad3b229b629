"""The server's half of algorithm 1: match the first dictionaries, aggregate T times. Nothing here knows of messages."""

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
from perdl_server.algorithm.matching import Ints, align, global_matching, suggest_n_global, unrelated_edges
from perdl_server.algorithm.star import misfits

Floats = NDArray[np.floating]
_log = logging.getLogger("perdl.server")


@dataclass(frozen=True)
class Match:
    """What matching found.

    Attributes
    ----------
    indices : (N, r_g) int array
        Which atom of client i, of those that it sent, begins global atom j.
    report : dict
        For the summary: ``n_global``, ``path_lengths``, ``next_path_length``, ``unrelated_edges``, ``misfits``.
    """

    indices: Ints
    report: dict[str, Any]


class PermaServer:
    """The owner of D^g.

    Parameters
    ----------
    settings : Settings
        ``n_global``, ``matching``, ``aggregation``, ``trim`` and ``tolerance`` are read.
    global_dictionary : (d, r_g) array, optional
        D^g of a run that is resumed.
    consensus : (r_g,) array, optional
        Of that run.

    Attributes
    ----------
    global_dictionary : (d, r_g) array
        The present D^g; (0, 0) before matching.
    consensus : (r_g,) array
        How far the clients agree on each atom, 0 to 1.
    change : float, optional
        The largest move of an atom in the last round.
    idle : list of int
        Atoms to which no client contributed in the last round.

    Notes
    -----
    Clients come in the order of their names, whoever calls: in the chain of the matching and in every sum.

    Source: Liang, Shi, Al Kontar, Fattahi, "Personalized Dictionary Learning for Heterogeneous Datasets", 2023,
    algorithm 1, lines that the server does; algorithm 2.
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
        """Whether there is a D^g."""
        return len(self.global_dictionary) > 0

    @property
    def at_rest(self) -> bool:
        """Whether no atom moved more than ``tolerance`` in the last round; with r^g = 0 nothing can come to rest."""
        return self.global_dictionary.size > 0 and self.change is not None and self.change <= self.settings.tolerance

    def match(self, dictionaries: Mapping[str, Floats], usages: Sequence[Floats]) -> Match:
        """Find the shared atoms, and average them to D^{g,(0)}.

        Parameters
        ----------
        dictionaries : mapping of str to (d, m_i) array
            What the clients sent, by name, in their order.
        usages : sequence of (m_i,) arrays
            The energy of each atom.

        Returns
        -------
        Match

        Raises
        ------
        MatchingError
            If they cannot be matched; ``client`` is whose is the cause.
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
        unrelated = unrelated_edges(len(Ds[0]), tuple(D.shape[1] for D in Ds), method)
        report = {
            "n_global": n_global,
            "path_lengths": matching.path_lengths if lengths is None else lengths,
            "next_path_length": matching.next_length,
            "unrelated_edges": unrelated,
            "misfits": [names[i] for i in misfits(Ds, matching.indices, unrelated)],
        }
        return Match(matching.indices, report)

    def align(self, dictionary: Floats) -> Ints:
        """Return which atoms of a client that comes after matching continue D^g, (r_g,).

        Parameters
        ----------
        dictionary : (d, m) array
            What it sent; ``m >= r_g``.
        """
        return align(self.global_dictionary, dictionary)

    def aggregate(self, contributions: Floats, weights: Floats) -> None:
        """Take one round's contributions: a new D^g, with its ``consensus``, ``change`` and ``idle`` atoms.

        Parameters
        ----------
        contributions : (n, d, r_g) array
            Of the clients that answered.
        weights : (n, r_g) array
            Their energies; ones where the aggregation asks for none.

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
