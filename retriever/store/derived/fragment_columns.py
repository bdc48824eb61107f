"""Columns of whole numbers of a table, kept by fragment: a later state of the table reads its new fragments alone.

Lance appends rows as a fragment, and marks deleted rows in a file beside it. Neither changes once it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....core.arrays import distinct, isin_sorted
from ....core.errors import DamagedError
from ...documents.file_parts import file_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import lance
    import pyarrow as pa

    from ....core.arrays import Ids, Mask, Positions

    Key = tuple[str, ...]  # the files of a fragment; Lance never gives a name twice


_MAX_COMPARED = 16  # up to this many chosen values, numpy compares the column with each of them


class FragmentColumns:
    """Columns of the rows of a table that are not deleted, in the order of the table."""

    def __init__(self, parts: Mapping[str, dict[Key, Ids]] | None = None) -> None:
        self._parts = dict(parts or {})

    def copy(self) -> FragmentColumns:
        """Return the columns that were read, for a later state of the table."""
        return FragmentColumns(self._parts)

    def read(self, table: lance.LanceDataset, column: str) -> Ids:
        """Return a column, shape (rows,). Paths are returned as hashes of their files, valid in this process only."""
        before, fragments = self._parts.get(column, {}), {_key(part): part for part in table.get_fragments()}
        new = [fragment for key, fragment in fragments.items() if key not in before]
        parts = {**before, **_read(table, new, column)} if new else before
        self._parts[column] = {key: parts[key] for key in fragments}
        return np.concatenate([np.empty(0, np.int64), *self._parts[column].values()])

    def offsets_of(self, table: lance.LanceDataset, column: str, paths: Iterable[str]) -> Positions:
        """Return the offsets of all rows of the files of these paths. Hashes may collide."""
        hashes = distinct(np.array([_hash(path) for path in paths], np.int64))
        return np.flatnonzero(among(self.read(table, column), hashes))


def among(values: Ids, chosen: Ids) -> Mask:
    """Return a mask of the values that are among the chosen, ascending ones; the fewer are chosen, the faster."""
    return np.isin(values, chosen) if len(chosen) <= _MAX_COMPARED else isin_sorted(values, chosen)


def _key(fragment: lance.LanceFragment) -> Key:
    return *(file.path for file in fragment.data_files()), fragment.deletion_file() or ""


def _read(table: lance.LanceDataset, fragments: Sequence[lance.LanceFragment], column: str) -> dict[Key, Ids]:
    rows = table.scanner(columns=[column], fragments=list(fragments)).to_table()[column]
    if rows.null_count:  # a damaged manifest names a column that is in no file
        raise DamagedError(f"{table.uri} has rows without {column}: index again")
    values = _numbers(rows)
    counts = [part.metadata.physical_rows - part.metadata.num_deletions for part in fragments]
    if sum(counts) != len(values):
        raise DamagedError(f"{table.uri} has {len(values):,} rows in place of {sum(counts):,}: index again")
    parts = np.split(values, np.cumsum(counts)[:-1])
    return {_key(fragment): part for fragment, part in zip(fragments, parts, strict=True)}


def _numbers(column: pa.ChunkedArray) -> Ids:
    values = column.to_numpy()
    if values.dtype != object:
        numbers: Ids = values.astype(np.int64)
        return numbers
    return np.fromiter(map(_hash, values), np.int64, len(values))


def _hash(path: str) -> int:
    return hash(file_of(path))
