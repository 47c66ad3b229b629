r"""Choose settings by the error of samples that clients held out, in short simulated runs.

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
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import DataError, PerdlError, SettingsError
from common.evaluation import EXACT, counts_of_atoms
from common.learners import LEARNERS
from common.settings import Settings, override_settings
from perdl.experiments.federation import Client, first_dictionaries, perma
from perdl_client.data.held_out import HeldOut
from perdl_client.data.load import prepare
from perdl_client.data.sources import names_of, read_file
from perdl_client.formats.columns import Absent
from perdl_client.learning.evaluation import error, residual_energies, sample_energies

Floats = NDArray[np.floating]

SHARES = (0.0, 1 / 8, 1 / 4, 1 / 2, 3 / 4)
"""Ladder of the number of shared atoms, as shares of all atoms."""


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


def read_clients(files: Sequence[Path], settings: Settings) -> tuple[dict[str, Floats], dict[str, HeldOut]]:
    """Read each client's file, and set samples aside as its run would.

    Parameters
    ----------
    files : sequence of Path
        One file or folder per client.
    settings : Settings
        Settings of the run.

    Returns
    -------
    training : dict of str to (d, n_i) array
        Preprocessed samples to learn from, by client.
    held_out : dict of str to HeldOut
        Preprocessed samples that were set aside; clients with too few samples have none.

    Raises
    ------
    DataError
        If a file cannot be read.
    SettingsError
        If the samples would need all clients' sums.
    """
    if settings.data.site_scale != "none":
        raise SettingsError(
            'data.site_scale = "agree": this search agrees on no scale; give data.divide_by, as perdl check suggests'
        )
    data = {}
    for name, file in zip(names_of(files), files, strict=True):
        samples = read_file(settings, file, Absent())
        data[name] = prepare(samples, settings, settings.for_client(name), name, in_place=True)
    held_out = {name: one.held_out for name, one in data.items() if one.held_out is not None}
    return {name: one.Y for name, one in data.items()}, held_out


def tune(
    training: Mapping[str, Floats],
    held_out: Mapping[str, HeldOut],
    settings: Settings,
    on_trial: Callable[[Trial], object] = lambda trial: None,
    fixed: Set[str] = frozenset(),
) -> tuple[list[Trial], Trial]:
    """Search settings by held-out error.

    Parameters
    ----------
    training : mapping of str to (d, n_i) array
        Samples that clients learn from, preprocessed, by client in the order of names.
    held_out : mapping of str to HeldOut
        Samples that they held out; clients without any take part in the runs only.
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
        If every run failed; the message is that of the first.
    SettingsError
        If the settings cannot be searched.
    """
    if settings.sharing == "some":
        raise SettingsError('sharing = "some": finds n_global itself, which this search varies; leave it out')
    if not held_out:
        raise DataError("no client has enough samples to hold some out: give more samples, or set evaluation.held_out")
    starts: dict[str, list[Floats]] = {}
    trials: dict[str, Trial] = {}  # by settings: the best so far takes part in each group and is not run again
    best: Trial | None = None
    for group in GROUPS:
        ours: list[Trial] = []
        for choice in group.choices(best, training, settings):
            values = {key: value for key, value in choice.items() if key not in fixed}
            try:
                s = override_settings(settings, values)
            except PerdlError as failure:  # this choice does not fit these data: others may
                ours.append(Trial(group.name, values, 0, np.empty(0), 0.0, str(failure)))
                continue
            key = s.model_dump_json()
            if key not in trials:
                trials[key] = _run(group.name, values, training, held_out, s, starts)
                on_trial(trials[key])
            ours.append(trials[key])
        best = min(ours, key=lambda one: one.score) if group.is_ladder else first_within_one_error(ours)
        if not len(best.errors):
            raise PerdlError(best.failed)
    assert best is not None
    return list(trials.values()), best


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


@dataclass(frozen=True)
class _Group:
    """A group of settings: its name, and the choices given the best so far."""

    name: str
    choices: Callable[[Trial | None, Mapping[str, Floats], Settings], list[dict[str, Any]]]
    is_ladder: bool = False


def _coders(best: Trial | None, training: Mapping[str, Floats], settings: Settings) -> list[dict[str, Any]]:
    """Orthonormal atoms with a threshold or with the k largest codes; atoms of any angle with pursuit."""
    k = min(settings.evaluation.n_nonzero, settings.n_atoms or len(next(iter(training.values()))))
    counts = sorted({max(1, k // 2), k})
    top = [{"learner": "orthogonal", "coder": "top-k", "n_nonzero": count} for count in counts]
    oblique = {"learner": "coordinate", "aggregation": "normalized"}
    pursuit = [{**oblique, "coder": "omp", "n_nonzero": count} for count in counts]
    return [{}, *top, {**oblique, "coder": "omp-threshold"}, *pursuit]


def _atoms(best: Trial | None, training: Mapping[str, Floats], settings: Settings) -> list[dict[str, Any]]:
    """Half, as many and twice as many atoms, as samples and features allow."""
    assert best is not None
    one = override_settings(settings, best.values)
    d, fewest = len(next(iter(training.values()))), min(Y.shape[1] for Y in training.values())
    r = one.n_atoms or d
    most = max(r, min(fewest // 3, d if LEARNERS[one.learner].orthonormal else 4 * d))
    counts = (r, max(one.n_nonzero if one.counts_atoms else 1, r // 2), min(2 * r, most))
    return [{**best.values, "n_atoms": count} for count in dict.fromkeys(counts)]


def _shared(best: Trial | None, training: Mapping[str, Floats], settings: Settings) -> list[dict[str, Any]]:
    assert best is not None
    r = override_settings(settings, best.values).n_atoms or len(next(iter(training.values())))
    return [{**best.values, "n_global": n} for n in dict.fromkeys(["auto", *(round(share * r) for share in SHARES)])]


def _aggregations(best: Trial | None, training: Mapping[str, Floats], settings: Settings) -> list[dict[str, Any]]:
    assert best is not None
    if best.n_global == 0:
        return [best.values]
    one = override_settings(settings, best.values)
    orthonormal = LEARNERS[one.learner].orthonormal
    names = ["mean", "normalized", *(["energy", "procrustes"] if orthonormal else [])]
    return [best.values, *({**best.values, "aggregation": name} for name in names)]


GROUPS = (
    _Group("how samples are written", _coders),
    _Group("atoms of a client", _atoms),
    _Group("shared atoms", _shared, is_ladder=True),
    _Group("aggregation", _aggregations),
)
"""The groups in the order of the search."""


def _run(
    group: str,
    values: dict[str, Any],
    training: Mapping[str, Floats],
    held_out: Mapping[str, HeldOut],
    settings: Settings,
    starts: dict[str, list[Floats]],
) -> Trial:
    """Do one run. First dictionaries are kept for later runs of the same learning settings."""
    began = time.monotonic()
    try:
        clients = [Client(name, Y, settings.for_client(name)) for name, Y in training.items()]
        key = "\n".join(client.learning.model_dump_json() for client in clients)
        if key not in starts:
            starts[key] = first_dictionaries(clients, settings.seed)
        model = perma(clients, starts[key], settings)
    except PerdlError as failure:
        return Trial(group, values, 0, np.empty(0), time.monotonic() - began, str(failure))
    errors = []
    for name, D_l in zip(training, model.local_dictionaries, strict=True):
        if name in held_out:
            Z, D = held_out[name].Z, np.hstack([model.global_dictionary, D_l])
            k = counts_of_atoms(settings.evaluation.n_nonzero, D.shape[1], len(Z))[0]
            errors.append(error(residual_energies(Z, D, k).sum(), sample_energies(Z).sum()))
    n_global = model.global_dictionary.shape[1]
    return Trial(group, values, n_global, np.array(errors), time.monotonic() - began)
