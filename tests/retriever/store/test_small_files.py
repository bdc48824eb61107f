"""The small files of an index, their limits and permissions, and the lock."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import lance
import numpy as np
import pyarrow as pa
import pytest
from filelock import FileLock

from binocle import Retriever
from binocle.core.errors import DamagedError, InputError, LockedError, StoreError, UntrustedError
from binocle.core.runtime import forking
from binocle.retriever.store import collection, erasure, tables, tombstones
from binocle.retriever.store import store as storing
from binocle.retriever.store.foreign import trust
from binocle.retriever.store.head import Head, Settings
from binocle.retriever.store.locations import waiting_line
from binocle.retriever.store.locations.folder_location import FolderLocation, writer_at, writer_since
from binocle.retriever.store.locations.location import ANY, HEAD, NEW, PREVIOUS
from binocle.retriever.store.locations.new_files import NewFiles
from binocle.retriever.store.locations.patience import Patience
from binocle.retriever.store.locations.waiting_line import WaitingLine
from binocle.retriever.store.root import Request
from binocle.retriever.store.snapshot import Snapshot
from binocle.retriever.store.store import Store
from binocle.retriever.store.stored_heads import StoredHead, keys_of, read_heads, store_heads
from binocle.retriever.store.tables import TableLocation, document_schema, lance_message, manifests, matrix, open_table
from binocle.retriever.store.writer import open_writer

from .test_store import ENCODER, change, chunk_row, chunks, document_row, put


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "index", ENCODER)


# HEAD.json and settings.json


def test_the_head_of_a_new_index_counts_from_zero(store):
    head = store.head()
    assert (head.next_document, head.next_chunk, head.rows, head.commits, head.erase) == (0, 0, 0, 0, False)
    assert (head.published, head.previous, head.demand) == ((), None, None)
    with open_writer(store) as writer:
        writer.commit(drop=[], documents=document_schema().empty_table())
        head = writer.head
    assert (head.next_document, head.next_chunk, head.rows, head.commits) == (0, 0, 0, 1)
    assert Head.of(asdict(head)) == head == store.head()


@pytest.mark.parametrize("name", ["next_document", "next_chunk", "rows", "commits"])
def test_counts_in_the_head_fit_62_bits(name, store):
    for value, is_possible in ((2**62 - 1, True), (2**62, False), (0, True), (-1, False), (True, False)):
        change(store.path / HEAD, **{name: value})
        if is_possible:
            assert getattr(store.head(), name) == value
        else:
            with pytest.raises(DamagedError, match=r"HEAD.json is not what was written"):
                store.head()


@pytest.mark.parametrize(
    "changes",
    [
        {"vectors": "../x"},
        {"shards": ["flat-1/x"]},
        {"words": [3]},
        {"neighbours": {}},
        {"tombstone_key": "f" * 31},
        {"tombstone_key": "F" * 32},
        {"tombstone_key": 3},
        {"erase": 1},
        {"index": {"kind": 3}},
        {"index": {"build": []}},
        {"index": {"search": "x"}},
        {"demand": {"recall": 7}},
        {"encoder": None},
        {"previous": 3},
    ],
)
def test_a_value_of_the_head_that_no_commit_writes_is_damage(changes, store):
    change(store.path / HEAD, **({"vectors": "flat-1-0"} | changes))
    with pytest.raises(DamagedError, match=r"HEAD.json is not what was written"):
        store.head()


def test_an_encoder_without_an_adapter_is_written_as_earlier_versions_read_it(store):
    assert not {"base", "base_fingerprint"} & json.loads((store.path / HEAD).read_text())["encoder"].keys()
    adapted = replace(ENCODER, base="base/model", base_fingerprint="0" * 32)
    with open_writer(store) as writer:
        writer.replace_encoder(adapted)
    assert store.head().encoder == adapted
    assert json.loads((store.path / HEAD).read_text())["encoder"]["base"] == "base/model"


@pytest.mark.parametrize(
    ("changes", "is_possible"),
    [
        ({"folder": "a\0b"}, False),
        ({"folder": 3}, False),
        ({"folder": "a\ud800"}, False),
        ({"folder": "a\udcff"}, True),  # a byte that is not UTF-8
        ({"folder": "a"}, True),
        ({"folder": None}, True),
        ({"id": "f" * 32}, True),
        ({"id": "f" * 31}, False),
        ({"id": 3}, False),
        ({"format": True}, False),
        ({"format": 4.0}, False),
        ({"folders": ["/a"]}, False),
        ({"format": 5, "folders": ["/a"], "folder": "/"}, True),
        ({"format": 5, "folders": ["/a"], "folder": "/a"}, False),
        ({"format": 5, "folders": ["a"], "folder": "/"}, False),
        ({"format": 5, "folders": ["/a/../b"], "folder": "/"}, False),
        ({"format": 5, "folders": [], "exclude": ["*.log"]}, True),
        ({"format": 5, "exclude": [""]}, False),
        ({"format": 5, "exclude": ["a\0"]}, False),
        ({"format": 5, "exclude": "a"}, False),
        ({"format": 5, "ocr": "deu+eng"}, True),
        ({"format": 5, "ocr": ["deu"]}, False),
        ({"format": 5, "ocr": "deu\0"}, False),
        ({"ocr": "deu"}, False),
    ],
)
def test_settings_are_those_that_an_index_writes_or_damage(changes, is_possible, store):
    change(store.path / "settings.json", **changes)
    if is_possible:
        settings = Settings.read(store.location)
        assert all(
            getattr(settings, name) in (value, tuple(value or ()))
            for name, value in changes.items()
            if name != "format"
        )
    else:
        with pytest.raises(DamagedError, match=r"settings.json is not what was written"):
            Settings.read(store.location)


@pytest.mark.parametrize("version", [0, -1, 6])
def test_formats_of_no_version_are_refused(version, store):
    change(store.path / "settings.json", format=version)
    with pytest.raises(StoreError, match=f"has format {version}, and this version of Binocle reads 1 to 5"):
        Settings.read(store.location)


def test_a_new_index_has_a_current_full_text_index_and_can_be_read_at_once(tmp_path):
    store = Store.create(tmp_path / "new", ENCODER)
    assert store.trusted
    assert Snapshot.latest(store).has_current_text()
    assert Snapshot.latest(store).full_text("cat", 3).num_rows == 0


def test_going_back_needs_trust_and_is_a_commit_after_both_states(store):
    with open_writer(store) as writer:
        put(writer, 0)
        put(writer, 1)
    damaged, previous = store.head(), store.previous()
    with pytest.raises(UntrustedError):
        storing.go_back(replace(store, trusted=False), damaged)
    assert store.head() == damaged
    storing.go_back(store, damaged)
    assert store.head() == replace(previous, commits=previous.commits + 2)
    assert store.head().commits == damaged.commits + 1


def test_going_back_without_a_state_before_changes_nothing(store):
    (store.path / PREVIOUS).unlink()
    head = store.head()
    storing.go_back(store, head)
    assert store.head() == head


# Folders


def test_folders_and_patterns_that_change_nothing_are_no_change(store, tmp_path):
    root = tmp_path / "docs"
    root.mkdir()
    store = replace(store, settings=replace(store.settings, folder=str(root), exclude=("*.log",)))
    assert not Request(root).changes(store, str(root))
    assert not Request(root, exclude=("*.log",)).changes(store, str(root))
    assert Request(root, exclude=("*.tmp",)).changes(store, str(root))
    assert Request(root, exclude_anew=True).changes(store, str(root))
    assert not Request(root, ocr="").changes(store, str(root))
    assert Request(root, ocr="deu").changes(store, str(root))
    assert Request(tmp_path).changes(store, str(tmp_path))
    assert Request(root, folders=("/a",)).changes(store, str(root))
    assert Request(root).changes(replace(store, settings=replace(store.settings, folder=None)), str(root))


def test_patterns_have_at_most_1000_characters(tmp_path):
    request = Request(tmp_path)
    longest = "a" * 1_000
    assert request.holding(drop=(), exclude=[longest, longest], exclude_anew=False).exclude == (longest,)
    for pattern in ("a" * 1_001, "a\nb", "a\0", 3):
        with pytest.raises(InputError, match="is not a pattern: expected one line"):
            request.holding(drop=(), exclude=[pattern], exclude_anew=False)


def test_names_of_collections_have_at_most_200_bytes():
    path = collection.collection_path("ä" * 100)
    assert path.name == "ä" * 100
    assert [collection.is_collection_path(place) for place in (path, str(path), path.parent, path / "a")] == [
        *(True, True, False, False)
    ]
    with pytest.raises(InputError, match="has at most 200 bytes, not 201"):
        collection.collection_path("ä" * 100 + "b")


def test_a_collection_is_forgotten_with_its_index_even_if_a_killed_removal_left_half_of_one(
    tmp_path, monkeypatch, tiny_model, write
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = collection.collection_path("all")
    Retriever.open(path, model=tiny_model).sync([write(tmp_path / "docs", {"a.md": "The cat sat.\n"})])
    changed = collection.collections()[0].changed
    assert changed == max((path / name).stat().st_mtime for name in (HEAD, PREVIOUS))
    (note,) = (tmp_path / "state/binocle/trusted").iterdir()
    (path.with_name(".all") / "chunks.lance").mkdir(parents=True)
    assert collection.remove_collection("all").folders == [str(tmp_path / "docs")]
    assert not note.exists()
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("damage", [lambda file: file.write_text("{"), lambda file: file.unlink()])
def test_a_damaged_collection_has_no_time_and_says_how_it_is_made_anew(damage, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    Store.create(collection.collection_path("all"), ENCODER)
    damage(collection.collection_path("all") / "settings.json")
    (found,) = collection.collections()
    assert (found.name, found.folders, found.changed) == ("all", [], None)
    remedy = ": 'binocle collections --remove all', and then 'binocle index FOLDER … --name all' makes it anew"
    assert found.bytes > 0 and "settings.json" in found.problem and found.problem.endswith(remedy)
    assert "--index" not in found.problem


# Trust


def test_the_note_of_trust_is_for_the_user_alone_whatever_the_umask(store, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    before = os.umask(0)
    try:
        trust.remember(store.location, "0" * 32)
        trust.remember(store.location, "0" * 32)
    finally:
        os.umask(before)
    note = tmp_path / "state/binocle/trusted" / ("0" * 32)
    assert (stat.S_IMODE(note.stat().st_mode), stat.S_IMODE(note.parent.stat().st_mode)) == (0o600, 0o700)
    assert [entry.name for entry in note.parent.iterdir()] == [note.name]


def test_an_index_that_was_never_trusted_is_forgotten_without_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    trust.forget("0" * 32)
    assert not (tmp_path / "state").exists()


# Heads


def head_of(**changes):
    return StoredHead(**({"key": "a", "keys": ("a",), "model": "m"} | changes))


@pytest.mark.parametrize(
    ("changes", "is_valid"),
    [
        ({}, True),
        ({"names": ("x",)}, False),
        ({"model": "", "names": ("x",)}, True),
        ({"model": ""}, False),
        ({"model": 3}, False),
        ({"keys": ()}, False),
        ({"keys": ("a",) * 1_000}, True),
        ({"keys": ("a",) * 1_001}, False),
        ({"keys": (3,)}, False),
        ({"is_removed": 1}, False),
        ({"is_removed": True}, True),
        ({"precision": 0.5}, True),
        ({"precision": 0.01}, True),
        ({"precision": 0.99}, True),
        ({"precision": 0}, False),
        ({"precision": 1}, False),
        ({"precision": 1.5}, False),
        ({"precision": "x"}, False),
        ({"precision": float("nan")}, False),
    ],
)
def test_a_stored_head_has_possible_values_or_is_ignored(changes, is_valid, store):
    head = head_of(**changes)
    assert head.is_valid() == is_valid
    store_heads(store.location, {"a": head})
    assert read_heads(store.location) == ({"a": head} if is_valid else {})
    assert keys_of(store.location) == (frozenset("a") if is_valid else frozenset())


def test_of_many_heads_the_first_1000_are_read(store):
    store_heads(store.location, {f"{number}": head_of(key=f"{number}") for number in range(1_001)})
    assert [*read_heads(store.location)] == [f"{number}" for number in range(1_000)]
    assert not head_of().is_removed


# Erasure


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"3", b'{"due": true}', b'{"due": "x"}', b"[" * 100_000])
def test_a_damaged_deadline_means_now(data, store):
    (store.path / "erase.json").write_bytes(data)
    assert erasure.due(store.location) == 0.0


def test_the_earliest_deadline_counts(store):
    assert erasure.due(store.location) is None
    assert erasure.promise(store.location, 50) == 50
    assert erasure.promise(store.location, 70) == 50
    assert erasure.promise(store.location, 20.5) == erasure.due(store.location) == 20.5
    erasure.clear(store.location)
    erasure.clear(store.location)
    assert erasure.due(store.location) is None


def test_a_tombstone_says_nothing_but_the_hash_of_a_name():
    key = tombstones.new_key()
    rows = tombstones.tombstones(["b", "a", "a"], key, 7).to_pylist()
    assert [row["id"] for row in rows] == [7, 8]
    assert [row["path"] for row in rows] == sorted(tombstones.digest(name, key) for name in "ab")
    empty = dict.fromkeys(("reason", "sha256", "format", "title", "text"), "")
    zero = {"size": 0, "mtime_ns": 0, "chunks": 0, "settled": False}
    for row in rows:
        assert row == empty | zero | {"source": "forgotten", "state": "skipped", "metadata": "{}"} | {
            name: row[name] for name in ("id", "path")
        }


# Tables


def test_words_are_found_in_other_forms_and_cases_and_words_without_meaning_are_not(store):
    with open_writer(store) as writer:
        writer.stage(chunks(chunk_row(0, 0, "The RUNNING cats of the café in snake_case")))
        writer.commit(drop=[], documents=pa.Table.from_pylist([document_row(0)], document_schema()))
        writer.finish(rebuild=True)
    snapshot = Snapshot.latest(store)
    found = {word: snapshot.full_text(word, 3).num_rows for word in ("run", "cat", "Cafe", "snake", "the", "dog")}
    assert found == {"run": 1, "cat": 1, "Cafe": 1, "snake": 1, "the": 0, "dog": 0}
    assert snapshot.full_text("cat dog", 3).num_rows == 1
    assert snapshot.full_text("cat dog", 3, every=True).num_rows == 0
    from lance.query import PhraseQuery

    with pytest.raises(ValueError, match="position"):  # they would double the size of the index
        snapshot.chunks.scanner(full_text_query=PhraseQuery("run cat", "context")).to_table()


def test_no_table_is_opened_in_a_process_that_was_forked_from_a_reader(store, monkeypatch):
    def refuse():
        raise StoreError("forked")

    monkeypatch.setattr(forking, "check", refuse)
    with pytest.raises(StoreError, match="forked"):
        open_table(store.location.table("chunks"))


def test_files_of_others_are_no_versions_of_a_table(tmp_path):
    location = TableLocation(str(tmp_path / "t.lance"))
    for number in range(3):
        lance.write_dataset(pa.table({"id": [number]}), location.uri, mode="append")
    folder = tmp_path / "t.lance/_versions"
    (folder / "foreign.manifest").write_text("mine")
    (folder / "4.manifest").write_text("the old way to name a version")
    (folder / "note.txt").touch()
    assert sorted(number for number, _ in manifests(location)) == [0, 1, 2, 3, 4]
    tables.drop_later_versions(location, 2)
    assert sorted(number for number, _ in manifests(location)) == [0, 1, 2]
    assert (folder / "foreign.manifest").read_text() == "mine"
    assert not (folder / "latest_version_hint.json").exists()
    tables.drop_version_hint(location)


def test_rows_that_cannot_be_read_after_a_deletion_are_an_error(tmp_path, monkeypatch):
    location = TableLocation(str(tmp_path / "t.lance"))
    lance.write_dataset(pa.table({"id": range(50)}), location.uri)
    lance.write_dataset(pa.table({"id": range(50, 99)}), location.uri, mode="append")
    table = location.at()
    tables.delete(table, "id = 70")
    tables.delete(table, "id = 1000")
    delete = lance.LanceDataset.delete

    def cut_short(table, condition):
        before = set(Path(table.uri).glob("_deletions/*"))
        delete(table, condition)
        for file in set(Path(table.uri).glob("_deletions/*")) - before:
            os.truncate(file, 3)

    monkeypatch.setattr(lance.LanceDataset, "delete", cut_short)
    with pytest.raises((OSError, ValueError, RuntimeError, pa.ArrowException)):
        tables.delete(table, "id = 3")


def test_vectors_with_a_missing_number_have_nan_there():
    column = pa.chunked_array([pa.array([[1.0, None], [3.0, 4.0]], pa.list_(pa.float32(), 2))])
    np.testing.assert_array_equal(matrix(column, 2), [[1, np.nan], [3, 4]])
    np.testing.assert_array_equal(matrix(column.chunk(0).slice(1), 2), [[3, 4]])
    assert matrix(pa.array([], pa.list_(pa.float32(), 2)), 2).shape == (0, 2)


def test_a_message_of_lance_is_cut_to_its_first_400_characters():
    assert lance_message(ValueError("x" * 500)) == "x" * 400
    assert lance_message(ValueError("a file is gone, /home/runner/lance.rs:17\nand more")) == "a file is gone"


# The folder and the lock


def test_a_state_is_kept_before_the_next_is_named_but_a_new_index_is_named_first(tmp_path, monkeypatch):
    renamed, rename = [], Path.replace
    monkeypatch.setattr(
        Path, "replace", lambda file, target: (renamed.append(Path(target).name), rename(file, target))[1]
    )
    store = Store.create(tmp_path / "index", ENCODER)
    assert [name for name in renamed if name in (HEAD, PREVIOUS)] == [HEAD, PREVIOUS]
    renamed.clear()
    with open_writer(store) as writer:
        put(writer, 0)
    assert [name for name in renamed if name in (HEAD, PREVIOUS)] == [PREVIOUS, HEAD]


def test_a_commit_that_is_not_durable_keeps_no_state_before(store):
    assert (store.path / PREVIOUS).exists()
    store = Store.open(FolderLocation(store.path, durable=False))
    for number in range(2):
        with open_writer(store) as writer:
            put(writer, number)
        assert not (store.path / PREVIOUS).exists()


def test_the_names_of_a_new_index_are_synced_up_to_the_mount_point(tmp_path, monkeypatch):
    mount, synced, fsync = tmp_path / "mount", set(), os.fsync
    (mount / "a/b").mkdir(parents=True)

    def syncing(descriptor):
        synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(Path, "is_mount", lambda path: path == mount)
    Store.create(mount / "a/b/index", ENCODER)
    for folder, is_synced in ((mount / "a/b", True), (mount / "a", True), (mount, True), (tmp_path, False)):
        assert (folder.stat().st_ino in synced) == is_synced, folder


def test_parents_that_may_not_be_read_are_passed_over(tmp_path, monkeypatch):
    opened, opening = [], os.open

    def refuse(path, flags, *arguments):
        if Path(path) == tmp_path:
            raise PermissionError(13, "Permission denied")
        opened.append(Path(path))
        return opening(path, flags, *arguments)

    (tmp_path / "a").mkdir()
    monkeypatch.setattr(os, "open", refuse)
    NewFiles(tmp_path / "a/index", [], durable=True).settle_parents()
    assert {tmp_path / "a", tmp_path.parent} <= {*opened}


@pytest.mark.parametrize(
    ("mode", "of_files"), [(0o711, 0o600), (0o777, 0o666), (0o700, 0o600), (0o2751, 0o640), (0o750, 0o640)]
)
def test_files_get_the_permissions_of_the_folder_and_are_never_executable(mode, of_files, tmp_path):
    index = tmp_path / "index"
    (index / "part/deep").mkdir(parents=True)
    for name in ("part/file", "part/deep/file"):
        (index / name).touch()
    index.chmod(mode)
    NewFiles(index, ["part", "missing"], durable=False).settle()
    modes = [
        stat.S_IMODE((index / name).stat().st_mode) for name in ("part/file", "part/deep/file", "part", "part/deep")
    ]
    assert modes == [of_files, of_files, mode, mode]


def test_only_names_that_are_new_are_settled(tmp_path):
    index = tmp_path / "index"
    (index / "part").mkdir(parents=True)
    (index / "part/old").touch(0o604)
    (index / "part/old").chmod(0o604)
    index.chmod(0o700)
    files = NewFiles(index, ["part"], durable=False)
    files.trust()
    (index / "part/new").touch()
    (index / "part/latest_version_hint.json").touch()
    for _ in range(2):
        (index / "part/latest_version_hint.json").chmod(0o604)
        files.settle()
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (index / "part").iterdir()}
        assert modes == {"old": 0o604, "new": 0o600, "latest_version_hint.json": 0o600}
        (index / "part/new").chmod(0o600)


def test_a_new_folder_and_its_lock_are_closed_to_others_at_every_moment(tmp_path):
    location, before = FolderLocation(tmp_path / "a/index"), os.umask(0)
    try:
        with location.locked():
            modes = {
                file.name: stat.S_IMODE(file.stat().st_mode) for file in (location.cache, *location.cache.iterdir())
            }
            line = WaitingLine(location.cache)
            line.join()
            (ticket,) = location.cache.glob("waiting-*")
            assert stat.S_IMODE(ticket.stat().st_mode) == 0o600
            assert WaitingLine(location.cache).first() == os.getpid()
            assert stat.S_IMODE(ticket.stat().st_mode) == 0o600
            line.leave()
    finally:
        os.umask(before)
    assert modes == {"index": 0o700, "lock": 0o600, "lock.json": 0o600}
    assert location.vectors("x") == tmp_path / "a/index/vectors/x"


def test_a_file_in_the_place_of_an_index_is_said_to_be_there(tmp_path):
    (tmp_path / "index").write_text("mine")
    location = FolderLocation(tmp_path / "index")
    location.patience = Patience(seconds=30)
    with (
        pytest.raises(StoreError, match=r"index cannot be used \(File exists\): give another folder"),
        location.locked(),
    ):
        pass


def test_an_index_that_was_never_in_service_is_dropped_from_its_folder(tmp_path):
    location = FolderLocation(tmp_path)
    for name in ("flat-1-0123456789abcdef", "flat-2-0123456789abcdef"):
        (location.vectors(name) / "deep").mkdir(parents=True)
    location.drop("flat-1-0123456789abcdef")
    location.drop("flat-1-0123456789abcdef")
    location.supersede("flat-1-0123456789abcdef")
    assert [location.has(f"flat-{number}-0123456789abcdef") for number in (1, 2)] == [False, True]
    assert [folder.name for folder in (tmp_path / "vectors").iterdir()] == ["flat-2-0123456789abcdef"]


def test_small_files_are_removed_by_the_beginning_of_their_names(tmp_path):
    for name in ("queries-a.npy", ".queries-b.npy", "other.npy", "x-queries-"):
        (tmp_path / name).touch()
    FolderLocation(tmp_path).remove("queries-")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["other.npy", "x-queries-"]


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="lists locks on Linux")
def test_the_process_that_holds_a_lock_is_named_while_it_does(store):
    assert writer_at(store.path) == writer_at(store.path / "nowhere") == ""
    with open_writer(store):
        assert writer_at(store.path).startswith(f"process {os.getpid()} on ")
    assert writer_at(store.path) == ""


def test_no_two_notes_of_a_writer_are_alike():
    one, other = (json.loads(writer_since("08:00:00")) for _ in range(2))
    assert one.pop("once") != other.pop("once")
    assert one == other == {"pid": os.getpid(), "host": os.uname().nodename, "since": "08:00:00"}


def test_a_writer_that_waits_looks_twenty_times_a_second(store, monkeypatch):
    moment, pauses = [0.0], []

    def sleep(seconds):
        pauses.append(seconds)
        moment[0] += seconds

    monkeypatch.setattr(waiting_line, "time", SimpleNamespace(monotonic=lambda: moment[0], sleep=sleep))
    location, lines = FolderLocation(store.path), []
    location.patience = Patience(1.0, lines.append)
    with open_writer(store), pytest.raises(LockedError) as refusal, location.locked():
        pass
    assert len(pauses) == pytest.approx(20, abs=1)
    assert max(pauses) == 0.05
    assert sum(pauses) == pytest.approx(1)
    (line,) = lines
    assert re.fullmatch(rf"{store.path} is being written by process .*: waiting up to 1 s for it", line)
    says = r"is still being written by process .* after 1 s: try again when it has finished, or let it wait"
    assert re.search(says, str(refusal.value))


def test_who_looks_at_a_lock_does_not_wait_for_it(store, monkeypatch):
    line, acquire, looks = WaitingLine(store.path), FileLock.acquire, []

    def acquire_second(lock, **options):
        if not looks:
            looks.append(FileLock(lock.lock_file, timeout=0))  # another writer looks at the new ticket
            acquire(looks[0])
        return acquire(lock, **options)

    with open_writer(store):
        monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waited"))
        with pytest.raises(LockedError, match=f"written by process {os.getpid()}"), FolderLocation(store.path).locked():
            pass
        with monkeypatch.context() as patch:
            patch.setattr(FileLock, "acquire", acquire_second)
            line.join()
        assert WaitingLine(store.path).first() == os.getpid()
        looks[0].release()
        line.leave()
        line.join()
        assert WaitingLine(store.path).first() == os.getpid()
        line.leave()


def test_tickets_are_numbered_and_given_up(tmp_path):
    lines = [WaitingLine(tmp_path) for _ in range(3)]
    for line in lines:
        line.leave()  # it has no place yet
        line.join()
        line.join()
    names = sorted(file.name for file in tmp_path.iterdir())
    assert [name[:17] for name in names] == [f"waiting-0000000{number}-" for number in (1, 2, 3)]
    (tmp_path / names[0]).unlink()
    for line in lines:
        line.leave()
        line.leave()
    assert list(tmp_path.iterdir()) == []


def test_a_patience_of_no_seconds_waits_for_nobody():
    assert Patience().check().seconds == 0
    assert Patience(0.25).check() == Patience(0.25)


def test_a_file_that_the_lock_guards_has_one_tag(tmp_path):
    location = FolderLocation(tmp_path)
    assert location.write("a.json", b"{}", over=ANY) == ANY
    assert location.commit(b"1", b"2", over=NEW) == ANY
    assert [location.read(name) for name in ("a.json", HEAD, PREVIOUS)] == [(b"{}", ANY), (b"1", ANY), (b"2", ANY)]


def test_the_lock_says_since_when_it_is_held(store):
    with open_writer(store):
        since = json.loads((store.path / "lock.json").read_text())["since"]
    assert re.fullmatch(r"\d\d:\d\d:\d\d", since)


def test_an_index_that_is_allowed_can_be_written_at_once(store, tmp_path, monkeypatch):
    monkeypatch.delenv("BINOCLE_TRUST", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    stranger = Store.open(store.path)
    assert not stranger.trusted
    with pytest.raises(UntrustedError):
        storing.change_settings(stranger, lambda settings: settings)
    allowed = storing.allow(stranger)
    assert (allowed.trusted, allowed.settings) == (True, store.settings)
    assert storing.change_settings(allowed, lambda settings: replace(settings, folder="/x")).settings.folder == "/x"
    assert Store.open(store.path).trusted


def test_object_storage_has_files_whole_or_not_at_all():
    location = TableLocation("s3://bucket/index/chunks.lance")
    assert tables.check(location, None) == frozenset()
    assert tables.unnamed_files(location, 3) == []
    assert (
        str(tables.reading_error(location, OSError("gone"))) == "s3://bucket/index/chunks.lance cannot be read (gone)"
    )


def test_the_folder_of_a_damaged_table_is_named():
    error = tables.reading_error(TableLocation("/x/index/t.lance"), OSError("gone"))
    assert str(error) == "/x/index/t.lance is damaged (gone): remove the folder /x/index and index again"
