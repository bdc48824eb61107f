"""Updates, deletions, batches and the writes of several processes."""

from __future__ import annotations

import multiprocessing
import shutil
import time

import numpy as np
import pytest

from binocle import F, InputError, LockedError, NotFoundError, Retriever, StoreError, load_encoder
from binocle.retriever.indexing.add import sha256_of, with_metadata
from binocle.retriever.models.encoders.adapted_encoder import save_adapted_encoder


@pytest.fixture(scope="session")
def _notes(tmp_path_factory, tiny_model):
    """What `notes` is copied from. Not to be changed."""
    retriever = Retriever.open(tmp_path_factory.mktemp("notes") / "index", model=tiny_model)
    retriever.add(
        [
            {"id": "a", "text": "the cat sat", "metadata": {"n": 1, "tags": ["x"]}},
            {"id": "a/b", "text": "the dog ran", "metadata": {"n": 2}},
            {"id": "c", "text": "a ship at sea", "metadata": {"n": 1}},
        ]
    )
    return retriever.path


@pytest.fixture
def notes(tmp_path, _notes):
    return Retriever.open(shutil.copytree(_notes, tmp_path / "index"))


def metadata(retriever):
    return {record.id: record.metadata for record in retriever.iterate()}


def test_a_batch_of_nothing_commits_nothing_and_one_may_only_delete(notes):
    commits = notes.snapshot().head.commits
    with notes.batch():
        pass
    assert notes.snapshot().head.commits == commits
    with notes.batch() as batch:
        batch.delete("a")
    assert set(metadata(notes)) == {"a/b", "c"}


def test_ids_stay_unique_if_a_batch_adds_documents_and_deletes_files(retriever):
    passages = retriever.snapshot().head.next_chunk
    with retriever.batch() as batch:
        batch.add([{"id": "new", "text": "\n\n".join(["the cat ran 1 " * 40] * 3)}])
        batch.delete("notes/cats.txt")
    snapshot = retriever.snapshot()
    assert snapshot.head.next_chunk > passages + 1
    ids = snapshot.documents.to_table(columns=["id"])["id"].to_pylist()
    assert len(set(ids)) == len(ids)
    assert snapshot.head.next_document == max(ids) + 1


def test_invalid_hash_is_replaced_with_the_next_metadata():
    assert with_metadata("damaged", "text", "title", {"a": 1}, {"b": 2}) == sha256_of("text", "title", {"b": 2})
    assert with_metadata("0" * 63 + "g", "", "", {}, {}) == sha256_of("", "", {})


@pytest.mark.parametrize("documents", ["a text", b"bytes", 3, None, {"text": "one"}])
def test_other_than_documents_is_refused(notes, documents):
    for writes in (notes, notes.scope("n=1")):
        with pytest.raises(InputError, match="expected documents, each a mapping with 'text', not"):
            writes.add(documents)
        with writes.batch() as batch, pytest.raises(InputError, match="expected documents, each a mapping with"):
            batch.add(documents)


# Updates


def test_metadata_are_merged_or_replaced_without_embedding(notes):
    before = notes.snapshot().read("chunks", ["id", "key", "vector"])
    report = notes.update(["a"], metadata={"n": 5, "tags": None, "new": True})
    assert (report.indexed, report.unchanged, report.embedded, report.ids) == (1, 0, 0, ["a"])
    assert metadata(notes)["a"] == {"n": 5, "new": True}
    notes.update(where=F.n <= 2, metadata={"only": "this"}, mode="replace")
    assert metadata(notes) == {"a": {"n": 5, "new": True}, "a/b": {"only": "this"}, "c": {"only": "this"}}
    assert notes.snapshot().read("chunks", ["id", "key", "vector"]).equals(before)
    assert [hit.path for hit in notes.search("ship", where=F.only == "this", mode="lexical")] == ["c"]
    assert not notes.verify().faults


def test_an_updated_document_is_equal_to_one_that_was_added_so(notes):
    notes.update(["c"], metadata={"n": 3})
    assert notes.add([{"id": "c", "text": "a ship at sea", "metadata": {"n": 3}}]).unchanged == 1
    assert notes.update(["c"], metadata={"n": 3}).unchanged == 1
    assert notes.update(["c"], metadata={"n": 3.0}).indexed == 1


@pytest.mark.parametrize(
    ("arguments", "options", "error", "says"),
    [
        ([["zz"]], {}, NotFoundError, "'zz' is not in the index"),
        ([], {}, InputError, "nothing is chosen"),
        ([[3]], {}, InputError, "3 is not a document: expected its path, or its id"),
        (["a"], {}, InputError, "ids is a list"),
        ([["a"]], {"mode": "add"}, InputError, "mode is one of merge, replace"),
        ([["a"]], {"metadata": {"x": {}}}, InputError, "metadata 'x'"),
    ],
)
def test_an_update_that_cannot_be_is_refused(arguments, options, error, says, notes):
    with pytest.raises(error, match=says):
        notes.update(*arguments, **{"metadata": {"n": 1}, **options})


def test_a_list_of_ids_to_delete_is_told_how_to_give_several(notes):
    with pytest.raises(InputError, match=r"\['a', 'b'\] is not a document: .*; give several as delete\(\*ids\)"):
        notes.delete(["a", "b"])


def test_the_metadata_of_a_file_are_not_updated(retriever):
    with pytest.raises(InputError, match="is a file"):
        retriever.update(["notes/cats.txt"], metadata={"n": 1})


# Formats


MARKDOWN = "# Guide\n\nWelcome, cat &amp; dog.\n\n## Install\n\nThe ship sails at night.\n\n```sh\n# run it\n```\n"


def test_the_passages_of_markdown_have_its_headings(notes):
    document = {"id": "m", "text": MARKDOWN, "format": "markdown", "metadata": {"n": 1}}
    assert notes.add([document]).indexed == 1
    record = notes.get("m")
    assert (record.text, record.title, record.format) == (MARKDOWN, "Guide", "markdown")
    (hit,) = notes.search("ship at night", 1, ids=["m"])
    assert hit.heading[0] == "Guide"
    assert hit.text == MARKDOWN[hit.char_start : hit.char_end]
    assert notes.add([document]).unchanged == 1
    assert notes.update(["m"], metadata={"n": 2}).indexed == 1
    assert notes.add([document | {"metadata": {"n": 2}}]).unchanged == 1
    assert notes.add([{"id": "m", "text": MARKDOWN, "title": "Guide", "metadata": {"n": 2}}]).indexed == 1
    assert not notes.verify().faults
    assert notes.add([document | {"title": "Mine"}]).indexed == 1
    assert (notes.get("m").title, notes.verify().faults) == ("Mine", [])


@pytest.mark.parametrize("name", ["html", "", 3, ["markdown"]])
def test_an_unknown_format_is_refused(name, notes):
    with pytest.raises(InputError, match="document 0 has format .*: expected one of 'text', 'markdown'"):
        notes.add([{"text": "x", "format": name}])


# Deletions


def test_ids_are_exact(notes):
    assert notes.delete("a/", "*").removed == 0
    assert notes.delete("a").removed == 1
    assert sorted(metadata(notes)) == ["a/b", "c"]


def test_documents_are_deleted_by_filter_or_folder(notes):
    report = notes.delete(where=F.n == 2)
    assert (report.removed, report.chunks_total, report.chunks_removed) == (1, 2, 1)
    notes.add([{"id": "f/x", "text": "cat"}, {"id": "f2", "text": "dog"}])
    assert notes.delete("c", folder="f").removed == 2
    assert sorted(metadata(notes)) == ["a", "f2"]
    assert notes.search("ship", mode="lexical") == []


def test_an_index_can_be_cleared_and_filled_again(notes):
    assert notes.clear().removed == 3
    assert (len(notes), notes.search("cat")) == (0, [])
    notes.add([{"id": "a", "text": "a cat"}])
    assert [hit.path for hit in notes.search("cat")] == ["a"]


# Batches


def test_a_batch_is_one_commit(notes):
    before = notes.snapshot().head
    with notes.batch(wait=1) as batch:
        batch.add([{"id": "new", "text": "a walrus"}, {"id": "c", "text": "a queen"}])
        batch.add([{"id": "new", "text": "the walrus slept"}])
        batch.update(ids=["a"], metadata={"n": 9})
        batch.delete("a/b")
        assert notes.snapshot().head == before
    report = batch.report
    assert (report.indexed, report.removed, report.embedded) == (3, 1, 2)
    assert (report.chunks_total, report.chunks_removed) == (3, 2)
    assert notes.snapshot().head.rows == before.rows + 1
    assert metadata(notes) == {"a": {"n": 9, "tags": ["x"]}, "c": {}, "new": {}}
    assert notes.text("new") == "the walrus slept"
    assert [hit.path for hit in notes.search("walrus", mode="lexical")] == ["new"]
    assert not notes.verify().faults


def test_a_batch_that_raises_writes_nothing(notes):
    before = notes.snapshot().head
    with pytest.raises(InputError, match="document 1 has id 7"), notes.batch() as batch:
        batch.add([{"id": "x", "text": "cat"}, {"id": 7, "text": "cat"}])
    with pytest.raises(InputError, match="'a' is changed twice"), notes.batch() as batch:  # noqa: PT012 - it raises at its end
        batch.add([{"id": "a", "text": "cat"}])
        batch.delete("a")
    with pytest.raises(InputError, match="'new' is changed twice"), notes.batch() as batch:  # noqa: PT012
        batch.add([{"id": "new", "text": "cat"}])
        batch.delete("new")
    for write in ({"add": [{"id": "a", "text": "cat"}]}, {"update": {"n": 2}}, {"delete": "a"}):
        with pytest.raises(InputError, match="'a' is changed twice"), notes.batch() as batch:  # noqa: PT012
            batch.update(ids=["a"], metadata={"n": 9})
            batch.add(write.get("add", []))
            if "update" in write:
                batch.update(ids=["a"], metadata=write["update"])
            batch.delete(*([write["delete"]] if "delete" in write else ["c"]))
    with pytest.raises(NotFoundError, match="'zz'"), notes.batch() as batch:
        batch.update(ids=["zz"], metadata={"n": 1})
    assert notes.snapshot().head == before


@pytest.mark.parametrize("part", ["index", "scope"])
def test_a_batch_that_has_ended_takes_no_more_writes(part, notes):
    index = notes if part == "index" else notes.scope("n>=0")
    before = notes.snapshot().head
    with index.batch() as committed:
        pass
    with pytest.raises(ZeroDivisionError), index.batch() as failed:
        raise ZeroDivisionError
    for batch in (committed, failed):
        for write in (
            lambda batch=batch: batch.add([{"id": "late", "text": "a cat"}]),
            lambda batch=batch: batch.update(ids=["a"], metadata={"n": 9}),
            lambda batch=batch: batch.delete("a"),
        ):
            with pytest.raises(InputError, match="this batch has ended"):
                write()
    for wait in ("soon", -1):
        with pytest.raises(InputError, match="waits for a number of seconds"), index.batch(wait=wait):
            pytest.fail("the block began")
    assert notes.snapshot().head == before


def test_a_batch_deletes_a_file_and_an_added_document_of_the_same_name(retriever):
    retriever.add([{"id": "new.txt", "text": "a document that is older than the file of its name"}])
    (retriever.folder / "new.txt").write_text("a file")
    retriever.sync()
    with retriever.batch() as batch:
        batch.delete("new.txt")
    assert batch.report.removed == 2
    assert "new.txt" not in {row["path"] for row in retriever.documents()}


def test_a_batch_can_skip_what_cannot_be_added(notes):
    with notes.batch(if_exists="skip", on_error="skip") as batch:
        batch.add([{"id": "a", "text": "other"}, {"text": 3}, {"id": "d", "text": "a moon"}])
    assert (batch.report.ids, [failure.number for failure in batch.report.failures]) == (["a", "d"], [1])
    assert notes.text("a") == "the cat sat"


def test_a_long_batch_equals_one_add(tmp_path, tiny_model):
    documents = [{"id": f"{number}", "text": f"cat {number} sat. " * 40} for number in range(80)]
    one, other = (Retriever.open(tmp_path / name, model=tiny_model) for name in ("one", "other"))
    one.add(documents)
    with other.batch() as batch:
        batch.add(documents)
    rows = [index.snapshot().read("chunks", ["text", "vector"]) for index in (one, other)]
    assert rows[0].equals(rows[1])
    assert len(rows[0]) > 256
    assert other.snapshot().head.rows == 1


# Other processes and the end


def _hold(path, model, ready):
    with Retriever.open(path, model=model)._index.writer():
        ready.set()
        time.sleep(1)


@pytest.mark.thorough
def test_a_writer_waits_for_another_as_long_as_it_says(notes, tiny_model):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    other = context.Process(target=_hold, args=(notes.path, tiny_model, ready))
    other.start()
    assert ready.wait(60)
    with pytest.raises(LockedError):
        notes.add([{"id": "x", "text": "cat"}])
    assert notes.add([{"id": "x", "text": "cat"}], wait=60).indexed == 1
    assert notes.location.patience.seconds == 0
    other.join()


def test_no_report_has_more_seconds_than_have_passed(retriever, notes, make_model, tmp_path):
    def in_batch():
        with notes.batch() as batch:
            batch.add([{"id": "b", "text": "a moon"}])
        return batch.report

    other = make_model(tmp_path / "other", seed=1)
    save_adapted_encoder(tmp_path / "adapter", load_encoder(str(other)), np.eye(32, dtype=np.float32))
    for write in (
        lambda: notes.add([{"id": "x", "text": "cat"}]),
        lambda: notes.update(["x"], metadata={"n": 1}),
        lambda: notes.delete("x"),
        in_batch,
        retriever.sync,
        lambda: notes.switch(other),
        lambda: notes.switch(tmp_path / "adapter"),
        notes.rollback,
    ):
        start = time.monotonic()
        assert 0 < write().seconds <= time.monotonic() - start


def test_a_closed_retriever_says_so(notes):
    with Retriever.open(notes.path) as reader:
        assert len(reader.search("cat")) > 0
        assert repr(reader) == f"<Retriever of {notes.path}>"
    assert repr(reader).endswith(", closed>")
    for call in (lambda: reader.search("cat"), lambda: reader.add([]), lambda: len(reader)):
        with pytest.raises(StoreError, match="was closed"):
            call()
    assert len(notes) == 3
