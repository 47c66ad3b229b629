"""What one client's file holds, in numbers, as ``perdl check`` shows them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from common.errors import DataError, SettingsError
from common.settings import Settings
from perdl.moments import finite_sizes, variances
from perdl.suggest import Spectrum, spectrum
from perdl_client.preprocess import cut_of, fit_preprocessing
from perdl_client.samples import Samples
from perdl_client.start import mean_share

Floats = NDArray[np.floating]

OTHER_UNITS = "is it in other units"
"""Begins the question that a note asks of a feature that carries most of the energy."""


@dataclass
class Look:
    """What one client's file holds. Numbers that cannot be had are missing: None.

    Attributes
    ----------
    name : str
        Of the client in a simulation of these files.
    file : str
    samples, features : int
        After the cut, if the settings cut.
    shape : list of int
        Of one sample.
    dtype : str
    rms : float
        Root mean square of all finite numbers.
    missing : int
        NaN and infinite numbers. What follows is of the samples without any, as a client would learn from them but for
        the mean.
    constant : int
        Features that are the same in all samples.
    rank : int
        Of the centred samples, 2,000 at most.
    mean_share : float
        Share of the energy that the mean carries.
    largest_feature : int
        From 1: that of the most energy after centring.
    largest_share : float
        Its share of it.
    """

    name: str
    file: str
    samples: int | None = None
    features: int | None = None
    shape: list[int] = field(default_factory=list)
    dtype: str | None = None
    rms: float | None = None
    missing: int | None = None
    constant: int | None = None
    rank: int | None = None
    mean_share: float | None = None
    largest_feature: int | None = None
    largest_share: float | None = None


def measure(look: Look, samples: Samples, settings: Settings) -> tuple[Spectrum, list[str], list[str]]:
    """Fill in the numbers of one client; return its spectrum, what to note, and what is wrong."""
    Y, nothing = samples.data, Spectrum(0, 0, 0.0, 0.0)
    look.features, look.samples = Y.shape
    look.shape, look.dtype = list(samples.shape), Y.dtype.name
    n_finite, largest, size = finite_sizes(Y)
    look.missing = Y.size - n_finite
    wrong = [f"has {look.missing} NaN or infinite numbers of {Y.size}; drop or fill them"] if look.missing else []
    if largest > np.finfo(Y.dtype).max ** 0.25:
        return nothing, [], [*wrong, f"has values up to {largest:.3g}, too large to compute with: rescale them"]
    look.rms = size if n_finite else None
    if look.missing:
        Y = Y[:, np.isfinite(Y).all(axis=0)]
    if Y.shape[1] == 0:
        return nothing, [], wrong
    counters = _counters(Y)
    try:
        Y, channels = _cut(Y, samples.shape, settings, look)
        look.constant = int(np.count_nonzero(Y.max(axis=1) == Y.min(axis=1)))
        look.mean_share = mean_share(Y)
        # As it is suggested to learn from them: scales and whitening depend on whether the mean is off.
        told = settings.data.model_copy(update={"center": True})
        prepared = fit_preprocessing(Y, told, look.name, channels).apply
    except (DataError, SettingsError) as error:
        return nothing, [], [*wrong, str(error)]
    seen = spectrum(Y, prepared)
    look.rank = seen.rank
    if seen.rank == 0:
        which = "has one sample only" if Y.shape[1] == 1 else "all its samples are the same"
        return seen, [], [*wrong, f"{which}, so nothing can be learnt from its differences"]
    energies = variances(Y, prepared)
    top = int(np.argmax(energies))
    look.largest_feature, look.largest_share = top + 1, float(energies[top] / energies.sum())
    notes = [
        f"{_feature(samples, j)} goes up or down by whole numbers from sample to sample: times? Take it out"
        for j in counters
    ]
    if look.largest_share > 0.8 and len(Y) > 2 and not counters:
        notes.append(
            f"{_feature(samples, top)} carries most of the energy, and the others next to nothing; "
            f"{OTHER_UNITS}, or no measurement at all?"
        )
    return seen, notes, wrong


def _cut(Y: Floats, shape: tuple[int, ...], settings: Settings, look: Look) -> tuple[Floats, int]:
    """Cut samples as a client does; return the pieces and how many channels they have."""
    cut = cut_of(settings.data, shape)
    Y = cut.apply(Y.T).T
    look.features, look.samples, look.shape = *Y.shape, list(cut.piece)
    return Y, cut.channels


def _feature(samples: Samples, j: int) -> str:
    return f"feature {j + 1}" + (f" ({samples.names[j]!r})" if j < len(samples.names) else "")


def _counters(Y: Floats) -> list[int]:
    """Features that are whole numbers which only rise, or only fall, over eight samples or more; no row numbers."""
    if Y.shape[1] < 8:
        return []

    def counts(rows: Floats) -> NDArray[np.bool_]:
        steps = np.diff(rows, axis=1)
        one_way = (steps > 0).all(axis=1) | (steps < 0).all(axis=1)
        one_way &= ~(steps == 1).all(axis=1)  # of those perdl_client.doubts tells
        counted: NDArray[np.bool_] = one_way & (rows == np.round(rows)).all(axis=1)
        return counted

    likely = np.flatnonzero(counts(Y[:, :8]))  # few are left for a look at all samples
    return [int(j) for j in likely if counts(Y[j : j + 1])[0]]
