"""Load a client's samples for learning: read, cut and preprocess them."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.errors import DataError
from common.rng import stream
from common.settings import Settings
from perdl_client.data.held_out import FEWEST, LEAST_LEFT, HeldOut, Parts, set_aside, units_of_pieces
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
    held_out : HeldOut, optional
        Samples that the client does not learn from, prepared like the others.
    none_held_out : str
        Why there are none although the run asks for it; empty otherwise.
    """

    Y: Floats
    cut: Cut
    preprocessing: Preprocessing
    names: tuple[str, ...] = ()
    held_out: HeldOut | None = None
    none_held_out: str = ""


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
    if deployed := "data" in identity.node_config:  # simulations warn before they begin
        _warn_of_units(samples, identity, settings)
    is_own = SAMPLES not in identity.node_config
    data = prepare(samples, settings, identity.name, identity.learning(settings).n_atoms, in_place=is_own)
    if data.none_held_out:
        _log.log(logging.WARNING if deployed else logging.INFO, "%s", data.none_held_out)
    return data


def prepare(
    samples: Samples, settings: Settings, name: str, n_atoms: int | None, *, in_place: bool = False
) -> ClientData:
    """Set samples aside for the evaluation, and cut and preprocess both parts by what the client learns from.

    Parameters
    ----------
    samples : Samples
        The client's samples.
    settings : Settings
        The run's settings.
    name : str
        The client's name. It selects the random stream, and names the client in errors.
    n_atoms : int, optional
        Atoms of the client; default as many as features.
    in_place : bool
        Whether the samples may be overwritten.

    Returns
    -------
    ClientData

    Raises
    ------
    DataError
        If the samples cannot be cut, or are too large or small.
    """
    parts, why = _divided(samples, settings, name, n_atoms)
    training = samples if parts is None else parts.training
    Y = _pieces(training, settings, name)
    if Y.size == 0:
        raise DataError(f"{name} has no data: {Y.shape[1]} samples of {Y.shape[0]} features")
    require_moderate(Y, f"{name} has values", "rescale them")
    cut = cut_of(settings.data, samples.shape)
    preprocessing = fit_preprocessing(Y, settings.data, name, cut.channels)
    in_place = in_place and Y.flags.writeable  # a file mapped into memory is read-only
    Z = _preprocessed(Y, preprocessing, name, in_place=in_place)
    held_out = None
    if parts is not None:
        other = _pieces(parts.held_out, settings, name)
        require_moderate(other, f"{name} has values", "rescale them")
        pieces = _preprocessed(other, preprocessing, name, in_place=False)
        held_out = HeldOut(pieces, units_of_pieces(parts.units, pieces.shape[1]))
    return ClientData(Z, cut, preprocessing, samples.names, held_out, why)


def _divided(samples: Samples, settings: Settings, name: str, n_atoms: int | None) -> tuple[Parts | None, str]:
    """Divide the samples, or say why not."""
    share, cut = settings.evaluation.held_out, cut_of(settings.data, samples.shape)
    if share == 0 or samples.data.size == 0:
        return None, ""
    parts = set_aside(samples, cut, share, stream(settings.seed, name, "held-out"))
    held, left = (0, 0)
    if parts is not None:
        held, left = (_pieces(part, settings, name).shape[1] for part in (parts.held_out, parts.training))
    r = n_atoms or math.prod(cut.piece)
    if held < FEWEST:
        why = f"of {samples.data.shape[1]} samples {share:.0%} are too few to tell anything"
    elif left < LEAST_LEFT * r:
        why = f"too few samples would be left to learn {r} atoms from ({left}, and {LEAST_LEFT} an atom are needed)"
    else:
        return parts, ""
    return None, f"{name} holds out no samples: {why}; it takes part, and is not evaluated"


def _pieces(samples: Samples, settings: Settings, name: str) -> Floats:
    try:
        return cut_of(settings.data, samples.shape).apply(samples.data).astype(settings.dtype, copy=False)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def _preprocessed(Y: Floats, preprocessing: Preprocessing, name: str, *, in_place: bool) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        Z = preprocessing.apply(Y, in_place=in_place)
    require_moderate(Z, f"{name} has, once preprocessed, values", "look at data.divide_by")
    return Z


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
