"""What makes a run's result doubtful though nothing failed: in words for people, each with its cause and its cure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.dictionaries import mutual_coherence
from common.settings import Settings
from common.words import listed

Floats = NDArray[np.floating]

AGREED = 0.9
"""Consensus below which clients' versions of an atom are not the same atom."""
ALIKE = 0.8
"""Cosine above which two shared atoms are nearly one."""
FEW = 3
"""Samples an atom below which a client's own atoms are guesses; and how many times the median error is much."""
JUMP = 0.5
"""The last shared path over the next one, above which that is no jump."""
NEAR = 0.2
"""Share of the distance of unrelated atoms below which a path that is left is as good as a shared one."""


@dataclass(frozen=True)
class Ended:
    """What the server knows when a run ends.

    Attributes
    ----------
    report : mapping
        Of matching: ``n_global``, ``path_lengths``, ``next_path_length``, ``unrelated_edges``, ``misfits``; ``rounds``.
    clients : mapping of str to mapping
        By client: the facts known of each.
    settings : Settings
    dictionary : (d, r_g) array
    consensus : (r_g,) array
    idle : sequence of int
        Shared atoms that no client used in the last round, as far as the aggregation tells.
    """

    report: Mapping[str, Any]
    clients: Mapping[str, Mapping[str, Any]]
    settings: Settings
    dictionary: Floats
    consensus: Floats
    idle: Sequence[int] = ()

    @property
    def edges(self) -> Floats:
        """Mean edge of each path that is known, the shared ones first."""
        n_global, following = self.report["n_global"], self.report.get("next_path_length")
        lengths = list(self.report["path_lengths"])
        if len(lengths) == n_global and following is not None:
            lengths.append(following)
        edges: Floats = np.asarray(lengths, dtype=float) / max(len(self.clients) - 1, 1)
        return edges

    @property
    def nearness(self) -> Floats:
        """Mean edge of each path over that of unrelated atoms, at most 1; of all in a space that others fill, 0."""
        edges = self.edges
        unrelated = np.asarray(self.report["unrelated_edges"], dtype=float)[: len(edges)]
        room = unrelated > 0
        near: Floats = np.where(room, np.minimum(edges[: len(unrelated)] / np.where(room, unrelated, 1), 1), 0.0)
        return near

    def where(self, key: str, limit: float) -> list[str]:
        """Clients of which a fact is known and above a limit."""
        return [name for name, facts in self.clients.items() if facts.get(key, 0.0) > limit]


def warnings(run: Ended) -> list[str]:
    """Return what is doubtful about a run, the gravest first."""
    checks = (
        _alone,
        _unrelated,
        _no_jump,
        _strangers,
        _nothing_shared,
        _one_more,
        _disagreement,
        _alike,
        _idle,
        _out_of_scale,
        _dense,
    )
    return [text for check in (*checks, _mean, _one_feature, _few_samples, _badly_explained) if (text := check(run))]


def doubtful_data(clients: Mapping[str, Mapping[str, Any]], settings: Settings) -> list[str]:
    """Return what of :func:`warnings` is about the data alone, and can be known before a run."""
    run = Ended({}, clients, settings, np.empty((0, 0)), np.empty(0))
    return [text for check in (_mean, _one_feature, _few_samples) if (text := check(run))]


def _alone(run: Ended) -> str:
    if len(run.clients) == 1 and run.report["n_global"]:
        return "one client alone took part: nothing is known to be shared"
    return ""


def _unrelated(run: Ended) -> str:
    far = _far(run)
    if not far:
        return ""
    k, jump = run.report["n_global"], int(np.diff(run.nearness[: run.report["n_global"]], prepend=0.0).argmax())
    clear = jump > 0 and run.nearness[jump - 1] <= JUMP * run.nearness[jump]
    where = f"path lengths jump after {jump} of them" if clear else "path lengths show no jump"
    return (
        f"{far} of {k} global atoms were no nearer across clients at the start than unrelated atoms would "
        f"be (mean distance {run.edges[:k].max():.2f}, unrelated {run.report['unrelated_edges'][0]:.2f}): {where}, and "
        "clients came to agree on them by averaging; lower n_global if you look for what is shared from the start"
    )


def _far(run: Ended) -> int:
    """How many shared atoms were no nearer than unrelated ones."""
    k = run.report["n_global"]  # nearness is 0 where atoms that are left fill the space: all are near there
    return int(np.count_nonzero(run.nearness[:k] > 0.8)) if len(run.clients) > 1 else 0


def _no_jump(run: Ended) -> str:
    """The shared paths end where the next one is hardly longer, so that they may end anywhere."""
    k, near = run.report["n_global"], run.nearness
    if len(run.clients) < 2 or not 0 < k <= len(near) or _far(run):
        return ""
    room = k < len(near) and run.report["unrelated_edges"][k] > 0
    last, after = float(near[:k].max()), float(near[k]) if room else 1.0
    if last <= JUMP * after and after >= NEAR:
        return ""
    unrelated = np.asarray(run.report["unrelated_edges"])
    following = f"the next {run.edges[k]:.2f}" if room else "and none is left to compare it with"
    cure = (
        "set n_global yourself" if run.settings.n_global == "auto" else "or set n_global = auto, which looks for a jump"
    )
    return (
        f"path lengths show no jump: of {k} shared paths the longest has a mean distance of {run.edges[:k].max():.2f}, "
        f"{following} (unrelated atoms {unrelated[k - 1]:.2f}), so that it is a guess how many atoms are shared; look "
        f"at the units of the features (perdl check, data.divide_by), the threshold and the number of samples, {cure}"
    )


def _strangers(run: Ended) -> str:
    strange, s = run.report.get("misfits", []), run.settings
    if not strange:
        return ""
    robust = s.matching_method == "star" and s.aggregation in ("trimmed", "geometric-median")
    return (
        f"the matched atoms of {', '.join(strange)} were no nearer to the other clients' than unrelated atoms: "
        f"look at their data, or leave them out{'' if robust else '; aggregation = trimmed bears a minority'}"
    )


def _nothing_shared(run: Ended) -> str:
    if run.settings.n_global != "auto" or run.report["n_global"] != 0:
        return ""
    near = f"{run.edges[0]:.2f}" if len(run.edges) else "-"
    return (
        f"n_global = auto found no shared atom (nearest path: mean distance {near}, unrelated atoms "
        f"{np.max(run.report['unrelated_edges'], initial=0):.2f}); look at the units of the "
        "features (perdl check, data.divide_by), the threshold and the scale of the data, or set n_global"
    )


def _one_more(run: Ended) -> str:
    """A path that ``auto`` left out though it is nearer than chance."""
    k, edges, unrelated = run.report["n_global"], run.edges, np.asarray(run.report["unrelated_edges"])
    if run.settings.n_global != "auto" or not 0 < k < min(len(edges), len(unrelated)) or len(run.clients) < 2:
        return ""
    if _no_jump(run):
        return ""
    # Few clients in few dimensions are near by chance: of random atoms at most 2 in 100 paths were below this.
    freedom = (len(run.clients) - 1) * (len(run.dictionary) - k)
    if edges[k] >= unrelated[k] * min(0.75, 1 - 4.3 / freedom):
        return ""
    return (
        f"the next path is nearer than chance ({edges[k]:.2f}, unrelated {unrelated[k]:.2f}): there may be one more "
        f"shared atom; try n_global = {k + 1}"
    )


def _disagreement(run: Ended) -> str:
    """Atoms of which the clients' versions differed in the last round."""
    low = np.setdiff1d(np.flatnonzero(run.consensus < AGREED), run.idle)
    if not len(low) or len(run.clients) < 2 or not run.report.get("rounds"):
        return ""
    low = low[np.argsort(run.consensus[low], kind="stable")]
    return (
        f"clients do not agree on {_atoms(low)}: consensus {run.consensus[low[0]]:.2f} in the last round, where 1 is "
        "agreement; what they average is not the same atom, or is not settled yet: lower n_global, or raise rounds if "
        "the change still falls"
    )


def _alike(run: Ended) -> str:
    """Two shared atoms that are nearly the same."""
    D = run.dictionary
    if mutual_coherence(D) <= ALIKE:
        return ""
    norms = np.linalg.norm(D, axis=0)
    U = D / np.where(norms > 0, norms, 1)
    gram = np.triu(np.abs(U.T @ U), 1)
    i, j = np.unravel_index(int(gram.argmax()), gram.shape)
    return (
        f"shared atoms {i + 1} and {j + 1} are nearly the same (cosine {gram[i, j]:.2f}): codes cannot tell them "
        "apart; lower n_global, or take learner = orthogonal"
    )


def _idle(run: Ended) -> str:
    """Shared atoms without energy."""
    norms = np.linalg.norm(run.dictionary, axis=0)
    idle = sorted({*map(int, run.idle), *map(int, np.flatnonzero(norms < 1e-6))})
    if not idle:
        return ""
    return (
        f"no client's codes use {_atoms(idle)}: nothing was learnt there, and what it holds means nothing; lower "
        "n_global or the threshold"
    )


def _out_of_scale(run: Ended) -> str:
    """Thresholds that nearly nothing passes."""
    if run.settings.coder != "hard-threshold":
        return ""
    errors = {name: facts.get("final_error", facts["start_error"]) for name, facts in run.clients.items()}
    empty = [name for name, facts in run.clients.items() if facts["nonzeros"] < 0.5 and errors[name] > 0.7]
    if not empty:
        return ""
    facts, learning = run.clients[empty[0]], run.settings.for_client(empty[0])
    return (
        f"the threshold is out of scale at {listed(empty)}: with threshold = {learning.threshold:g} "
        f"{learning.threshold_unit}, codes keep {facts['nonzeros']:.2f} atoms a sample and lose "
        f"{errors[empty[0]] ** 2:.0%} of the energy; lower threshold"
        f"{'' if learning.threshold_unit == 'rms' else ', or set threshold_unit = rms'}"
    )


def _dense(run: Ended) -> str:
    dense = [
        name
        for name, facts in run.clients.items()
        if facts["n_atoms"] > 1 and facts["nonzeros"] > 0.7 * facts["n_atoms"]
    ]
    if not dense:
        return ""
    facts = run.clients[dense[0]]
    return (
        f"codes are not sparse ({facts['nonzeros']:.1f} of {facts['n_atoms']} atoms a sample at {listed(dense)}): "
        "raise threshold or set threshold_unit = rms"
    )


def _mean(run: Ended) -> str:
    uncentred = run.where("mean_share", 0.9)
    if not uncentred or run.settings.data.center:
        return ""
    return (
        f"the mean carries {run.clients[uncentred[0]]['mean_share']:.1%} of the energy of the data of "
        f"{listed(uncentred)}: the first shared atom will be that mean; set data.center = true"
    )


def _one_feature(run: Ended) -> str:
    large = [name for name in run.where("largest_feature_share", 0.8) if run.clients[name].get("n_features", 0) > 2]
    if not large:
        return ""
    share = run.clients[large[0]]["largest_feature_share"]
    return (
        f"one feature carries {share:.1%} of the energy of the data of {listed(large)}, and atoms will show little "
        "else: it is a row number or a time, which should go, or has a unit of its own; set data.divide_by to "
        "constants that all clients agree on"
    )


def _few_samples(run: Ended) -> str:
    few = [name for name, facts in run.clients.items() if facts["n_samples"] < FEW * facts["n_atoms"]]
    if not few:
        return ""
    facts = run.clients[few[0]]
    weigh = "" if run.settings.aggregation in ("energy", "procrustes") else ", or aggregation = procrustes"
    return (
        f"few samples for their atoms ({facts['n_samples']} for {facts['n_atoms']}) at {listed(few)}: own atoms are "
        f"then hardly more than single samples; give more samples or fewer atoms (n_atoms){weigh}"
    )


def _badly_explained(run: Ended) -> str:
    errors = {name: facts["final_error"] for name, facts in run.clients.items() if "final_error" in facts}
    median = float(np.median(list(errors.values()))) if len(errors) > 2 else np.inf
    bad = sorted((name for name, e in errors.items() if e > max(FEW * median, 0.05)), key=lambda name: -errors[name])
    if not bad:
        return ""
    return (
        f"the data of {listed(bad)} are explained much worse than the others' (error {errors[bad[0]]:.2g}, median "
        f"{median:.2g}): look at their scale, noise and number of samples, or leave them out"
    )


def _atoms(atoms: Sequence[int] | NDArray[np.intp]) -> str:
    """Name atoms as figures number them, from 1."""
    return f"shared atom{'s' * (len(atoms) != 1)} {listed(int(j) + 1 for j in atoms)}"
