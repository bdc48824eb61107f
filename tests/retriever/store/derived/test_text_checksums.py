"""Nothing opens a damaged segment of Lance's full-text index, since it could end the process."""

from __future__ import annotations

import json
import shutil

import pytest

from binocle import Retriever
from binocle.core.errors import DamagedError, StoreError
from binocle.retriever.models.identity import EncoderId
from binocle.retriever.store import commits
from binocle.retriever.store.derived import text_checksums
from binocle.retriever.store.snapshot import Snapshot
from binocle.retriever.store.store import Store
from binocle.retriever.store.writer import open_writer

DOCUMENTS = [{"id": f"d{number}", "text": f"cat {number} sat on the mat by the window"} for number in range(30)]


@pytest.fixture
def filled(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add(DOCUMENTS)
    return retriever


def files_of_text(retriever):
    return [file for file in (retriever.path / "chunks.lance/_indices").rglob("*") if file.is_file()]


def damage_text(retriever):
    for file in files_of_text(retriever):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)


def reopened(retriever):
    return Retriever.open(retriever.path)


def test_the_note_has_a_checksum_of_each_segment_and_no_other(filled):
    note = json.loads((filled.path / "full-text.json").read_text())["segments"]
    assert text_checksums.segments(filled.snapshot().chunks) <= note.keys()
    assert {file.parent.name for file in files_of_text(filled)} >= note.keys()
    assert all(len(checksum) == 64 for checksum in note.values())


def test_an_index_that_was_copied_from_object_storage_has_names_without_checksums(filled):
    file = filled.path / "full-text.json"
    note = json.loads(file.read_text())
    file.write_text(json.dumps(note | {"segments": dict.fromkeys(note["segments"], "")}))
    assert len(reopened(filled).snapshot().full_text("cat", 99)) == len(DOCUMENTS)
    assert reopened(filled).verify().faults == []


def test_a_damaged_segment_is_reported_without_a_search_and_made_anew_by_the_next_run(filled):
    damage_text(filled)
    snapshot = reopened(filled).snapshot()
    with pytest.raises(DamagedError, match="other bytes than were written.*verify --repair"):
        snapshot.full_text("cat", 3)
    faults = reopened(filled).verify().faults
    assert [(fault.kind, "other bytes" in fault.problem) for fault in faults] == [("full-text index", True)]
    again = reopened(filled)
    again.add([{"id": f"new{number}", "text": f"walrus {number}"} for number in range(20)])
    assert len(again.snapshot().full_text("walrus", 99)) == 20
    assert reopened(filled).verify().faults == []


def test_damage_after_an_earlier_check_is_reported_by_verify(filled):
    assert filled.verify().faults == []
    damage_text(filled)
    assert [fault.kind for fault in filled.verify().faults] == ["full-text index"]


def test_repair_makes_a_damaged_segment_anew(filled):
    damage_text(filled)
    again = reopened(filled)
    again.repair()
    assert again.verify().faults == []


def test_fragments_beside_a_damaged_segment_are_merged_only_when_it_was_made_anew(filled, monkeypatch):
    monkeypatch.setattr(commits, "_MAX_FRAGMENTS", 1)
    damage_text(filled)
    reopened(filled).add([{"id": "one", "text": "a walrus"}])  # too few new rows for a new segment
    assert len(filled.snapshot().chunks.get_fragments()) > 1
    assert [fault.kind for fault in reopened(filled).verify().faults] == ["full-text index"]
    reopened(filled).add([{"id": f"new{number}", "text": f"walrus {number}"} for number in range(20)])
    assert len(filled.snapshot().chunks.get_fragments()) == 1
    assert reopened(filled).verify().faults == []


@pytest.mark.parametrize(
    "note",
    [b"", b"[", b"[]", b"{}", b'{"analysis": 1}', b'{"analysis": "0", "segments": {}}', b"[" * 100_000],
    ids=["empty", "cut", "list", "object", "half", "other analysis", "deep"],
)
def test_segments_without_a_note_are_made_anew(note, filled):
    segments = text_checksums.segments(filled.snapshot().chunks)
    (filled.path / "full-text.json").write_bytes(note)
    assert reopened(filled).verify().faults == []  # they are of an earlier version
    again = reopened(filled)
    again.add([{"id": "one", "text": "a walrus"}])
    assert not segments & text_checksums.segments(again.snapshot().chunks)
    assert len(again.snapshot().full_text("walrus", 9)) == 1
    assert again.verify().faults == []


def test_a_segment_without_a_note_that_cannot_be_read_is_damage_or_was_erased_meanwhile(filled):
    """A file of an earlier version has no checksum, so Lance alone finds the damage."""
    (filled.path / "full-text.json").unlink()
    before = reopened(filled).snapshot()
    for file in files_of_text(filled):
        file.unlink()
    with pytest.raises(DamagedError, match=r"full-text index .* is damaged \(.*Not found.*verify --repair"):
        before.full_text("cat", 3)
    filled.add([{"id": "one", "text": "a walrus"}])
    with pytest.raises(StoreError, match="was written to meanwhile") as raised:
        before.full_text("cat", 3)
    assert type(raised.value) is StoreError


def test_a_text_index_that_was_compared_with_its_note_stays_current_without_it(filled):
    snapshot = Snapshot.latest(filled.snapshot().store)
    snapshot.check_text()
    (filled.path / "full-text.json").unlink()
    assert snapshot.has_current_text()
    assert not Snapshot.latest(snapshot.store).has_current_text()


@pytest.mark.parametrize("step", ["Head.write", "text_checksums.note"])
def test_an_index_is_made_again_after_a_kill_beside_its_first_commit(step, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(f"binocle.retriever.store.store.{step}", interrupt)
        with pytest.raises(KeyboardInterrupt):
            Store.create(tmp_path / "index", EncoderId("tiny", "0" * 32, 4))
    store = Store.create(tmp_path / "index", EncoderId("tiny", "0" * 32, 4))
    with open_writer(store) as writer:
        writer.finish()
    assert Snapshot.latest(store).has_current_text()


def interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.fixture
def stranger(filled, tmp_path, monkeypatch):
    """A copy of the index that the user did not allow."""
    monkeypatch.delenv("BINOCLE_TRUST")
    shutil.copytree(filled.path, tmp_path / "copy")
    return Retriever.open(tmp_path / "copy", model=filled.encoder.name)


def test_the_full_text_of_a_stranger_is_never_opened(filled, stranger):
    for name in filled.snapshot().head.words:
        shutil.rmtree(stranger.path / "vectors" / name)
    shutil.rmtree(stranger.path / "chunks.lance/_indices")
    expected = [hit.path for hit in filled.search("cat 7", mode="lexical")]
    assert [hit.path for hit in stranger.search("cat 7", mode="lexical")] == expected
    assert "full-text index" not in {fault.kind for fault in stranger.verify().faults}


def test_a_search_reads_the_texts_if_the_words_of_an_untrusted_index_are_damaged(filled, stranger, monkeypatch):
    expected = [hit.path for hit in filled.search("cat 7", mode="lexical")]
    shutil.rmtree(stranger.path / "chunks.lance/_indices")
    (part,) = stranger.snapshot().lexical._parts
    monkeypatch.setattr(type(part.segment), "postings", failing_for(part.segment))
    assert [hit.path for hit in stranger.search("cat 7", mode="lexical")] == expected


def failing_for(segment):
    """Return a `Segment.postings` that finds damaged bytes in one segment."""
    postings = type(segment).postings

    def read(self, *arguments):
        if self is segment:
            raise DamagedError("a segment of the inverted index holds impossible values")
        return postings(self, *arguments)

    return read
