"""Read tables in columns: Parquet and Arrow files (Feather)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.blocks import block_size
from perdl_client.formats.columns import kept_columns, to_drop
from perdl_client.formats.file_checks import file_error, reading, require_package
from perdl_client.formats.format import Format, Options, Rows, Table
from perdl_client.formats.in_order import InOrder

_BUFFER = 2**16
"""Bytes of each column of a Parquet file that are read at once."""


def _read(path: Path, options: Options) -> Table:
    """Return the numbers and the columns' names, without the columns that ``drop`` lists.

    The type is float32 if all columns are, else float64. A missing value is NaN. The index that pandas stores beside
    the columns is left out.
    """
    require_package(path, "pyarrow")
    parquet = path.suffix.lower() == ".parquet"
    with reading(path, "a Parquet file" if parquet else "an Arrow (Feather) file"):
        table = _read_parquet(path) if parquet else _read_ipc(path)
        table = table.select(_kept(path, table.schema, table.num_rows, options))
        return Table(_numbers(table), tuple(map(str, table.column_names)))


def _kept(path: Path, schema: Any, n_rows: int, options: Options) -> list[int]:
    """Return the columns that are features, after checking that all of them hold numbers."""
    told = (schema.pandas_metadata or {}).get("index_columns", [])
    index = {name for name in told if isinstance(name, str)} | {"__index_level_0__"}
    columns = [j for j, name in enumerate(schema.names) if name not in index]
    if n_rows == 0 or not columns:
        empty = "samples" if n_rows == 0 else "columns of numbers"
        raise file_error(path, f"holds 0 {empty}: {n_rows} rows of {len(columns)} columns; export the data again")
    names = tuple(str(schema.names[j]) for j in columns)
    kept = kept_columns(path, names, len(names), options.drop)
    for j in kept:
        field = schema.field(columns[j])
        if wrong := _what_is_wrong(field.type, to_drop(names, j)):
            raise file_error(path, f"column {field.name!r} {wrong}")
    return [columns[j] for j in kept]


def _open(path: Path, options: Options) -> Rows | None:
    """Open a table to read some rows at a time; None if they are in columns, or the file does not say how many."""
    require_package(path, "pyarrow")
    if options.in_columns:
        return None
    parquet = path.suffix.lower() == ".parquet"
    with reading(path, "a Parquet file" if parquet else "an Arrow (Feather) file"):
        return _open_parquet(path, options) if parquet else _open_ipc(path, options)


def _open_parquet(path: Path, options: Options) -> Rows:
    from pyarrow.parquet import ParquetFile

    with path.open("rb") as file:
        whole = ParquetFile(file)
        schema, groups = whole.schema_arrow, range(whole.metadata.num_row_groups)
        sizes = [whole.metadata.row_group(k).num_rows for k in groups]
    n = sum(sizes)
    kept = _kept(path, schema, n, options)
    at_once = block_size(len(kept))

    def begin(k: int) -> Iterator[NDArray[np.floating]]:
        with path.open("rb") as file:  # a buffer for each column, not a whole group of rows
            table = ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER)
            for batch in table.iter_batches(at_once, row_groups=groups[k:], use_threads=False):
                yield _rows_of(batch, kept)

    places = [0, *np.cumsum(sizes)[:-1].tolist()] if sizes else [0]
    return _rows(schema, kept, n, InOrder(n, begin, places))


def _open_ipc(path: Path, options: Options) -> Rows | None:
    import pyarrow

    with path.open("rb") as file:
        if file.read(6) != b"ARROW1":
            return None
        file.seek(0)
        whole = pyarrow.ipc.open_file(file)
        schema, n = whole.schema, sum(whole.get_batch(k).num_rows for k in range(whole.num_record_batches))
    kept = _kept(path, schema, n, options)
    at_once = block_size(len(kept))

    def begin(k: int) -> Iterator[NDArray[np.floating]]:
        with path.open("rb") as file:
            whole = pyarrow.ipc.open_file(file)
            for k in range(whole.num_record_batches):
                batch = whole.get_batch(k)
                for i in range(0, batch.num_rows, at_once):
                    yield _rows_of(batch.slice(i, at_once), kept)

    return _rows(schema, kept, n, InOrder(n, begin))


def _rows(schema: Any, kept: list[int], n: int, reader: InOrder) -> Rows:
    narrow = all(schema.field(j).type == "float" for j in kept)
    names = tuple(str(schema.names[j]) for j in kept)
    return Rows((n, len(kept)), np.dtype(np.float32 if narrow else np.float64), reader.read, names)


def _rows_of(batch: Any, kept: list[int]) -> NDArray[np.floating]:
    import pyarrow

    return _numbers(pyarrow.Table.from_batches([batch]).select(kept))


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


PARQUET = Format("Parquet", _read, (".parquet",), has_columns=True, open=_open)
ARROW = Format("Feather", _read, (".feather", ".arrow"), has_columns=True, open=_open)
