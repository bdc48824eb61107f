"""Texts and vectors that were deleted leave the disk at a quiet moment, at the latest when their time is over."""

from __future__ import annotations

import json
import time
from datetime import timedelta

import pytest

from binocle import F, InputError, LockedError, Retriever
from binocle.retriever import deferred
from binocle.retriever.store import erasure
from binocle.retriever.store.writer import open_writer

HOUR = timedelta(hours=1)
SECRET = b"zqxvjkwp"


@pytest.fixture
def secrets(tmp_path, monkeypatch):
    monkeypatch.setattr(deferred, "_QUIET", 3600.0)
    retriever = Retriever.open(tmp_path / "index", encoder=None, dim=2)
    text = "The word is zqxvjkwp"
    rows = [{"id": name, "text": f"{text} {name}.", "embedding": [1, number]} for number, name in enumerate("abc")]
    retriever.add([*rows, {"id": "d", "text": "Nothing here.", "embedding": [0, 1]}])
    return retriever


def is_on_disk(retriever):
    return any(SECRET in file.read_bytes() for file in retriever.path.rglob("*") if file.is_file())


def until(condition):
    """Wait for another thread."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_what_is_deleted_is_erased_at_a_quiet_moment(secrets, monkeypatch):
    assert is_on_disk(secrets)
    report = secrets.delete("a", "b", "c", erase="later")
    assert (report.removed, len(secrets), is_on_disk(secrets)) == (3, 1, True)
    assert secrets.search("zqxvjkwp") == []
    assert secrets.status().erase_by is not None
    monkeypatch.setattr(deferred, "_QUIET", 0.0)
    secrets.add([{"id": "e", "text": "More.", "embedding": [1, 1]}])
    until(lambda: erasure.due(secrets.location) is None)
    assert not is_on_disk(secrets)
    assert secrets.status().erase_by is None
    assert sorted(record.id for record in secrets.iterate()) == ["d", "e"]
    assert not secrets.verify().faults


def test_a_full_disk_does_not_end_later_erasures(monkeypatch):
    monkeypatch.setattr(deferred, "_QUIET", 0.0)
    attempts = []

    def erase():
        attempts.append(None)
        if len(attempts) == 1:
            raise OSError("no space left on device")
        promise.note_write(None)

    promise = deferred.DeferredErasure(erase)
    promise.note_write(time.time())
    until(lambda: attempts and promise._thread is None)
    promise.note_write(time.time())
    until(lambda: len(attempts) == 2)
    promise.close()
    assert len(attempts) == 2


def test_no_quiet_moment_delays_it_for_longer_than_was_said(secrets):
    secrets.delete("a", "b", "c", erase=timedelta(milliseconds=50))
    until(lambda: erasure.due(secrets.location) is None)
    assert not is_on_disk(secrets)


def test_closing_erases_what_waits(secrets):
    with secrets:
        secrets.delete(where=F.path != "d", erase=HOUR)
        assert is_on_disk(secrets)
    assert not is_on_disk(secrets)
    assert len(Retriever.open(secrets.path)) == 1


def test_a_promise_outlives_its_process(secrets):
    secrets.clear(erase=HOUR)
    other = Retriever.open(secrets.path)
    other.add([{"id": "e", "text": "More.", "embedding": [1, 1]}])
    assert is_on_disk(secrets)
    (secrets.path / "erase.json").write_text(json.dumps({"due": time.time() - 1}), "utf-8")  # the hour is over
    with open_writer(other.snapshot().store):
        pass
    assert not is_on_disk(secrets)
    assert erasure.due(secrets.location) is None


def test_the_earlier_of_two_promises_holds(secrets):
    secrets.delete("a", erase=timedelta(minutes=1))
    first = erasure.due(secrets.location)
    secrets.delete("b", erase=HOUR)
    assert erasure.due(secrets.location) == first
    secrets.delete("c", erase=True)
    assert erasure.due(secrets.location) is None
    assert not is_on_disk(secrets)


def test_a_scope_erases_later_too(secrets):
    scope = secrets.scope(F.path != "d")
    assert scope.delete("a", "d", erase=HOUR).removed == 1
    assert scope.clear(erase=HOUR).removed == 2
    secrets.close()
    assert not is_on_disk(secrets)


def test_what_another_process_has_erased_is_not_erased_again(secrets):
    secrets.delete("a", erase=HOUR)
    with open_writer(secrets.snapshot().store) as writer:
        writer.erase_deleted()
        assert writer.erasure_due is None
        commits = writer.head.commits
        writer.erase_deleted()
        assert writer.head.commits == commits
    assert erasure.due(secrets.location) is None


def test_another_writer_only_delays_it(secrets, monkeypatch):
    monkeypatch.setattr(deferred, "_AGAIN", 0.01)
    attempts, erase = [], secrets._index.erase_deleted

    def refused_twice():
        attempts.append(1)
        if len(attempts) < 3:
            raise LockedError("another process is writing")
        erase()

    secrets._index.erase_deleted = refused_twice
    secrets.delete("a", "b", "c", erase=timedelta(milliseconds=1))
    until(lambda: erasure.due(secrets.location) is None)
    assert (len(attempts), is_on_disk(secrets)) == (3, False)


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"due": "x"}', b'{"due": NaN}', b"\xff", b"[" * 100_000])
def test_a_promise_that_cannot_be_read_is_due(secrets, data):
    (secrets.path / "erase.json").write_bytes(data)
    assert erasure.due(secrets.location) == 0


@pytest.mark.parametrize("erase", ["soon", timedelta(0), timedelta(-1), 5, None])
def test_a_time_that_is_none_is_refused(secrets, erase):
    for call in (secrets.delete, secrets.scope(F.path != "d").delete):
        with pytest.raises(InputError, match="erase is True, False, 'later', or a timedelta above 0"):
            call("a", erase=erase)
    assert len(secrets) == 4
