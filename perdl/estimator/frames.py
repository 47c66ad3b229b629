"""Data frames of pandas and polars, as input and output. Neither is imported unless the user asks for its frames."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import SettingsError

KINDS = ("default", "pandas", "polars")


def collected(X: Any) -> Any:
    """Return a lazy frame of polars as a data frame, and anything else unchanged.

    Parameters
    ----------
    X : array-like
        Array or data frame.
    """
    lazy = type(X).__module__.partition(".")[0] == "polars" and type(X).__name__ == "LazyFrame"
    return X.collect() if lazy else X


def take_rows(X: Any, rows: NDArray[np.intp]) -> Any:
    """Return some samples of a data set as the same kind of table.

    Parameters
    ----------
    X : (n, d) array-like
        Array, data frame or list of rows.
    rows : (m,) int array
        Indices of the samples.
    """
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return X[rows] if hasattr(X, "columns") or isinstance(X, np.ndarray) else np.asarray(X)[rows]


def check_kind(kind: object) -> str:
    """Return a kind of table, or raise if it cannot be used.

    Parameters
    ----------
    kind : {"default", "pandas", "polars"}
        The kind of table.

    Raises
    ------
    SettingsError
        If it is another value, or the package is not installed.
    """
    if kind not in KINDS:
        raise SettingsError(f"transform = {kind!r}: must be {', '.join(map(repr, KINDS[:-1]))} or {KINDS[-1]!r}")
    if kind != "default":
        try:
            importlib.import_module(str(kind))
        except ImportError:
            raise SettingsError(f"transform = {kind!r}: {kind} is not installed; pip install {kind}") from None
    return str(kind)


def wanted_kind(config: dict[str, str]) -> str:
    """Return the kind of table to give: the estimator's own, or that of `sklearn.set_config`.

    Parameters
    ----------
    config : dict
        Output configuration of the estimator; ``transform`` may be missing.
    """
    if "transform" in config:
        return config["transform"]
    sklearn = sys.modules.get("sklearn")
    return str(sklearn.get_config()["transform_output"]) if sklearn else "default"


def as_table(values: NDArray[Any], kind: str, names: Sequence[str], X: Any) -> Any:
    """Return an array as a table.

    Parameters
    ----------
    values : (n, r) array
        Content of the table.
    kind : {"default", "pandas", "polars"}
        The kind of table; "default" returns the array.
    names : sequence of str
        Names of the columns.
    X : array-like
        Input of the method; a pandas table takes its index, if it has one.
    """
    if kind == "default":
        return values
    if check_kind(kind) == "pandas":
        index = X.index if hasattr(X, "iloc") else None
        return importlib.import_module("pandas").DataFrame(values, columns=list(names), index=index, copy=False)
    return importlib.import_module("polars").DataFrame(values, schema=list(names), orient="row")
