r"""Choose settings by the error of samples that clients held out.

The settings are searched one group after the other: how samples are written, the number of atoms, the number of shared
atoms, the aggregation. Each choice keeps the best of the groups before it. For a choice c let

.. math:: e_i(c) = \frac{\lVert Z_i - D_i X_i\rVert_F}{\lVert Z_i\rVert_F}, \qquad X_i = \operatorname{OMP}(Z_i, D_i, k)

be the error of client i's held-out samples with its dictionary and k atoms a sample. The score is the mean of
:math:`\log e_i` over the clients, so that each client counts the same. Of a group, the first choice within one standard
error of the best is kept, where the error is of the differences client by client (Hastie, Tibshirani and Friedman, "The
Elements of Statistical Learning", 7.10). For the number of shared atoms the least score is taken: there the rule of one
standard error was worse on real data (``benchmarks/shared_atoms.py``).

A choice among many looks a little better than it is: judge the chosen settings by a run with another seed, which holds
other samples out.

How a choice is measured is the caller's: :mod:`perdl.check.tune` simulates a short run, :mod:`perdl_server.tuning` asks
real clients for one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import DataError, PerdlError, SettingsError
from common.evaluation import EXACT
from common.learners import LEARNERS
from common.settings import Settings, override_settings

Floats = NDArray[np.floating]

SHARES = (0.0, 1 / 8, 1 / 4, 1 / 2, 3 / 4)
"""Ladder of the number of shared atoms, as shares of all atoms."""


@dataclass(frozen=True)
class Sizes:
    """What the search must know of the clients' samples.

    Parameters
    ----------
    n_features : int
        Numbers in a sample (d).
    n_samples : int
        Samples to learn from at the client that has the fewest.
    """

    n_features: int
    n_samples: int


@dataclass(frozen=True)
class Outcome:
    """What a short run gave.

    Parameters
    ----------
    n_global : int
        Number of shared atoms that the run had.
    errors : mapping of str to float
        Error of the held-out samples of each client that has some, by client in the order of names.
    failed : str
        Why the settings do not fit these clients; empty if they do.
    """

    n_global: int = 0
    errors: Mapping[str, float] = field(default_factory=dict)
    failed: str = ""


@dataclass(frozen=True)
class Trial:
    """A short run with one choice of settings.

    Parameters
    ----------
    group : str
        What was varied.
    values : dict
        Settings that differ from those at the start, by dotted name.
    n_global : int
        Number of shared atoms that the run had.
    errors : (N,) array
        Error of each client's held-out samples.
    seconds : float
        Duration.
    failed : str
        Why there are no errors; empty if there are.
    """

    group: str
    values: dict[str, Any]
    n_global: int
    errors: Floats
    seconds: float
    failed: str = ""

    @property
    def logs(self) -> Floats:
        """Logarithm of each error."""
        return np.asarray(np.log(np.maximum(self.errors, EXACT)))

    @property
    def score(self) -> float:
        """Mean of the logarithms; infinite if the run failed."""
        return float(self.logs.mean()) if len(self.errors) else np.inf

    @property
    def error(self) -> float:
        """Geometric mean of the errors, by which choices are compared."""
        return float(np.exp(self.score))


def check_searchable(settings: Settings) -> None:
    """Raise if settings cannot be searched.

    Parameters
    ----------
    settings : Settings
        Where the search would begin.

    Raises
    ------
    SettingsError
        One line with the cure.
    """
    if settings.sharing == "some":
        raise SettingsError('sharing = "some": finds n_global itself, which this search varies; leave it out')
    if (mode := settings.privacy.mode) in ("aggregated", "private"):
        raise SettingsError(
            f'privacy = "{mode}": a search tells each client\'s exact error; choose settings on data of your own'
        )
    if not settings.evaluation.held_out:
        raise SettingsError("evaluation.held_out = 0: settings are chosen by held-out samples: set it, as to 0.2")


def search(
    measure: Callable[[Settings], Outcome],
    sizes: Callable[[], Sizes],
    settings: Settings,
    on_trial: Callable[[Trial], object] = lambda trial: None,
    fixed: Set[str] = frozenset(),
) -> tuple[list[Trial], Trial]:
    """Search settings by held-out error.

    Parameters
    ----------
    measure : callable (Settings) -> Outcome
        Does one short run. What it raises ends the search.
    sizes : callable () -> Sizes
        Called after the first run.
    settings : Settings
        Where the search begins. ``rounds`` is the number of rounds of each run.
    on_trial : callable (Trial) -> object, optional
        Called after each run.
    fixed : set of str
        Settings that are not varied.

    Returns
    -------
    trials : list of Trial
        All runs, in their order.
    best : Trial
        The chosen one.

    Raises
    ------
    DataError
        If no client held samples out.
    PerdlError
        If every run of a group failed; the message is that of the first.
    SettingsError
        If the settings cannot be searched.
    """
    check_searchable(settings)
    trials: dict[str, Trial] = {}  # by settings: the best so far takes part in each group and is not run again
    judged: list[str] = []  # clients whose errors count: those of the first run that had errors
    best: Trial | None = None
    for group in GROUPS:
        ours: list[Trial] = []
        for choice in group.choices(best, settings, sizes):
            values = {key: value for key, value in choice.items() if key not in fixed}
            try:
                s = override_settings(settings, values)
            except PerdlError as failure:  # this choice does not fit these data: others may
                ours.append(Trial(group.name, values, 0, np.empty(0), 0.0, str(failure)))
                continue
            key = s.model_dump_json()
            if key not in trials:
                began = time.monotonic()
                outcome = measure(s)
                judged = judged or list(outcome.errors)
                trials[key] = _trial(group.name, values, outcome, judged, time.monotonic() - began)
                on_trial(trials[key])
            ours.append(trials[key])
        best = min(ours, key=lambda one: one.score) if group.is_ladder else first_within_one_error(ours)
        if not len(best.errors):
            raise PerdlError(best.failed)
    assert best is not None
    return list(trials.values()), best


def _trial(group: str, values: dict[str, Any], outcome: Outcome, judged: Sequence[str], seconds: float) -> Trial:
    """Return a run with the errors of the clients whose errors count."""
    failed = outcome.failed
    if not failed and not judged:
        raise DataError("no client has enough samples to hold some out: give more samples, or set evaluation.held_out")
    if not failed and (silent := [name for name in judged if name not in outcome.errors]):
        failed = f"{silent[0]} told no error of held-out samples, and did before"
    errors = [] if failed else [outcome.errors[name] for name in judged]
    return Trial(group, values, outcome.n_global, np.array(errors), seconds, failed)


def first_within_one_error(trials: Sequence[Trial]) -> Trial:
    """Return the first trial whose score is within one standard error of the best.

    Parameters
    ----------
    trials : sequence of Trial
        Trials of the same clients, the one to keep in doubt first.
    """
    best = min(trials, key=lambda one: one.score)
    if not len(best.errors):
        return best

    def near(one: Trial) -> bool:
        if not len(one.errors):
            return False
        differences = one.logs - best.logs
        spread = differences.std(ddof=1) / np.sqrt(len(differences)) if len(differences) > 1 else 0.0
        return bool(differences.mean() <= spread)

    return next(filter(near, trials))


Choices = Iterator[dict[str, Any]]


@dataclass(frozen=True)
class _Group:
    """A group of settings: its name, and the choices given the best so far.

    The very first choice is run before ``sizes`` is known.
    """

    name: str
    choices: Callable[[Trial | None, Settings, Callable[[], Sizes]], Choices]
    is_ladder: bool = False


def _coders(best: Trial | None, settings: Settings, sizes: Callable[[], Sizes]) -> Choices:
    """Orthonormal atoms with a threshold or with the k largest codes; atoms of any angle with pursuit."""
    yield {}
    k = min(settings.evaluation.n_nonzero, settings.n_atoms or sizes().n_features)
    counts = sorted({max(1, k // 2), k})
    yield from ({"learner": "orthogonal", "coder": "top-k", "n_nonzero": count} for count in counts)
    oblique = {"learner": "coordinate", "aggregation": "normalized"}
    yield {**oblique, "coder": "omp-threshold"}
    yield from ({**oblique, "coder": "omp", "n_nonzero": count} for count in counts)


def _atoms(best: Trial | None, settings: Settings, sizes: Callable[[], Sizes]) -> Choices:
    """Half, as many and twice as many atoms, as samples and features allow."""
    assert best is not None
    one = override_settings(settings, best.values)
    d, fewest = sizes().n_features, sizes().n_samples
    r = one.n_atoms or d
    most = max(r, min(fewest // 3, d if LEARNERS[one.learner].orthonormal else 4 * d))
    counts = (r, max(one.n_nonzero if one.counts_atoms else 1, r // 2), min(2 * r, most))
    yield from ({**best.values, "n_atoms": count} for count in dict.fromkeys(counts))


def _shared(best: Trial | None, settings: Settings, sizes: Callable[[], Sizes]) -> Choices:
    assert best is not None
    r = override_settings(settings, best.values).n_atoms or sizes().n_features
    ladder = dict.fromkeys(["auto", *(round(share * r) for share in SHARES)])
    yield from ({**best.values, "n_global": n} for n in ladder)


def _aggregations(best: Trial | None, settings: Settings, sizes: Callable[[], Sizes]) -> Choices:
    assert best is not None
    yield best.values
    if best.n_global == 0:
        return
    one = override_settings(settings, best.values)
    orthonormal = LEARNERS[one.learner].orthonormal
    names = ["mean", "normalized", *(["energy", "procrustes"] if orthonormal else [])]
    yield from ({**best.values, "aggregation": name} for name in names)


GROUPS = (
    _Group("how samples are written", _coders),
    _Group("atoms of a client", _atoms),
    _Group("shared atoms", _shared, is_ladder=True),
    _Group("aggregation", _aggregations),
)
"""The groups in the order of the search."""
