"""Lance's full-text index: a small segment for each commit, merged in steps, so that a commit costs what it adds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .tables import FULL_TEXT, LANCE_ERRORS

if TYPE_CHECKING:
    import lance

_NAME = "context_idx"
_MAX_SEGMENTS = 16  # a search opens each of them
_SMALL_SHARE = 0.1  # of the rows: while all small segments have fewer, they are merged with each other alone


def update(table: lance.LanceDataset, *, rebuild: bool = False) -> None:
    """Index the new rows: in a segment of their own, or together with small segments, or with all of them.

    :param rebuild: index all rows anew, as is also done if an earlier version of the tokenizer split them.
    """
    try:
        stats = table.stats.index_stats(_NAME)
    except LANCE_ERRORS:  # it is damaged: `verify` reports that and repairs it
        stats = {"num_unindexed_rows": 0, "segments": []}
    if rebuild or not _has_current_tokenizer(stats["segments"]):
        table.create_scalar_index("context", "INVERTED", replace=True, **FULL_TEXT)
    elif new := stats["num_unindexed_rows"]:
        table.optimize.optimize_indices(num_indices_to_merge=_segments_to_merge(table, new))


def _segments_to_merge(table: lance.LanceDataset, new: int) -> int:
    segments = _segments(table)
    if new + sum(segments) - max(segments, default=0) > _SMALL_SHARE * table.count_rows():
        return len(segments)
    return len(segments) - 1 if len(segments) >= _MAX_SEGMENTS else 0


def _segments(table: lance.LanceDataset) -> list[int]:
    """Return the rows that each segment was made of, the oldest segment first."""
    rows = {fragment.fragment_id: fragment.physical_rows for fragment in table.get_fragments()}
    (index,) = (index for index in table.describe_indices() if index.name == _NAME)
    return [sum(rows.get(number, 0) for number in segment.fragment_ids) for segment in index.segments]


def _has_current_tokenizer(segments: list[dict[str, Any]]) -> bool:
    """Tell whether the index splits texts as a new one would; an earlier version left out more words."""
    settings = [segment["params"] for segment in segments if segment]  # a segment without rows has none
    return all({name: values.get(name) for name in FULL_TEXT} == FULL_TEXT for values in settings)
