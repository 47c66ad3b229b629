"""Load a client's samples for learning: read, cut and preprocess them."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from common.blocks import Columns, Stream, blocks, in_memory
from common.data_settings import DataSettings
from common.errors import DataError, SettingsError
from common.learners import LEARNERS
from common.learning_settings import LearningSettings
from common.rng import stream
from common.settings import Settings
from common.statistics import rms
from perdl_client.data.held_out import FEWEST, LEAST_LEFT, HeldOut, set_aside, units_of_pieces
from perdl_client.data.preprocessing import Preprocessing, fit_preprocessing
from perdl_client.data.quality import sample_statistics, unit_warning
from perdl_client.data.samples import Samples, looked_at
from perdl_client.data.site_scale import scale_sums
from perdl_client.data.sources import SAMPLES, read_samples
from perdl_client.data.units import MOST, untouched
from perdl_client.data.windows_patches import Cut, cut_of
from perdl_client.identity import Identity
from perdl_client.learning.missing import gaps
from perdl_client.learning.outliers import screen

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]
_log = logging.getLogger("perdl.client")


@dataclass(frozen=True)
class ClientData:
    """A client's samples as it learns from them, and how they were prepared.

    Parameters
    ----------
    Y : (d, n) array or Stream
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

    Y: Columns
    cut: Cut
    preprocessing: Preprocessing
    names: tuple[str, ...] = ()
    held_out: HeldOut | None = None
    none_held_out: str = ""

    @functools.cached_property
    def rms(self) -> float:
        """Root mean square of the samples. It is computed once, not in every round."""
        return rms(self.Y)


Allow = Callable[[int, int, bool], object]
"""Called with numbers of features and samples, and whether these are in memory, before samples are cut; it raises if
there are too many."""


def load_data(
    identity: Identity, settings: Settings, held: Samples | None = None, allow: Allow = lambda d, n, in_memory: None
) -> ClientData:
    """Return this client's samples, finite, in the run's float type, cut and preprocessed by the settings.

    Parameters
    ----------
    identity : Identity
        Who the client is.
    settings : Settings
        The run's settings.
    held : Samples, optional
        Samples that were read from the client's file before. They may be overwritten.
    allow : callable (int, int, bool) -> object
        Called with the numbers of features and of samples that there would be, and whether these are in memory, before
        anything is done with them.

    Returns
    -------
    ClientData

    Raises
    ------
    DataError
        One line that names the file and what to do.
    """
    samples = read_samples(identity, settings, held)
    _ask(allow, samples, settings)
    if deployed := "data" in identity.node_config:  # simulations warn before they begin
        _warn_of_units(samples, identity, settings)
    is_own = SAMPLES not in identity.node_config
    data = prepare(samples, settings, identity.learning(settings), identity.name, in_place=is_own)
    if data.none_held_out:
        _log.log(logging.WARNING if deployed else logging.INFO, "%s", data.none_held_out)
    return data


def prepare(
    samples: Samples, settings: Settings, learning: LearningSettings, name: str, *, in_place: bool = False
) -> ClientData:
    """Set samples aside for the evaluation, and cut and preprocess both parts by what the client learns from.

    Parameters
    ----------
    samples : Samples
        The client's samples.
    settings : Settings
        The run's settings.
    learning : LearningSettings
        How the client learns.
    name : str
        The client's name. It selects the random stream, and names the client in errors.
    in_place : bool
        Whether the samples may be overwritten.

    Returns
    -------
    ClientData

    Raises
    ------
    DataError
        If the samples cannot be cut, or are too large or small.
    SettingsError
        If the clients have not agreed on a scale yet.
    """
    if settings.data.site_scale != "none":  # else samples would be taken as they are
        raise SettingsError('data.site_scale = "agree": the server sent no scale, so no client could tell its sums')
    if isinstance(samples.data, Stream):
        require_sums(settings, learning, name)
    cut = cut_of(settings.data, samples.shape)
    Y, other, units, why = _divided(samples, cut, settings, learning, name)
    if Y.size == 0:
        raise DataError(f"{name} has no data: {Y.shape[1]} samples of {Y.shape[0]} features")
    require_moderate(Y, f"{name} has values", "rescale them")
    in_place = in_place and isinstance(Y, np.ndarray) and Y.flags.writeable  # mapped files are read-only
    preprocessing, Z = _preprocessed(Y, settings.data, learning, name, cut.channels, in_place)
    if Z is not Y or not isinstance(Y, Stream):  # an array may have been overwritten
        require_moderate(Z, f"{name} has, once preprocessed, values", "look at data.divide_by")
    held_out = None
    if other is not None:
        require_moderate(other, f"{name} has values", "rescale them")
        marked = _screened(other, learning)
        with np.errstate(over="ignore", invalid="ignore"):
            pieces = preprocessing.apply(marked)
        held_out = HeldOut(pieces, units_of_pieces(units, pieces.shape[1]))
    return ClientData(Z, cut, preprocessing, samples.names, held_out, why)


def require_sums(settings: Settings, learning: LearningSettings, name: str) -> None:
    """Raise if a setting needs all samples of a client at once, which a stream does not give.

    Parameters
    ----------
    settings : Settings
        The run's settings.
    learning : LearningSettings
        How the client learns.
    name : str
        The client's name, for the error.

    Raises
    ------
    SettingsError
        If there is one.
    """
    needs = [
        ('outliers = "mask"', learning.outliers == "mask"),
        (f'learner = "{learning.learner}"', LEARNERS[learning.learner].of_sums is None),
        ('privacy = "private"', settings.privacy.mode == "private"),
        ("evaluation.pooled = true", settings.evaluation.pooled),
    ]
    if wrong := next((text for text, is_set in needs if is_set), None):
        raise SettingsError(
            f"{wrong}: needs all samples of a client at once, and those of {name} are read block by block: change it, "
            "or set data.in_memory = true"
        )


def _divided(
    samples: Samples, cut: Cut, settings: Settings, learning: LearningSettings, name: str
) -> tuple[Columns, Columns | None, Ints | None, str]:
    """Return the pieces to learn from, those held out and their units, and why none are if the run asks for it."""
    share = settings.evaluation.held_out
    if share == 0 or samples.data.size == 0:
        return _pieces(samples.data, cut, settings, name), None, None, ""
    parts = set_aside(samples, cut, share, stream(settings.seed, name, "held-out"))
    why = f"of {samples.data.shape[1]} samples {share:.0%} are too few to tell anything"
    if parts is not None:
        # Images may have been cut in two, so that the parts have other shapes.
        both = (parts.training, parts.held_out)
        Y, other = (_pieces(part.data, replace(cut, shape=part.shape), settings, name) for part in both)
        left, r = Y.shape[1], learning.n_atoms or math.prod(cut.piece)
        if other.shape[1] >= FEWEST and left >= LEAST_LEFT * r:
            return Y, other, parts.units, ""
        if other.shape[1] >= FEWEST:
            why = f"too few samples would be left to learn {r} atoms from ({left}, and {LEAST_LEFT} an atom are needed)"
    why = f"{name} holds out no samples: {why}; it takes part, and is not evaluated"
    return _pieces(samples.data, cut, settings, name), None, None, why


def _screened(Y: Columns, learning: LearningSettings) -> Columns:
    """Mark wild entries, if the client is to; a stream's client is not."""
    return screen(Y) if learning.outliers == "mask" and not isinstance(Y, Stream) else Y


def _pieces(data: Columns, cut: Cut, settings: Settings, name: str) -> Columns:
    try:
        return cut.apply(data).astype(settings.dtype, copy=False)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def _ask(allow: Allow, samples: Samples, settings: Settings) -> None:
    cut = cut_of(settings.data, samples.shape)
    allow(math.prod(cut.piece), cut.count(samples.data.shape[1]), not isinstance(samples.data, Stream))


def own_scale_sums(
    identity: Identity, settings: Settings, held: Samples | None = None, allow: Allow = lambda d, n, in_memory: None
) -> tuple[Floats, Floats]:
    """Return this client's sums for scales that all clients agree on. Held-out samples do not count.

    Parameters
    ----------
    identity : Identity
        Who the client is.
    settings : Settings
        The run's settings.
    held : Samples, optional
        Samples that were read from the client's file before. They are not changed.
    allow : callable (int, int, bool) -> object
        As in :func:`load_data`.

    Returns
    -------
    counts, squares : (c,) arrays
    """
    samples = read_samples(identity, settings, held)
    _ask(allow, samples, settings)
    cut, learning = cut_of(settings.data, samples.shape), identity.learning(settings)
    if isinstance(samples.data, Stream):
        require_sums(settings, learning, identity.name)
    Y = _divided(samples, cut, settings, learning, identity.name)[0]
    require_moderate(Y, f"{identity.name} has values", "rescale them")
    marked = _screened(Y, learning)
    return scale_sums(marked, cut.channels)


def _preprocessed(
    Y: Columns, data: DataSettings, learning: LearningSettings, name: str, channels: int, in_place: bool
) -> tuple[Preprocessing, Columns]:
    """Mark wild entries if the client is to, then learn its preprocessing and do it."""
    marked = _screened(Y, learning)
    if (missing := gaps(marked)) is not None:
        _require_masks_fit(data, learning, name)
        if missing.all():
            raise DataError(f"{name} has no entry that was measured: leave it out")
    preprocessing = fit_preprocessing(marked, data, name, channels)
    with np.errstate(over="ignore", invalid="ignore"):
        return preprocessing, preprocessing.apply(marked, in_place=in_place or marked is not Y)


def _require_masks_fit(data: DataSettings, learning: LearningSettings, name: str) -> None:
    """Raise if a setting cannot work with missing entries."""
    if data.whiten:
        raise SettingsError(f"data.whiten = true: needs complete samples, and {name} has missing or wild entries")
    if not LEARNERS[learning.learner].orthonormal and learning.coder != "omp":
        raise SettingsError(
            f'coder = "{learning.coder}": must be "omp" with learner = "{learning.learner}" where entries are missing '
            f"or masked, as at {name}: correlations with atoms that are not orthogonal cannot fill them"
        )


def _warn_of_units(samples: Samples, identity: Identity, settings: Settings) -> None:
    if samples.data.size and len(samples.data) <= MOST and untouched(settings.data):  # more features are of one kind
        some = looked_at(samples)
        statistics = sample_statistics(in_memory(some.data), samples.shape, samples.names)
        if warning := unit_warning({identity.name: statistics}):
            _log.warning("%s", warning)


def require_moderate(Y: Columns, whose: str, cure: str) -> None:
    """Raise if numbers are so large or small that sums of squares overflow or underflow.

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples, in columns.
    whose : str
        What the error begins with.
    cure : str
        What the error ends with.
    """
    # fmax leaves NaN out, which marks what is missing
    high = low = np.nan
    for B in blocks(Y):
        high, low = np.fmax(high, np.fmax.reduce(B, axis=None)), np.fmin(low, np.fmin.reduce(B, axis=None))
    largest, limits = max(float(high), -float(low)), np.finfo(Y.dtype)
    if largest >= limits.max**0.25:
        raise DataError(f"{whose} up to {largest:.3g}, too large for {Y.dtype}: {cure}")
    if 0 < largest < limits.tiny**0.5 * 1e3:
        raise DataError(f"{whose} of {largest:.3g} at most, too small for {Y.dtype}: {cure}")
