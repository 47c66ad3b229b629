"""Deal samples to sites, hold some out, and cut recordings and images into samples. Samples are in rows here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from perdl_client.data.windows_patches import cut_patches, cut_windows

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Parts = dict[str, tuple[Floats, Floats]]
"""By site: training and held-out samples, in rows."""


def deal(X: Floats, n_sites: int, rng: np.random.Generator) -> Parts:
    """Deal rows by chance, as many to each site, which trains on three quarters of them.

    Parameters
    ----------
    X : (n, d) array
        All samples.
    n_sites : int
        Number of sites.
    rng : numpy.random.Generator
        Random stream.
    """
    heaps = np.array_split(rng.permutation(len(X)), n_sites)
    return hold_out({f"site-{i + 1}": X[np.sort(rows)] for i, rows in enumerate(heaps)}, rng)


def hold_out(groups: Mapping[str, Floats], rng: np.random.Generator) -> Parts:
    """Hold out a quarter of the samples of every site, by chance.

    Parameters
    ----------
    groups : mapping of str to (n_i, d) array
        Samples by site.
    rng : numpy.random.Generator
        Random stream.
    """
    parts = {}
    for site, X in groups.items():
        order, n = rng.permutation(len(X)), round(0.75 * len(X))
        parts[site] = X[order[:n]], X[order[n:]]
    return parts


def shift(parts: Parts, rng: np.random.Generator) -> Parts:
    """Let sites measure differently: every feature has a factor and an offset at each site.

    Parameters
    ----------
    parts : dict
        Samples by site.
    rng : numpy.random.Generator
        Random stream.
    """
    shifted = {}
    for site, (train, test) in parts.items():
        factor, offset = np.exp(0.4 * rng.standard_normal(train.shape[1])), rng.standard_normal(train.shape[1])
        shifted[site] = train * factor + offset, test * factor + offset
    return shifted


def hold_out_recordings(
    recordings: Iterable[tuple[str, Floats]], rng: np.random.Generator, share: float = 0.75
) -> Parts:
    """Hold out whole recordings of every site.

    Parameters
    ----------
    recordings : iterable of (str, (n, d) array)
        The site of each recording, and its samples.
    rng : numpy.random.Generator
        Random stream.
    share : float
        Share of training recordings.
    """
    by_site: dict[str, list[Floats]] = {}
    for site, samples in recordings:
        by_site.setdefault(site, []).append(samples)
    parts = {}
    for site, held in by_site.items():
        order, n = rng.permutation(len(held)), round(share * len(held))
        parts[site] = np.concatenate([held[i] for i in order[:n]]), np.concatenate([held[i] for i in order[n:]])
    return parts


def some_of(parts: Parts, n_train: int, n_test: int, rng: np.random.Generator) -> Parts:
    """Keep so many samples of each site at most, chosen by chance.

    Parameters
    ----------
    parts : dict
        Samples by site.
    n_train, n_test : int
        Most training and held-out samples of a site.
    rng : numpy.random.Generator
        Random stream.
    """
    return {site: (_few(train, n_train, rng), _few(test, n_test, rng)) for site, (train, test) in parts.items()}


def _few(X: Floats, n: int, rng: np.random.Generator) -> Floats:
    return X[np.sort(rng.permutation(len(X))[:n])]


def windows(X: Floats, length: int) -> Floats:
    """Cut a recording into windows that do not overlap, one a row.

    Parameters
    ----------
    X : (n, c) array
        Moments in rows, channels in columns.
    length : int
        Moments of a window.
    """
    return np.asarray(cut_windows(X[: len(X) // length * length], length), dtype=np.float64)


def patches(image: Floats, size: int) -> Floats:
    """Cut an image into patches that do not overlap, row by row; one a row.

    Parameters
    ----------
    image : (h, w) array
        Grey values.
    size : int
        Height and width of a patch.
    """
    h, w = (side // size * size for side in image.shape)
    return np.asarray(cut_patches(image[None, :h, :w], size), dtype=np.float64)


def smaller(image: Floats, factor: int) -> Floats:
    """Make an image smaller by means over squares of pixels.

    Parameters
    ----------
    image : (h, w) array
        Grey values.
    factor : int
        Height and width of a square.
    """
    h, w = image.shape[0] // factor, image.shape[1] // factor
    smaller: Floats = image[: h * factor, : w * factor].reshape(h, factor, w, factor).mean(axis=(1, 3))
    return smaller
