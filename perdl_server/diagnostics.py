"""Find what makes a run's result doubtful although nothing failed. Each warning gives a cause and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.dictionaries import mutual_coherence
from common.settings import Settings
from common.words import listed
from perdl_server.algorithm.matching import JUMP, NEAR
from perdl_server.algorithm.null import Null

Floats = NDArray[np.floating]

AGREED = 0.9
"""Consensus below which the clients' versions of an atom differ."""
ALIKE = 0.8
"""Cosine above which two shared atoms are nearly the same."""
FEW = 3
"""Samples per atom below which own atoms are guesses. Also the factor above the median error that is too much."""
MOVING = 1e-3
"""How far the last round may move an atom of length 1 in a result that is at rest."""


@dataclass(frozen=True)
class RunOutcome:
    """What the server knows at the end of a run.

    Parameters
    ----------
    report : mapping
        Results of matching: ``n_global``, ``path_lengths``, ``next_path_length``, ``unrelated_edges``,
        ``unrelated_bound``, ``misfits``, ``n_edges``, ``absent``; and ``rounds``.
    clients : mapping of str to mapping
        Facts of each client, by name.
    settings : Settings
        The run's settings.
    dictionary : (d, r_g) array
        D^g.
    consensus : (r_g,) array
        Agreement of the clients on each atom, 0 to 1.
    idle : sequence of int
        Shared atoms that no client used in the last round, if the aggregation can tell.
    change : float, optional
        Largest distance that a shared atom moved in the last round.
    """

    report: Mapping[str, Any]
    clients: Mapping[str, Mapping[str, Any]]
    settings: Settings
    dictionary: Floats
    consensus: Floats
    idle: Sequence[int] = ()
    change: float | None = None

    @property
    def n_edges(self) -> int:
        """Number of edges of a path, N - 1 for the N clients on it."""
        return int(self.report.get("n_edges", len(self.clients) - 1))

    @property
    def edges(self) -> Floats:
        """Mean edge of each known path, shared paths first."""
        n_global, following = self.report["n_global"], self.report.get("next_path_length")
        lengths = list(self.report["path_lengths"])
        if len(lengths) == n_global and following is not None:
            lengths.append(following)
        edges: Floats = np.asarray(lengths, dtype=float) / max(self.n_edges, 1)
        return edges

    @property
    def nearness(self) -> Floats:
        """Mean edge of each path divided by that of unrelated atoms, at most 1; 0 where atoms cannot differ."""
        near: Floats = self.null.nearness(self.edges[: len(self.null.mean)])
        return near

    @property
    def null(self) -> Null:
        """How near unrelated atoms would be."""
        mean, bound = (np.asarray(self.report[f"unrelated_{name}"], dtype=float) for name in ("edges", "bound"))
        return Null(mean, bound)

    def where(self, key: str, limit: float) -> list[str]:
        """Return the clients for which a fact is above a limit.

        Parameters
        ----------
        key : str
            Name of a fact.
        limit : float
            Limit of its value.
        """
        return [name for name, facts in self.clients.items() if facts.get(key, 0.0) > limit]


def warnings(run: RunOutcome) -> list[str]:
    """Return what is doubtful about a run, most serious first.

    Parameters
    ----------
    run : RunOutcome
        A run that got past matching.
    """
    checks = [_alone, _unrelated, _no_jump, _mismatched, _nothing_shared, _absent, _disagreement]
    checks += [_moving, _alike, _idle, _out_of_scale, _dense, _mean, _one_feature, _few_samples, _badly_explained]
    return [text for check in checks if (text := check(run))]


def doubtful_data(clients: Mapping[str, Mapping[str, Any]], settings: Settings) -> list[str]:
    """Return what of :func:`warnings` is about the data alone, and can be known before a run.

    Parameters
    ----------
    clients : mapping of str to mapping
        By client: the facts that it will tell of its samples.
    settings : Settings
        The run's settings.
    """
    run = RunOutcome({}, clients, settings, np.empty((0, 0)), np.empty(0))
    return [text for check in (_mean, _one_feature, _few_samples) if (text := check(run))]


def _alone(run: RunOutcome) -> str:
    if len(run.clients) == 1 and run.report["n_global"]:
        return "one client alone took part: nothing is known to be shared"
    return ""


def _unrelated(run: RunOutcome) -> str:
    far = _far(run)
    if not far:
        return ""
    k, jump = run.report["n_global"], int(np.diff(run.nearness[: run.report["n_global"]], prepend=0.0).argmax())
    clear = jump > 0 and run.nearness[jump - 1] <= JUMP * run.nearness[jump]
    where = f"path lengths jump after {jump} of them" if clear else "path lengths show no jump"
    return (
        f"{far} of {k} global atoms were no nearer across clients at the start than unrelated atoms may "
        f"be (mean distance {run.edges[:k].max():.2f}, unrelated {run.null.mean[0]:.2f}): {where}, and "
        "clients came to agree on them by averaging; lower n_global if you look for what is shared from the start"
    )


def _far(run: RunOutcome) -> int:
    """Count the shared atoms that were as far as unrelated ones may be; before a clear jump none counts."""
    k = run.report["n_global"]
    if len(run.clients) < 2:
        return 0
    near, edges = run.nearness[:k], run.edges[:k]  # nearness is 0 where atoms cannot differ
    return int(np.count_nonzero((edges[: len(near)] >= run.null.bound[: len(near)]) & (near > JUMP)))


def _no_jump(run: RunOutcome) -> str:
    """Warn if the next path is hardly longer than the shared ones: the number of shared atoms is then a guess."""
    k, near = run.report["n_global"], run.nearness
    if len(run.clients) < 2 or not 0 < k <= len(near) or _far(run):
        return ""
    room = k < len(near) and run.null.mean[k] > 0
    last, after = float(near[:k].max()), float(near[k]) if room else 1.0
    if last <= JUMP * after and after >= NEAR:
        return ""
    following = f"the next {run.edges[k]:.2f}" if room else "and none is left to compare it with"
    found = (
        f"path lengths show no jump: of {k} shared paths the longest has a mean distance of {run.edges[:k].max():.2f}, "
        f"{following} (unrelated atoms {run.null.mean[k - 1]:.2f})"
    )
    if run.settings.n_global == "auto":
        return (
            f"{found}; n_global = auto took all paths nearer than chance, but what is near need not be the same at "
            "every client: compare errors on held-out samples with those of fewer shared atoms, and of n_global = 0"
        )
    return (
        f"{found}, so that it is a guess how many atoms are shared; look at the units of the features (perdl check, "
        "data.divide_by), the threshold and the number of samples, or set n_global = auto, which takes the paths that "
        "are nearer than chance"
    )


def _mismatched(run: RunOutcome) -> str:
    mismatched, s = run.report.get("misfits", []), run.settings
    if not mismatched:
        return ""
    robust = s.matching_method == "star" and s.aggregation in ("trimmed", "geometric-median")
    return (
        f"the matched atoms of {', '.join(mismatched)} were no nearer to the other clients' than unrelated atoms: "
        f"look at their data, or leave them out{'' if robust else '; aggregation = trimmed bears a minority'}"
    )


def _nothing_shared(run: RunOutcome) -> str:
    if run.settings.n_global != "auto" or run.report["n_global"] != 0:
        return ""
    cure = "look at the units of the features (perdl check, data.divide_by) and the scale of the data"
    if run.settings.sharing == "some":
        return f"no two clients have an atom that is nearer than chance, so that nothing is shared; {cure}"
    near = f"{run.edges[0]:.2f}" if len(run.edges) else "-"
    chance = f"{run.null.mean[0]:.2f}, by chance down to {run.null.bound[0]:.2f}" if len(run.null.mean) else "-"
    return (
        f"n_global = auto found no shared atom: no path is nearer than chance (nearest: mean distance {near}, "
        f"unrelated atoms {chance}); {cure}; if you know of something shared, set n_global by hand, or try "
        f"{_other_starts(run)}"
    )


def _other_starts(run: RunOutcome) -> str:
    """Return what may bring clients' first dictionaries nearer to each other; nothing that was done already."""
    lower = "" if _dense(run) else "a lower threshold, "
    unset = any(run.settings.for_client(name).n_atoms is None for name in run.clients)
    return f"{lower}more restarts (n_restarts){', or n_atoms as perdl check suggests' if unset else ''}"


def _absent(run: RunOutcome) -> str:
    """Warn of clients that use fewer atoms than are shared."""
    absent, k = run.report.get("absent", {}), run.report["n_global"]
    if not absent:
        return ""
    each = listed(
        f"{name} ({k - count} of its {run.clients[name]['n_atoms']} atoms)"
        for name, count in absent.items()
        if name in run.clients
    )
    one = len(absent) == 1
    return (
        f"{each} use{'s' * one} fewer atoms than the {k} that are shared: {'it takes' if one else 'they take'} part in "
        f"all of them, and give{'s' * one} up the atoms used least for those without a like; lower n_global, min_usage "
        "or min_samples, or give more samples"
    )


def _disagreement(run: RunOutcome) -> str:
    """Warn of atoms whose versions differ between clients in the last round."""
    low = np.setdiff1d(np.flatnonzero(run.consensus < AGREED), run.idle)
    if not len(low) or len(run.clients) < 2 or not run.report.get("rounds"):
        return ""
    low = low[np.argsort(run.consensus[low], kind="stable")]
    return (
        f"clients do not agree on {_atoms(low)}: consensus {run.consensus[low[0]]:.2f} in the last round, where 1 is "
        "agreement; what they average is not the same atom, or is not settled yet: lower n_global, or raise rounds if "
        "the change still falls"
    )


def _moving(run: RunOutcome) -> str:
    """Warn of shared atoms that still moved in the last round."""
    rounds = run.report.get("rounds", 0)
    if run.change is None or run.change <= MOVING or rounds < run.settings.rounds:
        return ""
    return (
        f"the shared atoms were still moving: the last of {rounds} rounds moved one by {run.change:.2g} (atoms have "
        "length 1); raise rounds"
    )


def _alike(run: RunOutcome) -> str:
    """Warn of two shared atoms that are nearly the same."""
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


def _idle(run: RunOutcome) -> str:
    """Warn of shared atoms without energy."""
    norms = np.linalg.norm(run.dictionary, axis=0)
    idle = sorted({*map(int, run.idle), *map(int, np.flatnonzero(norms < 1e-6))})
    if not idle:
        return ""
    return (
        f"no client's codes use {_atoms(idle)}: nothing was learnt there, and what it holds means nothing; lower "
        "n_global or the threshold"
    )


def _out_of_scale(run: RunOutcome) -> str:
    """Warn of thresholds that almost no code passes."""
    if run.settings.coder != "hard-threshold" or run.settings.privacy.mode == "private":
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


def _dense(run: RunOutcome) -> str:
    dense = [
        name
        for name, facts in run.clients.items()
        if facts["n_atoms"] > 1 and facts.get("nonzeros", 0) > 0.7 * facts["n_atoms"]
    ]
    if not dense:
        return ""
    facts = run.clients[dense[0]]
    return (
        f"codes are not sparse ({facts['nonzeros']:.1f} of {facts['n_atoms']} atoms a sample at {listed(dense)}): "
        f"raise threshold{'' if run.settings.threshold_unit == 'rms' else ' or set threshold_unit = rms'}"
    )


def _mean(run: RunOutcome) -> str:
    uncentred = run.where("mean_share", 0.9)
    if not uncentred or run.settings.data.center:
        return ""
    return (
        f"the mean carries {run.clients[uncentred[0]]['mean_share']:.1%} of the energy of the data of "
        f"{listed(uncentred)}: the first shared atom will be that mean; set data.center = true"
    )


def _one_feature(run: RunOutcome) -> str:
    large = [name for name in run.where("largest_feature_share", 0.8) if run.clients[name].get("n_features", 0) > 2]
    if not large:
        return ""
    share = run.clients[large[0]]["largest_feature_share"]
    return (
        f"one feature carries {share:.1%} of the energy of the data of {listed(large)}, and atoms will show little "
        "else: it is a row number or a time, which should go, or has a unit of its own; set data.divide_by to "
        "constants that all clients agree on"
    )


def _few_samples(run: RunOutcome) -> str:
    few = [name for name, facts in run.clients.items() if facts["n_samples"] < FEW * facts["n_atoms"]]
    if not few:
        return ""
    facts = run.clients[few[0]]
    weigh = "" if run.settings.aggregation in ("energy", "procrustes") else ", or aggregation = procrustes"
    return (
        f"few samples for their atoms ({facts['n_samples']} for {facts['n_atoms']}) at {listed(few)}: own atoms are "
        f"then hardly more than single samples; give more samples or fewer atoms (n_atoms){weigh}"
    )


def _badly_explained(run: RunOutcome) -> str:
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
    """Name atoms by their numbers in the figures, from 1."""
    return f"shared atom{'s' * (len(atoms) != 1)} {listed(int(j) + 1 for j in atoms)}"
