"""Lance's full-text index: a small segment for each commit, merged in steps, so that a small commit costs little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..tables import FULL_TEXT

if TYPE_CHECKING:
    import lance

_NAME = "context_idx"
_MAX_SEGMENTS = 16  # a search opens each of them
_SMALL_SHARE = 0.1  # of the rows: while all small segments have fewer, they are merged with each other alone


def update(table: lance.LanceDataset, *, rebuild: bool = False) -> None:
    """Index the new rows: in a segment of their own, or together with small segments, or with all of them.

    :param rebuild: index all rows anew.
    """
    if rebuild:
        table.create_scalar_index("context", "INVERTED", replace=True, **FULL_TEXT)
    elif new := new_rows(table):
        table.optimize.optimize_indices(num_indices_to_merge=_segments_to_merge(table, new))


def new_rows(table: lance.LanceDataset) -> int:
    """Count the rows that no segment has. Lance reads each of them in a search."""
    known = {number for segment in _segments_of(table) for number in segment.fragment_ids}
    return sum(rows for number, rows in _rows(table).items() if number not in known)


def _segments_to_merge(table: lance.LanceDataset, new: int) -> int:
    segments = _segments(table)
    if new + sum(segments) - max(segments, default=0) > _SMALL_SHARE * table.count_rows():
        return len(segments)
    return len(segments) - 1 if len(segments) >= _MAX_SEGMENTS else 0


def _segments(table: lance.LanceDataset) -> list[int]:
    """Return the rows that each segment was made of, the oldest segment first."""
    rows = _rows(table)
    return [sum(rows.get(number, 0) for number in segment.fragment_ids) for segment in _segments_of(table)]


def _segments_of(table: lance.LanceDataset) -> list[Any]:
    (index,) = (index for index in table.describe_indices() if index.name == _NAME)
    return list(index.segments)


def _rows(table: lance.LanceDataset) -> dict[int, int]:
    """Return the rows of each fragment, deleted ones included."""
    return {fragment.fragment_id: fragment.physical_rows for fragment in table.get_fragments()}
