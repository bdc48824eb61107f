"""Run searches step by step, so that one read of the store serves a step of many searches."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from ..store.derived.recent_rows import RecentRows
    from .results.hits import Hits

    Rows = tuple[str, list[int]]  # of a table: the ids that the next step reads
    Steps = Generator[Rows, None, Hits]

_MAX_ROWS = 20_000  # read at once for several searches


def finish(steps: Steps) -> Hits:
    """Run all steps of a search; each reads its own rows."""
    [hits] = finish_together([steps], {})
    return hits


def finish_together(searches: Sequence[Steps], rows: Mapping[str, RecentRows]) -> list[Hits]:
    """Run several searches step by step, so that one read serves a step of all. Rows stay until the last search ends.

    :param rows: of each table, to read ahead of a step.
    """
    hits: dict[int, Hits] = {}
    with contextlib.ExitStack() as stack:
        for recent in rows.values():
            stack.enter_context(recent.reading_ahead())
        while len(hits) < len(searches):
            for table, ids in _step_all(searches, hits).items():
                if table in rows:
                    rows[table].of(ids[:_MAX_ROWS])
    return [hits[number] for number in range(len(searches))]


def _step_all(searches: Sequence[Steps], hits: dict[int, Hits]) -> dict[str, list[int]]:
    """Take a step of each unfinished search. Return the ids that they read next, by table; add the hits of an end."""
    needed: dict[str, list[int]] = {}
    for number, steps in enumerate(searches):
        if number in hits:
            continue
        try:
            table, ids = next(steps)
        except StopIteration as end:
            hits[number] = end.value
        else:
            needed.setdefault(table, []).extend(ids)
    return needed
