"""Arrays of other libraries than numpy, by the array API (https://data-apis.org/array-api), as torch's on a device.

A kernel is written once: ``xp = namespace(Y)`` has the functions for its arrays. For numpy arrays that is numpy itself,
so their results do not depend on what else there is. What the array API lacks is here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


def namespace(A: Any) -> Any:
    """Return the module of functions for an array: numpy, or what ``array-api-compat`` has for another library.

    Parameters
    ----------
    A : array
        Of any library.
    """
    if isinstance(A, np.ndarray):
        return np
    from array_api_compat import array_namespace

    return array_namespace(A)


def host(A: Any) -> NDArray[Any]:
    """Return an array as a numpy array; a numpy array itself.

    Parameters
    ----------
    A : array
        Of any library, on any device.
    """
    return A if isinstance(A, np.ndarray) else np.asarray(A.cpu().numpy() if hasattr(A, "cpu") else A)


def like(A: Any, other: Any) -> Any:
    """Return an array of the library, the device and the float type of another one.

    Parameters
    ----------
    A, other : array
        Of any library.
    """
    if isinstance(other, np.ndarray):
        return host(A).astype(other.dtype)
    return namespace(other).asarray(A, dtype=other.dtype, device=other.device)


def wide(A: Any) -> Any:
    """Return an array in double precision; where a device has none (Apple's), in main memory.

    Parameters
    ----------
    A : array
        Of any library.
    """
    xp = namespace(A)
    return xp.astype(A.to("cpu") if "mps" in str(A.device) else A, xp.float64)


def ldexp(A: Any, exponent: NDArray[np.integer]) -> Any:
    """Return ``A * 2**exponent``.

    Parameters
    ----------
    A : array
        Of any library.
    exponent : array of int
        Of a shape that fits ``A``'s.
    """
    if isinstance(A, np.ndarray):
        return np.ldexp(A, exponent)
    for part in (exponent // 2, exponent - exponent // 2):  # the power itself may be too large for A's type
        A = A * like(np.ldexp(1.0, part), A)
    return A


def places_of_largest(A: Any, k: int) -> Any:
    """Return where the ``k`` largest entries of each column are, (..., k, n), in no order.

    Parameters
    ----------
    A : (..., r, n) array
        Of numpy or torch.
    k : int
        From 1 to r - 1.
    """
    r = A.shape[-2]
    return np.argpartition(A, r - k, axis=-2)[..., r - k :, :] if namespace(A) is np else A.topk(k, dim=-2).indices


def put_along(A: Any, places: Any, values: Any) -> None:
    """Write values to places of each column.

    Parameters
    ----------
    A : (..., r, n) array
        Of numpy or torch. It is changed.
    places, values : (..., k, n) arrays
        Where in a column, and what.
    """
    if namespace(A) is np:
        np.put_along_axis(A, places, values, axis=-2)
    else:
        A.scatter_(-2, places, values)
