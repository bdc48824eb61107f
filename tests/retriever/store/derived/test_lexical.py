"""The inverted index of a store: whatever was written, deleted, forgotten or killed, it answers as one built anew."""

from __future__ import annotations

import contextlib
import random
import shutil
from dataclasses import replace

import numpy as np
import pytest

from binocle import Retriever
from binocle.core.terms import query_stems
from binocle.indexes.inverted.build import SegmentBuilder
from binocle.indexes.inverted.lexical_index import LexicalIndex, LiveSegment
from binocle.indexes.manifest import IndexManifest
from binocle.retriever.store import writer
from binocle.retriever.store.commits import Commits
from binocle.retriever.store.derived import lexical
from binocle.retriever.store.snapshot import Snapshot
from binocle.retriever.store.store import Store
from binocle.retriever.store.writer import Writer

WORDS = ["cat", "ship", "sea", "moon", "max_len", "3.14", "harbour", "sail", "night", "quiet", "zebra"]


@pytest.fixture
def retriever(tmp_path, tiny_model, monkeypatch):
    monkeypatch.setattr(writer, "_FEW_ROWS", 0)
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add(documents(range(12)))
    return retriever


def documents(numbers, *more):
    chosen = random.Random(str(numbers))
    return [
        {"id": f"d{number}", "text": " ".join([*chosen.choices(WORDS, k=6), *more]), "title": "Größe 🐈"}
        for number in numbers
    ]


def fresh(snapshot: Snapshot) -> LexicalIndex:
    builder = SegmentBuilder()
    for batch in snapshot.batches(["id", "context"]):
        builder.add(batch["id"].to_numpy(), batch["context"].to_pylist())
    return LexicalIndex([LiveSegment(builder.build())])


def check_same(index: LexicalIndex | None, snapshot: Snapshot) -> None:
    expected = fresh(snapshot)
    assert index is not None
    assert index.words() == expected.words()
    for query in ("cat", "max len at sea", "the quiet zebra"):
        for mine, theirs in zip(
            index.search(query_stems(query), 99), expected.search(query_stems(query), 99), strict=True
        ):
            np.testing.assert_array_equal(mine, theirs)


def check_passages(snapshot: Snapshot) -> None:
    """All passages of the segments are as the table has them, and no deleted one is among them."""
    columns = snapshot.passage_columns
    segments = lexical.load_segments(snapshot)
    covered = snapshot.sorted_ids <= segments[-1].segment.ids[-1]
    rows = lexical.read_passages(segments, np.arange(snapshot.sorted_ids[-1] + 9), columns)
    assert rows == snapshot.chunks_by_id(snapshot.sorted_ids[covered].tolist(), columns)
    assert snapshot.passages.of([10**6, *snapshot.sorted_ids.tolist()]) == snapshot.chunks_by_id(
        snapshot.sorted_ids.tolist(), columns
    )


def test_the_index_is_of_what_was_added_changed_deleted_and_forgotten(retriever, monkeypatch):
    monkeypatch.setattr(lexical, "_SMALL", 4)
    monkeypatch.setattr(lexical, "_TIER", 1)
    monkeypatch.setattr(lexical, "_DELETED_ROWS", 3)
    chosen = random.Random(1)
    for step in range(8):
        match chosen.randrange(4):
            case 0 | 1:
                retriever.add(documents(chosen.sample(range(40), 6), f"step{step}"))
            case 2:
                paths = [row["path"] for row in retriever.documents()]
                retriever.delete(*chosen.sample(paths, min(3, len(paths))), erase=False)
            case 3:
                retriever.delete(chosen.choice(retriever.documents())["path"])
        snapshot = retriever.snapshot()
        check_same(snapshot.lexical, snapshot)
        check_passages(snapshot)
    assert len(retriever.snapshot().head.words) > 1
    assert retriever.verify().faults == []


def test_a_few_newer_rows_are_read_and_many_are_left_to_lance(retriever, monkeypatch):
    monkeypatch.setattr(Writer, "finish", lambda _: "")  # as if it was killed after the commit
    retriever.add(documents(range(20, 30)))
    snapshot = retriever.snapshot()
    assert len(snapshot.lexical._parts) == 2
    check_same(snapshot.lexical, snapshot)
    monkeypatch.setattr(lexical, "_MAX_UNINDEXED", 9)
    assert Snapshot.latest(snapshot.store).lexical is None


def test_many_small_additions_leave_few_segments(retriever):
    for number in range(4):
        retriever.add(documents([100 + number]))
    assert len(retriever.snapshot().head.words) <= 2
    check_same(retriever.snapshot().lexical, retriever.snapshot())


def test_segments_are_never_larger_than_their_rows_can_count(tmp_path, tiny_model, monkeypatch):
    monkeypatch.setattr(lexical, "MAX_ROWS", 5)
    monkeypatch.setattr(writer, "_FEW_ROWS", 0)
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add(documents(range(23)))
    retriever.add(documents(range(30, 42)))
    parts = retriever.snapshot().lexical._parts
    assert max(len(part.segment) for part in parts) <= 5
    check_same(retriever.snapshot().lexical, retriever.snapshot())


def test_a_forgotten_word_is_in_no_file(retriever):
    retriever.add([{"id": "secret", "text": "The password is zyxwvut at sea."}])
    before = retriever.snapshot()
    assert len(before.lexical.whole("zyxwvut")) == 1
    retriever.delete("secret", erase=True)
    assert not any(b"zyxwvut" in file.read_bytes() for file in retriever.path.rglob("*") if file.is_file())
    check_same(retriever.snapshot().lexical, retriever.snapshot())
    segments = lexical.load_segments(retriever.snapshot())
    stored = [part.passages.values(np.arange(len(part.segment))) for part in segments]
    assert "zebra" in str(stored) and "zyxwvut" not in str(stored)


@pytest.mark.thorough
@pytest.mark.parametrize("damage", ["remove", "cut", "change", "manifest", "folder", "analysis"])
def test_a_damaged_segment_is_one_fault_and_lance_answers(damage, retriever, monkeypatch):
    (name,) = retriever.snapshot().head.words
    folder = retriever.path / "vectors" / name
    before = [hit.path for hit in retriever.search("zebra", mode="lexical")]
    file = folder / "words.bin"
    match damage:
        case "remove":
            file.unlink()
        case "cut":
            file.write_bytes(file.read_bytes()[:-8])
        case "change":
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 255
            file.write_bytes(data)
        case "manifest":
            (folder / "manifest.json").write_text("{}")
        case "folder":
            shutil.rmtree(folder)
        case "analysis":
            monkeypatch.setattr(lexical.terms, "VERSION", lexical.terms.VERSION + 1)
    again = Retriever.open(retriever.path)
    assert [hit.path for hit in again.search("zebra", mode="lexical")] == before
    if damage == "analysis":  # no fault: the next writer builds it anew
        assert again.snapshot().lexical is None and again.verify().faults == []
        again.add(documents([50]))
        (renewed,) = again.snapshot().head.words
        assert renewed != name
    else:
        (fault,) = again.verify().faults
        assert fault.kind == "inverted index" and "\n" not in fault.problem
        again.repair()
    assert again.verify().faults == []
    check_same(again.snapshot().lexical, again.snapshot())


@pytest.mark.parametrize("damage", ["remove", "cut", "change", "swap"])
def test_damaged_passages_are_one_fault_and_the_table_answers(damage, retriever):
    (name,) = retriever.snapshot().head.words
    file = retriever.path / "vectors" / name / "passages.bin"
    before = [(hit.path, hit.text, hit.line_start) for hit in retriever.search("zebra at sea")]
    data = bytearray(file.read_bytes())
    match damage:
        case "remove":
            file.unlink()
        case "cut":
            file.write_bytes(data[:-8])
        case "change":
            file.write_bytes(bytes(byte ^ 255 for byte in data[: len(data) // 2]) + data[len(data) // 2 :])
        case "swap":
            file.write_bytes(data[:-8] + bytes(8))
    again = Retriever.open(retriever.path)
    assert [(hit.path, hit.text, hit.line_start) for hit in again.search("zebra at sea")] == before
    (fault,) = again.verify().faults
    assert fault.kind == "inverted index" and "\n" not in fault.problem
    again.repair()
    assert again.verify().faults == []
    check_passages(again.snapshot())


def test_passages_of_another_index_are_a_fault(retriever, tiny_model):
    other = Retriever.open(retriever.path.parent / "other", model=tiny_model)
    other.add(documents(range(40, 52)))
    (name,), (own,) = other.snapshot().head.words, retriever.snapshot().head.words
    shutil.copytree(other.path / "vectors" / name, retriever.path / "vectors" / name)
    head = retriever.path / "HEAD.json"
    head.write_text(head.read_text().replace(own, name))
    (fault,) = Retriever.open(retriever.path).verify().faults
    assert fault.problem == "the inverted index holds another passage 0 than the table"


def test_an_index_without_passages_beside_its_words_gets_them_with_the_next_write(retriever, monkeypatch):
    monkeypatch.setattr(lexical, "_SMALL", 0)
    (name,) = retriever.snapshot().head.words
    folder = retriever.path / "vectors" / name
    (folder / "passages.bin").unlink()
    manifest = IndexManifest.read(folder)
    del manifest.build["passages"], manifest.files["passages.bin"]
    renamed = manifest.publish(folder)
    head = retriever.path / "HEAD.json"
    head.write_text(head.read_text().replace(name, renamed))
    again = Retriever.open(retriever.path)
    assert again.search("zebra at sea") and again.verify().faults == []
    again.delete("d3", erase=False)
    again.add(documents([61]))
    assert len(again.snapshot().head.words) == 2
    check_same(again.snapshot().lexical, again.snapshot())
    check_passages(again.snapshot())


def test_an_index_that_is_not_trusted_gives_the_passages_of_the_table(retriever, monkeypatch):
    monkeypatch.setattr(lexical, "read_passages", None)
    snapshot = Snapshot.latest(replace(Store.open(retriever.path), trusted=False))
    assert len(snapshot.passages.of(snapshot.sorted_ids.tolist())) == 12


def test_an_index_without_segments_gets_them_with_the_next_write(retriever, monkeypatch):
    monkeypatch.setattr(lexical.LexicalPublisher, "update", lambda *_, **__: ())
    retriever.add(documents([60]))
    assert retriever.snapshot().head.words == () and retriever.snapshot().lexical is None
    assert retriever.search("zebra", mode="lexical")
    monkeypatch.undo()
    retriever.add(documents([61]))
    check_same(retriever.snapshot().lexical, retriever.snapshot())


@pytest.mark.parametrize("at", range(3))
def test_a_writer_killed_at_any_commit_leaves_an_index_of_its_rows(at, retriever, monkeypatch):
    commit, calls = Commits.commit, []

    def killed(self, head):
        calls.append(head)
        if len(calls) > at:
            raise KeyboardInterrupt
        commit(self, head)

    monkeypatch.setattr(Commits, "commit", killed)
    with contextlib.suppress(KeyboardInterrupt):
        retriever.add(documents(range(8, 16), "more"))
        retriever.delete("d2")
    assert len(calls) == at + 1
    monkeypatch.undo()
    again = Retriever.open(retriever.path)
    check_same(again.snapshot().lexical, again.snapshot())
    again.add(documents([70]))
    check_same(again.snapshot().lexical, again.snapshot())
    assert again.verify().faults == []


def test_an_index_that_names_other_rows_than_the_store_has_finds_none_of_them(retriever, tiny_model):
    """A segment of another index, put in its place with all its checksums."""
    other = Retriever.open(retriever.path.parent / "other", model=tiny_model)
    other.add(documents(range(40), "foreign"))
    other.delete(*[f"d{number}" for number in range(20)], erase=False)
    (name,) = other.snapshot().head.words
    shutil.copytree(other.path / "vectors" / name, retriever.path / "vectors" / name)
    head = retriever.path / "HEAD.json"
    (own,) = retriever.snapshot().head.words
    head.write_text(head.read_text().replace(own, name))
    again = Retriever.open(retriever.path)
    ids = set(again.snapshot().sorted_ids.tolist())
    assert set(again.snapshot().lexical.search(["foreign"], 99)[1].tolist()) <= ids
    again.search("foreign zebra")
