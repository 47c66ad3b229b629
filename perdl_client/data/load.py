"""Load a client's samples for learning: read, cut and preprocess them."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.errors import DataError
from common.settings import Settings
from perdl_client.data.preprocessing import Preprocessing, fit_preprocessing
from perdl_client.data.quality import sample_statistics, unit_warning
from perdl_client.data.samples import Samples
from perdl_client.data.sources import SAMPLES, read_samples
from perdl_client.data.units import MOST, untouched
from perdl_client.data.windows_patches import Cut, cut_of
from perdl_client.identity import Identity

Floats = NDArray[np.floating]
_log = logging.getLogger("perdl.client")


@dataclass(frozen=True)
class ClientData:
    """A client's samples as it learns from them, and how they were prepared.

    Parameters
    ----------
    Y : (d, n) array
        Samples in columns.
    cut : Cut
        How samples were cut.
    preprocessing : Preprocessing
        What was done to the pieces.
    names : tuple of str
        Names of the features, if the file has them.
    """

    Y: Floats
    cut: Cut
    preprocessing: Preprocessing
    names: tuple[str, ...] = ()


def load_data(identity: Identity, settings: Settings, held: Samples | None = None) -> ClientData:
    """Return this client's samples, finite, in the run's float type, cut and preprocessed by the settings.

    Parameters
    ----------
    identity : Identity
        Who the client is.
    settings : Settings
        The run's settings.
    held : Samples, optional
        Samples that were read from the client's file before. They may be overwritten.

    Returns
    -------
    ClientData

    Raises
    ------
    DataError
        One line that names the file and what to do.
    """
    samples = read_samples(identity, settings, held)
    cut = cut_of(settings.data, samples.shape)
    if "data" in identity.node_config:  # simulations warn before they begin
        _warn_of_units(samples, identity, settings)
    try:
        Y = cut.apply(samples.data).astype(settings.dtype, copy=False)
    except DataError as error:
        raise DataError(f"{identity.name}: {error}") from None
    if Y.size == 0:
        raise DataError(f"{identity.name} has no data: {Y.shape[1]} samples of {Y.shape[0]} features")
    require_moderate(Y, f"{identity.name} has values", "rescale them")
    preprocessing = fit_preprocessing(Y, settings.data, identity.name, cut.channels)
    is_own = Y.flags.writeable and SAMPLES not in identity.node_config  # a file mapped into memory is read-only
    with np.errstate(over="ignore", invalid="ignore"):
        Z = preprocessing.apply(Y, in_place=is_own)
    require_moderate(Z, f"{identity.name} has, once preprocessed, values", "look at data.divide_by")
    return ClientData(Z, cut, preprocessing, samples.names)


def _warn_of_units(samples: Samples, identity: Identity, settings: Settings) -> None:
    if samples.data.size and len(samples.data) <= MOST and untouched(settings.data):  # more features are of one kind
        statistics = sample_statistics(samples.data, samples.shape, samples.names)
        if warning := unit_warning({identity.name: statistics}):
            _log.warning("%s", warning)


def require_moderate(Y: Floats, whose: str, cure: str) -> None:
    """Raise if numbers are so large or small that sums of squares overflow or underflow.

    Parameters
    ----------
    Y : (d, n) array
        Samples, in columns.
    whose : str
        What the error begins with.
    cure : str
        What the error ends with.
    """
    largest, limits = max(float(Y.max()), -float(Y.min())), np.finfo(Y.dtype)
    if not largest < limits.max**0.25:
        raise DataError(f"{whose} up to {largest:.3g}, too large for {Y.dtype}: {cure}")
    if 0 < largest < limits.tiny**0.5 * 1e3:
        raise DataError(f"{whose} of {largest:.3g} at most, too small for {Y.dtype}: {cure}")
