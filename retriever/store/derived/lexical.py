"""The inverted index of a store: segments published beside the vector index, and the index of one state from them.

It is a cache. A reader without it, or with too many newer rows, uses Lance's full text. Each segment is a folder of
`vectors/` with a manifest, as a vector index is, and HEAD names them in ascending order of their ids. Beside the words
of its passages lies a `PassageFile`.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core import terms
from ....core.arrays import isin_sorted
from ....core.errors import DamagedError
from ....indexes.inverted.build import SegmentBuilder, merge
from ....indexes.inverted.lexical_index import LexicalIndex, LiveSegment
from ....indexes.inverted.segment import MAX_ROWS, Segment
from ....indexes.manifest import IndexManifest
from ....indexes.published import publish_files
from . import passage_file
from .passage_file import PassageFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from ....core.arrays import Ids, Mask, Positions
    from ..committed_rows import CommittedRows
    from ..locations.location import Location
    from ..store import Store

KIND = "words"
_FILE = "words.bin"
_PASSAGES = "passages.bin"
_BATCH_SIZE = 4_096  # rows analysed together
_SAMPLES = 1_000  # passages that a check compares with the table
_MAX_UNINDEXED = 64  # newer rows that a reader analyses itself
_TIER = 4  # a segment is merged with the next if that has at least a quarter of its rows
_SMALL = 256  # rows of a segment that is merged with the next segment of any size
_DELETED_ROWS, _DELETED_SHARE = 1_000, 0.1  # a segment with more deleted rows than both is written again


@dataclass(frozen=True, slots=True)
class PublishedSegment:
    """A segment under its name, and which of its rows are live; None if all are.

    :ivar columns: of its passages; none if an earlier version wrote it.
    """

    name: str
    segment: Segment
    live: Mask | None
    columns: tuple[str, ...]
    passages: PassageFile | None

    @classmethod
    def open(cls, location: Location, name: str, ids: Ids) -> PublishedSegment | None:
        """Map a segment, and find its live rows; None if another version of the analysis wrote it.

        :param ids: those of the store, ascending.
        :raises DamagedError: when it was removed or changed.
        """
        folder = location.vectors(name)
        manifest = IndexManifest.read(folder)
        if manifest.build.get("analysis") != terms.VERSION:
            return None
        segment = Segment.open(folder / _FILE, manifest.build.get("sizes"))
        own = segment.ids
        if not len(own) or not (own[1:] > own[:-1]).all():
            raise DamagedError(f"{folder} does not hold ascending ids")
        names = manifest.build.get("passages")
        columns = tuple(names) if isinstance(names, list) else ()
        passages = PassageFile.open(folder / _PASSAGES, len(own)) if columns else None
        return cls(name, segment, _live(own, ids), columns, passages)

    def live_rows(self) -> Positions:
        """Return the live rows, ascending."""
        return np.arange(len(self.segment)) if self.live is None else np.flatnonzero(self.live)

    def records(self) -> Iterator[bytes]:
        """Yield the records of the live rows."""
        return self.passages.records(self.live_rows().tolist()) if self.passages else iter(())


def load(state: CommittedRows, segments: Sequence[PublishedSegment]) -> LexicalIndex | None:
    """Return the index of exactly the rows of a state; None if no index was published, or too many rows are newer.

    :param segments: of the state.
    """
    ids = state.sorted_ids
    newer = ids[ids > _newest(segments)]
    if not segments or len(newer) > _MAX_UNINDEXED:
        return None
    parts = [LiveSegment(part.segment, part.live) for part in segments]
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
    """Compare the checksums of all segments, check their values, and compare a sample of passages with the table.

    :raises DamagedError: when one was removed or changed.
    """
    location, segments = state.store.location, load_segments(state)
    for part in segments:
        folder = location.vectors(part.name)
        IndexManifest.read(folder).check_files(folder)
        part.segment.check()
    sample = state.sorted_ids[:: max(1, len(state.sorted_ids) // _SAMPLES)]
    rows = read_passages(segments, sample, state.passage_columns)
    for number, row in state.chunks_by_id(list(rows), state.passage_columns).items():
        if row != rows[number]:
            raise DamagedError(f"the inverted index holds another passage {number} than the table")


def _newest(published: Sequence[PublishedSegment]) -> int:
    return int(published[-1].segment.ids[-1]) if published else -1


def load_segments(state: CommittedRows) -> list[PublishedSegment]:
    """Map the segments of a state; none if another version of the analysis wrote one.

    :raises DamagedError: when one was removed or changed.
    """
    segments: list[PublishedSegment] = []
    for name in state.head.words:
        segment = PublishedSegment.open(state.store.location, name, state.sorted_ids)
        if segment is None:
            return []
        if segment.segment.ids[0] <= _newest(segments):
            raise DamagedError(f"{state.store.location.vectors(name)} does not hold ascending ids")
        segments.append(segment)
    return segments


def read_passages(
    segments: Sequence[PublishedSegment], ids: Ids, columns: tuple[str, ...]
) -> dict[int, dict[str, Any]]:
    """Return the columns of those passages that segments have, by id.

    :param ids: ascending.
    :raises DamagedError: when a record is damaged.
    """
    rows: dict[int, dict[str, Any]] = {}
    for part in segments:
        own = part.segment.ids
        within = ids[np.searchsorted(ids, own[0]) : np.searchsorted(ids, own[-1], side="right")]
        if part.passages is None or part.columns != columns or not len(within):
            continue
        positions = np.searchsorted(own, within)
        exists = own[positions] == within
        if part.live is not None:
            exists &= part.live[positions]
        values = part.passages.values(positions[exists])
        for number, row in zip(within[exists].tolist(), values, strict=True):
            rows[number] = {"id": number, **dict(zip(columns, row, strict=True))}
    return rows


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

    def _update(self, state: CommittedRows, parts: list[PublishedSegment], *, rebuild: bool) -> tuple[str, ...]:
        before = state.head.words
        parts = [part for part in parts for part in self._renewed(part, state, rebuild=rebuild)]
        for segment in _new_segments(state, _newest(parts)):
            parts.append(self._write(segment, _records(state, segment.ids), state))
            parts = self._merged(parts, state, before)
        names = tuple(part.name for part in parts)
        for name in names:
            if name not in before:
                self._location.keep(name)
        return names

    def _present(self, state: CommittedRows, *, rebuild: bool) -> list[PublishedSegment]:
        """The published segments; none if one is damaged or of another analysis."""
        if not rebuild or state.head.erase:
            with contextlib.suppress(DamagedError):
                return load_segments(state)
        return []

    def _renewed(self, part: PublishedSegment, state: CommittedRows, *, rebuild: bool) -> Iterator[PublishedSegment]:
        """Write a segment again if it lacks columns or has many deleted rows; yield nothing if all are deleted."""
        deleted = len(part.segment) - len(part.live_rows())
        if deleted == len(part.segment):
            return
        if part.columns != state.passage_columns:
            segment = _merge([part])
            yield self._write(segment, _records(state, segment.ids), state)
        elif deleted and (rebuild or deleted > max(_DELETED_ROWS, _DELETED_SHARE * len(part.segment))):
            yield self._write(_merge([part]), part.records(), state)
        else:
            yield part

    def _merged(
        self, parts: list[PublishedSegment], state: CommittedRows, before: Sequence[str]
    ) -> list[PublishedSegment]:
        """Merge the last segments while their sizes are similar."""
        while len(parts) > 1:
            first, second = parts[-2:]
            size = len(first.segment) + len(second.segment)
            if size > MAX_ROWS or len(first.segment) > max(_SMALL, _TIER * len(second.segment)):
                break
            merged = self._write(_merge([first, second]), chain(first.records(), second.records()), state)
            for part in (first, second):
                if part.name not in before:
                    self._location.drop(part.name)
            parts = [*parts[:-2], merged]
        return parts

    def _write(self, segment: Segment, records: Iterable[bytes], state: CommittedRows) -> PublishedSegment:
        """Publish a segment with the records of its passages.

        :raises DamagedError: when there are more or fewer records than passages.
        """

        def write(folder: Path) -> None:
            segment.write(folder / _FILE)
            if (count := passage_file.write(folder / _PASSAGES, records)) != len(segment):
                raise DamagedError(f"a segment has {len(segment)} passages and {count} records of them")

        description = {"analysis": terms.VERSION, "sizes": segment.sizes(), "passages": state.passage_columns}
        name = publish_files(
            self._folder, KIND, write, count=len(segment), covers=state.head.rows, description=description
        )
        folder = self._folder / name
        return PublishedSegment(
            name,
            Segment.open(folder / _FILE, segment.sizes()),
            None,
            state.passage_columns,
            PassageFile.open(folder / _PASSAGES, len(segment)),
        )


def _records(state: CommittedRows, ids: Ids) -> Iterator[bytes]:
    """Yield the records of all passages from the first of these ids to the last."""
    columns = state.passage_columns
    batches = state.batches(list(columns), rows=_BATCH_SIZE, first=int(ids[0]), last=int(ids[-1]))
    return passage_file.records_of(batches, columns)


def _merge(parts: Sequence[PublishedSegment]) -> Segment:
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
