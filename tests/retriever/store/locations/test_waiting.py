"""Writers that wait for one another, in order of arrival; readers, who never do."""

from __future__ import annotations

import os
import threading
import time

import pytest
from filelock import FileLock

from binocle import Retriever
from binocle.core.errors import InputError, LockedError
from binocle.retriever.store.locations.folder_location import FolderLocation
from binocle.retriever.store.locations.patience import Patience
from binocle.retriever.store.locations.waiting_line import Busy, WaitingLine, is_ticket, wait_for
from binocle.retriever.store.store import Store
from binocle.retriever.store.writer import open_writer

DOG = [{"id": "dog", "text": "The dog ran."}]


def tickets(index):
    return [entry for entry in index.iterdir() if is_ticket(entry.name)]


def in_time(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_writer_waits_and_says_once_for_whom(retriever):
    lines = []
    with open_writer(Store.open(retriever.path)):
        other = Retriever.open(retriever.path, wait=60, on_wait=lines.append)
        thread = threading.Thread(target=other.add, args=[DOG])
        thread.start()
        in_time(lambda: lines)
        time.sleep(0.2)  # some attempts more
    thread.join()
    (line,) = lines
    assert line.startswith(f"{retriever.path} is being written by process ")
    assert line.endswith(": waiting up to 60 s for it")
    assert "dog" in [row["path"] for row in retriever.documents()]
    assert tickets(retriever.path) == []


def test_writers_that_wait_take_turns_in_order_of_arrival(retriever):
    order = []

    def write(number):
        with open_writer(Store.open(Retriever.open(retriever.path, wait=60).location)):
            order.append(number)

    threads = [threading.Thread(target=write, args=[number]) for number in range(6)]
    with open_writer(Store.open(retriever.path)):
        for number, thread in enumerate(threads):
            thread.start()
            in_time(lambda number=number: len(tickets(retriever.path)) == number + 1)
    for thread in threads:
        thread.join()
    assert order == list(range(6))
    assert tickets(retriever.path) == []


def test_who_does_not_wait_is_refused_while_it_is_anothers_turn(retriever):
    line = WaitingLine(retriever.path)
    line.join()
    with pytest.raises(LockedError, match="is being written by process .*, whose turn it is: try again"):
        retriever.add(DOG)
    line.leave()
    assert retriever.add(DOG).indexed == 1


def test_a_dead_writer_has_no_turn(retriever):
    (retriever.path / "waiting-00000001-12345-0123abcd").touch()
    assert retriever.add(DOG).indexed == 1
    assert tickets(retriever.path) == []


def test_ticket_that_another_writer_takes_for_a_dead_one_is_replaced(retriever, monkeypatch):
    acquire, looks = FileLock.acquire, []

    def acquire_second(lock, **options):
        if not looks:
            looks.append(FileLock(lock.lock_file, timeout=0))
            acquire(looks[0])
        return acquire(lock, **options)

    monkeypatch.setattr(FileLock, "acquire", acquire_second)
    line = WaitingLine(retriever.path)
    line.join()
    (ticket,) = tickets(retriever.path)
    ticket.unlink()
    looks[0].release()
    line.join()
    assert tickets(retriever.path) not in ([], [ticket])
    assert WaitingLine(retriever.path).first() == os.getpid()
    line.leave()


def test_patience_ends_with_the_name_of_the_writer(retriever):
    with open_writer(Store.open(retriever.path)):
        impatient = Retriever.open(retriever.path, wait=0.1)
        with pytest.raises(LockedError, match=r"is still being written by process .* after 0.1 s: try again"):
            impatient.add(DOG)
    assert tickets(retriever.path) == []


def test_a_short_patience_lasts_until_its_end(tmp_path):
    location = FolderLocation(tmp_path)
    location.patience = Patience(seconds=0.9)
    attempts = iter("ab")

    def attempt():
        for name in attempts:
            raise Busy(f"process {name}")
        return "the lock"

    assert wait_for(location, attempt, poll_seconds=0.001) == "the lock"


def test_a_folder_that_another_process_removes_is_made_anew_by_who_waits(tmp_path, monkeypatch):
    first, removals = WaitingLine.first, []

    def first_after_removal(line):
        if removals:
            removals.pop().rmdir()
        return first(line)

    monkeypatch.setattr(WaitingLine, "first", first_after_removal)
    location = FolderLocation(tmp_path / "index")
    removals.append(location.cache)
    with pytest.raises(LockedError, match="is being written by a process that removes it: try again"):
        location.locked().__enter__()
    removals.append(location.cache)
    location.patience = Patience(seconds=60)
    with location.locked():
        assert (location.cache / "lock.json").exists()


def test_tickets_do_not_make_a_free_folder_something_else(tmp_path, tiny_model):
    folder = tmp_path / "new"
    folder.mkdir()
    WaitingLine(folder).join()
    assert Retriever.open(folder, model=tiny_model).location.is_free()


def test_readers_wait_for_nobody(retriever):
    """Neither for the one who writes nor for those who wait."""
    line = WaitingLine(retriever.path)
    with open_writer(Store.open(retriever.path)) as writer:
        line.join()
        writer.stage(writer.snapshot().chunks.to_table())
        reader = Retriever.open(retriever.path)
        assert reader.search("cat")
        assert reader.similar("notes/cats.txt", 1)
        assert reader.status().documents["indexed"] == 7
        assert reader.verify().faults == []
        assert reader.context("cat").text
    line.leave()


@pytest.mark.parametrize("wait", [-1, float("nan"), float("inf"), "1", None, True])
def test_another_wait_than_seconds_is_refused(wait, tmp_path):
    with pytest.raises(InputError, match="waits for a number of seconds from 0"):
        Retriever.open(tmp_path, wait=wait)


def test_a_folder_that_is_no_index_keeps_its_files_when_the_lock_is_given_up(tmp_path):
    folder = tmp_path / "folder"
    location = FolderLocation(folder)
    with location.locked():
        (folder / "locksmith.txt").write_text("mine")
        (folder / ".lockdown").write_text("mine")
        location.abandon()
    assert sorted(path.name for path in folder.iterdir()) == [".lockdown", "locksmith.txt"]
