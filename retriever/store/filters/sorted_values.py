"""The values of documents by key, sorted, each with its documents: a comparison takes a slice of them.

A column is built once for a state of the index, when its key is first needed. Values are compared as Python compares
them, so whole numbers of any length and texts of any characters stay different.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....core.arrays import distinct
from ....core.errors import DamagedError
from ....core.words import composed
from ...documents.document import INTERNAL
from ...documents.file_parts import file_of
from . import fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ....core.arrays import Doubles, Mask, Positions

    Members = Iterable[tuple[int, Any]]  # the position of a document, and one of its values

COLUMNS = ("path", "source", "size", "mtime_ns", "format", "title", "metadata")
_MAX_COLUMNS = 64  # in memory, since a hostile caller may filter on any number of keys


@dataclass(frozen=True, slots=True)
class Kinds:
    """The codes of the values of each type: the first, and the one after the last."""

    booleans: tuple[int, int]
    numbers: tuple[int, int]
    texts: tuple[int, int]
    foreign: tuple[int, int]  # values of other types: metadata cannot have them, but an index from elsewhere may


@dataclass(frozen=True, slots=True)
class Carried:
    """The metadata columns of a state that were read already."""

    metadata: pa.Array  # the different ones
    values: dict[str, list[Any]]  # key -> its value in each of them


@dataclass(frozen=True, eq=False)
class Column:
    """The different values under a key in order, and the documents of each; `of` makes one."""

    count: int  # of all documents
    values: list[Any]  # by type, then by size
    kinds: Kinds
    owners: Positions  # of documents, grouped by value
    starts: Positions  # shape (values + 1,): where the documents of each value begin in `owners`

    @classmethod
    def of(cls, values: Sequence[Any], codes: Positions, owners: Positions, count: int) -> Column:
        """Sort values by type and size, and group the documents by them.

        :param values: different values; 1 and 1.0 may both be there.
        :param codes: shape (members,), the position in `values` of each member.
        :param owners: shape (members,), the position of its document.
        :param count: the number of all documents.
        """
        kinds: list[list[int]] = [[], [], [], []]
        for code, value in enumerate(values):
            kinds[_kind(value)].append(code)
        for kind in kinds:
            kind.sort(key=lambda code: values[code] if _kind(values[code]) < 3 else repr(values[code]))
        order = [code for kind in kinds for code in kind]
        ends = np.cumsum([0, *map(len, kinds)]).tolist()
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        pairs = distinct(ranks[codes] * count + owners)  # a list may have a member twice
        return cls(
            count,
            [values[code] for code in order],
            Kinds(*pairwise(ends)),
            pairs % max(count, 1),
            np.searchsorted(pairs, np.arange(len(order) + 1) * count),
        )

    def equal(self, value: Any) -> tuple[int, int]:
        """Return the range of codes of the values with this value and type: the first code and the end."""
        first, end = self._of_type(value)
        return bisect_left(self.values, value, first, end), bisect_right(self.values, value, first, end)

    def between(self, low: Any, high: Any) -> tuple[int, int]:
        """Return the codes of the values from `low` to `high`, both included; none if their types differ."""
        first, end = self._of_type(low)
        if self._of_type(high) != (first, end):
            return 0, 0
        return bisect_left(self.values, low, first, end), bisect_right(self.values, high, first, end)

    def ordered(self, operator: str, bound: Any) -> tuple[int, int]:
        """Return the codes of the values of this type that are less or greater than a bound."""
        first, end = self._of_type(bound)
        if operator in ("lt", "lte"):
            bisect = bisect_left if operator == "lt" else bisect_right
            return first, bisect(self.values, bound, first, end)
        bisect = bisect_right if operator == "gt" else bisect_left
        return bisect(self.values, bound, first, end), end

    def starting(self, prefix: str) -> tuple[int, int]:
        """Return the codes of the texts that begin with this one."""
        first, end = self.kinds.texts
        start = bisect_left(self.values, prefix, first, end)
        size = len(prefix)
        return start, bisect_right(self.values, prefix, start, end, key=lambda text: text[:size])

    def mask(self, codes: Iterable[tuple[int, int]]) -> Mask:
        """Return which documents have a value among these ranges of codes, shape (documents,)."""
        mask = np.zeros(self.count, np.bool_)
        for first, end in codes:
            mask[self.owners[self.starts[first] : self.starts[max(first, end)]]] = True
        return mask

    def mask_of(self, codes: Sequence[int] | Positions) -> Mask:
        """Return which documents have one of these values, shape (documents,)."""
        flags = np.zeros(len(self.values), np.bool_)
        flags[np.asarray(codes, np.int64)] = True
        mask = np.zeros(self.count, np.bool_)
        mask[self.owners[np.repeat(flags, np.diff(self.starts))]] = True
        return mask

    @cached_property
    def folded(self) -> tuple[list[str], Positions]:
        """All values as texts in small letters, in order, and the code of each."""
        texts = list(map(fields.folded, self.values))
        order = sorted(range(len(texts)), key=texts.__getitem__)
        return [texts[code] for code in order], np.array(order, np.int64)

    @cached_property
    def encoded(self) -> pa.Array:
        """The texts among the values as bytes, for patterns of bytes; a column of paths has only texts."""
        return pa.array([text.encode("utf-8", "surrogatepass") for text in self.values], pa.binary())

    @cached_property
    def composed(self) -> Column:
        """The column with letters and marks joined; its values are texts."""
        codes = np.repeat(np.arange(len(self.values)), np.diff(self.starts))
        texts, numbers = np.unique(np.array(list(map(composed, self.values)), object), return_inverse=True)
        return Column.of(texts.tolist(), numbers[codes], self.owners, self.count)

    @cached_property
    def files_of_parts(self) -> list[tuple[int, str]]:
        """The codes of paths of parts of large files, each with the path of its file."""
        parts = ((code, file_of(path)) for code, path in enumerate(self.values) if "/bytes-" in path)
        return [(code, file) for code, file in parts if file != self.values[code]]

    def _of_type(self, value: Any) -> tuple[int, int]:
        if isinstance(value, bool):
            return self.kinds.booleans
        return self.kinds.texts if isinstance(value, str) else self.kinds.numbers


def _keys(metadata: pa.ChunkedArray) -> set[str]:
    return {key for record in map(_decode, metadata.unique().to_pylist()) for key in record}


def _kind(value: Any) -> int:
    if isinstance(value, bool):
        return 0
    if isinstance(value, (int, float)):
        return 3 if math.isnan(value) else 1
    return 2 if isinstance(value, str) else 3


class DocumentColumns:
    """The columns of all documents of a state.

    :param rows: a table with at least `COLUMNS`.
    :param carried: metadata columns of an earlier state.
    """

    def __init__(self, rows: pa.Table, carried: Carried | None = None) -> None:
        self.count = rows.num_rows
        self._rows = rows
        self._carried = carried
        self._columns: dict[str, Column] = {}
        self._values: dict[str, list[Any]] = {}  # key -> its value in each of the different metadata

    def carried(self) -> Carried | None:
        """Metadata for a later state to reuse: a commit changes few of them."""
        return Carried(self._metadata[0], dict(self._values)) if self._values else self._carried

    def column(self, key: str) -> Column:
        """Return the values under a key: of a field, or of the metadata."""
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = self._build(key)
            for earlier in list(self._columns)[:-_MAX_COLUMNS]:
                self._columns.pop(earlier, None)
        return column

    def keys(self, among: Mask | None = None) -> list[str]:
        """Return the keys of the metadata of these documents, of all by default, as their readers see them."""
        rows = self._rows if among is None else self._rows.filter(pa.array(among))
        is_file = pc.equal(rows["source"], "file")
        of_files, of_others = rows.filter(is_file)["metadata"], rows.filter(pc.invert(is_file))["metadata"]
        return sorted((_keys(of_files) - INTERNAL) | _keys(of_others))

    @cached_property
    def moments(self) -> Doubles:
        """The time of each document's last change, in seconds since 1970, shape (documents,); NaN if unknown."""
        seconds: Doubles = self._rows["mtime_ns"].to_numpy() / 1e9
        if len(added := np.flatnonzero(self._added)):
            seconds[added] = np.nan
            texts = self._rows["metadata"].take(pa.array(added)).to_pylist()
            seconds[added] = [fields.stated_moment(_decode(text).get("modified")) for text in texts]
        return seconds

    @cached_property
    def _added(self) -> Mask:
        added: Mask = np.array(pc.equal(self._rows["source"], "added").to_pylist(), np.bool_)
        return added

    @cached_property
    def _metadata(self) -> tuple[pa.Array, Positions, Positions]:
        """The distinct metadata; the positions of their documents, grouped; and the start of each group."""
        encoded = self._rows["metadata"].combine_chunks().dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")
        return encoded.dictionary, order, np.searchsorted(codes[order], np.arange(len(encoded.dictionary) + 1))

    def _values_of(self, key: str) -> list[Any]:
        """Return the value of a key in each distinct metadata; for metadata of an earlier state it is known."""
        texts, before = self._metadata[0], self._carried
        if before is None or key not in before.values:
            return [_decode(text).get(key) for text in texts.to_pylist()]
        known = pc.index_in(texts, value_set=before.metadata)
        unknown = iter(texts.filter(pc.is_null(known)).to_pylist())
        values = before.values[key]
        return [_decode(next(unknown)).get(key) if code is None else values[code] for code in known.to_pylist()]

    def _build(self, key: str) -> Column:
        if key in ("type", "format"):
            own = enumerate(map(fields.type_name, self._rows["format"].to_pylist()))
            endings = enumerate(map(fields.extension, self._rows["path"].to_pylist()))
            stated = ((number, fields.folded(value)) for number, value in self._stated(key))
            return self._column([*own, *endings, *stated])
        if key == "path":
            return self._column(enumerate(self._rows["path"].to_pylist()))
        if key == "size":
            stated = ((number, value) for number, value in self._stated(key) if fields.is_number(value))
            return self._column([*enumerate(self._rows["size"].to_pylist()), *stated])
        if key == "modified":
            known = np.flatnonzero(~np.isnan(self.moments))
            return self._column(zip(known.tolist(), self.moments[known].tolist(), strict=True))
        if key == "title":
            return self._column([*enumerate(self._rows["title"].to_pylist()), *self._stated(key)])
        return self._of_metadata(key.removeprefix(fields.METADATA))

    def _stated(self, key: str) -> Members:
        """The values that added documents state in their metadata under the name of a field."""
        column = self._of_metadata(key)
        for code, value in enumerate(column.values):
            for owner in column.owners[column.starts[code] : column.starts[code + 1]].tolist():
                if self._added[owner]:
                    yield owner, value

    @cached_property
    def types(self) -> Column:
        """The format of each document, and the types that added documents state; no endings of names."""
        return self._column([*enumerate(self._rows["format"].to_pylist()), *self._stated("type")])

    @cached_property
    def stated_paths(self) -> Column:
        """The paths that added documents state in their metadata."""
        return self._column([(number, str(value)) for number, value in self._stated("path")])

    def _column(self, members: Members) -> Column:
        values, codes, owners = encode(members)
        return Column.of(values, codes, owners, self.count)

    def _of_metadata(self, key: str) -> Column:
        _, documents, starts = self._metadata
        self._values[key] = self._values_of(key)
        for earlier in list(self._values)[:-_MAX_COLUMNS]:
            self._values.pop(earlier, None)
        values, codes, rows = encode(_members(self._values[key]))
        counts = (starts[1:] - starts[:-1])[rows]
        before = np.cumsum(counts) - counts
        owners = documents[np.repeat(starts[rows] - before, counts) + np.arange(counts.sum())]
        return Column.of(values, np.repeat(codes, counts), owners, self.count)


def _members(values: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Yield values, each member of a list by itself."""
    for number, value in enumerate(values):
        if isinstance(value, list):
            yield from ((number, member) for member in value if member is not None)
        elif value is not None:
            yield number, value


def encode(members: Members) -> tuple[list[Any], Positions, Positions]:
    """Return the different values, the code of each member's value, and its position."""
    known: dict[tuple[type, Any], int] = {}
    codes: list[int] = []
    owners: list[int] = []
    for owner, value in members:
        kind = type(value)
        member = (kind, value) if kind in (str, int, float, bool) else (str, json.dumps(value))
        codes.append(known.setdefault(member, len(known)))
        owners.append(owner)
    values = [value for _, value in known]
    return values, np.array(codes, np.int64), np.array(owners, np.int64)


def _decode(text: str) -> dict[str, Any]:
    """Read the metadata of a document.

    :raises DamagedError: when they are no JSON object.
    """
    try:
        record = json.loads(text)
    except (ValueError, RecursionError, TypeError):
        record = None
    if not isinstance(record, dict):
        raise DamagedError(f"a document has unreadable metadata ({str(text)[:60]!r}): index again")
    return record
