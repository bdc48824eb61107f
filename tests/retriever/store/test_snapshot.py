"""Reads of one state: lines and parts of documents, records and their pages, facets, batches, and the vector index."""

from __future__ import annotations

import lance
import numpy as np
import pytest

from binocle import NotFoundError, Retriever
from binocle.core.errors import InputError
from binocle.indexes.flat import FlatIndex
from binocle.retriever.store import committed_rows, records
from binocle.retriever.store import documents as stored_documents
from binocle.retriever.store.derived.live_index import LiveIndex
from binocle.retriever.store.filters.where import parse
from binocle.retriever.store.snapshot import Snapshot
from binocle.retriever.store.store import Store
from binocle.retriever.store.writer import open_writer

from .test_store import DIM, ENCODER, chunk_row, chunks, document_row, documents, put, vector


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "index", ENCODER)


def filled(store, rows, passages=()):
    """A state with these documents and passages."""
    with open_writer(store) as writer:
        if passages:
            writer.stage(chunks(*passages))
        writer.commit(drop=[], documents=documents(*rows))
    return Snapshot.latest(store)


# Lines


def test_lines_of_a_source_are_the_passages_that_have_one_of_them(store):
    """The text has one line, but citations count the lines of the source, as in a web page."""
    text = "The cat sat. The dog ran. The ship sailed."
    passages = [
        chunk_row(0, 0, "The cat sat.") | {"line_start": 3, "line_end": 5},
        chunk_row(1, 0, "The dog ran.") | {"line_start": 8, "line_end": 8, "char_start": 13, "char_end": 25},
        chunk_row(2, 0, "The ship sailed.") | {"line_start": 9, "line_end": 12, "char_start": 26, "char_end": 42},
    ]
    row = document_row(0, chunks=3, text=text, source="file", metadata='{"hidden": [4, 8, 17, 21]}')
    snapshot = filled(store, [row], passages)
    cat, dog, ship = (passage["text"] for passage in passages)
    for lines, expected in {
        (1, 2): "",
        (1, 3): cat,
        (5, 5): cat,
        (6, 7): "",
        (5, 8): f"{cat}\n\n{dog}",
        (8, 9): f"{dog}\n\n{ship}",
        (12, 99): ship,
    }.items():
        assert stored_documents.lines(snapshot, "0.txt", *lines) == expected
    assert stored_documents.lines(snapshot, "0.txt", 3, 12, hidden=False) == "The sat.\n\nThe ran.\n\nThe ship sailed."
    assert stored_documents.line_range(snapshot, "0.txt") == (1, 12)
    with pytest.raises(InputError, match=r"'0.txt' has lines 1 to 12, not lines 13 to 14$"):
        stored_documents.lines(snapshot, "0.txt", 13, 14)


def part(number, start, end, first_line, text, piece):
    """The row and the passage of a part of a large file."""
    name = f"big.log/bytes-{start:012}-{end:012}"
    at = text.index(piece)
    line = first_line + text.count("\n", 0, at)
    lines = {"line_start": line, "line_end": line + piece.count("\n"), "char_start": at, "char_end": at + len(piece)}
    return document_row(number, path=name, source="file", text=text), chunk_row(number, number, piece) | lines


def test_lines_of_a_large_file_are_counted_through_its_parts(store):
    first = part(0, 0, 20, 1, "\n\none\ntwo\n", "one\ntwo")
    second = part(1, 20, 40, 5, "\nthree\nfour\n\n", "three\nfour")
    third = part(2, 40, 60, 9, "five\nsix", "five\nsix")
    snapshot = filled(
        store, [row for row, _ in (third, first, second)], [passage for _, passage in (third, first, second)]
    )
    names = [row["path"] for row, _ in (first, second, third)]
    assert [stored_documents.line_range(snapshot, name) for name in names] == [(1, 4), (5, 8), (9, 10)]
    words = {3: "one", 4: "two", 6: "three", 7: "four", 9: "five", 10: "six"}
    for line in range(1, 11):
        name = names[0] if line < 5 else names[1] if line < 9 else names[2]
        assert stored_documents.chunk_at(snapshot, "big.log", line)["id"] == names.index(name)
        assert stored_documents.lines(snapshot, "big.log", line, line) == words.get(line, "")
    assert stored_documents.lines(snapshot, names[1], 5, 7) == "\nthree\nfour"
    assert stored_documents.lines(snapshot, "big.log", 4, 6) == "two\n\nthree"
    assert stored_documents.lines(snapshot, "big.log", 1, 10) == "\n\none\ntwo\n\nthree\nfour\n\nfive\nsix"
    assert stored_documents.lines(snapshot, "big.log", 10, 99) == "six"
    with pytest.raises(InputError, match=rf"'{names[0]}' has lines 1 to 4, not line 0$"):
        stored_documents.lines(snapshot, "big.log", 0, 0)
    with pytest.raises(InputError, match=rf"'{names[2]}' has lines 9 to 10, not line 11$"):
        stored_documents.lines(snapshot, "big.log", 11, 11)
    with pytest.raises(NotFoundError, match=rf"is in the index in parts; the first is '{names[0]}'"):
        stored_documents.row(snapshot, "big.log")
    assert {row["path"] for row in stored_documents.named(snapshot, ["big.log"])} == set(names)
    assert {row["path"] for row in stored_documents.named(snapshot, [], ["./big.log/"])} == set(names)
    assert stored_documents.documents_at(snapshot, ["big.log"], ["id"]) == []


def test_a_line_that_two_parts_share_is_whole_and_a_part_without_text_counts_its_lines(store):
    halves = part(0, 0, 20, 1, "one\ntwo and", "one\ntwo and"), part(1, 20, 40, 2, " a half\n", "a half")
    last = part(2, 60, 80, 6, "six\n", "six")  # lines 3 to 5 are in a part without text
    rows = [*halves, last]
    snapshot = filled(store, [row for row, _ in rows], [passage for _, passage in rows])
    assert stored_documents.lines(snapshot, "big.log", 1, 2) == "one\ntwo and a half"
    assert stored_documents.lines(snapshot, "big.log", 2, 6) == "two and a half\n\n\n\nsix"


def test_the_last_line_of_a_part_without_a_line_break_ends_there(store):
    rows = [part(0, 0, 20, 1, "one\ntwo", "one\ntwo"), part(1, 20, 40, 3, "three\n", "three")]
    snapshot = filled(store, [row for row, _ in rows], [passage for _, passage in rows])
    assert stored_documents.lines(snapshot, "big.log", 1, 2) == "one\ntwo"
    assert stored_documents.lines(snapshot, "big.log", 2, 3) == "two\nthree"


def test_a_file_with_text_goes_before_an_added_document_and_that_before_a_file_without(store):
    def row(number, source, count, text):
        return document_row(number, path="a", source=source, chunks=count, text=text)

    rows = [row(0, "added", 1, "added"), row(1, "file", 1, "file")]
    snapshot = filled(store, rows, [chunk_row(0, 0, "added"), chunk_row(1, 1, "file")])
    assert stored_documents.text(snapshot, "a") == records.get(snapshot, ["a"])[0].text == "file"
    with open_writer(store) as writer:
        writer.commit(drop=[1], documents=documents(row(2, "file", 0, "")))
    snapshot = Snapshot.latest(store)
    assert stored_documents.text(snapshot, "a") == records.get(snapshot, ["a"])[0].text == "added"
    assert [row["source"] for row in stored_documents.rows(snapshot)] == ["added", "file"]
    with open_writer(store) as writer:
        writer.commit(drop=[0], documents=documents(row(3, "added", 0, "")))
    assert records.get(Snapshot.latest(store), ["a"])[0].source == "file"
    with pytest.raises(InputError, match="'a' is in the index without a text"):
        stored_documents.text(Snapshot.latest(store), "a")


def test_hidden_places_of_a_file_are_no_metadata_and_those_of_an_added_document_are(store):
    rows = [
        document_row(0, source="file", metadata='{"hidden": [4, 8], "n": 1}', chunks=0),
        document_row(1, metadata='{"hidden": [4, 8]}', chunks=0),
    ]
    snapshot = filled(store, rows)
    assert [record.metadata for record in records.get(snapshot, ["0.txt", "1.txt"])] == [{"n": 1}, {"hidden": [4, 8]}]
    readable = [stored_documents.readable(row)["metadata"] for row in stored_documents.rows(snapshot)]
    assert readable == [{"n": 1}, {"hidden": [4, 8]}]


# Records


def test_a_page_has_256_documents_or_16_mib(store):
    snapshot = filled(store, [document_row(number, path=f"{number:03}", chunks=0) for number in range(257)])
    assert len(records.page(snapshot, None, None, None)) == 256
    assert [record.id for record in records.page(snapshot, None, "254", None)] == ["255", "256"]
    assert len(records.page(snapshot, None, None, 1_000)) == 256
    assert len(records.page(snapshot, None, None, 3)) == 3
    with open_writer(store) as writer:
        sizes = (2**23, 2**23, 1, 2**24 + 1, 5)
        rows = [document_row(300 + n, path=f"x{n}", chunks=0, size=size) for n, size in enumerate(sizes)]
        writer.commit(drop=range(257), documents=documents(*rows))
    snapshot = Snapshot.latest(store)
    pages, after = [], None
    while page := records.page(snapshot, None, after, None):
        pages.append([record.id for record in page])
        after = page[-1].id
    assert pages == [["x0", "x1"], ["x2"], ["x3"], ["x4"]]


@pytest.mark.parametrize("after", ["", "a", "b", "bb", "c", "d", "zz"])
def test_documents_come_after_an_id_wherever_it_lies(after, store):
    names = ["a", "b", "c", "d"]
    snapshot = filled(store, [document_row(n, path=name, chunks=0) for n, name in enumerate(names[::-1])])
    found = [record.id for record in records.pages(lambda answer: answer(snapshot), None, after, None)]
    assert found == [name for name in names if name > after]
    limited = [record.id for record in records.pages(lambda answer: answer(snapshot), None, after, 2)]
    assert limited == found[:2]


def test_a_document_that_is_read_by_a_name_of_two_is_that_of_the_scope_or_none(store):
    rows = [
        document_row(0, path="a", source="file"),
        document_row(1, path="a", metadata='{"t": 1}'),
        document_row(2, path="b", metadata='{"t": 1}'),
    ]
    snapshot = filled(store, rows, [chunk_row(number, number) for number in range(3)])
    records.check_inside(snapshot, "b", parse("t=1"))
    for name in ("a", "nothing"):  # the file of this name is shown, and it is outside
        with pytest.raises(NotFoundError, match=f"^'{name}' is not in the index$"):
            records.check_inside(snapshot, name, parse("t=1"))
    assert records.positions(snapshot, ["a", "b", "a", "x"], None) == [0, 2, 0, None]
    assert records.positions(snapshot, ["a", "b"], parse("t=1")) == [1, 2]
    assert records.contains(snapshot, "a", parse("t=1"))
    assert not records.contains(snapshot, "x")
    assert not records.contains(snapshot, 3)
    assert (records.count(snapshot, None), records.count(snapshot, parse("t=1"))) == (3, 2)


def test_numbers_that_are_equal_are_one_value_of_a_facet(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    values = [1, 1.0, 2, 3, 3.0, 3.0, 3.5, 4, 4.0, [5, 5.0], "x"]
    retriever.add(
        {"id": f"{number:02}", "text": "cat", "metadata": {"v": value}} for number, value in enumerate(values)
    )
    facet = retriever.facets("v")["v"]
    assert dict(facet.counts) == {1: 2, 2: 1, 3: 3, 3.5: 1, 4: 2, 5: 1, "x": 1}
    assert (facet.documents, facet.distinct, facet.min, facet.max) == (11, 7, 1, 5)
    facet = retriever.facets("v", {"v": "x"})["v"]
    assert (facet.counts, facet.documents, facet.distinct, facet.min, facet.max) == ((("x", 1),), 1, 1, "x", "x")


def test_vectors_of_documents_come_in_order_of_their_passages(store):
    passages = [chunk_row(number, number % 2) for number in range(5)]
    snapshot = filled(
        store, [document_row(0, chunks=3), document_row(1, chunks=2), document_row(2, chunks=0)], passages
    )
    found = records.get(snapshot, ["1.txt", "2.txt", "0.txt"], vectors=True)
    np.testing.assert_array_equal(found[0].vectors, [vector(1), vector(3)])
    assert found[1].vectors.shape == (0, DIM)
    np.testing.assert_array_equal(found[2].vectors, [vector(0), vector(2), vector(4)])
    assert records.get(snapshot, ["2.txt"], vectors=True)[0].vectors.shape == (0, DIM)


# Batches and filters


def test_batches_of_some_passages_are_those_alone_where_the_table_is_in_order(store):
    with open_writer(store) as writer:
        put(writer, *range(20), drop=[])
        put(writer, *range(20, 25), drop=[4])
    snapshot = Snapshot.latest(store)
    present = [number for number in range(25) if number != 4]

    def read(**limits):
        return [number for batch in snapshot.batches(["id"], **limits) for number in batch["id"].to_pylist()]

    assert read() == present
    for first, last in ((0, 0), (3, 5), (5, 30), (24, 24), (25, 99), (0, 23)):
        assert read(first=first, last=last) == [number for number in present if first <= number <= last]
    assert read(last=3, rows=2) == [0, 1, 2, 3]
    assert read(first=22) == [22, 23, 24]
    sizes = [len(batch) for batch in snapshot.batches(["id"], first=1, rows=10)]
    assert sizes == [10, 10, 3]


def test_batches_of_all_passages_come_in_order_though_lance_reads_fragments_in_any(store, monkeypatch):
    to_batches = lance.LanceDataset.to_batches

    def shuffled(table, *, scan_in_order=False, **options):
        batches = list(to_batches(table, scan_in_order=True, **options))
        return batches if scan_in_order else batches[::-1]

    with open_writer(store) as writer:
        for number in range(3):
            put(writer, number)
    monkeypatch.setattr(lance.LanceDataset, "to_batches", shuffled)
    batches = Snapshot.latest(store).batches(["id"])
    assert [number for batch in batches for number in batch["id"].to_pylist()] == [0, 1, 2]


def test_a_filter_passes_the_documents_that_have_passages(store):
    rows = [document_row(0, chunks=2), document_row(1, chunks=0), document_row(2)]
    snapshot = filled(store, rows, [chunk_row(0, 0), chunk_row(1, 0), chunk_row(2, 2)])
    passing = snapshot.passing(parse("path=*.txt"))
    assert (passing.documents.tolist(), passing.chunks.tolist()) == ([0, 2], [0, 1, 2])
    passing = snapshot.passing(parse("path=2.txt"))
    assert (passing.documents.tolist(), passing.chunks.tolist()) == ([2], [2])


def test_rows_are_taken_by_id_once_each_in_order(store):
    with open_writer(store) as writer:
        put(writer, *range(6), drop=[])
        put(writer, 6, drop=[2])
    snapshot = Snapshot.latest(store)
    assert snapshot.take("chunks", [5, 1, 2, 5, 99, -3], ["id", "document", "id"])["id"].to_pylist() == [1, 5]
    assert snapshot.take("documents", [], ["id"]).num_rows == 0
    assert snapshot.newer(4, ["id"])["id"].to_pylist() == [5, 6]
    assert snapshot.newer(6, ["id"]).num_rows == 0
    assert snapshot.rows_at([], ["id"]) == snapshot.rows_at(["nothing"], ["id"]) == []
    assert {row["id"] for row in snapshot.rows_at(["1.txt", "2.txt", "6.txt"], ["id"])} >= {1, 6}


def test_documents_in_memory_are_those_of_the_table(store, monkeypatch):
    with open_writer(store) as writer:
        put(writer, *range(6), drop=[])
        put(writer, 7, 6, drop=[2])
    kept = Snapshot.latest(store)
    kept.keep_documents()
    for ids in ([], [7], [5, 1, 2, 5, 99, -3, 7, 6]):
        for columns in (["path", "metadata"], ["id", "path"], ["path", "text"]):
            assert kept.documents_by_id(ids, columns) == Snapshot.latest(store).documents_by_id(ids, columns)
    monkeypatch.setattr(committed_rows, "_KEPT_DOCUMENTS", 6)
    many = Snapshot.latest(store)
    many.keep_documents()
    assert "document_rows" in vars(kept) and "document_rows" not in vars(many)


# The vector index


def live(count=10, *, masked=(), newer=0):
    ids = np.arange(0, 3 * count, 3)
    index = FlatIndex(ids, np.array([vector(number) for number in ids]))
    mask = ~np.isin(ids, masked) if masked else None
    later = np.arange(3 * count, 3 * count + newer)
    return LiveIndex(index, mask, FlatIndex(later, np.array([vector(number) for number in later])) if newer else None)


def test_only_a_whole_flat_index_answers_each_query_by_itself():
    queries = np.array([vector(number) for number in (1, 2, 3)])
    whole = live()
    scores, ids = whole.search_each(queries, 4)
    for number, query in enumerate(queries):
        expected = whole.search(query[None], 4)
        np.testing.assert_array_equal(ids[number : number + 1], expected[1])
        np.testing.assert_array_equal(scores[number : number + 1], expected[0])
    assert live(masked=[3]).search_each(queries, 4) is None
    assert live(newer=2).search_each(queries, 4) is None
    assert LiveIndex(object(), None, None).search_each(queries, 4) is None


@pytest.mark.parametrize("newer", [0, 3])
def test_vectors_of_new_and_old_rows_come_in_the_order_of_their_ids(newer):
    index = live(newer=newer)
    for ids in ([27, 0, 3], [30, 31][:newer], [32, 0, 30][: max(newer - 2, 0) or 2], []):
        wanted = [number for number in ids if number < 30 + newer and (number >= 30 or number % 3 == 0)]
        expected = np.array([vector(number) for number in wanted], np.float32).reshape(-1, DIM)
        np.testing.assert_array_equal(index.reconstruct(np.array(wanted, np.int64)), expected)


@pytest.mark.parametrize("count", [3, 40])
def test_allowed_rows_that_are_masked_or_unknown_are_not_found(count):
    index = live(40, masked=[0, 6, 117], newer=4)
    rows = [number for number in (*range(3, 120, 3), 120, 121, 122, 123) if number not in (6, 117)]
    allowed = np.unique([0, 4, 6, 9, 117, 121, 999, *rows[:count]])
    nearest = index.search(vector(9)[None], 60, allowed=allowed)[1][0]
    assert sorted(nearest[nearest >= 0].tolist()) == sorted(set(allowed.tolist()) & set(rows))
    assert nearest[0] == 9


@pytest.mark.parametrize(("count", "kind"), [(1, "i"), (16, "i"), (17, "b"), (272, "b")])
@pytest.mark.parametrize("masked", [[], [0, 3]])
def test_fewer_allowed_rows_than_one_in_16_are_given_as_positions(count, kind, masked):
    calls, index = [], live(272, masked=masked)

    class Noting(FlatIndex):
        def search(self, vectors, k, *, allowed=None):
            calls.append(allowed)
            return super().search(vectors, k, allowed=allowed)

    noting = LiveIndex(Noting(index.published.ids, index.published.vectors), index.live_mask, None)
    allowed = index.published.ids[:count]
    nearest = noting.search(vector(9)[None], 272, allowed=allowed)[1][0]
    assert sorted(nearest[nearest >= 0].tolist()) == [number for number in allowed.tolist() if number not in masked]
    assert calls[0].dtype.kind == kind


def test_the_vector_index_of_a_state_has_its_new_rows_and_not_the_deleted_ones(store):
    with open_writer(store) as writer:
        put(writer, *range(5))
        writer.finish()
        assert writer.snapshot().index == LiveIndex(writer.snapshot().index.published, None, None)
        put(writer, 5, 6)
        index = writer.snapshot().index
        assert (index.live_mask, index.unindexed.ids.tolist()) == (None, [5, 6])
        put(writer, drop=[1, 6])
        index = writer.snapshot().index
        assert (index.live_mask.tolist(), index.unindexed.ids.tolist()) == ([True, False, True, True, True], [5])
        put(writer, drop=[5])
        assert writer.snapshot().index.unindexed is None
        assert writer.snapshot().published_ids.tolist() == list(range(5))
    np.testing.assert_array_equal(index.reconstruct(np.array([5, 0])), [vector(5), vector(0)])


def test_a_state_of_another_index_takes_nothing_over(store, tmp_path):
    other = type(store).create(tmp_path / "other", store.head().encoder)
    with open_writer(store) as writer:
        put(writer, 0)
    with open_writer(other) as writer:
        put(writer, 1)
    first, second = Snapshot.latest(store), Snapshot.latest(other)
    assert first.head.documents == second.head.documents
    assert first.chunk_ids["id"].to_pylist() == [0]
    assert first.document_rows["id"].to_pylist() == [0]
    second.take_over(first)
    assert second.chunk_ids["id"].to_pylist() == [1]
    assert second.document_rows["id"].to_pylist() == [1]
