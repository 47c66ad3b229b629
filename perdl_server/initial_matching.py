"""Phase 0: from the clients' first dictionaries to D^{g,(0)}, who has which atoms of it, and what is doubtful."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.settings import Settings
from perdl_server.aggregation import consensus, first_average
from perdl_server.matching import Matching, global_matching, suggest_n_global, unrelated_edges
from perdl_server.star import misfits

Floats = NDArray[np.floating]
_log = logging.getLogger("perdl.server")


@dataclass(frozen=True)
class Start:
    """Where the rounds begin.

    Attributes
    ----------
    matching : Matching
    global_dictionary : (d, r_g) array
        D^{g,(0)}: the aggregation of each path's atoms.
    consensus : (r_g,) array
    report : dict
        For the summary: ``n_global``, ``path_lengths``, ``next_path_length``, ``unrelated_edges``, ``misfits``.
    """

    matching: Matching
    global_dictionary: Floats
    consensus: Floats
    report: dict[str, Any]


def initial_matching(dictionaries: Mapping[str, Floats], usages: Sequence[Floats], settings: Settings) -> Start:
    """Match the clients' dictionaries and average what is shared.

    Parameters
    ----------
    dictionaries : mapping of str to (d, m_i) array
        By client, in their order.
    usages : sequence of (m_i,) arrays
    settings : Settings

    Raises
    ------
    MatchingError
        If they cannot be matched; ``client`` is whose is the cause.
    """
    names, Ds = list(dictionaries), list(dictionaries.values())
    method, n_global = settings.matching_method, settings.n_global
    lengths: Floats | None = None
    if n_global == "auto":
        n_global, lengths = suggest_n_global(Ds, names, method)
        _log.info("n_global = auto: %d, from path lengths %s", n_global, np.round(lengths, 3).tolist())
    matching = global_matching(Ds, n_global, names, method)
    unrelated = unrelated_edges(len(Ds[0]), tuple(D.shape[1] for D in Ds), method)
    A, D_g = first_average(Ds, usages, matching, settings.aggregation, settings.trim)
    report = {
        "n_global": n_global,
        "path_lengths": matching.path_lengths if lengths is None else lengths,
        "next_path_length": matching.next_length,
        "unrelated_edges": unrelated,
        "misfits": [names[i] for i in misfits(Ds, matching.indices, unrelated)],
    }
    return Start(matching, D_g, consensus(A), report)
