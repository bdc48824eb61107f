"""Rows that were read last stay in memory, and no more than there is room for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from binocle.retriever.store.derived import recent_rows
from binocle.retriever.store.derived.recent_rows import RecentRows


class Table:
    """Rows 0 to 99 of ten characters, and the ids of each read."""

    def __init__(self):
        self.reads = []
        self.rows = RecentRows(self.read)

    def read(self, ids):
        self.reads.append(list(ids))
        return {number: {"text": f"{number:10}", "page": None} for number in sorted(ids) if number < 100}


def test_a_row_is_read_once_and_comes_in_the_order_asked():
    table = Table()
    assert list(table.rows.of([7, 3, 7])) == [7, 3]
    assert table.rows.of([3, 9, 7])[9]["text"] == f"{9:10}"
    assert table.reads == [[7, 3], [9]]
    assert list(table.rows.of([500, 3])) == [3]
    assert table.rows.of([]) == {}


@pytest.mark.parametrize(("name", "limit"), [("_ROWS", 4), ("_CHARACTERS", 40)])
def test_the_longest_known_rows_make_room(name, limit, monkeypatch):
    monkeypatch.setattr(recent_rows, name, limit)
    table = Table()
    assert list(table.rows.of(range(10))) == list(range(10))
    table.rows.of([6, 7, 8, 9])
    assert table.reads == [list(range(10))]
    assert list(table.rows.of([9, 5])) == [9, 5]
    assert table.reads[1:] == [[5]]


def test_rows_make_no_room_until_the_last_block_that_keeps_all_of_them_ends(monkeypatch):
    monkeypatch.setattr(recent_rows, "_ROWS", 4)
    table = Table()
    with table.rows.reading_ahead():
        with table.rows.reading_ahead():
            table.rows.of(range(10))
        table.rows.of(range(10))
    table.rows.of([6, 7, 8, 9])
    assert table.reads == [list(range(10))]
    table.rows.of([5])
    assert table.reads[1:] == [[5]]


def test_rows_make_room_also_in_blocks_that_never_end_together(monkeypatch):
    monkeypatch.setattr(recent_rows, "_ROWS", 4)
    table = Table()
    with table.rows.reading_ahead():
        for first in range(0, 1_000, 10):
            table.rows.of(range(first, first + 10))
    assert len(table.rows._sizes) <= 4
    with table.rows.reading_ahead():
        for first in range(0, 1_000, 10):
            table.rows.of(range(first, first + 10))
        assert len(table.rows._sizes) == 4 * recent_rows._READ_AHEAD


def test_threads_get_the_rows_they_ask_for(monkeypatch):
    monkeypatch.setattr(recent_rows, "_ROWS", 8)
    rows = Table().rows
    with ThreadPoolExecutor(4) as pool:
        for start, found in enumerate(pool.map(lambda start: rows.of(range(start, start + 12)), range(60))):
            assert [row["text"] for row in found.values()] == [f"{number:10}" for number in range(start, start + 12)]
