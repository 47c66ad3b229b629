"""The numbers that ``perdl check`` shows of one client's file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from common.blocks import in_memory
from common.errors import DataError, SettingsError
from common.settings import Settings
from common.statistics import mean_share
from common.words import listed
from perdl.check.suggest import Spectrum, spectrum
from perdl_client.data.moments import finite_sizes, variances
from perdl_client.data.preprocessing import fit_preprocessing, observed_mean
from perdl_client.data.quality import SampleStatistics, by_columns, sample_statistics
from perdl_client.data.samples import Samples
from perdl_client.data.units import labels
from perdl_client.data.windows_patches import cut_of
from perdl_client.learning.missing import refill

Floats = NDArray[np.floating]

_MOST = 0.8
"""A feature with a larger share of the energy than this carries most of it."""


@dataclass
class ClientProfile:
    """What one client's file holds. A number that cannot be computed is None.

    The fields from ``constant`` on use only the samples without NaN and infinite numbers. With
    ``data.missing = "mask"`` they use all, with the mean of its feature in place of what is missing.

    Parameters
    ----------
    name : str
        Name of the client in a simulation of these files.
    file : str
        Path of the file.
    drop : str, optional
        Columns that the client leaves out, as ``--drop`` takes them.
    samples, features : int, optional
        Numbers of samples and features, after the cut into windows or patches if there is one.
    shape : list of int
        Shape of one sample.
    dtype : str, optional
        NumPy's name of the type of the numbers.
    rms : float, optional
        Root mean square of all finite numbers.
    missing : int, optional
        How many numbers are NaN or infinite.
    constant : int, optional
        How many features are the same in all samples.
    rank : int, optional
        Rank of the centred samples, of at most 2,000 of them.
    mean_share : float, optional
        Share of the energy that the mean carries.
    largest_feature : int, optional
        The feature with the most energy after centring, from 1; with windows, the channel.
    largest_share : float, optional
        Share of the energy that this feature carries.
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
    """Fill in a client's profile; return its spectrum, the statistics of its samples, and the problems found.

    Parameters
    ----------
    profile : ClientProfile
        Profile with name and file; its numbers are filled in.
    samples : Samples
        Content of the file.
    settings : Settings
        Settings of the run; the table ``data`` is used.
    """
    Y, nothing = in_memory(samples.data), Spectrum(0, 0, 0.0, 0.0, 0)
    profile.features, profile.samples = Y.shape
    profile.shape, profile.dtype = list(samples.shape), Y.dtype.name
    n_finite, largest, size = finite_sizes(Y)
    profile.missing = Y.size - n_finite
    masked = settings.data.missing == "mask"
    wrong = [_missing(samples, np.isfinite(Y))] if profile.missing and not masked else []
    if largest > np.finfo(Y.dtype).max ** 0.25:
        return nothing, None, [*wrong, f"has values up to {largest:.3g}, too large to compute with: rescale them"]
    profile.rms = size if n_finite else None
    if profile.missing and not masked:
        Y = Y[:, np.isfinite(Y).all(axis=0)]
    if Y.shape[1] == 0 or not n_finite:
        return nothing, None, wrong or ["has no number that was measured: leave it out"]
    statistics = sample_statistics(Y, samples.shape, samples.names)
    if profile.missing and masked:  # what follows needs complete samples, and only sizes of them
        Y = refill(Y, observed_mean(Y)[:, None])
    try:
        Y, channels = _cut(Y, samples.shape, settings, profile)
        profile.constant = int(np.count_nonzero(Y.max(axis=1) == Y.min(axis=1)))
        profile.mean_share = mean_share(Y)
        # Centring is what gets suggested, and scales and whitening depend on it.
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


def one_feature(profiles: Mapping[str, ClientProfile], statistics: Mapping[str, SampleStatistics]) -> list[str]:
    """Say at which clients one feature carries most of the energy: a note for those of the same columns.

    Parameters
    ----------
    profiles : mapping of str to ClientProfile
        Profile of each client.
    statistics : mapping of str to SampleStatistics
        Statistics of each client's samples; clients without any may be missing.
    """
    large = {
        name: (profile.largest_feature or 0) - 1
        for name, profile in profiles.items()
        if _carries_most(profile, statistics.get(name))
    }
    notes = []
    for names, some in by_columns(large, statistics):
        which = sorted({large[name] for name in some})
        what, ask = ("features", "are they") if len(which) > 1 else ("feature", "is it")
        most = f"{'carry' if len(which) > 1 else 'carries'} most of the energy, and the others next to nothing"
        told = f"{listed(some)}: {what} {labels(which, names)} {most}"
        notes.append(f"{told}; {ask} in other units, or no measurement at all?")
    return notes


def _carries_most(profile: ClientProfile, statistics: SampleStatistics | None) -> bool:
    """Whether one of at least three features does. Row numbers and times are left out: other notes name them."""
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
        + (', or set data.missing = "mask"' if np.isnan(in_memory(samples.data)[~finite]).all() else "")
    )
