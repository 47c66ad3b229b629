"""Cross-validation: how well a model, or each of a grid of them, explains held-out samples of each client."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from common.errors import SettingsError
from common.rng import stream
from perdl.estimator.arrays import InputError, by_name
from perdl.estimator.frames import collected, take_rows

if TYPE_CHECKING:
    from perdl.estimator.estimator import PerDL

Rows = NDArray[np.intp]
Scoring = Callable[["PerDL", Mapping[str, Any]], float]


def cross_validate(
    model: PerDL,
    datasets: Any,
    *,
    cv: Any = 5,
    random_state: int | None = 0,
    param_grid: Mapping[str, Sequence[Any]] | None = None,
    scoring: Scoring | None = None,
    return_train_score: bool = False,
) -> dict[str, Any]:
    """Fit a model several times, each time without one part of every client's samples, and score it on that part.

    Parameters
    ----------
    model : PerDL
        Estimator with the parameters to use. It is not changed, and nothing is written to its ``output``.
    datasets : list, or dict of str to (n_i, d) array
        Data sets as for `PerDL.fit`. Samples stay with their client.
    cv : int or splitter
        Number of parts, at least 2 and at most the samples of the smallest client. Or one of scikit-learn's splitters,
        whose ``split`` is called with each client's samples.
    random_state : int, optional
        Seed for shuffling each client's samples before they are split. With None they are not shuffled, and parts are
        blocks of neighbours; use this for time series.
    param_grid : mapping of str to sequence, optional
        Values to try for each parameter; all combinations are tried.
    scoring : callable (model, datasets) -> float, optional
        Score, larger is better; default ``model.score``, in which every client counts the same.
    return_train_score : bool
        Whether to score the training samples too.

    Returns
    -------
    dict
        The same keys as in scikit-learn. Without a grid those of ``cross_validate``: arrays (cv,) ``fit_time``,
        ``score_time``, ``test_score``, perhaps ``train_score``. With a grid those of ``GridSearchCV.cv_results_``:
        ``params``, and arrays with one entry per combination: ``mean_test_score``, ``std_test_score``,
        ``rank_test_score``, ``mean_fit_time``, ``split0_test_score``, ...

    Raises
    ------
    InputError
        If a client has fewer samples than parts.

    Notes
    -----
    The parameter ``held_out`` does not count here, because samples are held out already.

    A lower threshold or more atoms always explain a larger share. To compare such settings fairly, give every sample
    the same number of atoms: use a ``scoring`` that calls ``model.reconstruct(X, client, k)``.
    """
    named = {name: collected(X) for name, X in by_name(datasets).items()}
    folds = _folds(named, cv, random_state)
    if param_grid is None:
        return _validate(model, {}, named, folds, scoring, return_train_score)
    params = _combinations(param_grid)
    found = [_validate(model, one, named, folds, scoring, return_train_score) for one in params]
    return _compare(params, found)


def _folds(named: Mapping[str, Any], cv: Any, random_state: int | None) -> list[dict[str, tuple[Rows, Rows]]]:
    """Return for each part the training samples and the held-out samples of each client."""
    if hasattr(cv, "split"):
        by_client = {name: list(cv.split(X)) for name, X in named.items()}
    elif isinstance(cv, (int, np.integer)) and not isinstance(cv, bool) and cv >= 2:
        by_client = {name: _parts(name, len(X), int(cv), random_state) for name, X in named.items()}
    else:
        raise SettingsError(f"cv = {cv!r}: must be a whole number, at least 2, or have a method split")
    return [dict(zip(by_client, part, strict=True)) for part in zip(*by_client.values(), strict=True)]


def _parts(name: str, n: int, cv: int, random_state: int | None) -> list[tuple[Rows, Rows]]:
    if n < cv:
        raise InputError(f"{name}: {n} samples, fewer than cv = {cv} parts: lower cv or leave the client out")
    order = np.arange(n) if random_state is None else stream(int(random_state), name, "folds").permutation(n)
    held_out = [np.sort(part) for part in np.array_split(order, cv)]
    return [(np.setdiff1d(order, part), part) for part in held_out]


def _validate(
    model: PerDL,
    params: Mapping[str, Any],
    named: Mapping[str, Any],
    folds: Sequence[Mapping[str, tuple[Rows, Rows]]],
    scoring: Scoring | None,
    train_too: bool,
) -> dict[str, NDArray[np.float64]]:
    score = scoring or type(model).score
    found: list[dict[str, float]] = []
    for fold in folds:
        # Each part is held out from here already: the model learns from all that it is given.
        one = type(model)(**{**model.get_params(), "output": None, "held_out": 0.0}).set_params(**params)
        train, test = ({name: take_rows(X, fold[name][i]) for name, X in named.items()} for i in (0, 1))
        began = time.perf_counter()
        one.fit(train)
        fitted = time.perf_counter()
        row = {"fit_time": fitted - began, "test_score": float(score(one, test))}
        row["score_time"] = time.perf_counter() - fitted
        found.append({**row, "train_score": float(score(one, train))} if train_too else row)
    return {key: np.array([row[key] for row in found]) for key in found[0]}


def _combinations(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    for name, values in grid.items():
        if isinstance(values, str) or not isinstance(values, (Sequence, np.ndarray)) or not len(values):
            raise SettingsError(f"param_grid[{name!r}] = {values!r}: must be a list of the values to try")
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def _compare(params: list[dict[str, Any]], found: Sequence[Mapping[str, NDArray[np.float64]]]) -> dict[str, Any]:
    """Return the results in the form of scikit-learn's ``cv_results_``."""
    results: dict[str, Any] = {"params": params}
    for key in found[0]:
        values = np.stack([one[key] for one in found])
        results |= {f"mean_{key}": values.mean(axis=1), f"std_{key}": values.std(axis=1)}
        if key.endswith("score"):
            results |= {f"split{i}_{key}": column for i, column in enumerate(values.T)}
    mean = results["mean_test_score"]
    results["rank_test_score"] = 1 + (mean[:, None] < mean).sum(axis=1)
    return results
