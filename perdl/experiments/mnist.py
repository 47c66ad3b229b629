r"""The paper's experiment with imbalanced data: what does federation give clients that hold mostly one digit?

All strategies learn from the same starts. Then they reconstruct images that no client has with few atoms,

.. math:: \lVert Y - D X\rVert_F / \lVert Y\rVert_F, \qquad X = \mathrm{OMP}(Y, D, k).

The strategies are clients alone, pooled data (which nobody may have in practice), averaging of whole dictionaries
without matching, PerMA with every aggregation, and personalized PCA. The data are MNIST, and the 8 x 8 digits of
scikit-learn.

Source: Liang, Shi, Al Kontar, Fattahi, "Personalized Dictionary Learning for Heterogeneous Datasets", 2023, section 5.2
and its details.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.aggregations import AGGREGATIONS
from common.coders import omp
from common.errors import SettingsError
from common.learners import LEARNERS
from common.settings import Settings, changed
from perdl.experiments.error_path import error_path
from perdl.experiments.federation import Client
from perdl.experiments.images import Images, deal_digits, deal_mnist
from perdl.experiments.mnist_figures import draw
from perdl.experiments.strategies import Learned, learn, main_strategy
from perdl_client.learning.initialization import check_fit
from perdl_client.learning.measures import relative_error

Floats = NDArray[np.floating]
Progress = Callable[[str], object]

SHOWN_ATOMS = (1, 2, 3, 5, 10, 20, 30, 50)
"""Numbers of atoms per image in the table; the figure and ``curves`` have all from 0 to the last."""

FINISH_ROUNDS = 100
"""Final rounds of every strategy, with the paper's gradient learner, codes by OMP as in the evaluation, plain mean."""

MANY_ATOMS = 200
"""With more atoms a round takes seconds, so only the settings' own aggregation and the plain mean are compared."""

FEW_WARMUP = 60
"""Smallest warm-up if an image may use as few atoms as in the evaluation: after a shorter one most atoms are unused."""

QUICK: dict[str, Any] = {
    "n_clients": 4,
    "n_atoms": 30,
    "n_global": 20,
    "n_nonzero": 8,
    "rounds": 8,
    "data": {"n_samples": 100},
    "evaluation": {"n_test": 300},
}
QUICK_FINISH = 8
DIGITS: dict[str, Any] = {"n_atoms": 40, "n_global": 20, "n_nonzero": 10}


def run(
    settings: Settings, folder: Path, *, quick: bool = False, progress: Progress = lambda text: None
) -> dict[str, Any]:
    """Compare all strategies and draw what the paper draws.

    Parameters
    ----------
    settings : Settings
        Settings of the run, with ``data.source = "mnist"``.
    folder : Path
        Folder of the results; figures go to ``figures/`` in it.
    quick : bool
        Whether to use few clients, images and rounds; without ``data.path`` only scikit-learn's digits.
    progress : callable (str) -> object
        Gets a line after each strategy.

    Returns
    -------
    dict
        ``experiment``, ``settings``, ``tables``, ``curves`` (error with 0, 1, ... atoms), ``sentences``, ``seconds``.

    Raises
    ------
    SettingsError
        If scikit-learn is not installed, or settings do not fit the images.
    """
    if settings.data.source != "mnist":
        raise SettingsError(f'data.source = "{settings.data.source}": the mnist experiment needs "mnist"')
    began = time.monotonic()
    with_mnist = settings.data.path is not None or not quick
    if quick:
        settings = changed(settings, **QUICK)
    on_digits = changed(settings, **(DIGITS | QUICK if quick else DIGITS))
    cases = [(deal_digits(on_digits), on_digits)]
    if with_mnist:
        cases.insert(0, (deal_mnist(settings), settings))
    for images, own in cases:
        most = check_fit(own, len(images.test), images.name)
        if own.evaluation.n_nonzero > most:
            raise SettingsError(
                f"evaluation.n_nonzero = {own.evaluation.n_nonzero}: must be at most the {most} atoms for {images.name}"
            )
    (folder / "figures").mkdir(parents=True, exist_ok=True)  # fails now, not after minutes of work
    tables: dict[str, list[dict[str, Any]]] = {}
    curves: dict[str, dict[str, list[float]]] = {}
    for images, own in cases:
        rounds = QUICK_FINISH if quick else FINISH_ROUNDS
        table, learned, paths = compare(images, own, rounds, progress)
        tables |= table
        curves[images.name] = {name: path.tolist() for name, path in paths.items()}
        draw(folder / "figures", images, learned, paths, main_strategy(own), own.evaluation.n_nonzero)
    return {
        "experiment": "mnist",
        "settings": settings.model_dump(mode="json"),
        "tables": tables,
        "curves": curves,
        "sentences": sentences(tables, cases[0][0].name, cases[0][1]),
        "seconds": time.monotonic() - began,
    }


def compare(
    images: Images, settings: Settings, finish_rounds: int, progress: Progress
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, Learned], dict[str, Floats]]:
    """Learn from one data set, once with the settings' coder and once with that of the evaluation, and measure.

    All aggregations are compared with the settings' coder, only the settings' own and the plain mean with the other.

    Parameters
    ----------
    images : Images
        The data set.
    settings : Settings
        Settings of the run.
    finish_rounds : int
        Number of final rounds, see :func:`perdl.experiments.strategies.finish`.
    progress : callable (str) -> object
        Gets a line after each strategy.

    Returns
    -------
    tables : dict
        Errors; errors by digit; errors by number of atoms used (settings' coder only).
    learned, paths : dict
        For each strategy with the settings' coder, what it learned, and its error by number of atoms used.
    """
    k = settings.evaluation.n_nonzero
    few = changed(settings, coder="top-k", n_nonzero=k, warmup_steps=max(settings.warmup_steps, FEW_WARMUP))
    trainings = {_coder(own): own for own in (settings, few) if own is settings or _coder(own) != _coder(settings)}
    few_atoms = (settings.n_atoms or len(images.test)) <= MANY_ATOMS
    orthonormal = LEARNERS[settings.learner].orthonormal
    names = [f"client-{i + 1}" for i in range(len(images.clients))]
    errors: list[dict[str, Any]] = []
    by_digit: list[dict[str, Any]] = []
    first: dict[str, Learned] = {}
    for coder, own in trainings.items():
        clients = [Client(name, Y, own.for_client(name)) for name, Y in zip(names, images.clients, strict=True)]
        aggregations: list[str] = ["mean", settings.aggregation]
        if own is settings and few_atoms:
            aggregations = [name for name in AGGREGATIONS if orthonormal or name != "procrustes"]
        learned = learn(
            clients,
            own,
            list(dict.fromkeys(aggregations)),
            finish_rounds,
            partial(_say, progress, f"{images.name}, {coder}"),
        )
        first = first or {name: result for name, (result, _) in learned.items()}
        for name, (result, seconds) in learned.items():
            row = {"trained with": coder, "strategy": name}
            errors.append({**row, **_measure(result, images, k), "seconds": round(seconds, 1)})
            by_digit.append({**row, **_by_digit(result.shared, images, k)})
    paths = {name: error_path(images.test, result.shared, SHOWN_ATOMS[-1]) for name, result in first.items()}
    by_atoms = [
        {"strategy": name, **{str(n): float(path[n]) for n in SHOWN_ATOMS if n < len(path)}}
        for name, path in paths.items()
    ]
    tables: dict[str, list[dict[str, Any]]] = {
        f"{images.name}: error": errors,
        f"{images.name}: error by digit": by_digit,
        f"{images.name}: error by atoms used": by_atoms,
    }
    return tables, first, paths


def sentences(tables: Mapping[str, Sequence[Mapping[str, Any]]], name: str, settings: Settings) -> list[str]:
    """Return three sentences on what the tables show.

    Parameters
    ----------
    tables : mapping
        Tables of :func:`compare`.
    name : str
        Name of the data set.
    settings : Settings
        Settings of the run.
    """
    k, ours = settings.evaluation.n_nonzero, main_strategy(settings)
    error = {(row["trained with"], row["strategy"]): float(row["error"]) for row in tables[f"{name}: error"]}
    coders = list(dict.fromkeys(coder for coder, _ in error))

    def figures(coder: str, end: str) -> str:
        pooled, averaged, alone = (error[coder, strategy + end] for strategy in ("pooled", "averaged", "alone"))
        return (
            f"{error[coder, ours + end]:.3f} with PerMA's shared atoms, {pooled:.3f} with pooled data, {averaged:.3f} "
            f"with dictionaries averaged without matching, {alone:.3f} with client 1's own"
        )

    digits = {
        row["strategy"]: {key: value for key, value in row.items() if key.isdigit()}
        for row in tables[f"{name}: error by digit"]
        if row["trained with"] == coders[0]
    }
    ends = [f"{figures(coder, ', finished')} ({coder} before)" for coder in coders]
    alone = digits["alone"]
    worst = max(alone, key=lambda digit: float(alone[digit]))
    return [
        f"Written with {k} atoms, unseen {name} images keep a relative error of {figures(coders[0], '')}.",
        f"When everyone ends with rounds of the gradient learner that code by OMP, it is {'; '.join(ends)}.",
        f"The digit that client 1 alone writes worst, {worst}, goes from {alone[worst]:.3f} to "
        f"{digits[ours][worst]:.3f} with PerMA's shared atoms, and to {digits['pooled'][worst]:.3f} with pooled data "
        f"({coders[0]}).",
    ]


def _measure(learned: Learned, images: Images, k: int) -> dict[str, float | int | None]:
    def error(Y: Floats, D: Floats) -> float:
        return relative_error(Y, D, omp(Y, D, k))

    own = [error(images.test, D) for D in learned.dictionaries]
    return {
        "atoms": learned.shared.shape[1],
        "error": error(images.test, learned.shared),
        "error, own atoms too": float(np.mean(own)),
        "error, images of the choice": error(images.held_out, learned.shared) if images.held_out.size else None,
    }


def _by_digit(D: Floats, images: Images, k: int) -> dict[str, float]:
    X = omp(images.test, D, k)
    of = {str(digit): images.labels == digit for digit in np.unique(images.labels)}
    return {digit: relative_error(images.test[:, chosen], D, X[:, chosen]) for digit, chosen in of.items()}


def _say(progress: Progress, where: str, name: str) -> None:
    progress(f"{where}: {name}")


def _coder(settings: Settings) -> str:
    return f"{settings.coder} {settings.threshold if settings.coder == 'hard-threshold' else settings.n_nonzero}"
