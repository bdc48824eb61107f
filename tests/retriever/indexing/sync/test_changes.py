"""The steps of a sync by themselves: files that are read again, rows that stay or are rewritten, and the counts."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest

from binocle import Retriever, load_encoder
from binocle.core.errors import InputError, StoreError
from binocle.core.files import sha256
from binocle.retriever.documents import file_parts
from binocle.retriever.documents.document import READER
from binocle.retriever.documents.file_parts import file_of
from binocle.retriever.documents.scan import Entry
from binocle.retriever.indexing import switch as switching
from binocle.retriever.indexing.delete import erasure_delay
from binocle.retriever.indexing.report import Report
from binocle.retriever.indexing.switch import SwitchReport
from binocle.retriever.indexing.sync import changes as changes_module
from binocle.retriever.indexing.sync import nested_files as reading_files
from binocle.retriever.indexing.sync.changes import TRY_AGAIN, find_changes, mtime_fields
from binocle.retriever.indexing.sync.last_scan import note_scan, read_last_scan
from binocle.retriever.indexing.sync.missing import take_away, take_doubtful
from binocle.retriever.indexing.sync.sync import _is_out_of_reach, rewrite_rows, row_of, sync
from binocle.retriever.readers import large_files
from binocle.retriever.readers.formats import VERSIONS
from binocle.retriever.readers.pool.reading import DENIED, Reading
from binocle.retriever.store.snapshot import Snapshot
from binocle.retriever.store.tables import document_schema
from binocle.retriever.store.writer import open_writer

from .test_sync import CAT, DOG, OLD, TEXT, Counting, World, archive, log, memory


@pytest.fixture
def world(tmp_path, tiny):
    return World(tmp_path / "folder", Counting(tiny))


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(large_files, "MAX_WHOLE", 3_000)
    monkeypatch.setattr(large_files, "MAX_BYTES", 4_000)
    monkeypatch.setattr(file_parts, "PART_BYTES", 2_000)


def changed(world, **options):
    """The paths that a run would read, without running."""
    changes = find_changes(world.folder, world.retriever.snapshot(), leave_out=world.folder / ".binocle", **options)
    return [entry.path for entry in changes.read], changes


@pytest.mark.parametrize(("age", "settled"), [(2_000_000_000, False), (2_000_000_001, True), (-5, False)])
def test_a_time_is_settled_more_than_two_seconds_later(age, settled, monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    assert mtime_fields(10**18 - age) == {"mtime_ns": 10**18 - age, "settled": settled}


def test_without_options_nothing_is_tried_again_and_missing_documents_stay(world):
    world.write("bad.docx", "no Word file")
    for number in range(5):
        world.write(f"{number}.txt", TEXT.format(number))
    world.sync()
    world.retriever.delete("0.txt")
    for number in range(1, 5):
        (world.folder / f"{number}.txt").unlink()
    read, changes = changed(world)
    assert (read, changes.drop, changes.report.missing, changes.report.failed) == ([], [], 4, 1)
    with open_writer(world.retriever.snapshot().store) as writer:
        before = writer.head
        report = sync(writer, world.folder, world.encoder, leave_out=world.folder / ".binocle")
        assert (report.missing, report.removed, report.indexed) == (4, 0, 0)
        assert writer.head == before


def test_a_changed_file_that_keeps_its_size_and_its_time_is_read(world):
    world.write("a.txt", "the cat sat", OLD)
    world.write("b.txt", "the cat sat", OLD)
    world.sync()
    world.write("a.txt", "the dog sat", OLD)
    assert changed(world)[0] == ["a.txt"]
    assert world.sync() == {"indexed": 1, "unchanged": 1}
    assert changed(world)[0] == []


def test_only_files_that_changed_in_any_way_after_the_last_scan_are_hashed(world, monkeypatch):
    world.write("a.txt", TEXT, OLD)
    world.write("b.txt", TEXT, OLD)
    world.sync()
    head, index, hashed = world.retriever.snapshot().head, world.retriever.location, []
    monkeypatch.setattr(changes_module, "_sha256", lambda file: hashed.append(file.name) or sha256(file))
    note_scan(index, time.time_ns() + 10**10)  # as if some time had passed
    assert world.sync() == {"unchanged": 2}
    assert hashed == []
    note_scan(index, (world.folder / "b.txt").stat().st_ctime_ns + 2 * 10**9)
    (world.folder / "a.txt").chmod(0o600)
    assert world.sync() == {"unchanged": 2}
    assert (hashed, world.retriever.snapshot().head) == (["a.txt"], head)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"time_ns": "x"}', b'{"time_ns": true}', b"[" * 99_999])
def test_an_index_without_a_known_scan_relies_on_size_and_time(content, world):
    world.write("a.txt", "the cat sat", OLD)
    world.sync()
    assert read_last_scan(world.retriever.location) < time.time_ns()
    (world.retriever.path / "scanned.json").write_bytes(content)
    world.write("a.txt", "the dog sat", OLD)
    assert changed(world)[0] == []


def test_a_scan_that_misses_documents_is_not_the_last_one(world):
    for number in range(5):
        world.write(f"{number}.txt", TEXT.format(number))
    world.sync()
    before = read_last_scan(world.retriever.location)
    for number in range(4):
        (world.folder / f"{number}.txt").unlink()
    assert world.retriever.sync().missing == 4
    assert read_last_scan(world.retriever.location) == before


def test_new_and_changed_files_are_read_in_order_of_path(world):
    for name in ("b.txt", "d.txt"):
        world.write(name, TEXT)
    world.sync()
    for name in ("a.txt", "b.txt", "c.txt", "d.txt"):
        world.write(name, TEXT + name, OLD + 1)
    assert changed(world)[0] == ["a.txt", "b.txt", "c.txt", "d.txt"]


def test_a_retry_opens_archives_that_may_give_more(world):
    archive(world, {"a.txt": DOG}, name="good.zip")
    archive(world, {"a.txt": CAT, "b.docx": "no Word file"}, name="failed.zip")
    archive(world, {"a.txt": CAT}, name="old.zip")
    world.write("plain.txt", TEXT)
    world.sync()
    snapshot = world.retriever.snapshot()
    (member,) = [row["id"] for row in snapshot.document_rows.to_pylist() if row["path"] == "old.zip/a.txt"]
    with open_writer(snapshot.store) as writer:  # as an earlier version left it, which did not open archives
        writer.commit(drop=[member], documents=document_schema().empty_table())
    assert changed(world)[0] == []
    assert changed(world, retry=True)[0] == ["failed.zip", "old.zip"]
    world.retriever.delete("good.zip/a.txt")
    assert changed(world)[0] == []
    assert changed(world, retry=True)[0] == ["failed.zip", "good.zip", "old.zip"]


def test_a_retry_reads_a_file_that_has_a_reader_now(world):
    for name in ("a.txt", "b.txt", "c.xyz"):
        world.write(name, TEXT)
    world.sync()
    snapshot = world.retriever.snapshot()
    rows = snapshot.documents.to_table().to_pylist()
    for row in rows:
        row["reason"] = "" if row["path"] == "b.txt" else "no reader for its format"
    with open_writer(snapshot.store) as writer:
        rewrite_rows(writer, [row | {"state": "skipped"} for row in rows if row["path"] != "b.txt"])
    assert changed(world)[0] == []
    assert changed(world, retry=True)[0] == ["a.txt"]


def test_a_part_that_was_forgotten_stays_out_and_the_others_stay_in(world, small_parts):
    world.write("big.log", log(1, 400))
    parts = world.sync()["indexed"]
    first, *others = sorted(world.states())
    assert world.retriever.delete(first).removed == 1
    assert world.sync() == {"unchanged": parts - 1, "skipped": 1}
    assert sorted(world.states()) == others
    assert world.sync(retry=True) == {"indexed": 1, "unchanged": parts - 1}
    assert world.retriever.snapshot().tombstones == {}


def test_rows_of_a_large_file_that_grew_are_not_written_anew(world, small_parts):
    world.write("big.log", log(1, 400))
    world.write("small.log", log(1, 9))
    world.sync()
    world.write("big.log", log(1, 410), OLD + 1)
    world.write("small.log", log(1, 9), OLD + 1)
    world.sync()
    moments = {row["path"]: row["mtime_ns"] // 10**9 for row in world.retriever.documents()}
    assert moments.pop("small.log") == OLD + 1
    assert sorted(moments.values()) == [OLD] * (len(moments) - 1) + [OLD + 1]
    assert {file_of(path) for path in moments} == {"big.log"}


def test_a_retry_takes_the_tombstone_of_a_large_file_away_with_its_parts(world, small_parts):
    world.write("big.log", log(1, 400))
    parts = world.sync()["indexed"]
    world.retriever.delete("big.log", erase=True)
    assert world.sync() == {"skipped": parts}
    assert world.sync(retry=True) == {"indexed": parts}
    assert world.retriever.snapshot().tombstones == {}


def test_a_file_that_fails_now_loses_its_passages(world):
    world.write("a.html", "<p>The cat sat on the mat.</p>")
    world.write("b.txt", TEXT)
    world.sync()
    (world.folder / "a.html").rename(world.folder / "a.docx")
    assert world.sync() == {"failed": 1, "unchanged": 1, "removed": 1}
    world.write("a.docx", "still no Word file", OLD + 1)
    assert world.sync() == {"failed": 1, "unchanged": 1}
    assert world.retriever.search("mat", mode="lexical", where="path=a.docx") == []


@pytest.mark.parametrize(
    ("change", "is_out"),
    [
        ({}, True),
        ({"state": "skipped"}, False),
        ({"sha256": "f" * 64}, False),
        ({"reason": DENIED}, False),
    ],
)
def test_a_file_is_out_of_reach_if_its_bytes_were_not_read(change, is_out):
    assert _is_out_of_reach({"state": "failed", "sha256": "", "reason": "Input/output error"} | change) == is_out


@pytest.mark.parametrize(
    ("again", "sha256", "tried", "is_member", "ends"),
    [
        (True, "a", "", False, True),
        (True, "a", "b", False, True),
        (True, "a", "a", False, False),
        (True, "a", "", True, False),
        (False, "a", "", False, False),
    ],
)
def test_a_file_that_a_limit_stopped_is_left_for_the_next_run_once(again, sha256, tried, is_member, ends):
    entry = Entry("a.html", 9, OLD, tried=tried)
    reading = Reading("a.html", sha256, 8, 7, reason="too long", again=again)
    row, document = row_of(entry, reading, **({"is_member": True} if is_member else {}))
    assert (row["reason"], document) == ("too long" + TRY_AGAIN * ends, None)
    assert (row["path"], row["size"], row["mtime_ns"], row["sha256"]) == ("a.html", 8, 7, sha256)


class Rewriting:
    """A writer that notes the ids of rows that it is to replace, and of rows to drop."""

    def __init__(self):
        self.batches = []

    def snapshot(self):
        return SimpleNamespace(documents_by_id=lambda ids, _: {number: {"text": f"text {number}"} for number in ids})

    def replace_rows(self, documents, *, drop=()):
        assert documents["text"].to_pylist() == [f"text {number}" for number in documents["id"].to_pylist()]
        self.batches.append((documents["id"].to_pylist(), list(drop)))


@pytest.mark.parametrize(
    ("sizes", "batches"),
    [
        ([2**25] * 5, [[0, 1], [2, 3], [4]]),
        ([2**26 + 1, 1, 2**26 + 1, 2**26], [[0], [1], [2], [3]]),
        ([2**26 - 1, 1, 1], [[0, 1], [2]]),
        ([], []),
    ],
)
def test_rows_are_rewritten_64_mib_at_a_time(sizes, batches):
    writer = Rewriting()
    rewrite_rows(writer, [{"id": number, "size": size} for number, size in enumerate(sizes)], [77])
    assert writer.batches == [(ids, [] if number else [77]) for number, ids in enumerate(batches)]


def test_rows_are_rewritten_10000_at_a_time():
    writer = Rewriting()
    rewrite_rows(writer, [{"id": number, "size": 0} for number in range(10_001)])
    assert [len(ids) for ids, _ in writer.batches] == [10_000, 1]


def test_files_that_another_indexes_are_none_if_none_changed(world, tmp_path):
    world.write("x.md", CAT)
    archive(world, {"b.md": DOG})
    calls = []
    with open_writer(memory(tmp_path, world.encoder)) as writer:
        for _ in range(2):
            sync(writer, world.folder, world.encoder, file_indexer=lambda *arguments: calls.append(arguments[2]))
            sync(writer, world.folder, world.encoder)
    assert [[entry.path for entry in entries] for entries in calls] == [["x.md"]]


# Missing documents


INDEXED = {"state": "indexed"}


@pytest.mark.parametrize(
    ("folders", "taken"),
    [([], []), (["a"], ["a", "a/b"]), (["a/b"], ["a/b"]), ([""], ["a", "a/b", "ab"]), (["b", "ab"], ["ab"])],
)
def test_rows_below_a_folder_that_is_away_are_taken(folders, taken):
    gone = dict.fromkeys(("a", "a/b", "ab"), INDEXED)
    assert take_away(folders, gone) == [(path, INDEXED) for path in taken]
    assert sorted(gone) == sorted({"a", "a/b", "ab"}.difference(taken))


@pytest.mark.parametrize(
    ("missing", "indexed", "kept"), [(6, 11, 6), (6, 12, 0), (4, 7, 4), (3, 5, 0), (4, 8, 0), (5, 9, 5)]
)
def test_documents_stay_if_more_than_three_and_more_than_half_are_missing(missing, indexed, kept, tmp_path):
    (tmp_path / "other.txt").touch()
    gone = dict.fromkeys((f"{number}.txt" for number in range(missing)), INDEXED)
    assert len(take_doubtful(tmp_path, gone, indexed, set())) == kept
    assert len(gone) == missing - kept


def test_rows_without_passages_do_not_count_as_missing_and_stay_with_those_that_do(tmp_path):
    gone = {f"{number}.txt": INDEXED for number in range(4)} | {"a.bin": {"state": "skipped"}}
    assert len(take_doubtful(tmp_path, dict(gone), 4, set())) == 5
    gone["3.txt"] = {"state": "failed"}
    assert take_doubtful(tmp_path, dict(gone), 4, set()) == []


def test_folders_below_an_empty_mount_point_are_on_the_disk_that_is_away(tmp_path):
    for name in ("disk", "full"):
        (tmp_path / name).mkdir()
    (tmp_path / "full/file").touch()
    gone = dict.fromkeys((f"{disk}/sub/{number}.txt" for disk in ("disk", "full") for number in range(4)), INDEXED)
    assert {path.partition("/")[0] for path, _ in take_doubtful(tmp_path, gone, 99, set())} == {"disk"}
    assert set(gone) == {f"full/sub/{number}.txt" for number in range(4)}


def test_folders_that_a_rule_passes_over_and_those_outside_of_a_collection_are_not_missing(tmp_path):
    (tmp_path / "other.txt").touch()
    gone = dict.fromkeys((f"{folder}/x/{number}" for folder in ("a", "b", "c") for number in range(4)), INDEXED)
    assert len(take_doubtful(tmp_path, dict(gone), 12, {"a/"})) == 8
    assert len(take_doubtful(tmp_path, dict(gone), 12, {"a/x/"}, ["a", "b"])) == 0
    assert len(take_doubtful(tmp_path, dict(gone), 7, {"a/x/"}, ["a", "b"])) == 4
    assert len(take_doubtful(tmp_path, dict(gone), 12, set(), [""])) == 12


# Archives


def test_the_members_of_an_archive_that_was_cut_short_are_its_own_wherever_they_lie_in_it(world):
    archive(world, {f"docs/deep/{number}.txt": TEXT.format(number) * 30 for number in range(40)})
    world.encoder.fail_at = 1
    with pytest.raises(KeyboardInterrupt):
        world.sync()
    world.encoder.fail_at = None
    assert len(world.states()) > 3
    assert "a.zip" not in world.states()
    report = world.retriever.sync(world.folder)
    assert (report.indexed, report.missing, report.removed, report.note) == (41, 0, 0, "")


@pytest.mark.parametrize(
    ("most", "size", "left_out"),
    [
        (3, 10**6, set()),
        (2, 10**6, {"a.zip/in.zip/more files"}),
        (1, 10**6, {"a.zip/more files"}),
        (99, 10**6, set()),
        (99, None, set()),
        (99, -1, {"a.zip/in.zip/more files"}),
    ],
)
def test_members_of_a_file_are_read_up_to_their_limits(most, size, left_out, world, monkeypatch):
    archive(world, {"c.txt": CAT}, name="in.zip")
    inner = (world.folder / "in.zip").read_bytes()
    (world.folder / "in.zip").unlink()
    archive(world, {"b.txt": DOG, "in.zip": inner})
    monkeypatch.setattr(reading_files, "MAX_MEMBERS", most)
    whole = len(inner) + len(DOG)
    monkeypatch.setattr(reading_files, "MAX_BYTES", whole if size is None else whole - 1 if size < 0 else size)
    world.sync()
    assert {path for path in world.states() if path.endswith("more files")} == left_out


# Reports


@pytest.mark.parametrize(
    ("metadata", "ocr", "is_outdated"),
    [
        ("{}", "", True),
        (json.dumps({READER: VERSIONS["pdf"]}), "", False),
        (json.dumps({READER: VERSIONS["pdf"] + 1}), "", True),
        ('{"ocr": "eng"}', "", False),  # the text of its pictures stays until they can be read again
        ('{"ocr": "eng"}', "eng", True),
        ("damaged", "", False),
    ],
)
def test_a_file_is_outdated_if_another_version_of_its_reader_read_it(metadata, ocr, is_outdated):
    row = {"format": "pdf", "source": "file", "state": "indexed", "metadata": metadata, "reason": "", "path": "a.pdf"}
    assert changes_module._is_outdated(row, ocr) is is_outdated
    for other in ({"source": "added"}, {"state": "skipped"}, {"format": "csv"}):
        assert not changes_module._is_outdated(row | other, ocr)


def test_seconds_are_rounded_to_milliseconds():
    assert Report(seconds=1.23456).as_dict()["seconds"] == 1.235
    assert SwitchReport("a", "b", "c", seconds=1.23456).as_dict()["seconds"] == 1.235


def test_files_that_were_read_whole_are_not_counted_as_read_in_part(world):
    for name in ("a.txt", "b.txt"):
        world.write(name, TEXT)
    (world.folder / "c.bin").write_bytes(bytes(range(256)))
    report = world.retriever.sync(world.folder)
    assert (report.indexed, report.skipped, report.in_part) == (2, 1, 0)


@pytest.mark.parametrize(
    ("reason", "options", "count"), [("", {}, 1), ("hidden", {}, 0), ("hidden", {"is_member": True}, 1)]
)
def test_what_a_scan_passed_over_is_not_counted_again_unless_it_lies_in_a_file(reason, options, count):
    report = Report()
    report.count(Entry("a", 1, OLD, reason), {"state": "skipped", "reason": reason}, **options)
    assert (report.skipped, report.in_part) == (count, 0)


@pytest.mark.parametrize(
    ("reason", "count"),
    [
        ("", 0),
        ("2 pictures not read (--ocr reads them)", 1),
        ("2 pictures beside the text not read (--ocr reads them)", 0),
        ("9 characters left out; 2 pictures beside the text not read (--ocr reads them)", 1),
    ],
)
def test_a_file_with_pictures_beside_its_text_is_not_counted_as_read_in_part(reason, count):
    report = Report()
    report.count(Entry("a", 1, OLD), {"state": "indexed", "reason": reason})
    assert (report.indexed, report.in_part) == (1, count)


def test_a_report_that_joins_another_has_the_sums():
    counts = {"indexed": 1, "skipped": 2, "failed": 3, "in_part": 4, "embedded": 5, "reused": 6}
    report = Report(**counts, unchanged=7)
    report.join(Report(**{name: 10 * count for name, count in counts.items()}, unchanged=70))
    assert {name: getattr(report, name) for name in counts} == {name: 11 * count for name, count in counts.items()}
    assert report.unchanged == 7


def test_a_switch_that_changes_nothing_counts_nothing(world, tiny_model):
    world.write("a.txt", TEXT)
    world.sync()
    report = world.retriever.switch(tiny_model).as_dict()
    names = ("switched", "chunks", "embedded", "reused", "seconds", "note")
    assert [report[name] for name in names] == [False, 0, 0, 0, 0.0, ""]


def test_a_switch_logs_256_passages_at_a_time(tmp_path, tiny_model, make_model):
    retriever, seen = Retriever.open(tmp_path / "index", model=tiny_model), []
    retriever.add({"id": f"{number}", "text": "The cat sat."} for number in range(257))
    retriever.switch(make_model(tmp_path / "other", seed=1), progress=seen.append)
    assert [(at.done, at.total) for at in seen] == [(256, 257), (257, 257)]


def test_a_state_from_before_a_rollback_can_still_be_read_and_one_from_before_a_switch_that_erases_cannot(
    tmp_path, tiny_model, make_model
):
    retriever, other = Retriever.open(tmp_path / "index", model=tiny_model), make_model(tmp_path / "other", seed=1)
    retriever.add([{"id": "a", "text": "The cat sat."}])
    rows = retriever.snapshot().head.rows
    retriever.switch(other)
    before = Snapshot.latest(retriever.snapshot().store)
    assert before.head.rows == rows + 1
    retriever.rollback()
    assert before.read("chunks", ["id"])["id"].to_pylist() == [0]
    assert retriever.snapshot().head.previous is None
    before = Snapshot.latest(retriever.snapshot().store)
    retriever.switch(other, keep=False)
    with pytest.raises(StoreError, match="was written to meanwhile"):
        before.read("chunks", ["id"])


def test_only_the_previous_encoder_is_rolled_back_to(tmp_path, tiny_model, make_model, tiny):
    retriever, other = Retriever.open(tmp_path / "index", model=tiny_model), make_model(tmp_path / "other", seed=1)
    retriever.add([{"id": "a", "text": "The cat sat."}])
    with open_writer(retriever.snapshot().store) as writer, pytest.raises(AssertionError):
        switching.rollback(writer, tiny)
    retriever.switch(other)
    with open_writer(retriever.snapshot().store) as writer, pytest.raises(AssertionError):
        switching.rollback(writer, load_encoder(str(other)))


# Deletions


@pytest.mark.parametrize(
    ("erase", "seconds"),
    [
        (True, 0.0),
        (False, None),
        ("later", 3_600.0),
        (timedelta(seconds=30), 30.0),
        (timedelta(microseconds=1), 1e-6),
        (timedelta(days=2), 172_800.0),
    ],
)
def test_texts_are_erased_now_later_or_with_later_writes(erase, seconds):
    assert erasure_delay(erase) == seconds
    assert type(erasure_delay(erase)) is type(seconds)


@pytest.mark.parametrize("erase", [timedelta(0), timedelta(seconds=-1), 0, 1, None, "now", 3.5])
def test_another_time_to_erase_is_refused_and_nothing_is_deleted(erase, world):
    world.write("a.txt", TEXT)
    world.sync()
    for call in (lambda: world.retriever.delete("a.txt", erase=erase), lambda: world.retriever.clear(erase=erase)):
        with pytest.raises(InputError, match="erase is True, False, 'later', or a timedelta above 0"):
            call()
    assert world.states() == {"a.txt": "indexed"}


def test_nothing_is_promised_to_be_erased_if_nothing_is_deleted(world):
    world.write("a.txt", TEXT)
    world.sync()
    promise = world.folder / ".binocle/erase.json"
    assert world.retriever.delete("nothing", erase="later").removed == 0
    assert not promise.exists()
    assert world.retriever.delete("a.txt", erase="later").removed == 1
    assert promise.exists()
