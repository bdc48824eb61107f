"""Read stored documents by id or by filter, all or a page at a time; count them and the values under their keys.

Each function reads one snapshot. `inside` is the filter of a scope: other documents do not exist for the caller.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.errors import InputError, NotFoundError
from ..documents.document import metadata_of, take_internal
from .filters.condition_masks import check_key
from .filters.filter import Within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ...core.arrays import Floats, Mask, Positions
    from .filters.filter import Filter
    from .filters.sorted_values import Column
    from .snapshot import Snapshot

    Id = str | os.PathLike[str]
    Read = Callable[[Callable[[Snapshot], list["Record"]]], list["Record"]]

_COLUMNS = ("path", "text", "title", "metadata", "format", "source", "state", "reason", "size", "chunks")
_PAGE = 256  # most documents that are in memory with their texts
_PAGE_BYTES = 16 * 2**20  # of the documents of a page together; a larger document is a page of its own


@dataclass(frozen=True, slots=True)
class Record:
    """A stored document."""

    id: str  # as it was added, or the path of a file
    text: str
    title: str
    metadata: dict[str, Any] = field(hash=False)
    format: str
    source: str  # "file" or "added"
    state: str  # "indexed", "skipped" or "failed"
    reason: str  # why it was skipped or failed, else ""
    size: int  # bytes
    passages: int
    vectors: Floats | None = field(default=None, compare=False, repr=False)  # shape (passages, dim), if asked for


@dataclass(frozen=True, slots=True)
class Facet:
    """The values under a key, in the documents that pass a filter."""

    documents: int  # that have any value
    distinct: int  # different values
    counts: tuple[tuple[Any, int], ...]  # values and their documents, the most frequent first
    min: Any  # of the numbers, or else of the texts; None without either
    max: Any


def get(snapshot: Snapshot, ids: Iterable[Id], *, vectors: bool = False, inside: Filter | None = None) -> list[Record]:
    """Return documents in the order of these ids.

    :param vectors: also the vectors of their passages.
    :raises NotFoundError: naming the first id that is not there.
    """
    names = [name_of(name) for name in ids]
    rows = positions(snapshot, names, inside)
    if missing := [name for name, position in zip(names, rows, strict=True) if position is None]:
        remainder = f", nor are {len(missing) - 1:,} more of the {len(names):,} documents" if len(missing) > 1 else ""
        raise NotFoundError(f"{missing[0]!r} is not in the index{remainder}")
    row_ids = snapshot.document_rows["id"].take(pa.array(rows, pa.int64())).to_pylist()
    return _records(snapshot, row_ids, vectors=vectors)


def contains(snapshot: Snapshot, name: object, inside: Filter | None = None) -> bool:
    """Tell whether there is a document with this id."""
    return isinstance(name, (str, os.PathLike)) and positions(snapshot, [name_of(name)], inside) != [None]


def check_inside(snapshot: Snapshot, name: Id, inside: Filter) -> None:
    """Check that a document may be read by its name.

    :raises NotFoundError: when it does not pass the filter of a scope. The message is the same if there is none.
    """
    (position,), (anywhere,) = (positions(snapshot, [name_of(name)], part) for part in (inside, None))
    if position is None or position != anywhere:
        raise NotFoundError(f"{os.fspath(name)!r} is not in the index")


def count(snapshot: Snapshot, where: Filter | None) -> int:
    """Count the documents that pass a filter."""
    return snapshot.document_rows.num_rows if where is None else int(snapshot.select(where).sum())


def page(
    snapshot: Snapshot, where: Filter | None, after: str | None, limit: int | None, *, vectors: bool = False
) -> list[Record]:
    """Return the first documents after an id that pass a filter, in order of id.

    :param limit: the number at most; fewer come if they are large, but at least one. A file and an added document of
        one name stay together, since `after` names both: then there may be one more.
    """
    order, rows = snapshot.documents_in_order, snapshot.document_rows
    if where is not None:
        order = order[snapshot.select(where)[order]]
    start = 0 if after is None else _first_after(rows["path"], order, after)
    end = start + min(_PAGE, limit if limit is not None else _PAGE)
    sizes = np.cumsum(rows["size"].to_numpy()[order[start:end]])
    end = min(end, start + max(1, int(np.searchsorted(sizes, _PAGE_BYTES, side="right"))))
    while start < end < len(order) and rows["path"][int(order[end])] == rows["path"][int(order[end - 1])]:
        end += 1
    selected = order[start:end]
    return _records(snapshot, rows["id"].to_numpy()[selected].tolist(), vectors=vectors)


def facets(
    snapshot: Snapshot, keys: Sequence[str], where: Filter | None, limit: int, inside: Filter | None = None
) -> dict[str, Facet]:
    """Return the values under each of these keys, in the documents that pass a filter.

    :param limit: the number of values of a key, the most frequent.
    :raises InputError: when no document has a key.
    """
    known = None if inside is None else snapshot.select(Within(inside, None))
    mask = np.ones(snapshot.document_rows.num_rows, np.bool_) if where is None else snapshot.select(where)
    result = {}
    for key in keys:
        check_key(key, snapshot.columns, known)
        column = snapshot.columns.types if key in ("type", "format") else snapshot.columns.column(key)
        result[key] = _facet(column, mask, limit)
    return result


def _facet(column: Column, mask: Mask, limit: int) -> Facet:
    inside = mask[column.owners]
    codes = np.repeat(np.arange(len(column.values)), np.diff(column.starts))[inside]
    first, end = column.kinds.numbers
    numbers = column.values[first:end]
    same = np.array([left == right for left, right in pairwise(numbers)], np.bool_)  # 1 and 1.0 are the same value
    if same.any():
        firsts = np.arange(len(column.values))
        firsts[first + 1 : end][same] = -1
        np.maximum.accumulate(firsts, out=firsts)
        pairs = np.unique(np.stack([firsts[codes], column.owners[inside]]), axis=1)  # a document may have both
        codes = pairs[0]
    counts = np.bincount(codes, minlength=len(column.values))
    present = np.flatnonzero(counts)
    ordered = present[(present >= first) & (present < end)]
    if not len(ordered):
        ordered = present[(present >= column.kinds.texts[0]) & (present < column.kinds.texts[1])]
    low, high = (column.values[ordered[0]], column.values[ordered[-1]]) if len(ordered) else (None, None)
    frequent = present[np.argsort(-counts[present], kind="stable")[:limit]].tolist()
    listed = tuple((column.values[code], int(counts[code])) for code in frequent)
    documents = int((column.mask([(0, len(column.values))]) & mask).sum())
    return Facet(documents, len(present), listed, low, high)


def name_of(name: Id) -> str:
    """Return the id or path of a document as a text."""
    if not isinstance(name, (str, os.PathLike)):
        raise InputError(f"{name!r} is not a document: expected its path, or its id as it was added")
    return os.fspath(name)


def positions(snapshot: Snapshot, names: Sequence[str], inside: Filter | None) -> list[int | None]:
    """Return the positions in `document_rows` of the documents with these ids; None for each id that is missing.

    If a file and an added document share a name, the file is returned if it has text.
    """
    rows = snapshot.document_rows
    requested = pa.array([name.encode("utf-8", "surrogatepass") for name in names], pa.binary())
    codes = pc.index_in(rows["path"].cast(pa.binary()), value_set=requested.unique())
    positions = np.flatnonzero(pc.is_valid(codes).to_numpy())
    if inside is not None:
        positions = positions[snapshot.select(Within(inside, None))[positions]]
    candidates = rows.select(["path", "chunks", "source"]).take(pa.array(positions, pa.int64())).to_pylist()
    best: dict[str, tuple[bool, bool, int]] = {}
    for position, row in zip(positions.tolist(), candidates, strict=True):
        rank = (not row["chunks"], row["source"] == "added", position)
        best[row["path"]] = min(rank, best.get(row["path"], rank))
    return [best[name][2] if name in best else None for name in names]


def _records(snapshot: Snapshot, ids: Sequence[int], *, vectors: bool) -> list[Record]:
    rows = snapshot.documents_by_id(ids, _COLUMNS)
    arrays = _vectors(snapshot, sorted(rows)) if vectors else {}
    return [_record(rows[number], arrays.get(number)) for number in ids]


def _record(row: dict[str, Any], vectors: Floats | None) -> Record:
    fields = {name: row[name] for name in ("text", "title", "format", "source", "state", "reason", "size")}
    metadata = metadata_of(row)
    if row["source"] == "file":
        take_internal(metadata)
    return Record(id=row["path"], metadata=metadata, passages=row["chunks"], vectors=vectors, **fields)


def _vectors(snapshot: Snapshot, documents: Sequence[int]) -> dict[int, Floats]:
    """Return the vectors of the passages of these documents, in their order."""
    chunks = snapshot.chunks_of(np.array(documents, np.int64))
    rows = snapshot.chunks_by_id(chunks.tolist(), ["document", "vector"])
    lists: dict[int, list[Any]] = {number: [] for number in documents}
    for number in chunks.tolist():
        lists[rows[number]["document"]].append(rows[number]["vector"])
    dim = snapshot.head.encoder.dim
    return {number: np.array(vectors, np.float32).reshape(len(vectors), dim) for number, vectors in lists.items()}


def _first_after(paths: pa.ChunkedArray, order: Positions, after: str) -> int:
    """Return how many documents of an order come up to this id."""
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        if paths[int(order[middle])].as_py().encode("utf-8", "surrogatepass") <= after.encode("utf-8", "surrogatepass"):
            low = middle + 1
        else:
            high = middle
    return low


def pages(
    read: Read, where: Filter | None, after: str | None, limit: int | None, *, vectors: bool = False
) -> Iterator[Record]:
    """Yield documents in order of id, a page at a time, each from the state of the index at its time.

    :param read: answers from a snapshot.
    """
    while limit is None or limit > 0:
        answer = partial(page, where=where, after=after, limit=limit, vectors=vectors)
        records = read(answer)
        yield from records
        if not records:
            return
        after = records[-1].id
        limit = None if limit is None else limit - len(records)
