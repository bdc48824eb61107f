from __future__ import annotations

import json
import os
from hashlib import sha256

import lance
import numpy as np
import pyarrow as pa
import pytest

from binocle import Retriever
from binocle.core.errors import InputError
from binocle.indexes import manifest
from binocle.retriever.integrity.repair import repair
from binocle.retriever.readers.formats import VERSIONS
from binocle.retriever.readers.pool.pool import ReaderPool
from binocle.retriever.readers.pool.reading import Reading
from binocle.retriever.store.tables import chunk_schema, document_schema
from binocle.retriever.store.writer import open_writer


def kinds(retriever):
    return {(fault.kind, fault.path) for fault in Retriever.open(retriever.path).verify().faults}


def rewrite(retriever, table, change, schema):
    """Rows of a table as someone else might leave them, committed by hand."""
    path = retriever.path / f"{table}.lance"
    rows = lance.dataset(path).to_table().to_pylist()
    rows = change(rows)
    dataset = lance.write_dataset(pa.Table.from_pylist(rows, schema), path, mode="overwrite")
    if table == "chunks":
        from binocle.retriever.store.tables import FULL_TEXT

        dataset.create_scalar_index("context", "INVERTED", **FULL_TEXT)
        dataset = lance.dataset(path)
    head = json.loads((retriever.path / "HEAD.json").read_text())
    head[table] = dataset.version
    head["commits"] += 1
    (retriever.path / "HEAD.json").write_text(json.dumps(head))


def one(rows, **changes):
    """The same rows, the first one that has a text changed."""
    place = next(place for place, row in enumerate(rows) if row["text"])
    return [row | changes if number == place else row for number, row in enumerate(rows)]


def path_of_first_chunk(retriever):
    row = lance.dataset(retriever.path / "chunks.lance").to_table(columns=["document"]).to_pylist()[0]
    return next(document["path"] for document in retriever.documents() if document["id"] == row["document"])


def test_an_index_as_it_should_be_has_no_faults(retriever):
    assert retriever.verify().faults == []


@pytest.mark.parametrize(
    "text",
    [
        "house42 taxes2023 river7 ships19 mountain3\n",  # each is one word in the full-text index
        "These were their own while those were under which other?\n",  # stop words, which it leaves out
    ],
)
def test_a_text_without_plain_words_is_no_fault(text, retriever):
    (retriever.folder / "new.txt").write_text(text)
    retriever.sync()
    assert retriever.verify().faults == []


def test_a_file_that_an_earlier_version_of_its_reader_read_is_no_fault_and_is_read_again(retriever, monkeypatch):
    markdown = sum(row["format"] == "markdown" for row in retriever.documents())
    monkeypatch.setitem(VERSIONS, "markdown", VERSIONS["markdown"] + 1)

    def longer(rows):
        return [row | {"text": row["text"] + "!"} if row["format"] == "markdown" else row for row in rows]

    rewrite(retriever, "documents", longer, document_schema())
    earlier = Retriever.open(retriever.path)
    assert (earlier.verify().faults, earlier.verify().outdated) == ([], markdown)
    report = earlier.sync()
    assert (report.indexed, report.embedded) == (markdown, 0)
    assert report.note == f"{markdown} files were read again, since their reader has changed"
    assert (earlier.verify().faults, earlier.verify().outdated) == ([], 0)
    assert earlier.sync().indexed == 0
    assert all("reader_version" not in row["metadata"] for row in earlier.documents())


def test_damage_in_a_file_that_an_earlier_version_of_its_reader_read_is_a_fault(retriever, monkeypatch):
    monkeypatch.setitem(VERSIONS, "markdown", VERSIONS["markdown"] + 1)
    rewrite(
        retriever, "documents", lambda rows: [row | {"text": "?" * len(row["text"])} for row in rows], document_schema()
    )
    assert {fault.kind for fault in Retriever.open(retriever.path).verify().faults if fault.path == "README.md"} == {
        "passage"
    }


def test_a_changed_a_gone_and_an_unreadable_file_are_faults_of_documents(retriever, folder):
    (folder / "notes/cats.txt").write_text("Something else.")
    (folder / "README.md").unlink()
    (folder / "data/prices.csv").unlink()
    (folder / "data/prices.csv").mkdir()
    faults = {fault.path: fault.problem for fault in retriever.verify().faults}
    assert faults.keys() == {"notes/cats.txt", "README.md", "data/prices.csv"}
    assert faults["notes/cats.txt"] == "has changed since it was indexed"
    assert {fault.kind for fault in retriever.verify().faults} == {"document"}
    assert all("\n" not in problem for problem in faults.values())


def test_touching_a_file_is_no_fault(retriever, folder):
    (folder / "notes/cats.txt").touch()
    assert retriever.verify().faults == []


CHUNKS = {
    "text": lambda rows: one(rows, text="Something that nobody wrote."),
    "place": lambda rows: one(rows, char_start=rows[0]["char_start"] + 1),
    "first line": lambda rows: one(rows, line_start=77),
    "last line": lambda rows: one(rows, line_end=77),
    "context": lambda rows: one(rows, context="Something that was not embedded."),
    "heading": lambda rows: one(rows, heading=["Another", "heading"]),
    "key": lambda rows: one(rows, key=12345),
}


@pytest.mark.parametrize("case", CHUNKS)
def test_a_chunk_that_is_not_what_it_was_is_found(case, retriever):
    path = path_of_first_chunk(retriever)
    rewrite(retriever, "chunks", CHUNKS[case], chunk_schema(32))
    stored_twice = {("inverted index", "")} if case not in ("context", "key") else set()
    assert kinds(retriever) == {("passage", path)} | stored_twice


def test_a_chunk_that_is_not_what_it_was_is_repaired(retriever):
    rewrite(retriever, "chunks", CHUNKS["text"], chunk_schema(32))
    Retriever.open(retriever.path).repair()
    assert kinds(retriever) == set()


def test_a_page_that_a_chunk_cites_wrongly_is_found(retriever):
    path = path_of_first_chunk(retriever)
    rewrite(retriever, "chunks", lambda rows: one(rows, page=77), chunk_schema(32))
    assert kinds(retriever) == {("passage", path), ("inverted index", "")}


def other_vector():
    return (np.ones(32) / np.sqrt(32)).astype(np.float32).tolist()


def test_a_vector_that_differs_from_the_published_one_is_found(retriever):
    rewrite(retriever, "chunks", lambda rows: one(rows, vector=other_vector()), chunk_schema(32))
    assert {kind for kind, _ in kinds(retriever)} == {"vector index"}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_vector_that_is_not_finite_is_found(value, retriever):
    rewrite(retriever, "chunks", lambda rows: one(rows, vector=[value] * 32), chunk_schema(32))
    assert "store" in {kind for kind, _ in kinds(retriever)}


def test_a_missing_and_a_doubled_chunk_are_found_and_repaired(retriever):
    path = path_of_first_chunk(retriever)
    rewrite(retriever, "chunks", lambda rows: rows[1:], chunk_schema(32))
    assert ("store", path) in kinds(retriever)
    Retriever.open(retriever.path).repair()
    assert kinds(retriever) == set()
    rewrite(retriever, "chunks", lambda rows: [*rows, rows[-1]], chunk_schema(32))
    assert "store" in {kind for kind, _ in kinds(retriever)}
    Retriever.open(retriever.path).repair()
    assert kinds(retriever) == set()


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "lexical"])
@pytest.mark.parametrize("change", [lambda rows: rows[1:], lambda rows: one(rows, id=900)], ids=["missing", "renamed"])
def test_a_search_cites_the_passages_of_the_store_whatever_the_indexes_name(change, mode, retriever):
    retriever.build_index("hnsw")
    rewrite(retriever, "chunks", change, chunk_schema(32))
    opened = Retriever.open(retriever.path)
    rows = opened.snapshot().chunks.to_table(columns=["id", "text"]).to_pylist()
    hits = opened.search("the cat max_size", k=50, mode=mode, collapse=False)
    assert hits
    assert {(hit.passage, hit.text) for hit in hits} <= {(row["id"], row["text"]) for row in rows}


def test_a_chunk_of_no_document_is_found_and_repaired(retriever):
    rewrite(retriever, "chunks", lambda rows: [*rows, rows[-1] | {"id": 900, "document": 999}], chunk_schema(32))
    assert ("store", "document 999") in kinds(retriever)
    Retriever.open(retriever.path).repair()
    assert kinds(retriever) == set()


def test_a_document_that_stands_twice_is_found_and_repaired(retriever):
    rewrite(
        retriever,
        "documents",
        lambda rows: [*rows, next(row for row in rows if row["text"]) | {"id": 900}],
        document_schema(),
    )
    assert {kind for kind, _ in kinds(retriever)} == {"store"}
    Retriever.open(retriever.path).repair()
    assert kinds(retriever) == set()


def test_a_stored_text_that_is_not_the_files_is_found(retriever):
    """`show`, `context` and `lines` read it."""
    rewrite(retriever, "documents", lambda rows: one(rows, text="Something that nobody wrote."), document_schema())
    assert kinds(retriever) != set()
    Retriever.open(retriever.path).repair()
    assert kinds(retriever) == set()


def test_a_damaged_vector_index_is_found_and_repaired(retriever, monkeypatch):
    (published,) = (retriever.path / "vectors").glob("flat-*")
    file = published / "vectors.f32"
    before = file.read_bytes()
    data = bytearray(before)
    data[5] ^= 1
    file.write_bytes(data)
    (fault,) = Retriever.open(retriever.path).verify().faults
    assert (fault.kind, fault.path) == ("vector index", published.name)
    assert "checksum" in fault.problem
    old = sha256(before).hexdigest()
    monkeypatch.setattr(manifest, "known_sha256", lambda path: old if path == file else manifest.sha256(path))
    assert "checksum" in Retriever.open(retriever.path).verify().faults[0].problem  # though a search remembers it
    monkeypatch.undo()
    Retriever.open(retriever.path).repair()
    assert kinds(retriever) == set()
    assert Retriever.open(retriever.path).search("cat")


def test_added_documents_are_held_against_their_own_text(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add([{"id": "a", "text": "The cat sat.\n\nThe dog ran."}, {"id": "b", "text": "Bread and salt."}])
    assert retriever.verify().faults == []
    rewrite(retriever, "chunks", lambda rows: one(rows, char_end=5), chunk_schema(32))
    assert {kind for kind, _ in kinds(retriever)} == {"passage", "inverted index"}


def test_an_added_documents_lines_are_held_against_its_text(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add([{"id": "a", "text": "The cat sat.\n\nThe dog ran."}])
    rewrite(retriever, "chunks", lambda rows: one(rows, line_end=99), chunk_schema(32))
    assert kinds(retriever) == {("passage", "a"), ("inverted index", "")}


def test_repair_keeps_a_changed_file_until_the_sync_has_its_new_text(retriever, folder):
    file = folder / "notes/cats.txt"
    file.write_bytes(file.read_bytes().replace(b"cat", b"dog"))  # of the same size, and below of the same time
    os.utime(file, (1_700_000_000, 1_700_000_000))
    assert [fault.kind for fault in retriever.verify().faults] == ["document"]
    with open_writer(retriever._index.store()) as writer:
        repair(writer, retriever.verify().faults, lambda _: retriever.encoder, deep=False, progress=lambda _: None)
    assert "The cat sat" in retriever.text("notes/cats.txt")
    retriever.repair()
    assert "The dog sat" in retriever.text("notes/cats.txt")
    assert retriever.verify().faults == []


def test_repair_keeps_added_documents(retriever):
    retriever.add([{"id": "note", "text": "The queen of the sea."}])
    (published,) = (retriever.path / "vectors").glob("flat-*")
    (published / "ids.npy").unlink()
    retriever.repair()
    assert Retriever.open(retriever.path).search("queen", mode="lexical")[0].path == "note"
    assert kinds(retriever) == set()


def test_repair_changes_nothing_while_the_folder_is_not_there(folder, tiny_model, tmp_path):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.sync(folder)
    before = retriever.snapshot().head
    folder.rename(tmp_path / "away")
    with pytest.raises(InputError, match="there is no folder"):
        retriever.repair()
    assert retriever.snapshot().head == before


def test_repair_keeps_what_is_stored_of_a_file_that_cannot_be_read_now(retriever, monkeypatch):
    read_all = ReaderPool.read_all

    def but_cats(pool, paths):
        for reading in read_all(pool, paths):
            held = reading.path.endswith("cats.txt")
            yield Reading(reading.path, reason="permission denied") if held else reading

    monkeypatch.setattr(ReaderPool, "read_all", but_cats)
    (fault,) = retriever.verify().faults
    assert (fault.path, fault.problem) == ("notes/cats.txt", "cannot be read now: permission denied")
    assert retriever.repair().report.unchanged == 7
    assert retriever.search("cat", mode="lexical")[0].path == "notes/cats.txt"


def test_verifying_changes_nothing(retriever):
    before = {file: file.read_bytes() for file in retriever.path.rglob("*") if file.is_file()}
    Retriever.open(retriever.path).verify()
    assert {file: file.read_bytes() for file in retriever.path.rglob("*") if file.is_file()} == before
