"""Read tables in columns: Parquet and Arrow files (Feather)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdl_client.formats.columns import kept_columns, to_drop
from perdl_client.formats.file_checks import file_error, reading, require_package
from perdl_client.formats.format import Format, Options, Table


def _read(path: Path, options: Options) -> Table:
    """Return the numbers and the columns' names, without the columns that ``drop`` lists.

    The type is float32 if all columns are, else float64. A missing value is NaN. The index that pandas stores beside
    the columns is left out.
    """
    require_package(path, "pyarrow")
    parquet = path.suffix.lower() == ".parquet"
    with reading(path, "a Parquet file" if parquet else "an Arrow (Feather) file"):
        table = _without_index(_read_parquet(path) if parquet else _read_ipc(path))
        if table.num_rows == 0 or table.num_columns == 0:
            empty = "samples" if table.num_rows == 0 else "columns of numbers"
            raise file_error(
                path, f"holds 0 {empty}: {table.num_rows} rows of {table.num_columns} columns; export the data again"
            )
        names = tuple(map(str, table.column_names))
        kept = kept_columns(path, names, len(names), options.drop)
        for j in kept:
            field = table.schema.field(j)
            if wrong := _what_is_wrong(field.type, to_drop(names, j)):
                raise file_error(path, f"column {field.name!r} {wrong}")
        table = table.select(kept)
        return Table(_numbers(table), tuple(map(str, table.column_names)))


def _read_parquet(path: Path) -> Any:
    from pyarrow.parquet import ParquetFile

    with path.open("rb") as file:  # given the path, it would turn a folder called year=2020 into a column
        return ParquetFile(file).read()


def _read_ipc(path: Path) -> Any:
    import pyarrow
    from pyarrow.feather import read_table

    with path.open("rb") as file:
        in_blocks = file.read(4) in (b"ARRO", b"FEA1")
        file.seek(0)
        return read_table(file) if in_blocks else pyarrow.ipc.open_stream(file).read_all()


def _without_index(table: Any) -> Any:
    told = (table.schema.pandas_metadata or {}).get("index_columns", [])
    index = {name for name in told if isinstance(name, str)} | {"__index_level_0__"}
    return table.drop_columns([name for name in table.column_names if name in index])


def _what_is_wrong(kind: Any, out: str) -> str:
    from pyarrow import types

    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return ""
    if types.is_null(kind):
        return f"is empty in every row; {out}"
    if types.is_dictionary(kind):
        return f"is categorical ({kind.value_type}); {out}, or encode its categories as numbers"
    if types.is_nested(kind):
        return f"is nested ({kind}); give each of its numbers a column of its own, or {out}"
    if types.is_temporal(kind):
        return f"holds times ({kind}); {out}, or save it as a number, such as the seconds since the first row"
    return f"is of type {kind}, not numbers; {out}, or encode it as numbers"


def _numbers(table: Any) -> NDArray[np.floating]:
    import pyarrow

    narrow = all(field.type == pyarrow.float32() for field in table.schema)
    target = pyarrow.float32() if narrow else pyarrow.float64()
    features = np.empty((table.num_columns, table.num_rows), np.float32 if narrow else np.float64)
    for feature, column in zip(features, table.columns, strict=True):
        feature[:] = column.cast(target, safe=False).to_numpy()
    return features.T


PARQUET = Format("Parquet", _read, (".parquet",), has_columns=True)
ARROW = Format("Feather", _read, (".feather", ".arrow"), has_columns=True)
