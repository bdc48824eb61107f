"""Vectors out of files that people keep them in: .npy, Parquet, a Lance table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError, first_line
from ...core.files import expand_home

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from ...core.arrays import Floats


_NAMES = ("vector", "embedding", "embeddings", "vectors")  # of the column, unless it is said


def read_vectors(file: str | Path, *, column: str | None = None, first: int = 0, most: int | None = None) -> Floats:
    """The vectors from number `first` on, as float32 of shape (rows, dim); pickled arrays are refused.

    :param column: of a table; "vector" or "embedding" unless given.
    :param most: rows that are read at most.
    :raises InputError: when the file holds no vectors of one length, or none with that number.
    """
    path = expand_home(file)
    if not path.exists():
        raise InputError(f"there is no file {file}")
    if first < 0:
        raise InputError(f"rows are numbered from 0, not {first}")
    if path.suffix == ".npy":
        return _npy(path, first, most)
    if path.is_dir():
        return _table(_lance(path, column, first, most), path)
    if path.suffix == ".parquet":
        return _table(_parquet(path, column, first, most), path)
    raise InputError(f"{file} is of no format that vectors are read from: expected .npy, .parquet or a Lance table")


def _npy(path: Path, first: int, most: int | None) -> Floats:
    try:
        array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} is not an array that can be read ({str(error)[:80]})") from None
    if array.ndim == 1:
        array = array[None]
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise InputError(
            f"{path} holds an array of {array.dtype} and shape {array.shape}: expected numbers of shape (rows, dim)"
        )
    count = _count(path, first, most, len(array))
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array[first : first + count], np.float32)


def _count(path: Path, first: int, most: int | None, rows: int) -> int:
    """How many rows there are to read."""
    if first >= rows:
        raise InputError(f"{path} has {rows:,} rows, numbered from 0, and so no row {first}")
    return rows - first if most is None else min(most, rows - first)


def _parquet(path: Path, column: str | None, first: int, most: int | None) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
        name = _chosen(path, file.schema_arrow, column)
        count = _count(path, first, most, file.metadata.num_rows)
        taken, skipped = [], first
        for batch in file.iter_batches(columns=[name], batch_size=4_096):
            part = batch.column(0)
            taken.append(part.slice(min(skipped, len(part))))
            skipped = max(0, skipped - len(part))
            if sum(map(len, taken)) >= count:
                break
        return pa.chunked_array(taken).slice(0, count)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path} is not a Parquet file that can be read ({str(error)[:80]})") from None


def _lance(path: Path, column: str | None, first: int, most: int | None) -> Any:
    import lance

    from ..store.tables import LANCE_ERRORS

    try:
        table = lance.dataset(str(path))
        name = _chosen(path, table.schema, column)
        count = _count(path, first, most, table.count_rows())
        return table.to_table(columns=[name], offset=first, limit=count).column(0)
    except InputError:
        raise
    except LANCE_ERRORS as error:
        raise InputError(f"{path} is not a Lance table that can be read ({first_line(error, 80)})") from None


def _chosen(path: Path, schema: Any, column: str | None) -> str:
    names = [column] if column else list(_NAMES)
    found = next((name for name in names if name in schema.names), None)
    if found is None:
        raise InputError(f"{path} has no column {names[0]!r}, but {', '.join(schema.names)}: --column says which")
    return found


def _table(column: Any, path: Path) -> Floats:
    try:
        with np.errstate(over="ignore"):
            made = np.array(column.to_pylist(), np.float32)
    except (TypeError, ValueError):
        made = np.empty(0, np.float32)
    if made.ndim != 2:
        raise InputError(f"{path} holds rows that are no vectors of one length: expected lists of numbers")
    return made
