"""Batches of an indexer: their sizes, the texts that are embedded, and the columns that are filled in."""

from __future__ import annotations

import numpy as np
import pytest

from binocle import Retriever
from binocle.retriever.documents.document import Document
from binocle.retriever.indexing import indexer as indexing
from binocle.retriever.indexing.indexer import Indexer
from binocle.retriever.indexing.report import Report
from binocle.retriever.store.stored_heads import StoredHead, unlabelled, with_keys
from binocle.retriever.store.writer import open_writer

from .sync.test_sync import Counting, memory, pages


@pytest.fixture
def encoder(tiny):
    return Counting(tiny)


@pytest.fixture
def writer(tmp_path, encoder):
    with open_writer(memory(tmp_path, encoder)) as writer:
        yield writer


def sizes_of_calls(encoder, monkeypatch):
    """The number of texts of each call of the encoder from now on."""
    sizes, encode = [], encoder.encode

    def counted(texts, *, kind="document"):
        sizes.append(len(texts))
        return encode(texts, kind=kind)

    monkeypatch.setattr(encoder, "encode", counted)
    return sizes


def test_a_batch_is_committed_with_256_passages(writer, encoder):
    indexer, commits = Indexer(writer, encoder, Report()), writer.head.commits
    for number in range(255):
        indexer.add({"path": f"{number}"}, pages(["the cat"]))
    assert (writer.head.commits, indexer.chunks) == (commits, 0)
    indexer.add({"path": "last"}, pages(["the cat"]))
    assert (writer.head.commits, indexer.chunks) == (commits + 1, 256)
    assert encoder.texts == ["the cat"]


def test_a_batch_is_committed_with_1000_documents(writer, encoder):
    indexer, commits = Indexer(writer, encoder, Report()), writer.head.commits
    for number in range(999):
        indexer.add({"path": f"{number}"}, None)
    assert writer.head.commits == commits
    assert indexer.add({"path": "last"}, None) == 999
    assert (writer.head.commits, writer.head.next_document, writer.head.next_chunk) == (commits + 1, 1_000, 0)


@pytest.mark.parametrize(("count", "sizes"), [(9, [3, 6]), (10, [3, 3, 4]), (3, [3]), (4, [4]), (6, [6])])
@pytest.mark.parametrize("commits", [True, False])
def test_a_large_document_is_embedded_in_full_batches_without_a_small_rest(
    count, sizes, commits, writer, encoder, monkeypatch
):
    monkeypatch.setattr(indexing, "_BATCH_CHUNKS", 3)
    found, before = sizes_of_calls(encoder, monkeypatch), writer.head.commits
    indexer = Indexer(writer, encoder, Report(), commits=commits)
    indexer.add({"path": "a"}, pages([f"page {number}" for number in range(count)]))
    assert found == sizes
    assert writer.head.commits == before + commits
    rows, replaced = indexer.take()
    assert (rows.num_rows, replaced) == (0 if commits else 1, [])
    assert indexer.next_ids == (1, count)


@pytest.mark.parametrize("few", [64, 0])
def test_a_text_that_is_staged_and_not_committed_is_not_embedded_again(few, writer, encoder, monkeypatch):
    monkeypatch.setattr(indexing, "_BATCH_CHUNKS", 1)
    monkeypatch.setattr(indexing, "_FEW_KEYS", few)
    report = Report()
    indexer = Indexer(writer, encoder, report, commits=False)
    for number in range(3):
        indexer.add({"path": f"{number}"}, pages(["the cat", f"page {number}"]))
    assert sorted(encoder.texts) == ["page 0", "page 1", "page 2", "the cat"]
    assert (report.embedded, report.reused, indexer.chunks) == (4, 2, 6)


def test_keys_that_are_few_at_first_and_many_later_stay_known(writer, encoder, monkeypatch):
    monkeypatch.setattr(indexing, "_BATCH_CHUNKS", 2)
    monkeypatch.setattr(indexing, "_FEW_KEYS", 5)
    indexer = Indexer(writer, encoder, Report(), commits=False)
    for number in range(6):
        indexer.add({"path": f"{number}"}, pages([f"page {number}", f"page {number // 2 + 100}"]))
    indexer.add({"path": "all"}, pages([f"page {number}" for number in range(6)]))
    indexer.take()
    assert sorted(encoder.texts) == sorted(f"page {number}" for number in (*range(6), 100, 101, 102))


def test_a_row_has_the_values_of_its_caller_and_of_its_document_and_else_none(writer, encoder):
    indexer = Indexer(writer, encoder, Report())
    indexer.add({"path": "a"}, None)
    indexer.add({"path": "b", "size": 7, "source": "added"}, Document.from_text("The cat.", title="Tale"))
    indexer.commit()
    rows = sorted(writer.snapshot().documents.to_table().to_pylist(), key=lambda row: row["id"])
    empty = {"reason": "", "size": 0, "mtime_ns": 0, "settled": False, "sha256": "", "format": "", "title": ""}
    first = {"id": 0, "path": "a", "source": "file", "state": "indexed", "metadata": "{}", "chunks": 0, "text": ""}
    assert rows[0] == empty | first
    more = {"id": 1, "path": "b", "source": "added", "size": 7, "title": "Tale", "chunks": 1, "text": "The cat."}
    assert rows[1] == empty | first | {"format": "text"} | more


def test_passages_of_source_code_have_the_names_of_their_definitions_and_others_none(tmp_path, tiny_model, write):
    folder = write(
        tmp_path / "folder", {"a.py": "class Cat:\n    def run(self):\n        return 1\n", "b.txt": "A cat.\n"}
    )
    retriever = Retriever.open(folder, model=tiny_model)
    retriever.sync()
    rows = retriever.snapshot().read("chunks", ["text", "symbols"]).to_pylist()
    symbols = {row["text"][:1]: row["symbols"] for row in rows}
    assert symbols["A"] is None
    assert any("Cat" in (row["symbols"] or ()) for row in rows)


@pytest.mark.parametrize(
    ("length", "is_kept"), [(1.0, False), (1.015, False), (0.985, False), (1.05, True), (0.5, True)]
)
def test_an_embedding_keeps_its_length_only_beside_an_encoder_with_other_lengths_than_1(
    length, is_kept, writer, encoder, monkeypatch
):
    encode = encoder.encode

    def scaled(texts, *, kind="document"):
        vectors = encode(texts, kind=kind)
        return (length * vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    monkeypatch.setattr(encoder, "encode", scaled)
    indexer = Indexer(writer, encoder, Report())
    assert indexer.keeps_lengths == is_kept
    indexer.add({"path": "own"}, Document("", (), embedding=3 * np.eye(32)[0]))
    indexer.commit()
    (vector,) = writer.snapshot().chunks.to_table(columns=["vector"])["vector"].to_pylist()
    assert np.linalg.norm(vector) == pytest.approx(3 if is_kept else 1)


def test_a_key_with_other_letters_than_ascii_is_found_in_the_metadata(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add(
        [{"id": "a", "text": "cat", "metadata": {"größe": 1}}, {"id": "b", "text": "dog"}, {"id": "c", "text": ""}]
    )
    head = StoredHead("größe", ("größe", "weiß"), names=("x",))
    assert with_keys(retriever.snapshot(), ["größe"]).tolist() == [True, False, False]
    assert unlabelled(retriever.snapshot(), head).tolist() == [1]
    retriever.update(["b"], metadata={"weiß": 2})
    assert unlabelled(retriever.snapshot(), head).tolist() == []
    assert with_keys(retriever.snapshot(), ["weiß"]).sum() == 1
    assert with_keys(retriever.snapshot(), ["groesse"]).tolist() == [False, False, False]
