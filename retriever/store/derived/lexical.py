"""The inverted index of a store: segments published beside the vector index, and the index of one state from them.

It is a cache. A reader without it, or with too many newer rows, uses Lance's full text. Each segment is a folder of
`vectors/` with a manifest, as a vector index is, and HEAD names them in ascending order of their ids.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....core import terms
from ....core.arrays import isin_sorted
from ....core.errors import DamagedError
from ....indexes.inverted.build import SegmentBuilder, merge
from ....indexes.inverted.lexical_index import LexicalIndex, LiveSegment
from ....indexes.inverted.segment import MAX_ROWS, Segment
from ....indexes.manifest import IndexManifest
from ....indexes.published import publish_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ....core.arrays import Ids, Mask
    from ..committed_rows import CommittedRows
    from ..locations.location import Location
    from ..store import Store

KIND = "words"
_FILE = "words.bin"
_BATCH_SIZE = 4_096  # rows analysed together
_MAX_UNINDEXED = 64  # newer rows that a reader analyses itself
_TIER = 4  # a segment is merged with the next if that has at least a quarter of its rows
_SMALL = 256  # rows of a segment that is merged with the next segment of any size
_DELETED_ROWS, _DELETED_SHARE = 1_000, 0.1  # a segment with more deleted rows than both is written again


@dataclass(frozen=True, slots=True)
class _Published:
    """A segment under its name, and which of its rows are live; None if all are."""

    name: str
    segment: Segment
    live: Mask | None = None


def load(state: CommittedRows) -> LexicalIndex | None:
    """Return the index of exactly the rows of a state; None if no index was published, or too many rows are newer.

    :raises DamagedError: when a segment was removed or changed.
    """
    if not state.head.words:
        return None
    ids = state.sorted_ids
    published = _load_segments(state.store.location, state.head.words, ids)
    newer = ids[ids > _newest(published)]
    if published is None or len(newer) > _MAX_UNINDEXED:
        return None
    parts = [LiveSegment(part.segment, part.live) for part in published]
    if len(newer):
        builder = SegmentBuilder()
        rows = state.newer(int(newer[0]) - 1, ["id", "context"])
        builder.add(rows["id"].to_numpy(), rows["context"].to_pylist())
        parts.append(LiveSegment(builder.build()))
    return LexicalIndex(parts)


def analyse(state: CommittedRows) -> LexicalIndex:
    """Return an index of all rows, in memory."""
    return LexicalIndex([LiveSegment(segment) for segment in _new_segments(state, -1)])


def check(state: CommittedRows) -> None:
    """Compare the checksums of all segments, and check their values.

    :raises DamagedError: when one was removed or changed.
    """
    location = state.store.location
    for part in _load_segments(location, state.head.words, state.sorted_ids) or ():
        folder = location.vectors(part.name)
        IndexManifest.read(folder).check_files(folder)
        part.segment.check()


def _newest(published: Sequence[_Published] | None) -> int:
    return int(published[-1].segment.ids[-1]) if published else -1


def _load_segments(location: Location, names: Sequence[str], ids: Ids) -> list[_Published] | None:
    """Map segments, and find their live rows; None if another version of the analysis wrote one.

    :param ids: those of the store, ascending.
    """
    published, newest = [], -1
    for name in names:
        folder = location.vectors(name)
        manifest = IndexManifest.read(folder)
        if manifest.build.get("analysis") != terms.VERSION:
            return None
        segment = Segment.open(folder / _FILE, manifest.build.get("sizes"))
        own = segment.ids
        if not len(own) or own[0] <= newest or not (own[1:] > own[:-1]).all():
            raise DamagedError(f"{folder} does not hold ascending ids")
        newest = int(own[-1])
        published.append(_Published(name, segment, _live(own, ids)))
    return published


def _live(own: Ids, ids: Ids) -> Mask | None:
    """Return a mask of the ids of a segment that are still in the store; None if all are."""
    first = int(np.searchsorted(ids, own[0]))
    if np.array_equal(ids[first : first + len(own)], own):  # as a rule: a tenth of the time
        return None
    live = isin_sorted(own, ids)
    return None if live.all() else live


class LexicalPublisher:
    """Publishes segments of the committed rows. A commit must name them before a reader sees them."""

    def __init__(self, store: Store) -> None:
        self._location = store.location
        self._folder = store.path / "vectors"

    def update(self, state: CommittedRows, *, rebuild: bool = False) -> tuple[str, ...]:
        """Write segments for new rows, merge small ones and drop deleted rows; return the names of all.

        :param rebuild: analyse all rows again; to erase, only write each segment with deleted rows again.
        """
        try:
            return self._update(state, self._present(state, rebuild=rebuild), rebuild=rebuild)
        except DamagedError:  # a segment, found when it was merged
            return self._update(state, [], rebuild=rebuild)

    def _update(self, state: CommittedRows, parts: list[_Published], *, rebuild: bool) -> tuple[str, ...]:
        before = state.head.words
        parts = [part for part in parts for part in self._without_deleted(part, state.head.rows, rebuild=rebuild)]
        for segment in _new_segments(state, _newest(parts)):
            parts.append(self._write(segment, state.head.rows))
            parts = self._merged(parts, state.head.rows, before)
        names = tuple(part.name for part in parts)
        for name in names:
            if name not in before:
                self._location.keep(name)
        return names

    def _present(self, state: CommittedRows, *, rebuild: bool) -> list[_Published]:
        """The published segments; none if one is damaged or of another analysis."""
        if not rebuild or state.head.erase:
            with contextlib.suppress(DamagedError):
                return _load_segments(self._location, state.head.words, state.sorted_ids) or []
        return []

    def _without_deleted(self, part: _Published, rows: int, *, rebuild: bool) -> Iterator[_Published]:
        """Write a segment again if many of its rows are deleted; yield nothing if all are."""
        deleted = 0 if part.live is None else int((~part.live).sum())
        if deleted == len(part.segment):
            return
        if deleted and (rebuild or deleted > max(_DELETED_ROWS, _DELETED_SHARE * len(part.segment))):
            yield self._write(_merge([part]), rows)
        else:
            yield part

    def _merged(self, parts: list[_Published], rows: int, before: Sequence[str]) -> list[_Published]:
        """Merge the last segments while their sizes are similar."""
        while len(parts) > 1:
            first, second = parts[-2:]
            size = len(first.segment) + len(second.segment)
            if size > MAX_ROWS or len(first.segment) > max(_SMALL, _TIER * len(second.segment)):
                break
            merged = _merge([first, second])
            for part in (first, second):
                if part.name not in before:
                    self._location.drop(part.name)
            parts = [*parts[:-2], self._write(merged, rows)]
        return parts

    def _write(self, segment: Segment, rows: int) -> _Published:
        def write(folder: Path) -> None:
            segment.write(folder / _FILE)

        description = {"analysis": terms.VERSION, "sizes": segment.sizes()}
        name = publish_files(self._folder, KIND, write, count=len(segment), covers=rows, description=description)
        return _Published(name, Segment.open(self._folder / name / _FILE, segment.sizes()))


def _merge(parts: Sequence[_Published]) -> Segment:
    """Merge segments.

    :raises DamagedError: when one holds impossible values.
    """
    for part in parts:
        part.segment.check()
    return merge([part.segment for part in parts], [part.live for part in parts])


def _new_segments(state: CommittedRows, newest: int) -> Iterator[Segment]:
    """Analyse the rows with higher ids than `newest`."""
    builder = SegmentBuilder()
    for batch in state.batches(["id", "context"], rows=min(_BATCH_SIZE, MAX_ROWS), first=newest + 1):
        if len(builder) + len(batch) > MAX_ROWS:
            yield builder.build()
            builder = SegmentBuilder()
        builder.add(batch["id"].to_numpy(), batch["context"].to_pylist())
    if len(builder):
        yield builder.build()
