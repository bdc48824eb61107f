"""Read vectors from a .npy file, a Parquet file or a Lance table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError, first_line
from ...core.files import expand_home

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from ...core.arrays import Floats


_NAMES = ("vector", "embedding", "embeddings", "vectors")  # of the column, in order of preference


def read_vectors(file: str | Path, *, column: str | None = None, first: int = 0, limit: int | None = None) -> Floats:
    """Read vectors from row `first` on, as float32 of shape (rows, dim); pickled arrays are refused.

    :param column: of a table; "vector" or "embedding" by default.
    :param limit: maximum number of rows to read.
    :raises InputError: when the file holds no vectors of one length, or has no such row.
    """
    path = expand_home(file)
    if not path.exists():
        raise InputError(f"there is no file {file}")
    if first < 0:
        raise InputError(f"rows are numbered from 0, not {first}")
    if path.suffix == ".npy":
        return _npy(path, first, limit)
    if path.is_dir():
        return _table(_lance(path, column, first, limit), path)
    if path.suffix == ".parquet":
        return _table(_parquet(path, column, first, limit), path)
    raise InputError(f"{file} has an unknown format for vectors: expected .npy, .parquet or a Lance table")


def _npy(path: Path, first: int, limit: int | None) -> Floats:
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
    count = _count(path, first, limit, len(array))
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array[first : first + count], np.float32)


def _count(path: Path, first: int, limit: int | None, rows: int) -> int:
    """The number of rows to read."""
    if first >= rows:
        raise InputError(f"{path} has {rows:,} rows, numbered from 0: there is no row {first}")
    return rows - first if limit is None else min(limit, rows - first)


def _parquet(path: Path, column: str | None, first: int, limit: int | None) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
        name = _column(path, file.schema_arrow, column)
        count = _count(path, first, limit, file.metadata.num_rows)
        parts, skipped = [], first
        for batch in file.iter_batches(columns=[name], batch_size=4_096):
            part = batch.column(0)
            parts.append(part.slice(min(skipped, len(part))))
            skipped = max(0, skipped - len(part))
            if sum(map(len, parts)) >= count:
                break
        return pa.chunked_array(parts).slice(0, count)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path} is not a Parquet file that can be read ({str(error)[:80]})") from None


def _lance(path: Path, column: str | None, first: int, limit: int | None) -> Any:
    import lance

    from ..store.tables import LANCE_ERRORS

    try:
        table = lance.dataset(str(path))
        name = _column(path, table.schema, column)
        count = _count(path, first, limit, table.count_rows())
        return table.to_table(columns=[name], offset=first, limit=count).column(0)
    except InputError:
        raise
    except LANCE_ERRORS as error:
        raise InputError(f"{path} is not a Lance table that can be read ({first_line(error, 80)})") from None


def _column(path: Path, schema: Any, column: str | None) -> str:
    names = [column] if column else list(_NAMES)
    name = next((name for name in names if name in schema.names), None)
    if name is None:
        raise InputError(f"{path} has no column {names[0]!r}, but {', '.join(schema.names)}: choose with --column")
    return name


def _table(column: Any, path: Path) -> Floats:
    try:
        with np.errstate(over="ignore"):
            vectors = np.array(column.to_pylist(), np.float32)
    except (TypeError, ValueError):
        vectors = np.empty(0, np.float32)
    if vectors.ndim != 2:
        raise InputError(f"{path} holds no vectors of one length: expected lists of as many numbers in every row")
    return vectors
