"""What the summary tells of held-out samples: which clients gained by federating, and one sentence.

It rests on what the clients tell. Nothing else in a run depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from common.evaluation import percent
from common.settings import Settings
from common.words import listed


def held_out_summary(clients: Mapping[str, Mapping[str, Any]], settings: Settings, n_global: int) -> dict[str, Any]:
    """Return the block ``held_out`` of the summary.

    Parameters
    ----------
    clients : mapping
        Facts of each client, by name.
    settings : Settings
        The run's settings.
    n_global : int
        Number of shared atoms.

    Returns
    -------
    dict
        Numbers ``n_clients`` and ``evaluated``; names of the clients that ``gained``, are ``better_alone``, are
        ``undecided`` or are ``not_evaluated``; ``atoms``, ``median_gain``, and the ``sentence``. Empty if the run did
        not ask for it or did not come to its end.
    """
    finished = [name for name, facts in clients.items() if "final_error" in facts]
    if not settings.evaluation.held_out or not finished or settings.privacy.mode == "private":
        return {}
    told = {name: clients[name]["held_out"] for name in finished if "held_out" in clients[name]}
    names = {
        key: [name for name, one in told.items() if one["verdict"] == verdict]
        for key, verdict in (("gained", "gained"), ("better_alone", "better alone"), ("undecided", "undecided"))
    }
    block: dict[str, Any] = {
        "n_clients": len(clients),
        "evaluated": len(told),
        **names,
        "not_evaluated": [name for name in clients if name not in told],
        "atoms": sorted({one["atoms"] for one in told.values()}),
    }
    if told:
        block["median_gain"] = float(np.median([one["gain"] for one in told.values()]))
    return {**block, "sentence": sentence(block, n_global)}


def add_pooled_sentence(summary: dict[str, Any]) -> None:
    """Add to the summary of a simulation what learning from all samples pooled gives.

    Parameters
    ----------
    summary : dict
        Summary whose clients have a ``pooled_gain``. Its block ``held_out`` gets ``median_pooled_gain``, and its
        sentence a second one.
    """
    told = [facts["held_out"] for facts in summary["clients"].values() if "held_out" in facts]
    middle = float(np.median([one["pooled_gain"] for one in told]))
    block = summary["held_out"]
    block["median_pooled_gain"] = middle
    block["sentence"] += (
        f" From all samples pooled, which nobody may have, it is {_change(middle)} than alone"
        f"{' in the median' if len(told) > 1 else ''}."
    )


def sentence(block: Mapping[str, Any], n_global: int) -> str:
    """Return in words whether federating helped.

    Parameters
    ----------
    block : mapping
        The other entries of `held_out_summary`.
    n_global : int
        Number of shared atoms.
    """
    n, silent = block["evaluated"], block["not_evaluated"]
    if not n:
        return "It is not known whether federating helped: no client has enough samples to hold some out."
    rest = f" Not evaluated: {listed(silent)}." if silent else ""
    if n_global == 0:
        return f"Nothing is shared, so that each of {_clients(n)} has what it would have alone.{rest}"
    gained, worse, undecided = block["gained"], block["better_alone"], block["undecided"]
    atoms = _range(block["atoms"])
    middle = block["median_gain"]
    whose = "the median client's is" if n > 1 else "it is"
    text = (
        f"Federating lowered the error on held-out samples of {len(gained) or 'none'} of {_clients(n)} "
        f"({whose} {_change(middle)}, with {atoms} a sample)"
    )
    others = []
    if worse:
        others.append(f"{listed(worse)} {_are(worse)} better alone")
    if undecided:
        others.append(f"{listed(undecided)} neither gained nor lost beyond chance")
    return "; ".join([text, *others]) + f".{rest}"


def _change(gained: float) -> str:
    return f"{percent(abs(gained))} {'lower' if gained >= 0 else 'higher'}"


def _clients(n: int) -> str:
    return f"{n} client{'s' * (n != 1)}"


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _range(atoms: Sequence[int]) -> str:
    if len(atoms) > 1:
        return f"{atoms[0]} to {atoms[-1]} atoms"
    return f"{atoms[0]} atom{'s' * (atoms[0] != 1)}"
