"""What one client's file holds, in numbers, as ``perdl check`` shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from common.errors import DataError, SettingsError
from common.settings import Settings
from common.words import listed
from perdl.check.suggest import Spectrum, spectrum
from perdl_client.data.moments import finite_sizes, variances
from perdl_client.data.preprocessing import fit_preprocessing
from perdl_client.data.quality import SampleStatistics, sample_statistics
from perdl_client.data.samples import Samples
from perdl_client.data.units import labels
from perdl_client.data.windows_patches import cut_of
from perdl_client.learning.initialization import mean_share

Floats = NDArray[np.floating]

_MOST = 0.8
"""Share of the energy from which on one feature carries most of it."""


@dataclass
class ClientProfile:
    """What one client's file holds. Numbers that cannot be had are missing: None.

    Attributes
    ----------
    name : str
        Of the client in a simulation of these files.
    file : str
    drop : str
        Columns that the client leaves out, as ``--drop`` takes them.
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
        From 1: that of the most energy after centring; of windows, the channel.
    largest_share : float
        Its share of it.
    """

    name: str
    file: str
    drop: str | None = None
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


def measure(
    profile: ClientProfile, samples: Samples, settings: Settings
) -> tuple[Spectrum, SampleStatistics | None, list[str]]:
    """Fill in the numbers of one client; return its spectrum, the statistics of its samples, and what is wrong.

    Parameters
    ----------
    profile : ClientProfile
        The profile, which is filled in.
    samples : Samples
        What a file holds.
    settings : Settings
        The run's settings.
    """
    Y, nothing = samples.data, Spectrum(0, 0, 0.0, 0.0)
    profile.features, profile.samples = Y.shape
    profile.shape, profile.dtype = list(samples.shape), Y.dtype.name
    n_finite, largest, size = finite_sizes(Y)
    profile.missing = Y.size - n_finite
    wrong = [_missing(samples, np.isfinite(Y))] if profile.missing else []
    if largest > np.finfo(Y.dtype).max ** 0.25:
        return nothing, None, [*wrong, f"has values up to {largest:.3g}, too large to compute with: rescale them"]
    profile.rms = size if n_finite else None
    if profile.missing:
        Y = Y[:, np.isfinite(Y).all(axis=0)]
    if Y.shape[1] == 0:
        return nothing, None, wrong
    statistics = sample_statistics(Y, samples.shape, samples.names)
    try:
        Y, channels = _cut(Y, samples.shape, settings, profile)
        profile.constant = int(np.count_nonzero(Y.max(axis=1) == Y.min(axis=1)))
        profile.mean_share = mean_share(Y)
        # As it is suggested to learn from them: scales and whitening depend on whether the mean is off.
        told = settings.data.model_copy(update={"center": True})
        prepared = fit_preprocessing(Y, told, profile.name, channels).apply
    except (DataError, SettingsError) as error:
        return nothing, statistics, [*wrong, str(error)]
    directions = spectrum(Y, prepared)
    profile.rank = directions.rank
    if directions.rank == 0:
        which = "has one sample only" if Y.shape[1] == 1 else "all its samples are the same"
        return directions, None, [*wrong, f"{which}, so nothing can be learnt from its differences"]
    energies = variances(Y, prepared)
    if settings.data.window is not None:
        energies = energies.reshape(-1, channels).sum(axis=0)
    top = int(np.argmax(energies))
    profile.largest_feature, profile.largest_share = top + 1, float(energies[top] / energies.sum())
    return directions, statistics, wrong


def one_feature(profiles: Mapping[str, ClientProfile], statistics: Mapping[str, SampleStatistics]) -> str:
    """Return in words at which clients one feature carries most of the energy; empty if at none.

    Parameters
    ----------
    profiles : mapping of str to ClientProfile
        By client.
    statistics : mapping of str to SampleStatistics
        By client.
    """
    large = {
        name: (profile.largest_feature or 0) - 1
        for name, profile in profiles.items()
        if _carries_most(profile, statistics.get(name))
    }
    if not large:
        return ""
    which = sorted(set(large.values()))
    names = next((statistics[name].names for name in large if statistics[name].names), ())
    what, ask = ("features", "are they") if len(which) > 1 else ("feature", "is it")
    most = f"{'carry' if len(which) > 1 else 'carries'} most of the energy, and the others next to nothing"
    return f"{listed(large)}: {what} {labels(which, names)} {most}; {ask} in other units, or no measurement at all?"


def _carries_most(profile: ClientProfile, statistics: SampleStatistics | None) -> bool:
    """Whether one feature of more than two does, which is no row number or time: of these it is told already."""
    if statistics is None or not profile.largest_feature or statistics.n_features < 3:
        return False
    return (profile.largest_share or 0.0) > _MOST and profile.largest_feature - 1 not in (
        *statistics.counting,
        *statistics.times,
    )


def _cut(Y: Floats, shape: tuple[int, ...], settings: Settings, profile: ClientProfile) -> tuple[Floats, int]:
    """Cut samples as a client does; return the pieces and how many channels they have."""
    cut = cut_of(settings.data, shape)
    Y = cut.apply(Y)
    profile.features, profile.samples, profile.shape = *Y.shape, list(cut.piece)
    return Y, cut.channels


def _missing(samples: Samples, finite: NDArray[np.bool_]) -> str:
    i, j = divmod(int(finite.T.argmin()), len(finite))
    where = f"feature {j + 1}" + (f" ({samples.names[j]!r})" if j < len(samples.names) else "")
    return (
        f"has {np.count_nonzero(~finite)} NaN or infinite numbers of {finite.size}, the first at sample {i + 1}, "
        f"{where}; drop or fill them"
    )
