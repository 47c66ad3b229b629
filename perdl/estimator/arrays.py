"""Turn lists and dicts of arrays, data frames and memory maps into arrays with samples in rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import DataError
from perdl_client.formats.columns import column_name, lacking

Floats = NDArray[np.floating]


class InputError(DataError, ValueError):
    """Arrays that cannot be used. It is also a ``ValueError``, which scikit-learn's estimators raise."""


def by_name(datasets: Any) -> dict[str, Any]:
    """Return data sets by client. Those of a list are ``client-1``, ``client-2``, ... as in a simulation.

    Parameters
    ----------
    datasets : list or dict of array-like
        One data set per client.

    Raises
    ------
    InputError
        If it is neither a list nor a dict, it is empty, or a name cannot be a client's.
    """
    if isinstance(datasets, Mapping):
        from common.protocol import ProtocolError, check_name  # imports Flower, which is slow

        for name in datasets:
            try:
                check_name(name if isinstance(name, str) else "")
            except ProtocolError as error:
                text = str(error) if isinstance(name, str) else f"{name!r} cannot be a client's name: use text"
                raise InputError(text) from None
        named = dict(datasets)
    elif isinstance(datasets, Sequence) and not isinstance(datasets, (str, bytes)):
        named = {f"client-{i + 1}": X for i, X in enumerate(datasets)}
    else:
        shape = getattr(datasets, "shape", None)
        what = f"one array of shape {tuple(shape)}" if shape is not None else f"a {type(datasets).__name__}"
        raise InputError(f"fit takes a list or dict of data sets, one for each client, not {what}: give [X1, X2, ...]")
    if not named:
        raise InputError("there are no data sets: give a list or dict with at least one")
    return named


def checked_rows(
    X: Any,
    who: str,
    n_features: int | None = None,
    expected: NDArray[np.object_] | None = None,
    allow_nan: bool = False,
) -> Floats:
    """Check the names of a data frame's columns, then return samples as :func:`rows_of` does.

    Parameters
    ----------
    X : (n, d) array-like
        Samples in rows.
    who : str
        Name of the data in errors.
    n_features : int, optional
        Expected number of features d.
    expected : (d,) array of str, optional
        Expected names of the columns.
    allow_nan : bool
        Whether NaN may mark missing values.
    """
    check_names(X, who, expected)
    return rows_of(X, who, n_features, allow_nan)


def rows_of(X: Any, who: str, n_features: int | None = None, allow_nan: bool = False) -> Floats:
    """Return one client's samples as an array of floats. Arrays of float32 keep their type.

    Parameters
    ----------
    X : (n, d) array-like
        Samples in rows.
    who : str
        Name of the data in errors.
    n_features : int, optional
        Expected number of features d.
    allow_nan : bool
        Whether NaN may mark missing values.

    Returns
    -------
    (n, d) array
        It is C-contiguous, so that equal numbers give equal bits later.

    Raises
    ------
    InputError
        If the samples cannot be used. One line names the data, the problem and its cure.
    """
    named = feature_names(X)
    names = [] if named is None else named.tolist()
    if hasattr(X, "toarray"):
        raise InputError(f"{who}: sparse matrices are not taken; give X.toarray()")
    if isinstance(X, (str, Path)):
        raise InputError(f"{who}: a path, not samples; read the file first, for example by numpy.loadtxt or numpy.load")
    if np.ma.is_masked(X) and allow_nan:
        X = np.ma.filled(X.astype(np.result_type(X.dtype, np.float32)), np.nan)
    if np.ma.is_masked(X):
        n_masked = int(np.ma.getmaskarray(X).sum())
        raise InputError(f"{who}: {n_masked} values are masked; fill them (X.filled(...)) or drop their rows")
    try:
        A = np.asanyarray(X)
    except ValueError:
        raise InputError(f"{who}: no table: its rows are of unequal length; give each as many values") from None
    if A.dtype.kind == "c":
        raise InputError(f"{who}: complex numbers; give X.real, or real and imaginary parts as features of their own")
    try:
        narrow = A.dtype.kind == "f" and A.dtype.itemsize == 4
        if A.dtype.kind in "mM":
            raise TypeError
        A = np.ascontiguousarray(A, dtype=np.float32 if narrow else np.float64) if A.ndim == 2 else A
    except (TypeError, ValueError):
        A = _numbers(A, names, who)
    if A.ndim != 2:
        cure = "X.reshape(len(X), -1) makes each X[i] a sample"
        if A.ndim < 2:
            cure = "X.reshape(1, -1) is one sample, X.reshape(-1, 1) one feature"
        raise InputError(f"{who}: expected a 2-D array, samples in rows, got {A.ndim}-D of shape {A.shape}; {cure}")
    if A.size == 0:
        raise InputError(f"{who}: no data: {A.shape[0]} samples of {A.shape[1]} features; leave it out")
    if n_features is not None and A.shape[1] != n_features:
        turned = "; the transpose would fit: give X.T" if A.shape[0] == n_features else ""
        raise InputError(
            f"{who}: {A.shape[1]} features, but {n_features} are expected: the same features in the same order{turned}"
        )
    bad = np.isinf(A) if allow_nan else ~np.isfinite(A)
    if bad.any():
        cure = "drop or fill what is missing"
        if not allow_nan and not np.isinf(A).any():
            cure += ', or set missing="mask"'
        row, column = divmod(int(bad.argmax()), A.shape[1])
        n_bad = int(np.count_nonzero(bad))
        plural = "s" * (n_bad > 1)
        what = f"infinite number{plural}" if allow_nan else f"NaN or infinite number{plural}"
        what = f"missing value{plural} (NaN)" if np.isnan(A[bad]).all() else what
        raise InputError(
            f"{who}: {n_bad} {what} of {A.size}, the first in row {row + 1}, column {column + 1}"
            f"{column_name(names, column)}; {cure}"
        )
    return np.asarray(A)


def _numbers(A: NDArray[Any], names: Sequence[str], who: str) -> Floats:
    """Return a table of objects as numbers, with NaN for missing values.

    Raises
    ------
    InputError
        If a column holds anything else. It names the first one.
    """
    if A.ndim != 2 or A.dtype.kind != "O":
        raise InputError(f"{who}: not all values are real numbers; leave out or encode the other columns")
    numbers = np.full(A.shape, np.nan)
    for j, column in enumerate(A.T):
        there = np.array([not _is_missing(value) for value in column], bool)
        try:
            numbers[there, j] = column[there].astype(np.float64)
        except (TypeError, ValueError):
            place = f"column {names[j]!r}" if names else f"column {j + 1}"
            raise InputError(f"{who}: {place} is not of numbers; leave it out or encode it as numbers") from None
    return numbers


def _is_missing(value: Any) -> bool:
    """Whether a value is None, or a missing value of pandas. These cannot be compared, so look at the type."""
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _columns(X: Any) -> list[str]:
    """Names of a data frame's columns as text; empty unless all are text or numbers."""
    columns = getattr(X, "columns", None)
    names = [] if columns is None else list(columns)
    named = all(isinstance(name, (str, Real, np.number)) and not isinstance(name, bool) for name in names)
    return list(map(str, names)) if named else []


def _is_plain(X: Any) -> bool:
    """Whether columns are called 0, 1, 2, ..., as in a data frame without names."""
    columns = list(X.columns)
    return not any(isinstance(name, str) for name in columns) and columns == list(range(len(columns)))


def feature_names(X: Any) -> NDArray[np.object_] | None:
    """Return the names of a data frame's columns as text; None for arrays, and for columns 0, 1, 2, ...

    Parameters
    ----------
    X : array-like
        Array or data frame.
    """
    names = _columns(X)
    return np.array(names, dtype=object) if names and not _is_plain(X) else None


def check_names(X: Any, who: str, expected: NDArray[np.object_] | None) -> None:
    """Raise if a data frame has other columns than expected. Arrays pass.

    Parameters
    ----------
    X : array-like
        Array or data frame.
    who : str
        Name of the data in errors.
    expected : (d,) array of str or None
        Expected names; None if the first data had no names.

    Raises
    ------
    InputError
        It names the first column that differs, or those that are missing or too many.
    """
    found = np.array(_columns(X), dtype=object)
    if not len(found):
        return
    plain = np.array([str(i) for i in range(len(found))], dtype=object)
    if expected is None:  # the others are arrays, or data frames with columns 0, 1, 2, ...
        if any(isinstance(name, str) for name in X.columns) or sorted(found) != sorted(plain):
            return
        expected = plain
    if np.array_equal(found, expected) or (_is_plain(X) and sorted(expected) != sorted(plain)):
        return
    lacks = lacking(found.tolist(), expected.tolist())
    if lacks or len(found) != len(expected):
        how = f": it {lacks}" if lacks else ""
        raise InputError(
            f"{who}: {len(found)} columns, but {len(expected)} are expected{how}; give all the same columns"
        )
    i = next(i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b)
    raise InputError(
        f"{who}: column {i + 1} is {found[i]!r}, but {expected[i]!r} is expected: the same columns in the same order"
    )
