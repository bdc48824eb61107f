"""The index follows its folder: a thread watches real files through the system's own events."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip("watchfiles")

from binocle import Retriever
from binocle.commands.watch import _print as print_update
from binocle.core.errors import InputError
from binocle.retriever.indexing.report import Report
from binocle.retriever.servers import watch as watching
from binocle.retriever.servers.watch import Update, watch

PATIENCE = 60.0  # seconds until a test gives up: no test needs them


class Watch:
    """A watch in a thread, and its updates in order."""

    def __init__(self, retriever, folder=None, **options):
        self.stop, self.updates = threading.Event(), queue.Queue()
        self.thread = threading.Thread(target=self.run, args=(retriever, folder), kwargs=options)
        self.thread.start()

    def run(self, retriever, folder, **options):
        for update in watch(retriever, folder, stop=self.stop, **options):
            self.updates.put(update)

    def next(self):
        return self.updates.get(timeout=PATIENCE)

    def next_report(self):
        """The report of the next sync that was not kept waiting by another writer."""
        while (update := self.next()).report is None:
            assert "being written" in update.problem
        return update.report

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(watching, "_QUIET_MS", 60)
    monkeypatch.setattr(watching, "_LOOK_MS", 60)


def paths(retriever):
    return {document.id for document in retriever.iterate()}


def test_a_new_a_changed_and_a_deleted_file_are_followed(retriever, folder):
    with Watch(retriever, folder) as updates:
        first = updates.next().report
        assert (first.indexed, first.removed) == (0, 0)
        (folder / "new.md").write_text("Walruses rest upon the ice.")
        assert updates.next().report.indexed == 1
        assert retriever.search("walruses ice", k=1)[0].path == "new.md"
        (folder / "new.md").write_text("Kestrels hover above the motorway.")
        assert updates.next().report.indexed == 1
        assert retriever.search("kestrels", k=1, mode="lexical")[0].path == "new.md"
        (folder / "new.md").unlink()
        assert updates.next().report.removed == 1
        assert "new.md" not in paths(retriever)
        (folder / ".gitignore").write_text("tasks.md\n")
        assert updates.next().report.removed == 1


def test_a_burst_of_files_is_one_sync(retriever, folder):
    with Watch(retriever, folder) as updates:
        updates.next()
        for number in range(40):
            (folder / f"{number}.txt").write_text(f"line {number}")
        indexed = [updates.next().report.indexed]
        while sum(indexed) < 40:
            indexed.append(updates.next().report.indexed)
        assert len(indexed) < 10  # one, unless a slow machine pauses for longer than the quiet time
        assert {f"{number}.txt" for number in range(40)} <= paths(retriever)


def test_files_in_a_new_folder_are_followed(retriever, folder):
    with Watch(retriever, folder) as updates:
        updates.next()
        (folder / "deep/er").mkdir(parents=True)
        (folder / "deep/er/a.md").write_text("Ospreys dive for fish.")
        assert updates.next().report.indexed == 1
        (folder / "deep/er/b.md").write_text("Herons wait for them.")
        assert updates.next().report.indexed == 1
        assert {"deep/er/a.md", "deep/er/b.md"} <= paths(retriever)


@pytest.mark.parametrize("poll", [None, 0.1])
def test_a_name_that_is_not_utf_8_does_not_end_the_watch(retriever, folder, poll):
    odd = os.fsencode(folder) + b"/bad\xff.txt"
    with Watch(retriever, folder, poll=poll) as updates:
        updates.next()
        try:
            with open(odd, "wb") as file:
                file.write(b"never read")
        except OSError:
            pytest.skip("this file system takes only UTF-8")
        (folder / "seen.md").write_text("Lapwings call.")
        assert updates.next().report.indexed == 1
        (folder / "later.md").write_text("Curlews answer.")
        assert updates.next().report.indexed == 1


def test_hidden_files_and_the_index_itself_wake_nobody(retriever, folder):
    with Watch(retriever, folder) as updates:
        updates.next()
        (folder / ".git").mkdir()
        (folder / ".git/index").write_text("x")
        (retriever.path / "scratch").write_text("x")
        (folder / "seen.md").write_text("Lapwings call.")
        assert updates.next().report.indexed == 1
        assert updates.updates.empty()


def test_a_folder_that_vanishes_keeps_its_documents_and_is_followed_again(retriever, folder, tmp_path):
    before = paths(retriever)
    away = tmp_path / "away"
    other = type(retriever).open(retriever.path)
    with Watch(retriever, folder) as updates:
        updates.next()
        folder.rename(away)
        update = updates.next()
        assert update.report is None
        assert update.problem == f"{folder} is away: its documents stay in the index until it is back"
        away.rename(folder)
        updates.next()
        assert paths(other) == before
        (folder / "back.md").write_text("Swallows return in spring.")
        assert updates.next().report.indexed == 1
        assert paths(other) == before | {"back.md"}


def test_polling_finds_changes_without_events(retriever, folder):
    with Watch(retriever, folder, poll=0.1) as updates:
        updates.next()
        (folder / "polled.md").write_text("Curlews probe the mud.")
        assert updates.next().report.indexed == 1
        assert "polled.md" in paths(retriever)


def test_a_locked_index_is_a_problem_said_once_and_tried_again(retriever, folder, monkeypatch):
    monkeypatch.setattr(watching, "_RETRY_SECONDS", 0.1)
    with contextlib.ExitStack() as stack:
        with type(retriever).open(retriever.path)._index.writer():
            updates = stack.enter_context(Watch(retriever, folder))
            assert "is being written by" in updates.next().problem
            threading.Event().wait(0.5)
            assert updates.updates.empty()
        assert updates.next().report.unchanged > 0


def test_a_burst_that_may_have_lost_events_opens_the_watch_anew(retriever, folder, monkeypatch):
    monkeypatch.setattr(watching, "_MAX_CHANGES", 3)
    opened = []
    real = watching._Changes
    monkeypatch.setattr(watching, "_Changes", lambda *arguments: opened.append(1) or real(*arguments))
    with Watch(retriever, folder) as updates:
        updates.next()
        for number in range(9):
            (folder / f"{number}.txt").write_text(f"line {number}")
        total = 0
        while total < 9:
            report = updates.next().report
            total += report.indexed
        (folder / "last.txt").write_text("the last one")
        while "last.txt" not in paths(retriever):
            updates.next()
        assert len(opened) > 1


def test_a_folder_that_is_not_there_is_refused(retriever, tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        next(watch(retriever, tmp_path / "nowhere"))


def test_a_file_is_no_folder(retriever, folder):
    with pytest.raises(InputError, match=r"README\.md is a file: expected a folder"):
        next(watch(retriever, folder / "README.md"))


def test_the_index_of_another_folder_is_refused(retriever, tmp_path):
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="is of .*, not of .*other"):
        next(watch(retriever, tmp_path / "other"))


@pytest.fixture
def collection(tmp_path, tiny_model):
    """A collection of a folder and a file, which watches follow without being told."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/a.md").write_text("Walruses rest upon the ice.")
    (tmp_path / "faq.md").write_text("Ospreys dive for fish.")
    retriever = Retriever.open(tmp_path / "all", model=tiny_model)
    retriever.sync([tmp_path / "notes", tmp_path / "faq.md"])
    return retriever


def test_all_folders_and_files_of_a_collection_are_followed(collection, tmp_path):
    with Watch(collection) as updates:
        assert updates.next().report.unchanged == 2
        (tmp_path / "notes/b.md").write_text("Herons wait.")
        assert updates.next().report.indexed == 1
        (tmp_path / "faq.md").write_text("Lapwings call.")
        assert updates.next().report.indexed == 1
        (tmp_path / "new").write_text("Kestrels hover.")
        (tmp_path / "new").rename(tmp_path / "faq.md")  # as editors save
        assert updates.next().report.indexed == 1
        (tmp_path / "faq.md").write_text("Swallows return.")
        assert updates.next().report.indexed == 1
    assert collection.search("swallows", k=1, mode="lexical")[0].path.endswith("faq.md")


def test_a_folder_of_a_collection_that_is_away_keeps_its_documents_and_comes_back(collection, tmp_path):
    with Watch(collection) as updates:
        updates.next()
        (tmp_path / "notes").rename(tmp_path / "away")
        assert "not there" in updates.next().report.note
        assert len(collection) == 2
        (tmp_path / "away/b.md").write_text("Herons wait.")
        (tmp_path / "away").rename(tmp_path / "notes")
        assert updates.next().report.indexed == 1
        (tmp_path / "notes/c.md").write_text("Curlews probe the mud.")
        assert updates.next().report.indexed == 1


def test_a_folder_that_joins_the_collection_is_followed(collection, tmp_path):
    (tmp_path / "more").mkdir()
    with Watch(collection) as updates:
        updates.next()
        type(collection).open(collection.path, wait=30).sync([tmp_path / "more"])
        (tmp_path / "more/d.md").write_text("Curlews probe the mud.")
        reports = (updates.next_report() for _ in range(2))  # perhaps first one of the new folder without the file
        assert any(report.indexed == 1 for report in reports)


def test_a_folder_that_is_taken_out_of_the_collection_is_no_longer_followed(collection, tmp_path, monkeypatch):
    waits = queue.Queue()
    wait = watching._Changes.wait
    monkeypatch.setattr(watching._Changes, "wait", lambda self, *rest: waits.put(self.roots) or wait(self, *rest))
    with Watch(collection):
        assert waits.get(timeout=PATIENCE) == [tmp_path / "faq.md", tmp_path / "notes"]
        type(collection).open(collection.path, wait=30).sync(drop=[tmp_path / "notes"])
        while (roots := waits.get(timeout=PATIENCE)) != [tmp_path / "faq.md"]:
            assert tmp_path / "faq.md" in roots  # a sync that another writer kept waiting


@pytest.mark.parametrize(
    ("mounts", "events"),
    [
        ("/dev/vda / ext4 rw 0 0\nserver:/home /mnt nfs4 rw 0 0\n", False),
        ("/dev/vda / ext4 rw 0 0\nserver:/home /mnt/other nfs4 rw 0 0\n", True),
        ("server:/ / nfs rw 0 0\ntmpfs /mnt tmpfs rw 0 0\n", True),
        ("sshfs /mnt/notes fuse.sshfs rw 0 0\n", False),
    ],
)
def test_network_shares_are_polled(mounts, events, monkeypatch):
    monkeypatch.setattr(watching.Path, "read_text", lambda *_: mounts)
    assert watching._has_events(watching.Path("/mnt/notes")) is events


@pytest.mark.thorough
def test_the_command_prints_each_change_and_ends_without_a_word(folder, retriever):
    command = [sys.executable, "-m", "binocle.cli", "watch", str(folder), "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ.copy()
    )
    try:
        assert json.loads(process.stdout.readline())["files"]["indexed"] == 0
        (folder / "new.md").write_text("Walruses rest upon the ice.")
        assert json.loads(process.stdout.readline())["files"]["indexed"] == 1
    finally:
        process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, "")
    assert err == f"watching {folder}; Ctrl-C ends it\n"


def test_the_command_prints_a_note_that_stays_once(capsys):
    for note in ("", "a note", "another"):
        print_update(Update(Report(note="a note")), note, as_json=False)
    assert capsys.readouterr().err == "a note\n" * 2


@pytest.mark.thorough
def test_nothing_is_lost_in_24_000_events(retriever, folder):
    with Watch(retriever, folder) as updates:
        updates.next()
        kept = set()
        for number in range(12_000):
            file = folder / f"sub{number % 97}/{number}.txt"
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"line {number}")
            if number % 2:
                file.unlink()
            else:
                file.write_text(f"another line {number}")
                kept.add(f"sub{number % 97}/{number}.txt")
        end = time.monotonic() + 600
        while not kept <= paths(retriever) and time.monotonic() < end:
            updates.updates.get(timeout=600)
        assert {path for path in paths(retriever) if path.startswith("sub")} == kept
        assert all(row.text.startswith("another") for row in retriever.get(sorted(kept)[::500]))
