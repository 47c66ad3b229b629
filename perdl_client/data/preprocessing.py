r"""What is done to a client's samples before they are learnt from, as the configuration declares, and how it is undone.

Samples are cut (:mod:`perdl_client.data.windows_patches`), then each piece y becomes

.. math:: z = W \, \frac{y - \text{offset}}{\text{scale}}

entry by entry, with W the symmetric square root of the inverse second moment if ``whiten`` is set, else I. The numbers
are the client's own, learnt from its own samples; they stay with its model and are never sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.data_settings import DataSettings, numbers_in
from common.errors import DataError, SettingsError
from perdl_client.data.windows_patches import Cut

Floats = NDArray[np.floating]

_FLOOR = 1e-3
"""Share of the mean eigenvalue that whitening adds to all: directions of next to no energy are not blown up."""


@dataclass(frozen=True)
class Preprocessing:
    """An affine map of samples and its inverse. Samples are columns here.

    Attributes
    ----------
    offset : (d,) array
    scale : (d,) array
        Positive.
    whitener : (d, d) array, optional
        Symmetric, positive.
    """

    offset: Floats
    scale: Floats
    whitener: Floats | None = None

    def apply(self, Y: Floats, in_place: bool = False) -> Floats:
        """Return z of samples (d, n); ``in_place`` lets it overwrite them."""
        Z = np.subtract(Y, self.offset[:, None], out=Y if in_place else None) if self.offset.any() else Y
        if (self.scale != 1).any():
            Z = np.divide(Z, self.scale[:, None], out=Z if in_place or Z is not Y else None)
        return Z if self.whitener is None else self.whitener @ Z

    def undo(self, Z: Floats) -> Floats:
        """Return the samples (d, n) that became z."""
        return self.undo_part(Z) + self.offset[:, None]

    def undo_part(self, Z: Floats) -> Floats:
        """Return in the units of samples what is a part of z; the offset is no part's."""
        Z = Z if self.whitener is None else np.linalg.solve(self.whitener, Z)
        return Z * self.scale[:, None]

    def arrays(self) -> dict[str, Floats]:
        """Return it as arrays by name, to be saved."""
        return {"offset": self.offset, "scale": self.scale} | (
            {} if self.whitener is None else {"whitener": self.whitener}
        )

    @classmethod
    def of(cls, arrays: Mapping[str, Floats], mark: str = "") -> Preprocessing:
        """Return what :meth:`arrays` gave, whose names begin with ``mark``."""
        return cls(arrays[f"{mark}offset"], arrays[f"{mark}scale"], arrays.get(f"{mark}whitener"))


def cut_of(data: DataSettings, shape: tuple[int, ...]) -> Cut:
    """Return how the settings cut samples of this shape."""
    if data.source == "video":  # there, they say what a client is
        return Cut("", 0, 0, shape)
    size = data.window or data.patch or 0
    kind = "window" if data.window else "patch" if data.patch else ""
    return Cut(kind, size, data.stride or size, shape)


def fit_preprocessing(Y: Floats, data: DataSettings, name: str, channels: int = 0) -> Preprocessing:
    """Learn from a client's samples what the settings declare.

    Parameters
    ----------
    Y : (d, n) array
        Pieces, as they were cut.
    data : DataSettings
    name : str
        The client, in errors.
    channels : int
        Of windows and patches, whose features repeat them; default d.

    Returns
    -------
    Preprocessing

    Raises
    ------
    SettingsError
        If ``divide_by`` has another number of constants than there are features.
    DataError
        If a scale that is to be the data's own is zero or not finite.
    """
    d, dtype = len(Y), Y.dtype
    offset, constant = np.zeros(d, dtype=dtype), np.zeros(d, dtype=bool)
    if data.center or data.drop_constant or data.scale == "features":
        constant = (Y[:, :1] == Y).all(axis=1)
    if data.center:
        offset = np.where(constant, Y[:, 0], Y.mean(axis=1))  # the mean of equal numbers is off by its rounding
    elif data.drop_constant:
        offset = np.where(constant, Y[:, 0], 0).astype(dtype)
    scale = np.ones(d, dtype=dtype)
    if data.divide_by is not None:
        scale = constants(data.divide_by, d, channels or d, name).astype(dtype)
    shifted = Preprocessing(offset, scale)
    if data.scale == "client":
        Z = shifted.apply(Y)
        own = float(np.sqrt(np.mean(np.square(Z, dtype=np.float64))))
        if not own > 0:
            raise DataError(
                f'{name}: all samples are zero or equal, so that data.scale = "client" has nothing to divide by'
            )
        scale = (scale * own).astype(dtype)
    elif data.scale == "features":
        own_each = np.where(constant, 0, shifted.apply(Y).std(axis=1))
        scale = scale * np.where(own_each > 0, own_each, 1).astype(dtype)  # a constant feature stays what it is
    simple = Preprocessing(offset, scale)
    return Preprocessing(offset, scale, whitening(simple.apply(Y))) if data.whiten else simple


def whitening(Z: Floats) -> Floats:
    r"""Return the symmetric W that makes second moments equal (ZCA).

    .. math:: W = (Z Z'/n + \epsilon I)^{-1/2}, \qquad \epsilon = 10^{-3} \operatorname{tr}(Z Z'/n)/d

    Parameters
    ----------
    Z : (d, n) array

    Returns
    -------
    (d, d) array
    """
    moment = (Z @ Z.T / Z.shape[1]).astype(np.float64)
    values, V = np.linalg.eigh(moment)
    values = np.maximum(values, 0) + _FLOOR * max(float(values.mean()), np.finfo(np.float64).tiny)
    W: Floats = ((V / np.sqrt(values)) @ V.T).astype(Z.dtype)
    return W


def constants(text: str, d: int, channels: int, name: str) -> Floats:
    """Return the constants of ``divide_by`` for ``d`` features: one for all, one for each, or one for each channel.

    Raises
    ------
    SettingsError
        If their count does not go with the features.
    """
    values = np.array(numbers_in(text))
    if len(values) not in (1, channels, d):
        each = f"{d} features" if channels == d else f"{channels} channels"
        raise SettingsError(f"data.divide_by has {len(values)} numbers, {name} has {each}: give one for each")
    return np.tile(values, d // len(values))
