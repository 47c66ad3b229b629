r"""What a site can write its samples with: atoms learnt alone, in a federation, from pooled samples, and other bases.

Every method gives each site a dictionary. Its held-out samples are then written with k atoms by orthogonal matching
pursuit, and the error is :math:`\lVert Y - DX\rVert_F / \lVert Y\rVert_F`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.coders import omp
from common.errors import DataError
from common.settings import Settings, changed
from perdl.experiments.ajive import ajive
from perdl.experiments.personalized_pca import personalized_pca
from perdl.experiments.real_data import EXTRA, Sites
from perdl.perma import perma
from perdl_client.learning.client import ClientLearner
from perdl_client.learning.evaluation import error, residual_energies, sample_energies
from perdl_server.algorithm.matching import MatchingError
from perdl_server.algorithm.server import PermaServer

Floats = NDArray[np.floating]
Dictionaries = dict[str, Floats]
"""By site: atoms in columns."""


@dataclass(frozen=True)
class Centred:
    """Samples of sites, each centred by the mean of its own training samples.

    Parameters
    ----------
    train, test : dict of str to (d, n_i) array
        Samples of each site in columns.
    """

    train: dict[str, Floats]
    test: dict[str, Floats]

    @classmethod
    def of(cls, sites: Sites) -> Centred:
        """Centre the samples of all sites.

        Parameters
        ----------
        sites : Sites
            Samples as they were measured.
        """
        means = {site: Y.mean(axis=1, keepdims=True) for site, Y in sites.train.items()}
        train, test = ({site: Y - means[site] for site, Y in half.items()} for half in (sites.train, sites.test))
        return cls(train, test)


def errors(data: Centred, dictionaries: Mapping[str, Floats], k: int) -> dict[str, float]:
    """Return the error of each site's own held-out samples.

    Parameters
    ----------
    data : Centred
        The samples.
    dictionaries : mapping of str to (d, r_i) array
        Atoms of each site.
    k : int
        Most atoms of a sample.
    """
    return {
        site: error(residual_energies(Y, dictionaries[site], k).sum(), sample_energies(Y).sum())
        for site, Y in data.test.items()
    }


# perdl.


def first_dictionaries(data: Centred, settings: Settings) -> Dictionaries:
    """Return what each site learns before matching; it does not depend on the number of shared atoms.

    Parameters
    ----------
    data : Centred
        The samples.
    settings : Settings
        Settings of the run.
    """
    return {site: _learner(site, Y, settings).dictionary for site, Y in data.train.items()}


def federated(data: Centred, settings: Settings, firsts: Mapping[str, Floats], n_global: int) -> Dictionaries | None:
    """Return [D^g D^l_i] of each site after a federation; with no shared atom each site learns alone.

    Parameters
    ----------
    data : Centred
        The samples.
    settings : Settings
        Settings of the run.
    firsts : mapping of str to (d, r_i) array
        From `first_dictionaries`.
    n_global : int
        Number of shared atoms.

    Returns
    -------
    dict, or None
        None if some site uses fewer atoms.
    """
    settings = changed(settings, n_global=n_global)
    learners = [_learner(site, Y, settings, firsts[site]) for site, Y in data.train.items()]
    try:
        D_g = perma(learners, settings)
    except MatchingError:
        return None
    return {one.name: np.hstack([D_g, one.finish(D_g)]) for one in learners}


def pooled(data: Centred, settings: Settings) -> Dictionaries:
    """Return one dictionary from all sites' samples, for every site.

    Parameters
    ----------
    data : Centred
        The samples.
    settings : Settings
        Settings of the run.
    """
    everything = np.hstack(list(data.train.values()))
    learner = _learner("pooled", everything, settings)
    D_g = perma([learner], changed(settings, n_global=0))
    return dict.fromkeys(data.train, np.hstack([D_g, learner.finish(D_g)]))


def nearest_path(data: Centred, settings: Settings, firsts: Mapping[str, Floats]) -> tuple[int, float]:
    """Return the number of shared atoms by ``auto``, and the mean edge of the shortest path over that by chance.

    Parameters
    ----------
    data : Centred
        The samples.
    settings : Settings
        Settings of the run.
    firsts : mapping of str to (d, r_i) array
        From `first_dictionaries`.
    """
    starts = {site: _learner(site, Y, settings, firsts[site]).start() for site, Y in data.train.items()}
    if min(start.atoms.shape[1] for start in starts.values()) == 0:
        return 0, 1.0
    server = PermaServer(changed(settings, n_global="auto"))
    found = server.match({site: s.atoms for site, s in starts.items()}, [s.usage for s in starts.values()]).report
    edge, chance = found["path_lengths"][0] / found["n_edges"], found["unrelated_edges"][0]
    return found["n_global"], float(edge / chance) if chance > 0 else 1.0


def _learner(site: str, Y: Floats, settings: Settings, first: Floats | None = None) -> ClientLearner:
    learning, guarded = settings.for_client(site), settings.privacy.guarded
    return ClientLearner(Y, learning, settings.seed, site, dictionary=first, guarded=guarded)


# Others.


def pca(data: Centred, r: int) -> Dictionaries:
    """Return the leading principal components of each site.

    Parameters
    ----------
    data : Centred
        The samples.
    r : int
        Most components.
    """
    return {site: np.linalg.svd(Y, full_matrices=False).U[:, :r] for site, Y in data.train.items()}


def shared_pca(data: Centred, r: int, n_global: int, rounds: int) -> Dictionaries:
    """Return the components of personalized PCA: the shared ones, then each site's own.

    Parameters
    ----------
    data : Centred
        The samples.
    r : int
        Components of a site in all.
    n_global : int
        How many are shared.
    rounds : int
        Rounds of ascent.
    """
    fit = personalized_pca(list(data.train.values()), n_global, r - n_global, rounds, 1.0)
    return {
        site: np.hstack([fit.global_components, V]) for site, V in zip(data.train, fit.local_components, strict=True)
    }


def by_ajive(data: Centred, r: int) -> tuple[Dictionaries, int]:
    """Return joint and own directions of each site, and how many are joint.

    Parameters
    ----------
    data : Centred
        The samples.
    r : int
        Rank of the signal spaces; less where they would meet by necessity.
    """
    d = len(next(iter(data.train.values())))
    joint, own = ajive(data.train, max(1, min(r, d // 2, *(Y.shape[1] // 2 for Y in data.train.values()))))
    return {site: np.hstack([joint, W]) for site, W in own.items()}, joint.shape[1]


def sparse_dictionaries(data: Centred, r: int, k: int) -> Dictionaries:
    """Return what scikit-learn's dictionary learning finds at each site.

    Parameters
    ----------
    data : Centred
        The samples.
    r : int
        Number of atoms.
    k : int
        Atoms of a sample when penalties are compared.
    """
    return {site: learnt_atoms(Y, r, k) for site, Y in data.train.items()}


def learnt_atoms(Y: Floats, r: int, k: int, penalties: Sequence[float] = (1.0, 2.0)) -> Floats:
    """Learn atoms by scikit-learn, with the penalty that writes the training samples best.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns, centred.
    r : int
        Number of atoms.
    k : int
        Atoms of a sample when penalties are compared.
    penalties : sequence of float
        On the sum of codes' sizes, in units of the data's root mean square.

    Returns
    -------
    (d, r) array

    Raises
    ------
    DataError
        If scikit-learn is missing.
    """
    try:
        from sklearn.decomposition import MiniBatchDictionaryLearning
    except ModuleNotFoundError:
        raise DataError(f"the package sklearn is missing: {EXTRA}") from None
    found: list[tuple[float, float, Floats]] = []
    scale = np.sqrt(np.mean(Y**2))
    for alpha in penalties:
        learner = MiniBatchDictionaryLearning(
            r, alpha=alpha, fit_algorithm="cd", batch_size=32, max_iter=30, random_state=0
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            D = scale * learner.fit(Y.T / scale).components_.T
        found.append((float(np.linalg.norm(Y - D @ omp(Y, D, min(k, r)))), alpha, D))
    return min(found, key=lambda one: one[:2])[2]
