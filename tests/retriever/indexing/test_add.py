"""Added documents by themselves: names, numbers and failures, in one call or in a batch."""

from __future__ import annotations

import re

import pytest

from binocle import F, InputError, Retriever
from binocle.retriever.documents.document import Document
from binocle.retriever.indexing.add import AddPolicy, check_document, sha256_of, with_metadata
from binocle.retriever.indexing.indexer import Indexer
from binocle.retriever.indexing.report import DocumentError, Report
from binocle.retriever.models.identity import EncoderId
from binocle.retriever.store.store import Store
from binocle.retriever.store.writer import open_writer


@pytest.fixture
def notes(tmp_path, tiny_model):
    return Retriever.open(tmp_path / "index", model=tiny_model)


def test_a_document_without_an_id_is_named_by_the_beginning_of_its_hash(notes):
    (name,) = notes.add([{"text": "The cat sat.", "title": "T", "metadata": {"n": 1}}]).ids
    assert re.fullmatch("[0-9a-f]{16}", name)
    assert sha256_of("The cat sat.", "T", {"n": 1}).startswith(name)
    (row,) = notes.documents()
    assert (row["source"], row["size"], row["mtime_ns"], row["settled"]) == ("added", 12, 0, False)


@pytest.mark.parametrize(
    ("record", "name"),
    [({"id": "a", "text": 3}, "a"), ({"id": 7, "text": "cat"}, None), ("text", None), ({"text": 3}, None)],
)
def test_a_failure_has_the_id_of_its_document_if_that_is_a_text(record, name):
    failure = check_document(4, record)
    assert isinstance(failure, DocumentError)
    assert (failure.number, failure.name) == (4, name)
    assert str(failure).startswith("document 4 ")


def test_numbers_go_on_from_one_addition_of_a_batch_to_the_next(notes):
    with notes.batch(on_error="skip") as batch:
        batch.add([{"id": "a", "text": "cat"}, {"text": 3}])
        batch.add([{"id": "b", "text": "dog"}, {"text": 4}])
    report = batch.report
    assert ([failure.number for failure in report.failures], report.ids) == ([1, 3], ["a", "b"])
    with pytest.raises(InputError, match="document 1 has no text"), notes.batch() as batch:  # noqa: PT012 - the second raises
        batch.add([{"id": "c", "text": "cat"}])
        batch.add([{"text": 3}])
    assert {record.id for record in notes.iterate()} == {"a", "b"}


@pytest.mark.parametrize("policy", [{"if_exists": "fail"}, {"if_exists": "skip"}, {}])
def test_an_id_twice_in_a_batch_is_new_once(policy, notes):
    report = notes.add([{"id": "a", "text": "x"}, {"id": "a", "text": "y"}], on_error="skip", **policy)
    kept = "y" if not policy else "x"
    assert notes.text("a") == kept
    counts = (report.indexed, report.unchanged, len(report.failures))
    assert counts == {"fail": (1, 0, 1), "skip": (1, 1, 0)}.get(policy.get("if_exists"), (1, 0, 0))


def test_the_id_of_a_file_with_text_is_refused_unless_an_added_document_had_it_before(notes, tiny):
    row = {"source": "file"}
    with open_writer(Store.create(notes.path, EncoderId.of_encoder(tiny))) as writer:
        indexer = Indexer(writer, tiny, Report())
        for name in ("a", "b"):
            indexer.add({**row, "path": name}, Document.from_text("The cat sat."))
        indexer.add({**row, "path": "b", "source": "added"}, Document.from_text("The dog ran."))
        indexer.add({**row, "path": "c", "state": "skipped"}, None)
        indexer.commit()
    report = notes.add(({"id": name, "text": "The king."} for name in ("a", "b", "c")), on_error="skip")
    assert report.ids == ["b", "c"]
    (failure,) = report.failures
    assert failure.reason == "document 0 has id 'a', which is a file of this index: give it another id"


def test_policies_are_checked():
    assert AddPolicy().check() == AddPolicy("replace", "stop")
    with pytest.raises(InputError, match="if_exists is one of replace, skip, fail, not 'keep'"):
        AddPolicy("keep").check()
    with pytest.raises(InputError, match="on_error is one of stop, skip, not None"):
        AddPolicy(on_error=None).check()


@pytest.mark.parametrize(
    ("sha256", "is_kept"), [("0" * 64, True), ("f" * 64, True), ("F" * 64, False), ("0" * 65, False), ("", False)]
)
def test_the_hash_of_new_metadata_keeps_what_else_was_hashed(sha256, is_kept):
    after = with_metadata(sha256, "text", "title", {"a": 1}, {"b": 2})
    assert len(after) == 64
    assert (after == sha256_of("text", "title", {"b": 2})) == (not is_kept)
    if is_kept:
        assert with_metadata(after, "text", "title", {"b": 2}, {"a": 1}) == sha256


def test_values_of_metadata_are_stored_or_named(notes):
    notes.add([{"id": "a", "text": "cat", "metadata": {"l": ["\ud83d", 1], "t": "\ud83d", "none": None}}])
    assert notes.get("a").metadata == {"l": ["\ufffd", 1], "t": "\ufffd"}
    for name in ("", "half \ud83d", b"a", 0):
        with pytest.raises(InputError, match="document 0 has id"):
            notes.add([{"id": name, "text": "cat"}])
    for metadata in ([], {}, None, ""):
        assert notes.add([{"id": "b", "text": "cat", "metadata": metadata}]).ids == ["b"]


def test_half_of_a_character_is_stored_as_in_a_file_and_found_by_a_filter(notes):
    """As JSON has it where a program has cut a text within an emoji; two halves are one character."""
    metadata = {"k": "v\ud800", "l\ud800": 1}
    notes.add([{"id": "a", "text": "cat \ud83d", "title": "\ud83e\udd86", "metadata": metadata}])
    notes.add([{"id": "b", "text": "cat", "metadata": {"k": "v?"}}])
    record = notes.get("a")
    assert (record.text, record.title) == ("cat \ufffd", "\U0001f986")
    assert record.metadata == {"k": "v\ufffd", "l\ufffd": 1}
    for where in (F.k == "v\ud800", F.k.startswith("v\ud800"), F["l\ud800"] == 1, "k='v\ud800'", "k=V\ud800"):
        assert [hit.document for hit in notes.search("cat", where=where)] == ["a"]
    part = notes.scope(F.k == "v\udc00")
    part.add([{"id": "c", "text": "dog"}])
    assert part.get("c").metadata == {"k": "v\ufffd"}


def test_an_update_counts_each_document_once_and_keeps_the_type_of_a_value(notes):
    notes.add([{"id": name, "text": "cat", "metadata": {"n": 1}} for name in "abc"])
    report = notes.update(["a", "b", "a"], where={"n": 1}, metadata={"n": 1, "x": None})
    assert (report.indexed, report.unchanged, sorted(report.ids)) == (0, 3, ["a", "b", "c"])
    report = notes.update(["a", "b"], metadata={"n": True})
    assert (report.indexed, report.unchanged, report.chunks_total) == (2, 0, 3)
    assert notes.get("a").metadata["n"] is True
    report = notes.update(["a", "c"], metadata={"n": 1.0, "x": None})
    assert (report.indexed, report.unchanged) == (2, 0)
    assert notes.update(["a", "c"], metadata={"n": 1.0}).unchanged == 2


def test_a_commit_of_a_deletion_alone_has_one_more_commit_and_one_more_change_of_rows(notes):
    notes.add([{"id": "a", "text": "cat"}, {"id": "b", "text": ""}])
    with open_writer(notes.snapshot().store) as writer:
        head = writer.head
        (row,) = [row for row in writer.snapshot().document_rows.to_pylist() if row["path"] == "b"]
        assert writer.forget([row], erase=False) == ""
        assert writer.head.commits == head.commits + 1
    assert notes.delete("nothing").removed == 0
    assert [record.id for record in notes.iterate()] == ["a"]
