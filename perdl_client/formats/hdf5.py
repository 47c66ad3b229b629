"""Read HDF5 files, which include MATLAB's files of v7.3."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdl_client.formats.file_checks import (
    NUMERIC_TYPE,
    choose_array,
    file_error,
    reading,
    require_package,
    require_samples,
)
from perdl_client.formats.format import Format, Options, Rows, Table

_OWN = ("#refs#", "#subsystem#")
"""Groups in which MATLAB keeps the contents of cells and objects."""


def read_hdf5(path: Path, variable: str | None, max_dims: int = 4) -> NDArray[Any]:
    """Return the only dataset that can be samples, or the one named ``variable``, such as ``group/x``.

    MATLAB stores an array with its axes reversed; they are returned in MATLAB's order.

    Parameters
    ----------
    path : Path
        The file.
    variable : str, optional
        Name of the dataset; needed if several fit.
    max_dims : int
        Most dimensions that samples may have.
    """
    with _chosen(path, variable, max_dims) as (item, _):
        table: NDArray[Any] = item[()]
        return table.T if _matlab_class(item) else table


def _open(path: Path, options: Options) -> Rows:
    """Open a dataset to read some samples at a time."""
    with _chosen(path, options.variable, 4) as (item, shape):
        name, dtype, turned = item.name, item.dtype, bool(_matlab_class(item))
    in_columns = options.in_columns and len(shape) == 2
    n, each = (shape[1], shape[:1]) if in_columns else (shape[0], shape[1:])

    def read(i: int, j: int) -> NDArray[Any]:
        import h5py

        with h5py.File(path, "r") as file:
            if turned == in_columns:
                first: NDArray[Any] = file[name][i:j]
                return first
            last: NDArray[Any] = file[name][..., i:j]
            return last.T

    return Rows((n, *each), dtype, read)


@contextmanager
def _chosen(path: Path, variable: str | None, max_dims: int) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Open a file, and find the dataset that is to be read and its shape, in MATLAB's order if MATLAB wrote it."""
    require_package(path, "h5py")
    import h5py

    with reading(path, "an HDF5 file"):
        if not h5py.is_hdf5(path):
            raise file_error(path, "is not an HDF5 file, or is damaged or cut short; copy or export it again")
        with h5py.File(path, "r") as file:
            items: dict[str, Any] = {}

            def note(name: str, item: Any) -> None:
                if name.split("/")[0] in _OWN:
                    return
                if "MATLAB_sparse" in item.attrs or (isinstance(item, h5py.Dataset) and item.shape is not None):
                    items[name] = item

            file.visititems(note)
            sparse = tuple(f"{name}/" for name, item in items.items() if "MATLAB_sparse" in item.attrs)
            listing = {name: _shape_and_type(item) for name, item in items.items() if not name.startswith(sparse)}
            name = choose_array(path, listing, variable.strip("/") if variable else None, max_dims)
            shape, kind = listing[name]
            if _matlab_class(items[name]) and not NUMERIC_TYPE.fullmatch(kind):
                cure = f"save full({name})" if kind == "sparse" else "save the samples as a matrix of numbers"
                if kind == "complex":
                    cure = f"save real({name}), or real and imaginary part as features"
                raise file_error(path, f"array {name!r} is of type {kind}; {cure}")
            require_samples(path, shape, items[name].dtype, name, max_dims)
            yield items[name], shape


def _matlab_class(item: Any) -> str:
    """Return MATLAB's class, such as ``double`` or ``char``; empty if another program wrote the dataset."""
    kind = item.attrs.get("MATLAB_class", b"")
    return kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)


def _shape_and_type(item: Any) -> tuple[tuple[int, ...], str]:
    """Return shape and type of an array, in MATLAB's terms if MATLAB wrote it."""
    kind = _matlab_class(item)
    if not kind:
        return item.shape, item.dtype.name
    if "MATLAB_sparse" in item.attrs:
        return (int(item.attrs["MATLAB_sparse"]), max(0, len(item["jc"]) - 1)), "sparse"
    if item.dtype.names:
        kind = "complex"
    if item.attrs.get("MATLAB_empty"):
        return tuple(int(size) for size in np.ravel(item[()])), kind
    return item.shape[::-1], kind


HDF5 = Format(
    "HDF5",
    lambda path, options: Table(read_hdf5(path, options.variable)),
    (".h5", ".hdf5"),
    has_variables=True,
    open=_open,
)
