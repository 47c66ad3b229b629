"""Data frames of pandas and polars, without importing either unless asked: in as samples, out as codes."""

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
    """Return a lazy frame of polars as a data frame; all else as it is."""
    lazy = type(X).__module__.partition(".")[0] == "polars" and type(X).__name__ == "LazyFrame"
    return X.collect() if lazy else X


def take_rows(X: Any, rows: NDArray[np.intp]) -> Any:
    """Return some samples of a data set as the same kind of table.

    Parameters
    ----------
    X : (n, d) array-like
        Array, data frame or list of rows.
    rows : (m,) int array
    """
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return X[rows] if hasattr(X, "columns") or isinstance(X, np.ndarray) else np.asarray(X)[rows]


def check_kind(kind: object) -> str:
    """Return what tables a method shall give.

    Raises
    ------
    SettingsError
        If it is none of "default", "pandas", "polars", or not installed.
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
    """Return what an estimator was told, else what scikit-learn was told for all (`sklearn.set_config`)."""
    if "transform" in config:
        return config["transform"]
    sklearn = sys.modules.get("sklearn")
    return str(sklearn.get_config()["transform_output"]) if sklearn else "default"


def as_table(values: NDArray[Any], kind: str, names: Sequence[str], X: Any) -> Any:
    """Return an array as the table that is wanted; one of pandas has the index of ``X``, if that has one."""
    if kind == "default":
        return values
    if check_kind(kind) == "pandas":
        index = X.index if hasattr(X, "iloc") else None
        return importlib.import_module("pandas").DataFrame(values, columns=list(names), index=index, copy=False)
    return importlib.import_module("polars").DataFrame(values, schema=list(names), orient="row")
