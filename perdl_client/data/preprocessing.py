r"""Preprocess a client's samples before learning, as the settings say, and undo it.

Samples are cut (:mod:`perdl_client.data.windows_patches`). Then each piece y goes through the steps of
:data:`PREPROCESSING`. The built-in steps give

.. math:: z = W \, \frac{y - \text{offset}}{\text{scale}}

entry by entry. W is the symmetric square root of the inverse second moment if ``whiten`` is set, else I. The numbers
are learnt from the client's own samples. They stay in its model and are never sent. To add a step, enter it in
:data:`PREPROCESSING`, and its setting in ``common/data_settings.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from common.blocks import Columns, Stream, blocks, whole
from common.data_settings import DataSettings, numbers_in
from common.errors import DataError, PerdlError, SettingsError
from common.statistics import feature_means, rms
from perdl_client.learning.missing import gaps

Floats = NDArray[np.floating]

_FLOOR = 1e-3
"""Share of the mean eigenvalue that whitening adds to all, so that directions with little energy are not amplified."""


@dataclass(frozen=True)
class PreprocessingStep:
    """A step of the preprocessing. Samples are columns.

    Parameters
    ----------
    settings : tuple of str
        Settings of the table ``data`` that it depends on. The step is done if one of them is not at its default, or
        always if there are none.
    fit : callable ``(Y, data, name, channels) -> array``
        Learns the step's numbers from samples (d, n), an array or a Stream, after the steps before it: go over
        ``common.blocks.blocks(Y)``. ``data`` are the settings, ``name``
        is the client's name for errors, ``channels`` is the number of channels, which windows and patches repeat.
    apply : callable ``(Y, numbers, out) -> Z``
        Does the step on samples, or on a block of them. ``out`` is None, or an array that may be overwritten.
    undo : callable ``(Z, numbers) -> Y``
        Inverse of ``apply``.
    neutral : float, optional
        Number of each feature in the model if the step is not done; default: the step is left out.
    is_shift : bool
        Whether the step only subtracts a constant. The shared or own part of a sample does not contain this
        constant.
    """

    settings: tuple[str, ...]
    fit: Callable[[Columns, DataSettings, str, int], Floats]
    apply: Callable[[Floats, Floats, Floats | None], Floats]
    undo: Callable[[Floats, Floats], Floats]
    neutral: float | None = None
    is_shift: bool = False

    def is_wanted(self, data: DataSettings) -> bool:
        """Return whether the settings ask for this step.

        Parameters
        ----------
        data : DataSettings
            The table ``data`` of the settings.
        """
        defaults = {name: DataSettings.model_fields[name].default for name in self.settings}
        return not defaults or any(getattr(data, name) != default for name, default in defaults.items())


@dataclass(frozen=True)
class Preprocessing:
    """The fitted steps for one client's samples. Samples are columns.

    Parameters
    ----------
    numbers : dict of str to array
        What each step learnt, by its name in :data:`PREPROCESSING`, in the order of the steps.
    """

    numbers: dict[str, Floats]

    @overload
    def apply(self, Y: Floats, in_place: bool = False) -> Floats: ...
    @overload
    def apply(self, Y: Stream, in_place: bool = False) -> Stream: ...
    def apply(self, Y: Columns, in_place: bool = False) -> Columns:
        """Return the preprocessed samples.

        Parameters
        ----------
        Y : (d, n) array or Stream
            Samples, in columns.
        in_place : bool
            Whether ``Y`` may be overwritten.
        """
        if isinstance(Y, Stream):
            return Y.map(lambda B: self.apply(B, in_place=B.flags.writeable)) if self._changes else Y
        Z = Y
        for name, numbers in self.numbers.items():
            Z = PREPROCESSING[name].apply(Z, numbers, Z if in_place or Z is not Y else None)
        return Z

    @property
    def _changes(self) -> bool:
        """Whether any step does anything."""
        return any((numbers != PREPROCESSING[name].neutral).any() for name, numbers in self.numbers.items())

    def undo(self, Z: Floats) -> Floats:
        """Return the samples (d, n) before preprocessing.

        Parameters
        ----------
        Z : (d, n) array
            Preprocessed samples, in columns.
        """
        for name, numbers in reversed(self.numbers.items()):
            Z = PREPROCESSING[name].undo(Z, numbers)
        return Z

    def undo_part(self, Z: Floats) -> Floats:
        """Return a part of preprocessed samples in the samples' units. Shifts are not undone: they belong to no part.

        Parameters
        ----------
        Z : (d, n) array
            Part of preprocessed samples, in columns.
        """
        for name, numbers in reversed(self.numbers.items()):
            Z = Z if PREPROCESSING[name].is_shift else PREPROCESSING[name].undo(Z, numbers)
        return Z

    @property
    def shifts(self) -> bool:
        """Whether a constant is subtracted from the samples."""
        return any(PREPROCESSING[name].is_shift and bool(numbers.any()) for name, numbers in self.numbers.items())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the numbers of each step and the steps' names as arrays, for saving."""
        return {**self.numbers, "steps": np.array(list(self.numbers), dtype=np.str_)}

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]], mark: str = "") -> Preprocessing:
        """Return the preprocessing that :meth:`arrays` was called on.

        Parameters
        ----------
        arrays : mapping of str to array
            Saved arrays.
        mark : str
            Prefix of their names.

        Raises
        ------
        PerdlError
            If a step is not registered here.
        """
        steps = arrays[f"{mark}steps"].tolist()
        if unknown := [name for name in steps if name not in PREPROCESSING]:
            raise PerdlError(
                f"the samples were preprocessed by {unknown[0]!r}, which is not in PREPROCESSING: register it first"
            )
        return cls({name: arrays[f"{mark}{name}"] for name in steps})


def fit_preprocessing(Y: Columns, data: DataSettings, name: str, channels: int = 0) -> Preprocessing:
    """Learn the steps that the settings ask for from a client's samples.

    Parameters
    ----------
    Y : (d, n) array or Stream
        Pieces after cutting.
    data : DataSettings
        The table ``data`` of the settings.
    name : str
        The client's name, for errors.
    channels : int
        Number of channels, which the features of windows and patches repeat; default d.

    Returns
    -------
    Preprocessing

    Raises
    ------
    SettingsError
        If ``divide_by`` has another number of constants than there are features.
    DataError
        If the data's own scale is zero or not finite.
    """
    fitted = Preprocessing({})
    for step_name, step in PREPROCESSING.items():
        if step.is_wanted(data):
            numbers = step.fit(fitted.apply(Y), data, name, channels or len(Y))
        elif step.neutral is not None:
            numbers = np.full(len(Y), step.neutral, Y.dtype)
        else:
            continue
        fitted = Preprocessing({**fitted.numbers, step_name: numbers})
    return fitted


def _constant(Y: Columns) -> NDArray[np.bool_]:
    """Return which features are the same in all samples."""
    first = _first(Y)[:, None]
    missing = gaps(Y)
    if missing is not None:
        marked: NDArray[np.bool_] = ((first == Y) | missing).all(axis=1)
        return marked
    same = np.ones(len(Y), bool)
    for B in blocks(Y):
        same &= (first == B).all(axis=1)
    return same


def _first(Y: Columns) -> Floats:
    """Return the first observed number of each feature; 0 of a feature that was never measured."""
    if isinstance(Y, Stream) or (missing := gaps(Y)) is None:
        return Y[:, :1][:, 0].copy()
    first = Y[np.arange(len(Y)), (~missing).argmax(axis=1)]
    return np.where(np.isnan(first), Y.dtype.type(0), first)


def observed_mean(Y: Columns) -> Floats:
    """Return the mean of the observed numbers of each feature; 0 of a feature that was never measured.

    Parameters
    ----------
    Y : (d, n) array or Stream
        Samples in columns. NaN marks what is missing.

    Returns
    -------
    (d,) array
    """
    if isinstance(Y, Stream) or (missing := gaps(Y)) is None:
        return feature_means(Y)
    total: Floats = np.where(missing, Y.dtype.type(0), Y).sum(axis=1) / np.maximum((~missing).sum(axis=1), 1)
    return total.astype(Y.dtype, copy=False)


def _std(Y: Columns) -> Floats:
    """Return the standard deviation of the observed numbers of each feature; 0 where there are none."""
    spread: Floats
    if gaps(Y) is not None:
        spread = np.sqrt(observed_mean(np.square(Y - observed_mean(Y)[:, None])))
    elif (B := whole(Y)) is not None:
        spread = B.std(axis=1)
    else:
        mean = feature_means(Y)[:, None].astype(np.float64)
        spread = np.sqrt(sum(np.square(B - mean).sum(axis=1) for B in blocks(Y)) / Y.shape[1]).astype(Y.dtype)
    return spread


def _offsets(Y: Columns, data: DataSettings, name: str, channels: int) -> Floats:
    """Return each feature's mean, or zero without ``center``; for a constant feature its exact value."""
    return np.where(_constant(Y), _first(Y), observed_mean(Y) if data.center else Y.dtype.type(0))


def _shift(Y: Floats, offset: Floats, out: Floats | None) -> Floats:
    return np.subtract(Y, offset[:, None], out=out) if offset.any() else Y


def _scales(Y: Columns, data: DataSettings, name: str, channels: int) -> Floats:
    """Return the divisors of the features: constants that all clients agree on, times the client's own size."""
    scale = np.ones(len(Y), Y.dtype)
    if data.divide_by is not None:
        scale = agreed_constants(data, len(Y), channels, name).astype(Y.dtype)
    if data.scale == "none":
        return scale
    constant = _constant(Y)
    divisor = scale
    Y = Y.map(lambda B: _divide(B, divisor, None)) if isinstance(Y, Stream) else _divide(Y, divisor, None)
    if data.scale == "features":
        own_each = np.where(constant, 0, _std(Y))
        each: Floats = np.where(own_each > 0, own_each, 1).astype(Y.dtype)  # constant features are not scaled
        return scale * each
    own = rms(Y)
    if not own > 0:
        raise DataError(
            f'{name}: all samples are zero or equal, so that data.scale = "client" has nothing to divide by'
        )
    return (scale * own).astype(Y.dtype)


def _divide(Y: Floats, scale: Floats, out: Floats | None) -> Floats:
    divided: Floats = np.divide(Y, scale[:, None], out=out) if (scale != 1).any() else Y
    return divided


PREPROCESSING: dict[str, PreprocessingStep] = {
    "offset": PreprocessingStep(
        ("center", "drop_constant"),
        _offsets,
        _shift,
        lambda Z, offset: Z + offset[:, None],
        neutral=0.0,
        is_shift=True,
    ),
    "scale": PreprocessingStep(
        ("divide_by", "scale"), _scales, _divide, lambda Z, scale: Z * scale[:, None], neutral=1.0
    ),
    "whitener": PreprocessingStep(
        ("whiten",),
        lambda Y, data, name, channels: whitening(Y),
        lambda Y, W, out: _whiten(Y, W),
        lambda Z, W: np.linalg.solve(W, Z),
    ),
}
"""Steps by name, in the order in which they are done."""


def _whiten(Y: Floats, W: Floats) -> Floats:
    """Return W Y, in the blocks in which a stream is read."""
    out: Floats
    if whole(Y) is not None:
        out = W @ Y
        return out
    out = np.empty(Y.shape[::-1], Y.dtype).T
    end = 0
    for B in blocks(Y):
        begin, end = end, end + B.shape[1]
        out[:, begin:end] = W @ B
    return out


def whitening(Z: Columns) -> Floats:
    r"""Return the symmetric W that makes second moments equal (ZCA).

    .. math:: W = (Z Z'/n + \epsilon I)^{-1/2}, \qquad \epsilon = 10^{-3} \operatorname{tr}(Z Z'/n)/d

    Parameters
    ----------
    Z : (d, n) array or Stream
        Samples, in columns.

    Returns
    -------
    (d, d) array
    """
    d, n = Z.shape
    if (B := whole(Z)) is not None:
        moment = (B @ B.T / n).astype(np.float64)
    else:
        moment = np.zeros((d, d))
        for B in blocks(Z):
            moment += B @ B.T
        moment /= n
    values, V = np.linalg.eigh(moment)
    values = np.maximum(values, 0) + _FLOOR * max(float(values.mean()), np.finfo(np.float64).tiny)
    W: Floats = ((V / np.sqrt(values)) @ V.T).astype(Z.dtype)
    return W


def agreed_constants(data: DataSettings, d: int, channels: int, name: str) -> Floats:
    """Return the constants of ``divide_by`` for d features: one for all, one for each, or one for each channel.

    Parameters
    ----------
    data : DataSettings
        Table with ``divide_by``.
    d : int
        Number of features.
    channels : int
        Number of channels that the features repeat, d if there are none.
    name : str
        The client, for the error.
    """
    values = np.array(numbers_in(data.divide_by or ""))
    if len(values) not in (1, channels, d):
        each = f"{d} features" if channels == d else f"{channels} channels"
        cure = "give one for each"
        if len(values) < channels and data.source == "files":
            cure += ", or leave out a column that is no measurement, such as an ID (data.drop; a client: --drop)"
        raise SettingsError(f"data.divide_by has {len(values)} numbers, {name} has {each}: {cure}")
    return np.tile(values, d // len(values))
