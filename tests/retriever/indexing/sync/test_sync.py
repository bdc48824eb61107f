from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import stat
import struct
import time
import zipfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from binocle import Retriever
from binocle.core.errors import BinocleError, InputError
from binocle.core.progress import ignore
from binocle.retriever.documents import file_parts
from binocle.retriever.documents.document import Document, Part
from binocle.retriever.documents.file_parts import file_of
from binocle.retriever.documents.scan import scan
from binocle.retriever.indexing import indexer as indexing
from binocle.retriever.indexing.indexer import Indexer
from binocle.retriever.indexing.report import Report
from binocle.retriever.indexing.sync import changes as changes_of
from binocle.retriever.indexing.sync import nested_files
from binocle.retriever.indexing.sync import sync as syncing
from binocle.retriever.indexing.sync.changes import find_changes
from binocle.retriever.indexing.sync.sync import sync
from binocle.retriever.models.identity import EncoderId
from binocle.retriever.readers import ReaderPool, large_files, ocr
from binocle.retriever.store.snapshot import Snapshot
from binocle.retriever.store.store import Store
from binocle.retriever.store.writer import open_writer

OLD = 1_700_000_000


class Counting:
    """The encoder given, and every text that it was asked to embed."""

    def __init__(self, encoder):
        self._encoder = encoder
        self.name, self.dim, self.max_tokens, self.fingerprint = (
            encoder.name,
            encoder.dim,
            encoder.max_tokens,
            encoder.fingerprint,
        )
        self.texts: list[str] = []
        self.fail_at: int | None = None
        self.calls = 0

    def encode(self, texts, *, kind="document"):
        if self.calls == self.fail_at:
            raise KeyboardInterrupt
        self.calls += 1
        if kind == "document":
            self.texts += texts
        return self._encoder.encode(texts, kind=kind)

    def offsets(self, texts):
        return self._encoder.offsets(texts)


class World:
    """A folder, its index, and an encoder that counts."""

    def __init__(self, folder: Path, encoder: Counting):
        self.folder = folder
        self.encoder = encoder
        folder.mkdir(exist_ok=True)

    def write(self, name: str, text: str, mtime: float | None = OLD) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8", newline="")
        if mtime is not None:
            os.utime(file, (mtime, mtime))

    @property
    def retriever(self) -> Retriever:
        retriever = Retriever.open(self.folder / ".binocle")
        retriever._index.models.use(self.encoder)
        return retriever

    def sync(self, **options):
        """One run; afterwards `verify` must find nothing. Gives what became of the files."""
        self.encoder.texts = []
        report = self.retriever.sync(self.folder, **options)
        faults = self.retriever.verify().faults
        assert faults == []
        assert report.chunks_total == self.retriever.snapshot().chunks.count_rows()
        assert report.embedded == len(self.encoder.texts)
        return {state: count for state, count in report.as_dict()["files"].items() if count}

    def reasons(self) -> dict[str, str]:
        return {row["path"]: row["reason"] for row in self.retriever.documents() if row["reason"]}

    def states(self) -> dict[str, str]:
        return {row["path"]: row["state"] for row in self.retriever.documents()}


@pytest.fixture
def world(tmp_path, tiny):
    return World(tmp_path / "folder", Counting(tiny))


def contents(store: Store, *, ids: bool = True) -> dict:
    """The rows of both tables in order, vectors included."""
    snapshot = Snapshot.latest(store)
    documents = snapshot.documents.to_table().to_pylist()
    chunks = snapshot.chunks.to_table().to_pylist()
    paths = {row["id"]: row["path"] for row in documents}
    for row in chunks:
        row["document"] = paths[row["document"]]
    for row in [*documents, *chunks] if not ids else []:
        del row["id"]
    return {
        "documents": sorted(documents, key=lambda row: row["path"]),
        "chunks": sorted(chunks, key=lambda row: (row["document"], row["char_start"])),
    }


TEXT = "The cat sat on the mat number {}. The dog ran to the sea.\n\nIncome tax is due every year; the queen pays it.\n"


def test_a_new_file_is_indexed_and_then_left_alone(world):
    world.write("a.txt", TEXT.format(1))
    world.write("b/c.md", "# Title\n\n" + TEXT.format(2))
    assert world.sync() == {"indexed": 2}
    assert world.encoder.texts
    commits = world.retriever.snapshot().head.commits
    assert world.sync() == {"unchanged": 2}
    assert world.encoder.texts == []
    assert world.retriever.snapshot().head.commits == commits


def test_without_the_parser_of_code_a_run_over_many_sources_says_so(world, monkeypatch):
    source = "class Cat:\n    def {}(self):\n        return 1\n"
    monkeypatch.setattr(syncing, "has_parser", lambda: False)
    for number in range(9):
        world.write(f"{number}.py", source.format(f"run_{number}"))
    assert not world.retriever.sync(world.folder).note
    for number in range(10, 20):
        world.write(f"{number}.py", source.format(f"run_{number}"))
    assert world.retriever.sync(world.folder).note == (
        "10 files of source code were cut without a parser: pip install 'binocle[code]' gives symbols"
    )
    assert not world.retriever.sync(world.folder).note


def test_an_edit_embeds_only_what_is_new(world):
    paragraphs = [f"Paragraph {number}: " + "the cat sat on the mat and the dog ran. " * 5 for number in range(10)]
    world.write("a.txt", "\n\n".join(paragraphs))
    world.sync()
    first = set(world.encoder.texts)
    paragraphs[9] = "Paragraph 9: " + "bread and cheese in the oven for the king. " * 5
    world.write("a.txt", "\n\n".join(paragraphs), OLD + 5)
    assert world.sync() == {"indexed": 1}
    assert 0 < len(world.encoder.texts) <= 2
    assert not first & set(world.encoder.texts)


def test_touching_a_file_embeds_nothing_and_is_remembered(world):
    world.write("a.txt", TEXT)
    world.sync()
    os.utime(world.folder / "a.txt", (OLD + 100, OLD + 100))
    assert world.sync() == {"unchanged": 1}
    assert world.encoder.texts == []
    (row,) = world.retriever.documents()
    assert row["mtime_ns"] == (OLD + 100) * 10**9
    assert row["settled"]


def test_moving_a_file_embeds_nothing_and_keeps_its_chunks(world):
    world.write("a.txt", TEXT)
    world.sync()
    before = contents(world.retriever._index.reopened())["chunks"]
    (world.folder / "deep").mkdir()
    (world.folder / "a.txt").rename(world.folder / "deep" / "b.txt")
    assert world.sync() == {"moved": 1}
    assert world.encoder.texts == []
    after = contents(world.retriever._index.reopened())["chunks"]
    assert [row["id"] for row in after] == [row["id"] for row in before]
    assert world.retriever.search("cat")[0].path == "deep/b.txt"


def test_moving_a_folder_moves_its_files(world):
    for number in range(5):
        world.write(f"old/{number}.txt", TEXT.format(number))
    world.sync()
    (world.folder / "old").rename(world.folder / "new")
    assert world.sync() == {"moved": 5}
    assert world.encoder.texts == []


def test_two_files_that_change_names_with_each_other_are_right_after(world):
    world.write("a.txt", "The cat sat on the mat.\n")
    world.write("b.txt", "The dog ran to the sea.\n")
    world.sync()
    (world.folder / "a.txt").rename(world.folder / "x")
    (world.folder / "b.txt").rename(world.folder / "a.txt")
    (world.folder / "x").rename(world.folder / "b.txt")
    for name in "ab":
        os.utime(world.folder / f"{name}.txt", (OLD + 1, OLD + 1))
    world.sync()
    assert world.encoder.texts == []
    assert world.retriever.search("cat", mode="lexical")[0].path == "b.txt"


def test_a_renamed_and_edited_file_reuses_what_stayed(world):
    world.write("a.txt", "\n\n".join(TEXT.format(number) * 3 for number in range(6)))
    world.sync()
    many = len(world.encoder.texts)
    text = (world.folder / "a.txt").read_text()
    (world.folder / "a.txt").unlink()
    world.write("b.txt", text + "\n\nAnd a new end to it.\n")
    assert world.sync() == {"indexed": 1, "removed": 1}
    assert 0 < len(world.encoder.texts) < many / 2
    assert world.states() == {"b.txt": "indexed"}


def test_a_deleted_file_leaves_nothing_to_find(world):
    world.write("a.txt", "The cat sat.\n")
    world.write("b.txt", "The dog ran.\n")
    world.sync()
    (world.folder / "a.txt").unlink()
    assert world.sync() == {"removed": 1, "unchanged": 1}
    for mode in ("lexical", "semantic", "hybrid"):
        assert {hit.path for hit in world.retriever.search("cat", mode=mode)} <= {"b.txt"}
    assert world.retriever.search("cat", mode="lexical") == []


def test_a_file_ignored_later_goes_and_comes_back(world):
    world.write("a.txt", TEXT)
    world.write("b.log", TEXT + "log")
    world.sync()
    world.write(".gitignore", "*.log\n")
    assert world.sync() == {"unchanged": 1, "removed": 1, "skipped": 2}
    assert world.states() == {".gitignore": "skipped", "a.txt": "indexed", "b.log": "skipped"}
    assert world.sync() == {"unchanged": 1, "skipped": 2}
    assert {hit.path for hit in world.retriever.search("cat")} == {"a.txt"}
    (world.folder / ".gitignore").unlink()
    assert world.sync() == {"indexed": 1, "unchanged": 1}
    assert world.states() == {"a.txt": "indexed", "b.log": "indexed"}


def test_a_document_that_loses_its_text_is_counted_as_removed_once(world):
    with zipfile.ZipFile(world.folder / "z.zip", "w") as archive:
        archive.writestr("m.txt", TEXT)
    world.write("a.txt", TEXT)
    assert world.sync() == {"indexed": 3}
    with zipfile.ZipFile(world.folder / "z.zip", "w") as archive:
        archive.writestr("m.txt", "")
    world.write("a.txt", "", OLD + 1)
    assert world.sync() == {"indexed": 1, "removed": 2, "skipped": 2}
    assert world.sync() == {"unchanged": 1, "skipped": 2}


def test_a_folder_ignored_later_goes_and_comes_back(world):
    world.write("x/a.txt", TEXT)
    world.write("x/y/b.txt", TEXT + "more")
    world.sync()
    world.write(".gitignore", "x/\n")
    world.sync()
    assert world.states() == {".gitignore": "skipped", "x/": "skipped"}
    assert world.retriever.search("cat") == []
    world.write(".gitignore", "", OLD + 1)
    assert world.sync() == {"indexed": 2, "skipped": 1}


def test_a_failed_file_is_retried_when_it_changes_or_when_asked(world):
    world.write("a.docx", "not a Word file at all")
    world.write("b.txt", TEXT)
    assert world.sync() == {"indexed": 1, "failed": 1}
    (row,) = [row for row in world.retriever.documents() if row["state"] == "failed"]
    assert row["reason"]
    assert "\n" not in row["reason"]
    assert world.sync() == {"unchanged": 1, "failed": 1}
    commits = world.retriever.snapshot().head.commits
    world.sync()
    assert world.retriever.snapshot().head.commits == commits  # it was not even read again
    assert world.sync(retry=True) == {"unchanged": 1, "failed": 1}
    main = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    with zipfile.ZipFile(world.folder / "a.docx", "w") as archive:
        text = "<w:p><w:r><w:t>The cat sat on the mat.</w:t></w:r></w:p>"
        archive.writestr("word/document.xml", f'<w:document xmlns:w="{main}"><w:body>{text}</w:body></w:document>')
    assert world.sync() == {"indexed": 1, "unchanged": 1}
    assert world.states() == {"a.docx": "indexed", "b.txt": "indexed"}


def test_a_file_that_a_limit_stopped_is_read_by_the_next_run(world, monkeypatch):
    world.write("a.html", "<b></b>" * 60_000 + "The cat sat on the mat.")
    monkeypatch.setitem(ReaderPool.__init__.__kwdefaults__, "seconds", 0.02)
    assert world.sync() == {"failed": 1}
    assert world.reasons() == {"a.html": "it took longer than 0.02 s of processor time; the next run tries again"}
    monkeypatch.undo()
    assert world.sync() == {"indexed": 1}


@pytest.mark.thorough
def test_a_file_that_a_limit_stopped_twice_waits_for_a_change_or_a_request(world, monkeypatch):
    world.write("a.html", "<b></b>" * 60_000 + "The cat sat on the mat.")
    monkeypatch.setitem(ReaderPool.__init__.__kwdefaults__, "seconds", 0.02)
    assert world.sync() == world.sync() == {"failed": 1}
    reason = "it took longer than 0.02 s of processor time"
    assert world.reasons() == {"a.html": reason}
    for again in ("; the next run tries again", ""):  # a request counts as the first time
        assert world.sync(retry=bool(again)) == {"failed": 1}
        assert world.reasons() == {"a.html": reason + again}
    monkeypatch.undo()
    assert world.sync() == {"failed": 1}
    assert world.sync(retry=True) == {"indexed": 1}


def test_an_edit_of_the_same_size_right_after_indexing_is_seen(world):
    world.write("a.txt", "The cat sat.\n", None)
    world.sync()
    status = (world.folder / "a.txt").stat()
    world.write("a.txt", "The dog sat.\n", None)
    os.utime(world.folder / "a.txt", ns=(status.st_atime_ns, status.st_mtime_ns))  # the clock had not ticked
    assert world.sync() == {"indexed": 1}
    assert world.retriever.search("dog", mode="lexical")


def test_a_time_in_the_future_does_not_hide_an_edit(world):
    later = time.time() + 10_000
    world.write("a.txt", "The cat sat.\n", later)
    world.sync()
    world.write("a.txt", "The dog sat.\n", later)
    assert world.sync() == {"indexed": 1}


@pytest.mark.parametrize("mtime", [10**10, -(10**9)], ids=["year 2286", "year 1938"])
def test_a_time_far_from_ours_is_a_time(world, mtime):
    world.write("a.txt", "The cat sat.\n", mtime)
    assert world.sync() == {"indexed": 1}
    assert world.sync() == {"unchanged": 1}
    world.write("a.txt", "The dog sat there.\n", mtime)
    assert world.sync() == {"indexed": 1}


def test_an_edit_is_seen_though_the_clock_went_backwards(world, monkeypatch):
    world.write("a.txt", "The cat sat.\n")
    monkeypatch.setattr(time, "time_ns", lambda: (OLD + 1) * 10**9)  # a second after the file was written
    assert world.sync() == {"indexed": 1}
    monkeypatch.setattr(time, "time_ns", lambda: (OLD - 10**6) * 10**9)
    assert world.sync() == {"unchanged": 1}
    world.write("a.txt", "The dog sat.\n")
    assert world.sync() == {"indexed": 1}


def test_an_older_time_is_a_change(world):
    world.write("a.txt", "The cat sat.\n")
    world.sync()
    world.write("a.txt", "The dog sat.\n", OLD - 1000)
    assert world.sync() == {"indexed": 1}


def test_files_of_equal_content_are_two_documents_embedded_once(world):
    world.write("a.txt", TEXT)
    world.write("b.txt", TEXT)
    assert world.sync() == {"indexed": 2}
    assert len(world.encoder.texts) == len(set(world.encoder.texts))
    assert {hit.path for hit in world.retriever.search("cat", collapse=False)} == {"a.txt", "b.txt"}
    (world.folder / "a.txt").unlink()
    world.write("c.txt", TEXT)
    assert world.sync() == {"moved": 1, "unchanged": 1}
    assert world.encoder.texts == []


def test_a_file_renamed_to_another_ending_is_read_as_that(world):
    world.write("page.txt", "<p>The cat sat on the mat.</p>\n")
    world.write("notes.TXT", TEXT)
    world.sync()
    (world.folder / "page.txt").rename(world.folder / "page.html")
    (world.folder / "notes.TXT").rename(world.folder / "later.txt")
    assert world.sync() == {"indexed": 1, "moved": 1, "removed": 1}
    assert world.retriever.text("page.html") == "The cat sat on the mat."


def test_copies_made_at_once_take_one_as_moved_and_read_the_rest(world):
    world.write("a.txt", TEXT)
    world.sync()
    (world.folder / "a.txt").unlink()
    for name in "xyz":
        world.write(f"{name}.txt", TEXT)
    assert world.sync() == {"moved": 1, "indexed": 2}
    assert world.encoder.texts == []
    assert world.states() == dict.fromkeys(["x.txt", "y.txt", "z.txt"], "indexed")


def test_a_link_replaced_by_the_file_it_led_to_is_that_file(world):
    world.write("a.txt", TEXT)
    (world.folder / "b.txt").symlink_to("a.txt")
    assert world.sync() == {"indexed": 1, "skipped": 1}
    (world.folder / "b.txt").unlink()
    (world.folder / "a.txt").rename(world.folder / "b.txt")
    world.sync()
    assert world.states() == {"b.txt": "indexed"}


def test_an_ignored_file_freed_with_the_bytes_of_a_gone_one_is_indexed_once(world):
    world.write("a.txt", TEXT)
    world.write("b.txt", TEXT)
    world.write(".gitignore", "b.txt\n")
    world.sync()
    (world.folder / ".gitignore").unlink()
    (world.folder / "a.txt").unlink()
    world.sync()
    assert world.states() == {"b.txt": "indexed"}


def test_a_file_that_becomes_a_folder_and_back(world):
    world.write("a", TEXT)
    world.sync()
    (world.folder / "a").unlink()
    world.write("a/a", TEXT)
    assert world.sync() == {"moved": 1}
    shutil.rmtree(world.folder / "a")
    world.write("a", TEXT)
    assert world.sync() == {"moved": 1}
    assert world.states() == {"a": "indexed"}


def test_empty_and_unknown_files_are_accounted_for_and_not_read_again(world):
    world.write("empty.txt", "")
    world.write("blank.txt", " \n\n")
    (world.folder / "x.bin").write_bytes(bytes(range(256)))
    os.utime(world.folder / "x.bin", (OLD, OLD))
    assert world.sync() == {"skipped": 3}
    assert all(row["reason"] for row in world.retriever.documents())
    commits = world.retriever.snapshot().head.commits
    assert world.sync() == {"skipped": 3}
    assert world.retriever.snapshot().head.commits == commits
    world.write("empty.txt", TEXT, OLD + 1)
    assert world.sync() == {"indexed": 1, "skipped": 2}


def test_an_empty_folder_is_an_empty_index(world):
    assert world.sync() == {}
    for mode in ("hybrid", "semantic", "lexical"):
        assert world.retriever.search("cat", mode=mode) == []
    world.write("a.txt", TEXT)
    assert world.sync() == {"indexed": 1}
    (world.folder / "a.txt").unlink()
    assert world.sync() == {"removed": 1}
    assert world.retriever.search("cat") == []
    world.write("b.txt", TEXT)
    assert world.sync() == {"indexed": 1}
    for mode in ("hybrid", "semantic", "lexical"):
        assert world.retriever.search("cat", mode=mode)[0].path == "b.txt"


def test_a_folder_that_is_gone_takes_nothing_from_the_index(tmp_path, tiny):
    """An unmounted disk is not a deletion."""
    world = World(tmp_path / "folder", Counting(tiny))
    world.write("a.txt", TEXT)
    retriever = Retriever.open(tmp_path / "index")
    retriever._index.models.use(world.encoder)
    retriever.sync(world.folder)
    world.folder.rename(tmp_path / "away")
    with pytest.raises(InputError, match="folder"):
        retriever.sync()
    assert retriever.search("cat")
    (tmp_path / "away").rename(world.folder)
    assert retriever.sync().unchanged == 1


def test_a_folder_that_cannot_be_listed_takes_nothing_from_the_index(tmp_path, tiny, monkeypatch):
    """As above, but the folder stands there and refuses: what was below it is not known to be gone."""
    world = World(tmp_path / "folder", Counting(tiny))
    world.write("a.txt", TEXT)
    world.write("closed/b.txt", TEXT + "b")
    world.sync()
    list_it = os.scandir

    def refuse(path):
        if str(path).rstrip("/").endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return list_it(path)

    monkeypatch.setattr(os, "scandir", refuse)
    world.retriever.sync(world.folder)
    monkeypatch.undo()
    assert world.states()["closed/b.txt"] == "indexed"
    assert world.sync() == {"unchanged": 2}


def test_a_root_that_cannot_be_listed_takes_nothing_from_the_index(world, monkeypatch):
    world.write("a.txt", TEXT)
    world.sync()
    list_it = os.scandir

    def refuse(path):
        if str(path).rstrip("/") == str(world.folder):
            raise OSError(5, "Input/output error")
        return list_it(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(BinocleError, match="Input/output error"):
        world.retriever.sync(world.folder)
    monkeypatch.undo()
    assert world.states() == {"a.txt": "indexed"}


def test_odd_names_are_stable_from_run_to_run(world):
    world.write("new\nline.txt", TEXT)
    world.write("a?.txt", TEXT + "x")
    for name in (b"a\xff.txt", b"a\xfe.txt"):
        Path(os.fsdecode(os.fsencode(world.folder) + b"/" + name)).write_text(TEXT)
    first = world.sync()
    states = world.states()
    assert len(world.retriever.documents()) == 4
    assert world.sync() == {"unchanged": 2, "skipped": 2}
    assert first == {"indexed": 2, "skipped": 2}
    assert world.states() == states


def test_a_file_deleted_while_the_folder_is_read_is_no_disaster(world):
    world.write("a.txt", TEXT)
    world.write("b.txt", TEXT + "b")
    (world.folder / "b.txt").chmod(0o644)

    def progress(at):
        (world.folder / "b.txt").unlink(missing_ok=True)

    world.encoder.texts = []
    report = world.retriever.sync(world.folder, progress=progress)
    assert report.indexed >= 1
    world.sync()
    assert world.states() == {"a.txt": "indexed"}


def after_scan(monkeypatch, action):
    """Let the folder change between the scan and the reading of the files."""

    def find(*arguments, **options):
        changes = find_changes(*arguments, **options)
        action()
        return changes

    monkeypatch.setattr(syncing, "find_changes", find)


def replace_by_socket(file):
    file.unlink()
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(file.parent):
        listener.bind(file.name)


REPLACEMENTS = {
    "FIFO": (lambda file: (file.unlink(), os.mkfifo(file)), "not a regular file"),
    "folder": (lambda file: (file.unlink(), file.mkdir()), "not a regular file"),
    "socket": (replace_by_socket, "not a regular file"),
    "loop": (lambda file: (file.unlink(), file.symlink_to(file)), "a symbolic link"),
    "link": (lambda file: (file.unlink(), file.symlink_to("/etc/passwd")), "a symbolic link"),
    "device": (lambda file: (file.unlink(), os.mknod(file, 0o600 | stat.S_IFCHR, os.makedev(1, 5))), "not a regular file"),
    "binary": (lambda file: file.write_bytes(bytes(100)), "binary file"),
    "empty": (lambda file: os.truncate(file, 0), "no text in it"),
}  # fmt: skip


def test_files_that_are_something_else_when_they_are_read_cost_themselves(world, monkeypatch):
    names = [name for name in REPLACEMENTS if name != "device" or os.geteuid() == 0]  # only root makes devices
    for name in [*names, "same"]:
        world.write(f"{name}.txt", TEXT + name)
    world.sync()
    for name in names:
        world.write(f"{name}.txt", TEXT + "new" + name, OLD + 1)
    world.write("new.txt", TEXT + "new")
    after_scan(monkeypatch, lambda: [REPLACEMENTS[name][0](world.folder / f"{name}.txt") for name in names])
    report = world.retriever.sync(world.folder)
    assert (report.indexed, report.unchanged, report.skipped) == (1, 1, len(names))
    assert world.reasons() == {f"{name}.txt": REPLACEMENTS[name][1] for name in names}
    monkeypatch.undo()
    for name in names:
        file = world.folder / f"{name}.txt"
        file.rmdir() if name == "folder" else file.unlink()
    assert world.sync() == {"unchanged": 2}


def test_a_file_replaced_by_a_fifo_before_its_bytes_are_compared_never_blocks(world, monkeypatch):
    world.write("a.txt", TEXT)
    world.write("b.txt", TEXT + "b")
    world.sync()
    file = world.folder / "a.txt"
    os.utime(file, (OLD + 1, OLD + 1))

    def entries(*arguments, **options):
        listing = list(scan(*arguments, **options))
        file.unlink()
        os.mkfifo(file)
        return listing

    monkeypatch.setattr(changes_of, "scan", entries)
    assert world.retriever.sync(world.folder).unchanged == 1
    assert world.reasons() == {"a.txt": "not a regular file"}


def test_a_changed_file_that_vanishes_before_it_is_read_keeps_its_passages_until_the_next_run(world, monkeypatch):
    world.write("a.txt", TEXT)
    world.sync()
    world.write("a.txt", TEXT + "a", OLD + 1)
    after_scan(monkeypatch, (world.folder / "a.txt").unlink)
    assert world.retriever.sync(world.folder).failed == 1
    assert world.states() == {"a.txt": "indexed"}
    monkeypatch.undo()
    assert world.sync() == {"removed": 1}


def test_a_forgotten_file_that_vanishes_before_a_retry_reads_it_is_missing_from_then_on(world, monkeypatch):
    world.write("a.txt", TEXT)
    world.sync()
    world.retriever.delete("a.txt")
    after_scan(monkeypatch, (world.folder / "a.txt").unlink)
    assert world.retriever.sync(world.folder, retry=True).failed == 1
    assert (world.states(), world.retriever.snapshot().tombstones) == ({"a.txt": "failed"}, {})
    monkeypatch.undo()
    world.sync()
    assert world.states() == {}


def test_a_folder_renamed_in_the_middle_of_a_run_loses_nothing(tmp_path, tiny, monkeypatch):
    """As a disk that is unmounted."""
    world = World(tmp_path / "folder", Counting(tiny))
    retriever = Retriever.open(tmp_path / "index")
    retriever._index.models.use(world.encoder)
    for number in range(5):
        world.write(f"{number}.txt", TEXT.format(number))
    retriever.sync(world.folder)
    for number in range(1, 7):
        world.write(f"{number}.txt", TEXT.format(number) + "new", OLD + 1)
    after_scan(monkeypatch, lambda: world.folder.rename(tmp_path / "away"))
    report = retriever.sync(world.folder)
    assert (report.unchanged, report.failed, report.chunks_removed) == (1, 6, 0)
    assert len(retriever.search("cat", k=10, mode="lexical")) == 5
    monkeypatch.undo()
    (tmp_path / "away").rename(world.folder)
    assert retriever.sync(world.folder).indexed == 6


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_permission_lost_in_the_middle_of_a_run_costs_the_files_that_lost_it(world, monkeypatch):
    world.write("a/x.txt", TEXT)
    world.write("b.txt", TEXT + "b")
    world.sync()
    world.write("a/y.txt", TEXT + "y")
    world.write("c.txt", TEXT + "c")
    after_scan(monkeypatch, lambda: (world.folder / "a").chmod(0))
    report = world.retriever.sync(world.folder)
    monkeypatch.undo()
    (world.folder / "a").chmod(0o700)
    assert (report.indexed, report.unchanged, report.failed) == (1, 2, 1)
    assert world.reasons() == {"a/y.txt": "permission denied"}
    assert world.sync() == {"unchanged": 3, "indexed": 1}


def test_a_folder_and_added_documents_share_an_index(world):
    world.retriever.add([{"id": "a.txt", "text": "The queen of the sea."}, {"id": "note", "text": "The dog ran."}])
    world.write("a.txt", "The cat sat.\n")
    world.sync()
    (world.folder / "a.txt").unlink()
    assert world.sync() == {"removed": 1}
    assert sorted(row["path"] for row in world.retriever.documents()) == ["a.txt", "note"]
    assert world.retriever.search("queen", mode="lexical")[0].path == "a.txt"


# Nothing is embedded twice


def memory(tmp_path, encoder, name="index"):
    return Store.create(tmp_path / name, EncoderId(encoder.name, encoder.fingerprint, encoder.dim))


def pages(texts):
    whole = "\n".join(texts) + "\n"
    parts, start = [], 0
    for page, text in enumerate(texts, 1):
        parts.append(Part(start, start + len(text) + 1, 1, page))
        start += len(text) + 1
    return Document(whole, tuple(parts))


def test_equal_pages_of_a_long_document_are_embedded_once(tmp_path, tiny):
    encoder = Counting(tiny)
    store = memory(tmp_path, encoder)
    with open_writer(store) as writer:
        report = Report()
        indexer = Indexer(writer, encoder, report)
        indexer.add({"path": "long"}, pages(["the same footer on each page"] * 1_200))
        indexer.add({"path": "more"}, pages(["the same footer on each page", "and another"]))
        indexer.commit()
        writer.finish()
    assert sorted(encoder.texts) == ["and another", "the same footer on each page"]
    assert (report.embedded, report.reused) == (2, 1_200)


def test_texts_committed_before_are_not_embedded_again(tmp_path, tiny):
    encoder = Counting(tiny)
    store = memory(tmp_path, encoder)
    for _ in range(3):
        with open_writer(store) as writer:
            indexer = Indexer(writer, encoder, Report())
            for number in range(3):
                indexer.add({"path": f"{number}"}, pages([f"page {place}" for place in range(number + 3)]))
                indexer.commit()
            writer.finish()
    assert sorted(encoder.texts) == [f"page {place}" for place in range(5)]


def test_texts_whose_keys_collide_keep_their_own_vectors(tmp_path, tiny, monkeypatch):
    monkeypatch.setattr(indexing, "key_of", lambda context: len(context) % 2)
    encoder = Counting(tiny)
    store = memory(tmp_path, encoder)
    texts = ["the cat", "the dog sat", "bread", "a moon", "red and blue"]
    with open_writer(store) as writer:
        indexer = Indexer(writer, encoder, Report())
        for number in range(2):
            indexer.add({"path": f"{number}"}, pages(texts))
            indexer.commit()
        writer.finish()
    assert sorted(encoder.texts) == sorted(texts)
    for row in Snapshot.latest(store).chunks.to_table().to_pylist():
        np.testing.assert_allclose(row["vector"], tiny.encode([row["context"]])[0], atol=1e-6)


# Interruption


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(indexing, "_BATCH_CHUNKS", 3)
    monkeypatch.setattr(indexing, "_BATCH_FILES", 4)


def fill(folder: Path) -> None:
    for number in range(9):
        file = folder / f"{number:02}.txt"
        file.write_text(
            "\n\n".join(TEXT.format(f"{number} {part}") for part in range(1 + number % 3)) + "The same end.\n"
        )
        os.utime(file, (OLD, OLD))
    (folder / "05.txt").write_text("")
    (folder / "copy.txt").write_text((folder / "04.txt").read_text())
    for name in ("05", "copy"):
        os.utime(folder / f"{name}.txt", (OLD, OLD))


class Stop(Exception):  # noqa: N818 - it is no error
    pass


def run(folder, index, encoder, progress=ignore):
    store = Store.create(index, EncoderId(encoder.name, encoder.fingerprint, encoder.dim), str(folder))
    with open_writer(store) as writer:
        sync(writer, folder, encoder, progress=progress)
    return store


def hits(store, tiny, query):
    from binocle.retriever.search.query import Query

    given = Query(Snapshot.latest(store), query, lambda: tiny.encode([query], kind="query")).hits(
        50, mode="hybrid", where=None
    )
    return [(hit.path, hit.char_start, hit.scores["lexical"], round(hit.scores["semantic"], 5)) for hit in given]


@pytest.mark.thorough
def test_a_run_interrupted_anywhere_goes_on_to_what_an_uninterrupted_one_makes(tmp_path, tiny, small_batches):
    folder = tmp_path / "folder"
    folder.mkdir()
    fill(folder)
    whole = Counting(tiny)
    store = run(folder, tmp_path / "whole", whole)
    expected, actual = contents(store), hits(store, tiny, "the cat and the tax")
    assert len(whole.texts) == len(set(whole.texts))

    def stop_at(number):
        def progress(at):
            if at.message.startswith(f"{number} of "):
                raise Stop

        return progress

    # Before the first batch is encoded, one in the middle, and the last; and when no file is done, most are, and all.
    ways = [("encode", call) for call in (0, whole.calls // 2, whole.calls - 1)]
    ways += [("progress", number) for number in (0, 6, 9)]
    for way, number in ways:
        index = tmp_path / f"{way}{number}"
        encoder = Counting(tiny)
        encoder.fail_at = number if way == "encode" else None
        with pytest.raises((KeyboardInterrupt, Stop)):
            run(folder, index, encoder, stop_at(number) if way == "progress" else ignore)
        committed = set(Snapshot.latest(Store.open(index)).chunks.to_table(columns=["context"])["context"].to_pylist())
        encoder.fail_at, encoder.texts = None, []
        store = run(folder, index, encoder)
        assert not committed & set(encoder.texts)
        assert len(encoder.texts) + len(committed) == len(whole.texts)
        assert contents(store) == expected
        assert hits(store, tiny, "the cat and the tax") == actual


def test_an_interrupted_change_leaves_the_last_state_whole(tmp_path, tiny, small_batches):
    folder = tmp_path / "folder"
    folder.mkdir()
    fill(folder)
    base = tmp_path / "base"
    run(folder, base, Counting(tiny))
    (folder / "00.txt").rename(folder / "moved.txt")
    (folder / "01.txt").unlink()
    for number in (2, 3, 6, 7):
        (folder / f"{number:02}.txt").write_text(f"Changed number {number}: bread and cheese.\n")
        os.utime(folder / f"{number:02}.txt", (OLD + 9, OLD + 9))
    shutil.copytree(base, tmp_path / "whole")
    encoder = Counting(tiny)
    expected = contents(run(folder, tmp_path / "whole", encoder), ids=False)
    for number in range(encoder.calls):
        index = Path(shutil.copytree(base, tmp_path / f"cut{number}"))
        broken = Counting(tiny)
        broken.fail_at = number
        with pytest.raises(KeyboardInterrupt):
            run(folder, index, broken)
        assert_whole(Store.open(index))
        broken.fail_at = None
        assert contents(run(folder, index, broken), ids=False) == expected


def assert_whole(store):
    """Every document has the chunks that it says it has, and nothing else has any."""
    snapshot = Snapshot.latest(store)
    rows = snapshot.document_rows.to_pylist()
    assert len({(row["source"], row["path"]) for row in rows}) == len(rows)
    owners = snapshot.chunk_ids["document"].to_pylist()
    assert {row["id"]: row["chunks"] for row in rows if row["chunks"]} == {
        owner: owners.count(owner) for owner in set(owners)
    }


def test_an_error_of_the_encoder_reaches_the_caller_and_frees_the_lock(world):
    world.write("a.txt", TEXT)

    class Broken(Counting):
        def encode(self, texts, *, kind="document"):
            raise BinocleError("no more memory")

    good, world.encoder = world.encoder, Broken(world.encoder)
    with pytest.raises(BinocleError, match="no more memory"):
        world.retriever.sync(world.folder)
    world.encoder = good
    assert world.sync() == {"indexed": 1}


def test_vectors_that_are_not_finite_are_neither_stored_nor_searched_with(world):
    world.write("a.txt", TEXT)
    assert world.sync() == {"indexed": 1}
    world.write("b.txt", "The moon is full at night.")

    class Damaged(Counting):
        def encode(self, texts, *, kind="document"):
            return np.full((len(texts), self.dim), np.nan, np.float32)

    good, world.encoder = world.encoder, Damaged(world.encoder)
    for use in (
        lambda retriever: retriever.sync(world.folder),
        lambda retriever: retriever.search("tax"),
        lambda retriever: retriever.context("tax"),
        lambda retriever: retriever.optimize(0.5),
    ):
        with pytest.raises(InputError, match="not finite"):
            use(world.retriever)
    world.encoder = good
    assert world.sync() == {"indexed": 1, "unchanged": 1}


def test_progress_counts_files_bytes_and_chunks(world):
    sizes = {f"{name}.txt": 20 * (number + 1) for number, name in enumerate("abc")}
    for name, size in sizes.items():
        world.write(name, "cat " * (size // 4))
    events = []
    world.retriever.sync(world.folder, progress=events.append)
    assert {at.stage for at in events} == {"indexing"}
    assert [at.message for at in events][:3] == [f"{number} of 3 files, reading" for number in range(3)]
    assert [at.done for at in events][:3] == [0, 20, 60]
    assert {at.total for at in events} == {120}


def test_progress_says_at_what_rate_passages_are_embedded(world, monkeypatch):
    monkeypatch.setattr(indexing, "_BATCH_CHUNKS", 1)
    world.write("a.txt", "The cat sat.")
    world.write("b.txt", "The dog ran.")
    events = []
    world.retriever.sync(world.folder, progress=events.append)
    assert re.fullmatch(r"1 of 2 files, [\d,]+ passages/s", events[-1].message)


def test_progress_moves_within_a_file_of_many_passages(world, monkeypatch):
    monkeypatch.setattr(indexing, "_BATCH_CHUNKS", 1)
    world.write("long.txt", TEXT * 20)
    size, seen = len(TEXT * 20), []
    world.retriever.sync(world.folder, progress=seen.append)
    passages = world.retriever.status().chunks
    assert [at.done for at in seen] == [round(size * staged / passages) for staged in range(passages - 1)]
    assert passages > 3


def test_the_report_adds_up(world):
    world.write("a.txt", TEXT * 5)
    world.write("b.txt", TEXT * 5)
    report = world.retriever.sync(world.folder).as_dict()
    assert report["files"] == {
        "indexed": 2,
        "unchanged": 0,
        "moved": 0,
        "removed": 0,
        "missing": 0,
        "skipped": 0,
        "failed": 0,
    }
    chunks = report["chunks"]
    assert chunks["embedded"] + chunks["reused"] == chunks["total"] > 2
    assert chunks["reused"] >= chunks["total"] // 2
    assert chunks["removed"] == 0
    (world.folder / "a.txt").unlink()
    chunks = world.retriever.sync(world.folder).as_dict()["chunks"]
    assert chunks["removed"] == chunks["total"] > 0
    assert chunks["embedded"] == chunks["reused"] == 0


# Large text files, which are indexed in parts


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(large_files, "MAX_WHOLE", 3_000)
    monkeypatch.setattr(large_files, "MAX_BYTES", 4_000)
    monkeypatch.setattr(file_parts, "PART_BYTES", 2_000)


def log(first: int, last: int) -> str:
    return "".join(f"{number}: the cat {number} sat on the mat.\n" for number in range(first, last))


def test_a_large_text_file_is_indexed_in_parts_with_its_own_lines(world, small_parts):
    world.write("big.log", log(1, 400))
    world.write("small.log", log(1, 30))
    parts = world.sync()["indexed"] - 1
    assert parts == -(-len(log(1, 400)) // 2_000)
    lines = log(1, 400).splitlines()
    hits = world.retriever.search("cat", k=200, mode="lexical")
    assert {file_of(hit.path) for hit in hits} == {"big.log", "small.log"}
    assert all(hit.text in "\n".join(lines[hit.line_start - 1 : hit.line_end]) for hit in hits)
    for hit in hits[::10]:
        cited = "\n".join(lines[hit.line_start - 1 : hit.line_end])
        assert world.retriever.text(hit.path, lines=(hit.line_start, hit.line_end)) == cited
        assert world.retriever.text(file_of(hit.path), lines=(hit.line_start, hit.line_start)) in cited
    assert world.sync() == {"unchanged": parts + 1}
    of_file = world.retriever.search("cat", k=200, mode="lexical", where=["path=big.log", "type=log"])
    assert {hit.passage for hit in of_file} == {hit.passage for hit in hits if hit.path != "small.log"}
    (passage, *_) = world.retriever.context("cat", max_tokens=200, where="path=big.log").passages
    assert passage.citation == f"[1] big.log:{passage.line_start}-{passage.line_end}"
    with pytest.raises(InputError, match=r"in parts; the first is 'big.log/bytes-000000000000-"):
        world.retriever.text("big.log")


def test_a_large_file_that_grew_is_read_from_where_it_grew(world, small_parts):
    world.write("big.log", log(1, 400))
    parts = world.sync()["indexed"]
    world.write("big.log", log(1, 410), OLD + 1)
    assert world.sync() == {"indexed": 1, "unchanged": parts - 1, "removed": 1}
    assert sum(map(len, world.encoder.texts)) < 2_000
    (world.folder / "big.log").rename(world.folder / "old.log")
    assert world.sync() == {"moved": parts}
    world.write("old.log", log(1, 50), OLD + 2)
    assert world.sync() == {"indexed": 1, "removed": parts}
    assert sum(map(len, world.encoder.texts)) < 2_000


def test_an_interrupted_run_goes_on_in_the_middle_of_a_large_file(world, small_parts, small_batches):
    world.write("big.log", log(1, 400))
    world.encoder.fail_at = 8
    with pytest.raises(KeyboardInterrupt):
        world.retriever.sync(world.folder)
    done = len(world.encoder.texts)
    world.encoder.fail_at = None
    committed = world.retriever.snapshot().chunks.count_rows()
    assert 0 < committed <= done
    world.sync()
    assert len(world.encoder.texts) == world.retriever.snapshot().chunks.count_rows() - committed


def test_a_large_file_that_was_forgotten_stays_so_when_it_changes(world, small_parts):
    world.write("big.log", log(1, 400))
    parts = world.sync()["indexed"]
    assert world.retriever.delete("big.log").removed == parts
    world.write("big.log", "0: the ship\n" + log(1, 600), OLD + 1)
    world.sync()
    world.sync()
    assert world.states() == {}
    world.write("big.log", log(1, 50), OLD + 2)
    world.sync()
    world.write("big.log", log(1, 400), OLD + 3)
    assert "indexed" not in world.sync()
    assert "failed" not in world.sync(retry=True)
    assert set(world.states().values()) == {"indexed"}


def test_every_part_of_a_table_has_its_columns(world, small_parts):
    world.write("big.csv", "name,colour\n" + "cat,red\n" * 1_000)
    world.sync()
    assert {row["format"] for row in world.retriever.documents()} == {"csv"}
    chunks = world.retriever.snapshot().read("chunks", ["heading", "line_start"]).to_pylist()
    assert {tuple(chunk["heading"]) for chunk in chunks} == {("name, colour",)}
    assert max(chunk["line_start"] for chunk in chunks) > 900


UNCUT = {
    "a.html": b"<p>cat</p>" * 500,
    "a.txt": ("cat\n" * 1_500).encode("utf-16"),
    "a": b"cat\0\n" * 1_000,
    "b.txt": b"<!doctype html><p>" + b"cat\n" * 1_000,
}


def test_a_large_file_of_another_format_is_passed_over_with_the_reason(world, small_parts):
    for name, data in UNCUT.items():
        world.write(name, "")
        (world.folder / name).write_bytes(data)
    assert world.sync() == {"skipped": len(UNCUT)}
    assert set(world.reasons().values()) == {"larger than 0.003815 MB"}
    assert world.sync() == {"skipped": len(UNCUT)}


def test_many_rows_that_moved_are_rewritten_in_batches(world, monkeypatch):
    for number in range(5):
        world.write(f"a/{number}.txt", TEXT.format(number))
    world.sync()
    commits = world.retriever.snapshot().head.commits
    monkeypatch.setattr(syncing, "_BATCH_BYTES", 200)
    (world.folder / "a").rename(world.folder / "b")
    assert world.sync() == {"moved": 5}
    assert world.retriever.snapshot().head.commits >= commits + 3


def archive(world, files: dict[str, str], mtime: float = OLD, name: str = "a.zip") -> None:
    with zipfile.ZipFile(world.folder / name, "w") as written:
        for member, text in files.items():
            written.writestr(zipfile.ZipInfo(member), text)
    os.utime(world.folder / name, (mtime, mtime))


CAT, DOG = "The cat sat on the mat.", "The dog ran to the sea."


def test_members_of_an_archive_share_its_fate(world):
    world.write("x.md", CAT)
    archive(world, {"b.md": CAT, "docs/c.txt": DOG, "pic.png": "x"})
    assert world.sync() == {"indexed": 4, "skipped": 1}
    assert world.sync() == {"unchanged": 4, "skipped": 1}
    assert world.reasons() == {"a.zip/pic.png": "no reader for .png files"}
    os.utime(world.folder / "a.zip", (OLD + 1, OLD + 1))
    assert world.sync() == {"unchanged": 4, "skipped": 1}
    assert {row["mtime_ns"] for row in world.retriever.documents() if row["path"] != "x.md"} == {(OLD + 1) * 10**9}
    (world.folder / "a.zip").rename(world.folder / "b.zip")
    assert world.sync() == {"moved": 1, "unchanged": 3, "skipped": 1}
    assert list(world.states()) == ["b.zip", "b.zip/b.md", "b.zip/docs/c.txt", "b.zip/pic.png", "x.md"]
    archive(world, {"docs/c.txt": DOG, "new.md": "# New\n\nThe moon is red."}, OLD + 2, "b.zip")
    assert world.sync() == {"indexed": 3, "unchanged": 1, "removed": 1}
    assert len(world.encoder.texts) == 1
    (world.folder / "b.zip").unlink()
    assert world.sync() == {"unchanged": 1, "removed": 3}
    assert list(world.states()) == ["x.md"]


def test_a_hit_in_an_archive_is_cited_and_shown(world):
    archive(world, {"docs/c.txt": "\n\n" + DOG})
    world.sync()
    (hit,) = world.retriever.search("dog", mode="lexical")
    assert (hit.path, hit.line_start) == ("a.zip/docs/c.txt", 3)
    assert world.retriever.text("a.zip/docs/c.txt", lines=(3, 3)) == DOG
    with pytest.raises(InputError, match="without a text"):
        world.retriever.text("a.zip")


def test_a_forgotten_member_stays_out_until_a_retry(world):
    archive(world, {"b.md": CAT, "c.md": DOG})
    world.sync()
    world.retriever.delete("a.zip/b.md")
    archive(world, {"b.md": CAT, "c.md": DOG + " Again."}, OLD + 1)
    assert world.sync() == {"indexed": 2, "skipped": 1}
    assert "a.zip/b.md" not in world.states()
    world.sync(retry=True)
    assert world.states()["a.zip/b.md"] == "indexed"
    world.retriever.delete("a.zip", folder="a.zip")
    assert world.sync() == {"skipped": 1}


@pytest.mark.thorough
def test_an_interrupted_run_reads_an_archive_again(world):
    files = {f"{number}.txt": TEXT.format(number) * 30 for number in range(40)}
    archive(world, files)
    world.encoder.fail_at = 1
    with pytest.raises(KeyboardInterrupt):
        world.sync()
    world.encoder.fail_at = None
    assert "a.zip" not in world.states()
    assert len(world.states()) > 1
    assert world.sync()["indexed"] == 41
    assert world.sync() == {"unchanged": 41}


def test_archives_in_archives_are_read_to_a_depth_and_a_number(world, monkeypatch):
    deep = "the cat"
    for name in ("deep.txt", "d.zip", "c.zip", "b.zip"):
        archive(world, {name: deep, "note.txt": DOG})
        deep = (world.folder / "a.zip").read_bytes()
    assert world.sync() == {"indexed": 7, "skipped": 2}
    assert world.reasons() == {
        "a.zip/b.zip/c.zip/d.zip/deep.txt": "it lies more than 3 files deep",
        "a.zip/b.zip/c.zip/d.zip/note.txt": "it lies more than 3 files deep",
    }
    monkeypatch.setattr(nested_files, "MAX_MEMBERS", 4)
    archive(world, {"b.zip": (world.folder / "a.zip").read_bytes(), "note.txt": DOG}, OLD + 1)
    world.sync()
    assert "its file holds more than" in world.reasons()["a.zip/b.zip/b.zip/more files"]
    assert world.states()["a.zip/b.zip/note.txt"] == "indexed"


def test_an_archive_with_too_many_files_does_not_take_the_place_of_the_next_one(world, monkeypatch):
    inner = {}
    for name, count in (("b.zip", 3), ("c.zip", 1)):
        archive(world, {f"{number}.txt": DOG for number in range(count)})
        inner[name] = (world.folder / "a.zip").read_bytes()
    archive(world, inner)
    monkeypatch.setattr(nested_files, "MAX_MEMBERS", 4)
    world.sync()
    assert list(world.reasons()) == ["a.zip/b.zip/more files"]
    assert world.states()["a.zip/c.zip/0.txt"] == "indexed"


def test_files_that_may_hold_others_are_not_for_a_cluster(world, tmp_path):
    world.write("x.md", CAT)
    archive(world, {"b.md": DOG})
    store, names = memory(tmp_path, world.encoder), []
    with open_writer(store) as writer:
        sync(
            writer,
            world.folder,
            world.encoder,
            file_indexer=lambda _writer, _root, entries, *_: names.extend(entry.path for entry in entries),
        )
    assert names == ["x.md"]
    assert sorted(Snapshot.latest(store).document_rows["path"].to_pylist()) == ["a.zip", "a.zip/b.md"]


def test_a_new_report_counts_nothing_and_adds_nothing_to_another():
    report = Report()
    report.join(Report())
    assert not any(asdict(report).values())


def test_what_is_no_folder_of_documents_is_refused(world, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / os.fsdecode(b"\xff")).mkdir()
    world.sync()
    index = Retriever.open(tmp_path / "index")
    for place, says in (
        ("none", "there is no folder or file"),
        ("pipe", "is neither a folder nor a regular file"),
        ("folder/.binocle", "is an index, not a folder of documents"),
        (os.fsdecode(b"\xff"), "is not valid UTF-8"),
    ):
        with pytest.raises(InputError, match=says):
            index.sync([tmp_path / place])


def test_the_indexed_folder_may_be_named_in_a_list(world, tmp_path):
    world.write("x.md", CAT)
    world.sync()
    assert world.retriever.sync([world.folder]).unchanged == 1
    with pytest.raises(InputError, match="is of one folder"):
        world.retriever.sync([world.folder, tmp_path])


def test_pictures_are_not_read_without_the_program_for_it(world, monkeypatch):
    monkeypatch.setattr(ocr, "COMMAND", "no-such-command")
    with pytest.raises(InputError, match="OCR needs the command no-such-command"):
        world.sync(ocr=True)


def test_the_members_of_a_file_on_a_disk_that_is_away_stay(world):
    for number in range(5):
        world.write(f"{number}.txt", CAT)
    archive(world, {f"{number}.txt": DOG for number in range(30)})
    world.sync()
    for file in [*world.folder.glob("*.txt"), world.folder / "a.zip"]:
        file.unlink()
    assert world.retriever.sync(world.folder).missing == 6
    assert len(world.states()) == 36
    assert world.sync(drop_missing=True) == {"removed": 36}


def test_one_archive_that_is_gone_is_one_file_that_is_missing(world):
    for number in range(5):
        world.write(f"{number}.txt", CAT)
    archive(world, {f"{number}.txt": DOG for number in range(30)})
    world.sync()
    (world.folder / "a.zip").unlink()
    assert world.sync() == {"unchanged": 5, "removed": 31}


def test_encoded_data_that_was_left_out_is_said_of_the_file(world):
    world.write("key.txt", CAT + "\n" + "aB3dE6gH" * 100 + "\n")
    assert world.sync() == {"indexed": 1}
    assert world.reasons() == {"key.txt": "800 characters of encoded data left out"}
    assert world.retriever.status().in_part == 1
    world.write("key.txt", CAT + " " + "aB3dE6gH" * 100, OLD + 1)
    report = world.retriever.sync(world.folder)
    assert (report.in_part, report.as_dict()["in_part"]) == (1, 1)


PICTURE = (  # "DUCKS 42" in letters of 5 by 7 squares
    "11110 10001 10001 10001 10001 10001 11110 10001 10001 10001 10001 10001 10001 01110 "
    "01110 10001 10000 10000 10000 10001 01110 10001 10010 10100 11000 10100 10010 10001 "
    "01111 10000 10000 01110 00001 00001 11110 00000 00000 00000 00000 00000 00000 00000 "
    "00010 00110 01010 10010 11111 00010 00010 01110 10001 00001 00010 00100 01000 11111"
)


def picture() -> bytes:
    """A grey bitmap (BMP) with large letters."""
    rows = PICTURE.split()
    letters = [np.array([[int(dot) for dot in row] for row in rows[at : at + 7]]) for at in range(0, len(rows), 7)]
    dots = np.pad(np.hstack([np.pad(letter, ((0, 0), (1, 1))) for letter in letters]), 3)
    grey = np.where(np.kron(dots, np.ones((12, 12))) > 0, 0, 255).astype(np.uint8)
    grey = np.pad(grey, ((0, 0), (0, -grey.shape[1] % 4)), constant_values=255)
    height, width = grey.shape
    palette = bytes(value for level in range(256) for value in (level, level, level, 0))
    head = struct.pack(
        "<2sIHHIIiiHHIIiiII", b"BM", 1078 + grey.size, 0, 0, 1078, 40, width, height, 1, 8, 0, grey.size, 0, 0, 256, 0
    )
    return head + palette + grey[::-1].tobytes()


def test_pictures_that_were_passed_over_are_to_be_read_again_where_a_run_asks_for_it(world):
    world.folder.joinpath("duck.bmp").write_bytes(picture())
    archive(world, {"a.txt": DOG, "in.bmp": "BM"})
    archive(world, {"a.txt": DOG, "in.exe": "no picture"}, name="b.zip")
    world.write("c.txt", CAT)
    world.sync()
    snapshot, index = world.retriever.snapshot(), world.folder / ".binocle"
    for languages, names in (("", []), ("eng", ["a.zip", "duck.bmp"])):
        changes = find_changes(world.folder, snapshot, leave_out=index, ocr=languages)
        assert [entry.path for entry in changes.read] == names


@pytest.mark.skipif(shutil.which("tesseract") is None, reason="needs the command tesseract")
def test_pictures_are_read_where_a_run_asks_for_it(world):
    world.folder.joinpath("duck.bmp").write_bytes(picture())
    assert world.sync() == {"skipped": 1}
    assert world.sync(ocr=True) == {"indexed": 1}
    assert "42" in world.retriever.text("duck.bmp")
    assert world.sync() == {"unchanged": 1}
    world.folder.joinpath("broken.bmp").write_bytes(b"BM nothing")
    assert world.sync(ocr=True) == {"unchanged": 1, "failed": 1}
    assert world.reasons()["broken.bmp"].startswith("Tesseract cannot read it as a picture: ")


@pytest.fixture
def tesseract(tmp_path, monkeypatch):
    """A command that knows two languages, reads as text what pictures have behind their first word, and logs."""
    command = tmp_path / "commands" / "tesseract"
    command.parent.mkdir()
    command.write_text(
        "#!/bin/sh\n"
        "if [ \"$1\" = --list-langs ]; then printf 'deu\\neng\\n'; exit; fi\n"
        f"read first words; echo $4 $words >> {tmp_path}/log; echo $words\n"
    )
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("LC_ALL", "C")
    return lambda: (tmp_path / "log").read_text().splitlines() if (tmp_path / "log").exists() else []


def word_file(world, name, words):
    """Write a Word document that shows a picture."""
    blip = '<a:blip xmlns:a="a" xmlns:r="r" r:embed="one"/>'
    relation = '<Relationship Id="one" Type="x/image" Target="media/1.png"/>'
    with zipfile.ZipFile(world.folder / name, "w") as file:
        file.writestr("[Content_Types].xml", "<Types/>")
        body = f"<p><r><t>{CAT}</t></r></p><p><r><drawing>{blip}</drawing></r></p>"
        file.writestr("word/document.xml", f"<document><body>{body}</body></document>")
        file.writestr("word/_rels/document.xml.rels", f"<Relationships>{relation}</Relationships>")
        file.writestr("word/media/1.png", f"picture {words}\n".ljust(2_000))


@pytest.mark.thorough
def test_pictures_are_read_again_in_other_languages_only(world, tesseract):
    world.write("a.png", "picture of ducks\n")
    word_file(world, "b.docx", "a goose")
    archive(world, {"c.png": "picture a swan\n", "empty.jpg": "picture\n"})
    assert world.sync() == {"indexed": 2, "skipped": 3}
    assert world.reasons()["b.docx"] == "1 picture not read (--ocr reads them)"
    assert world.sync(ocr=True) == {"indexed": 4, "skipped": 1}
    assert world.reasons() == {"a.zip/empty.jpg": "no text in it (OCR: eng)"}
    assert world.retriever.text("b.docx") == f"{CAT}\na goose"
    read = tesseract()
    assert world.sync(ocr=True) == {"unchanged": 4, "skipped": 1}
    assert set(tesseract()[len(read) :]) == {"eng of ducks", "eng a goose", "eng a swan"}  # by verify
    assert world.sync(ocr_language="deu+eng") == {"indexed": 4, "skipped": 1}
    assert world.reasons() == {"a.zip/empty.jpg": "no text in it (OCR: deu+eng)"}
    assert world.sync(ocr=True) == {"unchanged": 4, "skipped": 1}
    assert tesseract()[-1].startswith("deu+eng ")


def test_files_with_pictures_are_not_for_a_cluster_where_a_run_reads_them(world, tesseract, tmp_path):
    world.write("a.png", "picture of ducks\n")
    word_file(world, "b.docx", "a goose")
    world.write("x.md", CAT)
    for languages, elsewhere in (("", ["a.png", "b.docx", "x.md"]), ("eng", ["x.md"])):
        names: list[str] = []
        store = memory(tmp_path / (languages or "none"), world.encoder)
        with open_writer(store) as writer:
            sync(
                writer,
                world.folder,
                world.encoder,
                ocr=languages,
                file_indexer=lambda _writer, _root, entries, *_, names=names: names.extend(
                    entry.path for entry in entries
                ),
            )
        assert names == elsewhere


@pytest.mark.thorough
def test_pictures_are_read_until_a_run_ends_it(world, tesseract):
    note = "pictures are read in {}: --ocr-language names others, --no-ocr reads none"
    world.write("x.md", CAT)
    assert world.retriever.sync(world.folder, ocr=True).note == note.format("eng")
    world.write("a.png", "picture of ducks\n")
    assert world.sync() == {"unchanged": 1, "indexed": 1}
    assert world.retriever.sync(world.folder, ocr_language="deu").note == note.format("deu")
    assert world.retriever.status().ocr == "deu"
    world.write("a.png", "picture of a swan\n", OLD + 1)
    report = world.retriever.sync()
    assert (report.note, world.retriever.text("a.png")) == (note.format("deu"), "of a swan")
    assert world.sync(ocr=False) == {"unchanged": 2}
    world.write("b.png", "picture of a goose\n")
    assert world.sync() == {"unchanged": 2, "skipped": 1}
    assert world.retriever.status().ocr == ""
    assert world.sync(ocr=True) == {"unchanged": 2, "indexed": 1}
    assert world.retriever.status().ocr == "deu"  # the languages that pictures were read in last
    with pytest.raises(InputError, match="ocr_language='eng' reads pictures, and ocr=False reads none"):
        world.sync(ocr=False, ocr_language="eng")


def test_the_text_of_pictures_stays_where_tesseract_is_gone(world, tesseract, monkeypatch):
    world.write("a.png", "picture of ducks\n")
    assert world.sync(ocr=True) == {"indexed": 1}
    with monkeypatch.context() as patch:
        patch.setattr(ocr, "COMMAND", "no-such-command")
        world.write("b.png", "picture of a swan\n")
        report = world.retriever.sync()
        assert (report.unchanged, report.skipped) == (1, 1)
        assert report.note.startswith("pictures are not read: OCR needs the command no-such-command, which is not in")
        assert report.note.endswith("; --no-ocr no longer asks for it")
        with pytest.raises(InputError, match="OCR needs the command no-such-command"):
            world.sync(ocr=True)
    assert world.sync() == {"unchanged": 1, "indexed": 1}


def test_a_repair_keeps_the_text_of_pictures_where_ocr_was_ended(world, tesseract):
    world.write("a.png", "picture of ducks\n")
    world.sync(ocr=True)
    world.sync(ocr=False)
    world.write("a.png", "picture of a swan\n")
    world.retriever.repair()
    assert world.retriever.text("a.png") == "of a swan"
    assert world.retriever.status().ocr == ""


def test_verify_reads_only_those_pictures_that_a_run_read(world, tesseract):
    world.write("a.png", "picture of ducks\n")
    word_file(world, "b.docx", "a goose")
    assert world.sync(ocr=True) == {"indexed": 2}
    word_file(world, "c.docx", "a swan")
    assert world.sync(ocr=False) == {"unchanged": 2, "indexed": 1}
    assert not any("swan" in line for line in tesseract())


def test_text_of_pictures_is_kept_where_tesseract_is_gone(world, tesseract, monkeypatch):
    word_file(world, "b.docx", "a goose")
    world.sync(ocr=True)
    monkeypatch.setattr(ocr, "COMMAND", "no-such-command")
    faults = world.retriever.verify().faults
    assert [fault.problem.split(":")[0] for fault in faults] == ["cannot be read now"]
    world.retriever.repair()
    assert "goose" in world.retriever.text("b.docx")


def test_a_repair_reads_the_pictures_of_a_file_again(world, tesseract):
    word_file(world, "b.docx", "a goose")
    world.sync(ocr_language="deu")
    with open_writer(Store.open(world.folder / ".binocle")) as writer:
        row = writer.snapshot().document_rows.to_pylist()[0]
        metadata = {**json.loads(row["metadata"]), "ocr": "deu", "hidden": [0, 1]}
        syncing.rewrite_rows(writer, [{**row, "metadata": json.dumps(metadata)}])
    assert [fault.problem for fault in world.retriever.verify().faults] == [
        "is stored without the places of its hidden text"
    ]
    world.retriever.repair()
    assert world.retriever.verify().faults == []
    assert "goose" in world.retriever.text("b.docx")


def test_ocr_without_tesseract_is_refused(world, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="tesseract, which is not installed"):
        world.sync(ocr=True)
