from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import lance
import numpy as np
import pyarrow as pa
import pytest

from binocle import Retriever
from binocle.core.errors import BinocleError, DamagedError, InputError, LockedError, NoIndexError, StoreError
from binocle.indexes.manifest import IndexManifest, IndexMetadata
from binocle.retriever.models.identity import EncoderId
from binocle.retriever.store import commits
from binocle.retriever.store import documents as stored_documents
from binocle.retriever.store import store as storing
from binocle.retriever.store import writer as writing
from binocle.retriever.store.derived import vector_index as vectors
from binocle.retriever.store.derived.search_backend import SearchBackend
from binocle.retriever.store.filters.where import parse
from binocle.retriever.store.head import FORMAT, SCOPED, Settings, is_index, read_json
from binocle.retriever.store.locations.folder_location import FolderLocation
from binocle.retriever.store.locations.location import ANY
from binocle.retriever.store.snapshot import Snapshot
from binocle.retriever.store.store import Store
from binocle.retriever.store.tables import (
    FULL_TEXT,
    TableLocation,
    check,
    chunk_schema,
    document_schema,
    drop_later_versions,
    manifests,
    reading_error,
)
from binocle.retriever.store.writer import open_writer

DIM = 32
ENCODER = EncoderId("some/model", "f" * 32, DIM)


def vector(seed):
    values = np.random.default_rng(seed).standard_normal(DIM).astype(np.float32)
    return values / np.linalg.norm(values)


def document_row(number, **changes):
    row = {
        "id": number,
        "path": f"{number}.txt",
        "source": "added",
        "state": "indexed",
        "reason": "",
        "size": 1,
        "mtime_ns": 0,
    }
    row |= {
        "settled": False,
        "sha256": "",
        "format": "text",
        "title": "",
        "metadata": "{}",
        "chunks": 1,
        "text": f"text {number}",
    }
    return row | changes


def chunk_row(number, document, text="the cat sat"):
    row = {
        "id": number,
        "document": document,
        "key": number,
        "char_start": 0,
        "char_end": len(text),
        "line_start": 1,
        "line_end": 1,
    }
    return row | {"page": None, "heading": [], "text": text, "context": text, "vector": vector(number).tolist()}


def chunks(*rows):
    return pa.Table.from_pylist(list(rows), chunk_schema(DIM))


def documents(*rows):
    return pa.Table.from_pylist(list(rows), document_schema())


def put(writer, *numbers, drop=()):
    """Commit documents of one chunk each, under the same number."""
    if numbers:
        writer.stage(chunks(*(chunk_row(number, number) for number in numbers)))
    writer.commit(drop=drop, documents=documents(*(document_row(number) for number in numbers)))


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "index", ENCODER)


def test_index_that_a_cluster_serves_is_searched_there(retriever):
    snapshot = retriever.snapshot()
    folder = snapshot.store.location.vectors(snapshot.head.vectors)
    manifest = IndexManifest.read(folder)

    def serve(_store, head):
        assert head == snapshot.head
        return manifest.load(folder), manifest

    for gpu, name in ((False, "the CPU"), (True, "the CPU: a Ray cluster searches")):
        other = Snapshot(snapshot.store, snapshot.head, SearchBackend(gpu, serve))
        assert (other.searched_by, other.published, other.damage) == (name, manifest, None)


def test_index_that_a_cluster_does_not_build_in_shards_is_built_here(retriever):
    calls, store = [], retriever.snapshot().store
    backend = SearchBackend(build_shards=lambda *arguments: calls.append(arguments))
    with open_writer(store, backend=backend) as writer:
        before = writer.head.vectors
        writer.finish(rebuild=True)
        assert writer.head.vectors not in (before, None)
    assert len(calls) == 1
    assert retriever.verify().faults == []


def test_rows_of_documents_without_chunks_are_adopted(store):
    with open_writer(store) as writer:
        table = store.location.table("documents")
        fragments = table.fragments(documents(document_row(0, chunks=0, state="failed")))
        writer.adopt(drop=[], documents=fragments, chunks=[], next_document=1, next_chunk=0)
        assert (writer.head.next_document, writer.head.next_chunk) == (1, 0)
    assert ids(store) == ([0], [])


def test_index_without_a_key_for_forgotten_names_gets_one(store):
    values = json.loads((store.path / "HEAD.json").read_text())
    (store.path / "HEAD.json").write_text(json.dumps({**values, "tombstone_key": ""}))
    with open_writer(store) as writer:
        put(writer, 0)
    assert re.fullmatch("[0-9a-f]{32}", store.head().tombstone_key)
    assert ids(store) == ([0], [0])


def test_ids_of_chunks_are_read_anew_only_when_chunks_changed(retriever):
    before = retriever.snapshot().chunk_ids
    retriever.add([{"id": "late", "text": "The late ship."}])
    after = retriever.snapshot().chunk_ids
    assert len(after) == len(before) + 1
    retriever.update(["late"], metadata={"n": 1})
    assert retriever.snapshot().chunk_ids is after


def test_search_parameters_need_a_vector_index(store):
    with open_writer(store) as writer, pytest.raises(InputError, match="there is no vector index yet"):
        writer.index.amend(IndexMetadata())


def test_file_that_may_not_be_read_is_named(tmp_path):
    class Denied(FolderLocation):
        def read(self, file):
            raise PermissionError(file)

    with pytest.raises(StoreError, match=r"HEAD\.json cannot be read: permission denied"):
        read_json(Denied(tmp_path), "HEAD.json")
    error = reading_error(TableLocation(str(tmp_path / "t.lance")), OSError("Permission denied (os error 13)"))
    assert str(error).endswith("t.lance cannot be read: permission denied")


def test_advice_to_go_back_is_given_once(store):
    damage = DamagedError("HEAD.json is damaged: remove the folder x and index again")
    error = storing.with_way_back(replace(store, trusted=True), damage)
    assert str(error) == "HEAD.json is damaged: 'binocle verify --repair' goes back to the state before the last commit"
    assert storing.with_way_back(store, error) is error


def test_advice_to_repair_an_index_that_came_from_elsewhere_names_first_the_command_that_allows_it(store):
    foreign = replace(store, trusted=False)
    advice = (
        f"if you know where the index comes from, 'binocle trust --index {store.location}' allows a repair, then "
        "'binocle verify --repair' "
    )
    error = storing.with_way_back(foreign, DamagedError("HEAD.json is damaged"))
    assert str(error) == f"HEAD.json is damaged: {advice}goes back to the state before the last commit"
    assert str(Snapshot.latest(foreign)._text_error("it is empty")).endswith(f"is damaged (it is empty): {advice}rebuilds it")  # fmt: skip


def test_settings_that_do_not_change_are_not_written(store, monkeypatch):
    monkeypatch.setattr(Settings, "write", None)
    store = replace(store, trusted=True)
    assert storing.change_settings(store, lambda settings: settings) == store


def test_state_that_was_committed_meanwhile_is_not_taken_back(store):
    with open_writer(store) as writer:
        put(writer, 0)
        damaged = writer.head
        put(writer, 1)
    storing.go_back(store, damaged)
    assert ids(store) == ([0, 1], [0, 1])


def ids(store):
    snapshot = Snapshot.latest(store)
    return snapshot.document_rows["id"].to_pylist(), snapshot.chunk_ids["id"].to_pylist()


def assert_whole(store):
    """Every document has the chunks that it says it has, and nothing else has any."""
    snapshot = Snapshot.latest(store)
    rows = snapshot.document_rows.to_pylist()
    assert len({(row["source"], row["path"]) for row in rows}) == len(rows)
    owners = snapshot.chunk_ids["document"].to_pylist()
    assert {row["id"]: row["chunks"] for row in rows if row["chunks"]} == {
        owner: owners.count(owner) for owner in set(owners)
    }
    numbers = snapshot.chunk_ids["id"].to_pylist()
    assert len(set(numbers)) == len(numbers)
    columns = ["id", "document", "context"]
    stored = {row["id"]: row for row in snapshot.chunks.to_table(columns=columns).to_pylist()}
    assert snapshot.chunks_by_id([*numbers, -1, 10**12], columns[1:]) == stored
    assert snapshot.documents_by_id([row["id"] for row in rows]) == {row["id"]: row for row in rows}
    index = snapshot.index
    stored = vectors_of(snapshot, numbers)
    np.testing.assert_array_equal(index.reconstruct(np.array(numbers, np.int64)), stored)


def vectors_of(snapshot, numbers):
    rows = {row["id"]: row["vector"] for row in snapshot.chunks.to_table(columns=["id", "vector"]).to_pylist()}
    return np.array([rows[number] for number in numbers], np.float32).reshape(-1, DIM)


# Making and opening


def test_a_new_store_is_empty_and_hides_itself_from_git(store):
    assert ids(store) == ([], [])
    assert (store.path / ".gitignore").read_text() == "*\n"
    assert store.settings == Store.open(store.path).settings == Settings(FORMAT, None, id=store.settings.id)
    assert store.head().encoder == ENCODER


def test_creating_again_keeps_what_is_there(store):
    with open_writer(store) as writer:
        put(writer, 0)
    assert ids(Store.create(store.path, EncoderId("other", "0" * 32, 4))) == ([0], [0])


def test_a_folder_with_other_things_is_not_made_an_index(tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(StoreError, match="not empty"):
        Store.create(tmp_path, ENCODER)
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


@pytest.mark.parametrize(
    "names",
    [
        ["lock", "vectors/logo.svg", ".gitignore", "a.md"],
        ["lock", "vectors/logo.svg"],
        ["lock", "documents.lance/data", "chunks.lance/data"],
        ["lock", "lock.json", "settings.json", "documents.lance/data"],
        ["settings.json"],
        [".gitignore"],
    ],
)
def test_names_alone_do_not_make_a_folder_an_unfinished_index(names, tmp_path):
    """What is there may be the user's own: whose it is shows in what it holds."""
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    before = bytes_below(tmp_path)
    with pytest.raises(StoreError, match="not empty"):
        Store.create(tmp_path, ENCODER)
    assert bytes_below(tmp_path) == before
    assert Retriever.open(tmp_path).path == tmp_path / ".binocle"


@pytest.mark.parametrize(
    "name", ["vectors", "switching", "documents.lance", "chunks.lance", "lock", ".lock.json", ".HEAD.json"]
)
def test_nothing_is_written_or_removed_through_a_link_in_an_index(name, store, tmp_path):
    victim = tmp_path / "home"
    if name.startswith((".", "lock")):
        victim.write_text("mine")
    else:
        (victim / ".ssh").mkdir(parents=True)
        (victim / ".ssh/key").write_text("mine")
        os.utime(victim / ".ssh", (0, 0))
    link = store.path / name
    if link.is_dir():
        shutil.rmtree(link)
    link.unlink(missing_ok=True)
    link.symlink_to(victim)
    with pytest.raises(StoreError, match=f"/{name} is a symbolic link") as caught, open_writer(store):
        pass
    assert "\n" not in str(caught.value)
    held = victim if victim.is_file() else victim / ".ssh/key"
    assert held.read_text() == "mine"
    assert list(victim.rglob("*")) in ([], [victim / ".ssh", victim / ".ssh/key"])
    link.unlink()


def test_an_index_may_lie_behind_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "index").symlink_to(tmp_path / "disk")
    with open_writer(Store.create(tmp_path / "index", ENCODER)) as writer:
        put(writer, 0)
    assert ids(Store.open(tmp_path / "disk")) == ([0], [0])


def test_a_file_is_never_written_through_a_link(store, tmp_path):
    """Though one be put there while the lock is held."""
    (tmp_path / "mine").write_text("mine")
    (store.path / ".HEAD.json").symlink_to(tmp_path / "mine")
    store.location.write("HEAD.json", b"{}", over=ANY)
    assert (tmp_path / "mine").read_text() == "mine"
    assert (store.path / "HEAD.json").read_bytes() == b"{}"
    assert not (store.path / "HEAD.json").is_symlink()


def test_a_creation_cut_short_is_finished(tmp_path, monkeypatch):
    path = tmp_path / "index"

    def stop(*_args, **_options):
        raise KeyboardInterrupt

    for name in ("Settings", "document_schema", "chunk_schema", "Head"):
        with monkeypatch.context() as patch:
            patch.setattr(storing, name, stop)
            with pytest.raises(KeyboardInterrupt):
                Store.create(path, ENCODER)
        with pytest.raises(NoIndexError):
            Store.open(path)
        assert Retriever.open(path).path == path
    assert ids(Store.create(path, ENCODER)) == ([], [])


def test_no_index_says_how_to_make_one(tmp_path):
    with pytest.raises(NoIndexError, match="binocle index FOLDER"):
        Store.open(tmp_path)


@pytest.mark.parametrize("moment", ["settings.json", "HEAD.json"])
def test_an_index_that_is_removed_while_it_is_opened_is_no_damage(store, moment):
    class Removed(FolderLocation):
        """It is removed right before a file is read."""

        def read(self, file):
            if file == moment:
                shutil.rmtree(self.cache)
            return super().read(file)

    with pytest.raises(NoIndexError, match=r"^another process removed .*index: 'binocle index' makes it anew$"):
        Store.open(Removed(store.path)).head()


def test_an_index_without_its_settings_is_damage(store):
    (store.path / "settings.json").unlink()
    with pytest.raises(DamagedError, match="not a whole one"):
        Store.open(store.path)


def test_another_format_is_refused(store):
    change(store.path / "settings.json", format=SCOPED + 1)
    with pytest.raises(StoreError, match="a newer version made it, so upgrade Binocle"):
        Store.open(store.path)


def change(file, **changes):
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def every(value):
    """The same object with all its values but the format's replaced."""

    def spoil(data):
        return json.dumps({name: one if name == "format" else value for name, one in json.loads(data).items()}).encode()

    return spoil


DAMAGE = {
    "empty": b"",
    "cut": lambda data: data[: len(data) // 2],
    "not json": b"{'a': 1}",
    "not text": b"\xff\xfe\x00",
    "a list": b"[]",
    "null": b"null",
    "a number": b"3",
    "no field": b"{}",
    "an unknown field": lambda data: data[:-1] + b', "more": 1}',
    "nested beyond reason": b"[" * 100_000,
    "every value a text": every("x"),
    "every value a list": every([1]),
    "every value null": every(None),
    "every value negative": every(-1),
    "every value huge": every(10**30),
    "every value half": every(0.5),
}


DAMAGED = [(name, case) for name in ("HEAD.json", "settings.json") for case in DAMAGE]
POSSIBLE = [("settings.json", "every value a text"), ("settings.json", "every value null")]  # a folder, or none


@pytest.mark.parametrize(("name", "case"), [damage for damage in DAMAGED if damage not in POSSIBLE])
def test_a_damaged_file_is_named_in_one_line(name, case, retriever):
    file = retriever.path / name
    how = DAMAGE[case]
    file.write_bytes(how(file.read_bytes()) if callable(how) else how)
    (retriever.path / "HEAD.previous.json").unlink()  # else the state before answers
    with pytest.raises(StoreError) as caught:
        Retriever.open(retriever.path).search("cat")
    assert "\n" not in str(caught.value)
    assert name in str(caught.value) or isinstance(caught.value, DamagedError)


@pytest.mark.parametrize("name", ["HEAD.json", "settings.json"])
def test_a_file_that_claims_terabytes_is_not_read(name, retriever):
    os.truncate(retriever.path / name, 2**42)  # sparse: it takes no space
    (retriever.path / "HEAD.previous.json").unlink()
    with pytest.raises(DamagedError, match=f"{name} cannot be read .*larger than 67,108,864 bytes"):
        Retriever.open(retriever.path).search("cat")


@pytest.mark.parametrize("field", ["documents", "chunks"])
@pytest.mark.parametrize("value", [0, 999, 10**12])
def test_a_version_that_is_not_there_is_damage(field, value, retriever):
    change(retriever.path / "HEAD.json", **{field: value})
    (retriever.path / "HEAD.previous.json").unlink()
    with pytest.raises(DamagedError, match="index again"):
        Retriever.open(retriever.path).search("cat")


def test_a_head_cannot_point_out_of_the_index(retriever, tmp_path):
    shutil.copytree(next((retriever.path / "vectors").glob("flat-*")), tmp_path / "elsewhere")
    change(retriever.path / "HEAD.json", vectors="../../elsewhere")
    (retriever.path / "HEAD.previous.json").unlink()
    with pytest.raises(DamagedError):
        Retriever.open(retriever.path).search("cat", mode="semantic")


@pytest.mark.parametrize("name", ["words", "shards"])
def test_a_text_in_place_of_a_list_is_damage(name, retriever):
    change(retriever.path / "HEAD.json", **{name: "abc"})
    (retriever.path / "HEAD.previous.json").unlink()
    with pytest.raises(DamagedError, match="HEAD.json"):
        Retriever.open(retriever.path).search("cat")


@pytest.mark.parametrize(("newer", "masked"), [(0, 0), (500, 500), (600, 401), (1_001, 0), (0, 1_001)])
def test_a_vector_index_is_stale_when_new_and_deleted_rows_are_more_than_a_thousand(newer, masked):
    present = np.arange(masked, 5_000 + newer)
    snapshot = SimpleNamespace(head=SimpleNamespace(vectors="flat"), published_ids=np.arange(5_000), sorted_ids=present)
    assert vectors.is_stale(snapshot) == (newer + masked > 1_000)


def test_an_index_that_may_not_be_read_counts_as_present():
    """Reading it later raises the error."""

    class Denied:
        def exists(self, name):
            raise PermissionError(name)

    assert is_index(Denied())


# Damage below


def test_a_damaged_vector_index_does_not_change_an_answer(retriever):
    queries = ("cat", "income tax", "timeout of a request")
    expected = {
        query: [(hit.passage, round(hit.score, 4)) for hit in retriever.search(query, mode="semantic")]
        for query in queries
    }
    (folder,) = (retriever.path / "vectors").glob("flat-*")
    whole = {file: file.read_bytes() for file in folder.iterdir()}

    def flip(file):
        data = bytearray(whole[file])
        data[len(data) // 2] ^= 4
        file.write_bytes(data)

    for spoil in (
        flip,
        Path.unlink,
        lambda file: file.write_bytes(whole[file][:-4]),
        lambda file: file.write_bytes(b""),
    ):
        for file, data in whole.items():
            spoil(file)
            fresh = Retriever.open(retriever.path)
            for query in queries:
                assert [(hit.passage, round(hit.score, 4)) for hit in fresh.search(query, mode="semantic")] == expected[
                    query
                ]
            assert {fault.kind for fault in fresh.verify().faults} == {"vector index"}
            file.write_bytes(data)
    shutil.rmtree(folder)
    assert [
        (hit.passage, round(hit.score, 4)) for hit in Retriever.open(retriever.path).search("cat", mode="semantic")
    ] == expected["cat"]
    Retriever.open(retriever.path).repair()
    assert Retriever.open(retriever.path).verify().faults == []


def test_a_damaged_table_is_damage_and_not_a_crash(retriever):
    """Every file of both tables: gone, emptied, cut. An answer or one line, nothing else."""
    for file in sorted(
        path
        for name in ("documents", "chunks")
        for path in (retriever.path / f"{name}.lance").rglob("*")
        if path.is_file()
    ):
        whole = file.read_bytes()
        for content in (None, b"", whole[: len(whole) // 2]):
            if content is None:
                file.unlink()
            else:
                file.write_bytes(content)
            for mode in ("lexical", "semantic"):
                try:
                    Retriever.open(retriever.path).search("cat", mode=mode)
                except BinocleError as error:
                    assert "\n" not in str(error)  # noqa: PT017 - either will do
        file.write_bytes(whole)
    assert Retriever.open(retriever.path).verify().faults == []


def test_an_index_may_be_moved(retriever, tmp_path):
    expected = [(hit.path, hit.score) for hit in retriever.search("cancel a task")]
    (tmp_path / "elsewhere").mkdir()
    moved = Path(shutil.move(retriever.path.parent, tmp_path / "elsewhere"))
    there = Retriever.open(moved)
    assert [(hit.path, hit.score) for hit in there.search("cancel a task")] == expected
    assert there.folder == moved
    assert there.verify().faults == []
    assert there.sync().unchanged == 7


# Commits


def test_what_is_staged_is_not_seen_before_its_commit(store):
    with open_writer(store) as writer:
        writer.stage(chunks(chunk_row(0, 0)))
        assert ids(store) == ([], [])
        writer.commit(drop=[], documents=documents(document_row(0)))
        assert ids(store) == ([0], [0])


def test_a_commit_removes_and_adds_at_once(store):
    with open_writer(store) as writer:
        put(writer, 0, 1, 2)
        put(writer, 3, drop=[0, 2])
    assert ids(store) == ([1, 3], [1, 3])


def test_a_snapshot_stays_as_it_is(store):
    with open_writer(store) as writer:
        put(writer, 0, 1)
        before = Snapshot.latest(store)
        put(writer, 2, drop=[0])
        assert before.chunk_ids["id"].to_pylist() == [0, 1]
        assert sorted(before.document_rows["id"].to_pylist()) == [0, 1]
        assert before.chunks_by_id([0], ["text"]) == {0: {"id": 0, "text": "the cat sat"}}
        np.testing.assert_array_equal(vectors_of(before, [1, 0]), [vector(1), vector(0)])


def test_a_writer_takes_over_an_earlier_snapshot_only_of_the_same_state_and_settings(store):
    earlier = Snapshot.latest(store)
    with open_writer(store, earlier=earlier) as writer:
        assert writer.snapshot() is earlier
        put(writer, 0)
        assert writer.snapshot().head == store.head()
        assert writer.snapshot() is writer.snapshot()
    earlier = Snapshot.latest(store)
    storing.change_settings(store, lambda settings: replace(settings, exclude=("*.log",)))
    with open_writer(store, earlier=earlier) as writer:
        assert writer.snapshot().store.settings.exclude == ("*.log",)


def test_a_snapshot_that_answered_filtered_queries_goes_with_its_last_reader(store):
    """It holds open files and mapped vectors, of deleted documents too."""
    with open_writer(store) as writer:
        put(writer, 0, 1)
    snapshot = Snapshot.latest(store)
    filters = [parse(f"path={number}.txt") for number in range(20)]
    assert [snapshot.passing(where).chunks.tolist() for where in filters] == [[0], [1], *[[]] * 18]
    assert snapshot.passing(filters[19]) is snapshot.passing(parse("path=19.txt"))
    assert len(snapshot._passing) == 8
    left = weakref.ref(snapshot)
    gc.disable()
    try:
        del snapshot
        assert left() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "read",
    [
        lambda snapshot: snapshot.read("documents", ["id"]),
        lambda snapshot: snapshot.chunks_by_id([1], ["text"]),
        lambda snapshot: list(snapshot.batches(["text"])),
        lambda snapshot: snapshot.full_text("cat", 3),
    ],
    ids=["rows", "by id", "batches", "full text"],
)
@pytest.mark.parametrize("opened", [False, True])
def test_a_state_that_is_gone_is_not_called_damaged(opened, read, store):
    """Deleted rows are erased at once; other states after ten minutes."""
    with open_writer(store) as writer:
        put(writer, 0, 1, 2)
        writer.finish()
        before = Snapshot.latest(store)
        if opened:
            assert before.chunks.count_rows() == before.documents.count_rows() == 3
        writer.forget([document_row(0)])
    with pytest.raises(StoreError) as raised:
        read(before)
    assert type(raised.value) is StoreError
    assert str(raised.value) == (
        f"{store.path} was written to meanwhile, and what was being read is gone: run it again"
    )
    shutil.rmtree(store.path / "chunks.lance" / "data")
    shutil.rmtree(store.path / "documents.lance" / "data")
    with pytest.raises(DamagedError, match="is damaged .*remove the folder"):
        Snapshot.latest(store).read("chunks", ["id"])


def test_what_passes_a_filter_is_the_same_where_compaction_put_documents_behind_others(store, small_fragments):
    with open_writer(store) as writer:
        for start in (0, 10, 20):
            put(writer, *range(start, start + 10))
        writer.forget([document_row(5)])
    snapshot, left = Snapshot.latest(store), [number for number in range(30) if number != 5]
    assert snapshot.document_rows["id"].to_pylist() != left  # else this test proves nothing
    passing = snapshot.passing(parse("path=*.txt"))
    assert passing.documents.tolist() == passing.chunks.tolist() == left


def test_what_was_staged_and_not_committed_is_gone_for_the_next_writer(store):
    with open_writer(store) as writer:
        put(writer, 0)
    with open_writer(store) as writer:
        writer.stage(chunks(chunk_row(1, 1), chunk_row(2, 2)))
    assert ids(store) == ([0], [0])
    with open_writer(store) as writer:
        assert writer.head.next_chunk == 1
        put(writer, 1)
    assert ids(store) == ([0, 1], [0, 1])
    assert_whole(store)


def test_later_versions_go_from_the_newest_on_so_that_a_failure_leaves_no_gap(tmp_path):
    location = TableLocation(str(tmp_path / "t.lance"))
    for number in range(4):
        lance.write_dataset(pa.table({"id": [number]}), location.uri, mode="append")
    newest = dict(manifests(location))[4]
    newest.unlink()
    newest.mkdir()  # which cannot be unlinked
    with pytest.raises(OSError, match=newest.name):
        drop_later_versions(location, 2)
    assert sorted(number for number, _ in manifests(location)) == [1, 2, 3, 4]
    newest.rmdir()
    drop_later_versions(location, 2)
    assert sorted(number for number, _ in manifests(location)) == [1, 2]
    assert lance.dataset(location.uri).count_rows() == 2


def test_what_keeps_a_writer_from_taking_tables_back_is_told_in_one_line(store, monkeypatch):
    with open_writer(store) as writer:
        put(writer, 0)
        writer.stage(chunks(chunk_row(1, 1)))

    unlink = Path.unlink

    def full(file, **options):
        if file.suffix == ".manifest":
            raise OSError("No space left on device (os error 28)")
        unlink(file, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", full)
        with pytest.raises(StoreError) as raised, open_writer(store):
            pass
    assert str(raised.value) == (
        f"cannot write to {store.path} (No space left on device (os error 28)); what was committed before is kept"
    )
    with open_writer(store) as writer:
        put(writer, 1)
    assert_whole(store)


@pytest.mark.parametrize("at", range(8))
def test_a_commit_cut_at_any_step_leaves_the_last_one(at, store, monkeypatch):
    """The steps are the writes to the tables; the last is the rename of HEAD.json."""
    with open_writer(store) as writer:
        put(writer, 0, 1)
        writer.finish()
    before = ids(store)
    steps = 0

    def counted(function):
        def step(*args, **options):
            nonlocal steps
            if steps == at:
                raise KeyboardInterrupt
            steps += 1
            return function(*args, **options)

        return step

    with monkeypatch.context() as patch:
        patch.setattr(lance, "write_dataset", counted(lance.write_dataset))
        patch.setattr(lance.LanceDataset, "delete", counted(lance.LanceDataset.delete))
        patch.setattr(Path, "replace", counted(Path.replace))
        patch.setattr(os, "replace", counted(os.replace))
        patch.setattr(Path, "rename", counted(Path.rename))
        try:
            with open_writer(store) as writer:
                put(writer, 2, drop=[0])
            assert steps <= at
        except KeyboardInterrupt:
            pass
    assert ids(store) in (before, ([1, 2], [1, 2]))
    assert_whole(store)
    with open_writer(store) as writer:
        if 2 not in ids(store)[0]:
            put(writer, 2, drop=[0])
        writer.finish()
    assert ids(store) == ([1, 2], [1, 2])
    assert_whole(store)
    assert Snapshot.latest(store).full_text("cat", 10)["id"].to_pylist() != []


def test_full_text_that_is_gone_is_made_anew_by_the_next_write(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add([{"id": "a", "text": "The cat sat."}])
    chunks = retriever.snapshot().chunks
    chunks.drop_index("context_idx")
    head = tmp_path / "index/HEAD.json"
    head.write_text(json.dumps(json.loads(head.read_text()) | {"chunks": chunks.version}))
    retriever = Retriever.open(tmp_path / "index")
    retriever.add([{"id": "b", "text": "The dog ran."}])
    assert retriever.snapshot().full_text("cat", 10)["id"].to_pylist() == [0]
    assert not retriever.verify().faults


def test_full_text_of_an_earlier_version_answers_and_is_made_anew_by_the_next_write(tmp_path, tiny_model, monkeypatch):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    with monkeypatch.context() as patch:
        patch.delitem(FULL_TEXT, "custom_stop_words")
        retriever.add([{"id": "old", "text": "a cat in C"}])
    assert [len(retriever.snapshot().full_text(word, 9)) for word in ("cat", "C")] == [1, 0]
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    report = retriever.add([{"id": "old", "text": "a cat in C"}])
    assert (report.unchanged, report.embedded) == (1, 0)
    assert [len(retriever.snapshot().full_text(word, 9)) for word in ("cat", "C")] == [1, 1]
    made = lance.dataset(retriever.path / "chunks.lance").version
    retriever.add([{"id": "old", "text": "a cat in C"}])
    assert lance.dataset(retriever.path / "chunks.lance").version == made


def test_ids_are_never_used_twice(store):
    with open_writer(store) as writer:
        put(writer, 0, 1, 2)
        put(writer, drop=[1, 2])
    with open_writer(store) as writer:
        assert (writer.head.next_document, writer.head.next_chunk) == (3, 3)


# One writer, many readers


HOLD = """
import sys, time
from pathlib import Path
from binocle.retriever.store.store import Store
from binocle.retriever.store.writer import open_writer
with open_writer(Store.open(Path(sys.argv[1]))):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_writer_is_told_who_holds_the_lock(store):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(LockedError, match=rf"process {process.pid} on ") as caught, open_writer(store):
            pass
        assert "\n" not in str(caught.value)
        assert ids(store) == ([], [])  # reading needs no lock
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with open_writer(store) as writer:  # the dead hold nothing
            put(writer, 0)
    finally:
        process.kill()
        process.communicate()


def test_two_writers_in_one_process_exclude_each_other(store):
    with open_writer(store), pytest.raises(LockedError, match=str(os.getpid())), open_writer(Store.open(store.path)):
        pass
    with open_writer(store):
        pass


def test_a_lock_without_a_name_still_locks(store):
    with open_writer(store):
        (store.path / "lock.json").write_text("{")
        with pytest.raises(LockedError, match="another process"), open_writer(Store.open(store.path)):
            pass


def test_readers_see_whole_commits_while_another_writes(store):
    faults, seen, done = [], set(), threading.Event()

    def read():
        try:
            while not done.is_set():
                fresh = Store.open(store.path)
                assert_whole(fresh)
                seen.add(Snapshot.latest(fresh).head.commits)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    with open_writer(store) as writer:
        for number in range(0, 60, 3):
            put(writer, number, number + 1, number + 2, drop=[number - 3, number - 2] if number else [])
            if number % 15 == 0:
                writer.finish(rebuild=number % 30 == 0)
    done.set()
    for thread in threads:
        thread.join()
    assert faults == []
    assert len(seen) > 3
    assert len(ids(store)[0]) == 22


WRITER = """
import os, sys
from pathlib import Path
from binocle.retriever.indexing import indexer
from binocle.retriever.indexing.sync import sync
from binocle.retriever.models.identity import EncoderId
from binocle.retriever.models.load import load_encoder
from binocle.retriever.store import store
from binocle.retriever.store.derived import vector_index as vectors
from binocle.retriever.store.writer import open_writer
indexer._BATCH_CHUNKS, indexer._BATCH_FILES = 2, 2
vectors._STALE_ROWS = 3
folder, index, model = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
encoder = load_encoder(model)
print(os.getpid(), flush=True)
opened = store.Store.create(index, EncoderId(model, encoder.fingerprint, encoder.dim), str(folder))
with open_writer(opened) as writer:
    sync.sync(writer, folder, encoder)
print("done", flush=True)
"""


def commits_of(index):
    return Store.open(index).head().commits if (index / "HEAD.json").exists() else 0


@pytest.mark.thorough
def test_a_writer_killed_at_any_moment_leaves_a_committed_state_and_the_next_one_goes_on(
    tmp_path, tiny_model, tiny, quick_start
):
    folder, index = tmp_path / "folder", tmp_path / "index"
    folder.mkdir()
    draw = random.Random(5)
    number, committed = 0, 0
    for turn in range(5):
        for _ in range(16):
            name = folder / f"{draw.randint(0, 30):02}.txt"
            name.write_text(f"The cat number {number} sat on the mat.\n\n" * draw.randint(1, 6))
            number += 1
        command = [*quick_start, "-c", WRITER, *map(str, (folder, index, tiny_model))]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        writing = process.stdout.readline()
        assert writing, process.stderr.read()
        deadline = time.monotonic() + 20
        while turn % 2 and time.monotonic() < deadline and commits_of(index) <= committed and process.poll() is None:
            time.sleep(0.01)  # every other time it gets something done, however busy the machine
        time.sleep(draw.uniform(0.03, 0.3))
        with contextlib.suppress(ProcessLookupError):  # it may end at any moment
            if process.poll() is None:
                os.kill(int(writing), signal.SIGKILL)
        process.communicate()
        if (index / "HEAD.json").exists():
            opened = Store.open(index)
            assert_whole(opened)
            count = Snapshot.latest(opened).head.commits
            assert count >= committed
            committed = count
    assert committed
    made_with = EncoderId(tiny_model, tiny.fingerprint, DIM)
    from binocle.retriever.indexing.sync.sync import sync

    for place in (index, tmp_path / "afresh"):
        opened = Store.create(place, made_with, str(folder))
        with open_writer(opened) as writer:
            sync(writer, folder, tiny)
        assert_whole(opened)
    rows = [
        sorted(
            (row["context"], np.round(row["vector"], 5).tolist())
            for row in Snapshot.latest(Store.open(place)).chunks.to_table().to_pylist()
        )
        for place in (index, tmp_path / "afresh")
    ]
    assert [context for context, _ in rows[0]] == [context for context, _ in rows[1]]
    np.testing.assert_allclose([v for _, v in rows[0]], [v for _, v in rows[1]], atol=2e-2)  # bulk and single rounding
    assert not [path.name for path in index.iterdir() if path.name.startswith(".HEAD")]


# An ordinary LanceDB database


def test_lancedb_opens_the_tables_and_finds_the_same(retriever):
    lancedb = pytest.importorskip("lancedb")
    database = lancedb.connect(retriever.path)
    assert set(database.list_tables().tables) >= {"documents", "chunks"}
    documents = database.open_table("documents").to_arrow().to_pylist()
    assert sorted(row["path"] for row in documents) == [row["path"] for row in retriever.documents()]
    chunks = database.open_table("chunks")
    assert chunks.count_rows() == retriever.snapshot().chunks.count_rows()
    texts = {row["id"]: row["text"] for row in documents}
    for row in chunks.to_arrow().to_pylist():
        assert texts[row["document"]][row["char_start"] : row["char_end"]] == row["text"]
        assert np.linalg.norm(row["vector"]) == pytest.approx(1, abs=1e-5)
    for words in ("cancel the task", "income tax", "oven"):
        theirs = chunks.search(words, query_type="fts").limit(20).to_list()
        ours = retriever.search(words, 20, mode="lexical")
        assert {row["id"]: pytest.approx(row["_score"], rel=1e-5) for row in theirs} == {
            hit.passage: hit.score for hit in ours
        }
    (row,) = (
        chunks.search(retriever.encoder.encode(["oven"], kind="query")[0].tolist())
        .distance_type("dot")
        .limit(1)
        .to_list()
    )
    assert row["id"] == retriever.search("oven", 1, mode="semantic")[0].passage


# Tidiness and forgetting


def test_old_versions_and_indexes_are_tidied_away(store, monkeypatch):
    monkeypatch.setattr(commits, "_KEEP_VERSIONS", timedelta(0))
    monkeypatch.setattr(vectors, "_STALE_ROWS", 1)
    for number in range(0, 40, 2):
        with open_writer(store) as writer:
            put(writer, number, number + 1)
            writer.finish()
    names = {folder.name for folder in (store.path / "vectors").iterdir()}
    assert names == {*store.head().published, *store.previous().published}
    assert len(names) <= 3
    assert len(Snapshot.latest(store).chunks.versions()) <= 6
    assert len(Snapshot.latest(store).documents.versions()) <= 6
    assert len(Snapshot.latest(store).chunks.get_fragments()) <= 32
    assert_whole(store)
    assert len(Snapshot.latest(store).full_text("cat", 100)) == 40


def test_a_merge_of_small_fragments_leaves_a_large_one_alone(store, monkeypatch):
    monkeypatch.setattr(commits, "_MAX_FRAGMENTS", 3)
    monkeypatch.setattr(commits, "_MIN_ROWS", 4)
    with open_writer(store) as writer:
        put(writer, *range(8))
        for number in (8, 9):
            put(writer, number)
        writer.finish()
        assert rows_of_fragments(store) == [8, 1, 1]
        put(writer, 10)
        writer.finish()
    assert rows_of_fragments(store) == [8, 3]
    assert_whole(store)


def rows_of_fragments(store):
    return [fragment.count_rows() for fragment in Snapshot.latest(store).documents.get_fragments()]


@pytest.mark.parametrize(("age", "is_due"), [(899, False), (900, True)])
def test_old_versions_which_readers_may_open_for_10_minutes_go_together_when_the_oldest_is_15_minutes_old(
    age, is_due, store, monkeypatch
):
    with open_writer(store) as writer:
        for number in range(4):
            put(writer, number)
    moment, now = 1_800_000_000, 1_800_000_000 + age
    monkeypatch.setattr(time, "time", lambda: now)
    for name in ("documents", "chunks"):
        for _, manifest in manifests(store.location.table(name)):
            os.utime(manifest, (moment, moment))
    cleaned = []
    monkeypatch.setattr(
        lance.LanceDataset, "cleanup_old_versions", lambda table, *_, **__: cleaned.append(Path(table.uri).stem)
    )
    with open_writer(store) as writer:
        writer.finish()
    assert cleaned == (["documents", "chunks"] if is_due else [])


@pytest.mark.thorough
def test_a_long_run_tidies_up_on_the_way(store, monkeypatch, small_fragments):
    monkeypatch.setattr(commits, "_KEEP_VERSIONS", timedelta(0))
    monkeypatch.setattr(writing, "_TIDY_COMMITS", 40)
    with open_writer(store) as writer:
        for number in range(100):
            put(writer, number, drop=[number - 1] if number % 10 == 9 else [])
            assert len(Snapshot.latest(store).chunks.get_fragments()) <= 33 + 40
        assert writer.staged(["id"], [0, 8, 50, 99])["id"].to_pylist() == [0, 50, 99]
        assert len(Snapshot.latest(store).chunks.versions()) <= 3 * 40
        assert len(Snapshot.latest(store).documents.versions()) <= 3 * 40
    left = [number for number in range(100) if number % 10 != 8]
    assert [sorted(numbers) for numbers in ids(store)] == [left, left]
    assert_whole(store)


def test_a_reader_of_a_long_run_finds_what_it_began_with(store, monkeypatch, small_fragments):
    monkeypatch.setattr(writing, "_TIDY_COMMITS", 40)
    with open_writer(store) as writer:
        put(writer, 0, 1)
        before = Snapshot.latest(store)
        for number in range(2, 45):
            put(writer, number, drop=[number - 2])
    assert before.chunk_ids["id"].to_pylist() == [0, 1]
    np.testing.assert_array_equal(vectors_of(before, [1, 0]), [vector(1), vector(0)])


class Cut:
    """Lets so many calls through, and then is the end of the process."""

    def __init__(self, at):
        self.left = at

    def __call__(self, function):
        def step(*args, **options):
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            return function(*args, **options)

        return step


@pytest.mark.thorough
def test_a_long_run_cut_at_any_step_of_tidying_up_leaves_what_was_committed(
    store, tmp_path, monkeypatch, small_fragments
):
    from lance.dataset import DatasetOptimizer

    monkeypatch.setattr(commits, "_KEEP_VERSIONS", timedelta(0))
    with open_writer(store) as writer:
        for number in range(34):
            put(writer, number)
    monkeypatch.setattr(writing, "_TIDY_COMMITS", 1)
    # Both renames of the first commit, and of the last; merging and cleaning each table; and no cut, which is the last.
    for at in (0, 1, 2, 5, 6, 7, 8, 9, 11):
        opened, cut = Store.open(shutil.copytree(store.path, tmp_path / f"cut at {at}")), Cut(at)
        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt), open_writer(opened) as writer:
            patch.setattr(DatasetOptimizer, "compact_files", cut(DatasetOptimizer.compact_files))
            patch.setattr(lance.LanceDataset, "cleanup_old_versions", cut(lance.LanceDataset.cleanup_old_versions))
            patch.setattr(Path, "replace", cut(Path.replace))
            put(writer, 34, drop=[7])
        left = [number for number in range(35) if number != 7] if at > 1 else list(range(34))
        assert [sorted(numbers) for numbers in ids(opened)] == [left, left]
        assert_whole(opened)
        with open_writer(opened) as writer:
            put(writer, 35)
        assert [sorted(numbers) for numbers in ids(opened)] == [[*left, 35]] * 2
        assert_whole(opened)
    assert cut.left == 1  # one too many: two renames for each of three commits, and merging and cleaning each table


def test_a_commit_checks_only_what_is_new(store, monkeypatch):
    looked = []
    stat = Path.stat
    monkeypatch.setattr(Path, "stat", lambda self, **how: (looked.append(self), stat(self, **how))[1])
    with open_writer(store) as writer:
        for number in range(6):
            looked.clear()
            put(writer, number)
    assert sorted(file.parts[-3] for file in looked if file.parent.name == "data") == [
        "chunks.lance",
        "documents.lance",
    ]


def test_a_version_that_a_reader_may_be_at_is_kept(store):
    with open_writer(store) as writer:
        put(writer, 0, 1)
        writer.finish()
    before = Snapshot.latest(store)
    for number in range(2, 8):
        with open_writer(store) as writer:
            put(writer, number, drop=[number - 2])
            writer.finish(rebuild=True)
    assert before.chunk_ids["id"].to_pylist() == [0, 1]
    assert before.index.search(vector(1)[None], 1)[1].tolist() == [[1]]


def test_an_index_made_long_ago_is_kept_for_a_reader_that_knew_it_a_moment_ago(store):
    with open_writer(store) as writer:
        put(writer, 0, 1)
        writer.finish()
    before = Snapshot.latest(store)
    folder = store.location.vectors(before.head.vectors)
    os.utime(folder, (0, 0))
    with open_writer(store) as writer:
        writer.finish(rebuild=True)
    assert before.damage is None and before.published is not None
    os.utime(folder, (0, 0))
    with open_writer(store) as writer:
        writer.finish()
        assert folder.exists()  # the state before the committed one names it
        put(writer, 2)
        writer.finish()
    assert not folder.exists()


def test_only_what_is_a_vector_indexs_is_tidied_away(store):
    with open_writer(store) as writer:
        put(writer, 0)
        writer.finish()
        writer.finish(rebuild=True)
    names = {folder.name for folder in (store.path / "vectors").iterdir()}
    assert len(names) == 4
    for name in (".0123456789ab", ".ssh", "photos", "ivf-4-notes"):
        (store.path / "vectors" / name).mkdir()
    store.location.tidy(store.head().published, math.inf)
    left = {folder.name for folder in (store.path / "vectors").iterdir()}
    assert left == {*store.head().published, ".ssh", "photos", "ivf-4-notes"}


def bytes_below(folder):
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def secret_of(retriever):
    """What must not be found on the disk any more: words, and the vector that they could be inverted from."""
    (row,) = [row for row in retriever.snapshot().chunks.to_table().to_pylist() if "zyxwvut" in row["text"].lower()]
    return [b"zyxwvut", b"Zyxwvut", b"ZYXWVUT", np.array(row["vector"], np.float32)[:8].tobytes()]


def test_a_forgotten_document_leaves_no_byte_of_its_text_on_the_disk(tmp_path, tiny_model):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add([{"id": "keep", "text": "The cat sat on the mat."}])
    retriever.add(
        [
            {
                "id": "secret",
                "title": "Zyxwvut",
                "metadata": {"by": "ZYXWVUT"},
                "text": "The password is zyxwvut, tell nobody.",
            }
        ]
    )
    retriever.add([{"id": "more", "text": "The dog ran."}])
    secret = secret_of(retriever)
    stored = bytes_below(retriever.path).values()
    assert sum(any(piece in data for data in stored) for piece in secret) >= 2  # else this test proves nothing
    assert retriever.delete("secret", erase=True).removed == 1
    for file, data in bytes_below(retriever.path).items():
        for piece in secret:
            assert piece not in data, file
        assert b"secret" not in data, file
    assert [hit.path for hit in retriever.search("zyxwvut password", mode="lexical")] == []
    assert {hit.path for hit in retriever.search("cat")} == {"keep", "more"}
    assert retriever.verify().faults == []


@pytest.mark.parametrize(
    ("at", "write"), [("finish", "sync"), ("finish", "delete"), ("tidy", "add"), ("tidy", "build_index")]
)
def test_what_an_interrupted_forget_left_is_erased_by_the_next_writer(at, write, retriever, monkeypatch):
    (retriever.folder / "secret.md").write_text("The password is zyxwvut.\n")
    retriever.add([{"id": "secret", "text": "Another password is zyxwvut."}])
    retriever.sync()

    def stop(*_args, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(commits.Commits if at == "tidy" else writing.Writer, at, stop)
        with pytest.raises(KeyboardInterrupt):
            retriever.delete("secret.md", "secret", erase=True)
    assert any(b"zyxwvut" in data for data in bytes_below(retriever.path).values())
    arguments = {"add": [[{"id": "more", "text": "The dog ran."}]], "delete": ["secret.md"], "build_index": ["flat"]}
    getattr(retriever, write)(*arguments.get(write, []))
    assert not any(b"zyxwvut" in data for data in bytes_below(retriever.path).values())
    assert not retriever.snapshot().head.erase
    assert retriever.verify().faults == []


@pytest.mark.parametrize("files", ["documents.lance/data/*", "vectors/*/*"])
def test_an_erasure_is_not_done_while_a_file_cannot_be_removed(files, retriever, monkeypatch):
    monkeypatch.setattr(writing, "_FEW_ROWS", 0)
    (retriever.folder / "secret.md").write_text("The password is zyxwvut.\n")
    retriever.sync()
    retriever.build_index("flat")  # removes the indexes before
    fixed = sorted(retriever.path.glob(files))
    if not shutil.which("chattr") or subprocess.run(["chattr", "+i", *fixed], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no file can be made immutable by this user, on this file system")
    try:
        with pytest.raises(
            StoreError, match="cannot be removed.*: the next command that writes tries to erase them again"
        ):
            retriever.delete("secret.md", erase=True)
    finally:
        subprocess.run(["chattr", "-i", *fixed], check=True)
    assert retriever.snapshot().head.erase
    retriever.sync()
    assert not retriever.snapshot().head.erase
    assert not any(b"zyxwvut" in data for data in bytes_below(retriever.path).values())
    assert not any(file.exists() for file in fixed)


def test_vectors_that_a_switch_was_to_erase_are_erased_by_the_next_writer(retriever, make_model, tmp_path, monkeypatch):
    vectors = retriever.snapshot().chunks.to_table()["vector"].to_pylist()
    before = [np.array(one, np.float32)[:8].tobytes() for one in vectors]

    def stop(*_args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(commits.Commits, "tidy", stop)
        with pytest.raises(KeyboardInterrupt):
            retriever.switch(make_model(tmp_path / "other", seed=1), keep=False)
    assert any(one in data for data in bytes_below(retriever.path).values() for one in before)
    retriever.delete("nothing", erase=True)
    assert not any(one in data for data in bytes_below(retriever.path).values() for one in before)


def test_a_head_without_the_word_on_erasing_is_read(retriever):
    file = retriever.path / "HEAD.json"
    head = json.loads(file.read_text())
    del head["erase"]
    file.write_text(json.dumps(head))
    assert Store.open(retriever.path).head().erase is False


def test_a_forgotten_file_leaves_nothing_that_names_it(folder, tiny_model, write):
    write(folder, {"notes/secret.md": "# Zyxwvut\n\nThe password is zyxwvut.\n"})
    retriever = Retriever.open(folder, model=tiny_model)
    retriever.sync()
    secret = secret_of(retriever)
    assert retriever.delete("notes/secret.md", erase=True).removed == 1
    for file, data in bytes_below(retriever.path).items():
        for piece in secret:
            assert piece not in data, file
    assert "notes/secret.md" not in [row["path"] for row in retriever.documents()]
    (path,) = retriever.snapshot().tombstones
    assert re.fullmatch("[0-9a-f]{32}", path)
    report = retriever.sync()
    assert (report.indexed, report.skipped) == (0, 5)
    assert retriever.search("zyxwvut", mode="lexical") == []


def test_a_document_deleted_with_its_file_is_gone_from_the_disk_in_time(tmp_path, tiny_model, monkeypatch):
    """Without being asked to forget, old versions go once no reader can be at them."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").write_text("The cat sat.")
    (folder / "b.txt").write_text("The password is zyxwvut.")
    retriever = Retriever.open(folder, model=tiny_model)
    retriever.sync()
    (folder / "b.txt").unlink()
    retriever.sync()
    assert retriever.search("zyxwvut", mode="lexical") == []


def test_replaced_rows_keep_their_chunks(store):
    with open_writer(store) as writer:
        put(writer, 0, 1)
        writer.replace_rows(documents(document_row(1, path="moved.txt")))
    assert ids(store) == ([0, 1], [0, 1])
    assert Snapshot.latest(store).documents_by_id([1], ["path"]) == {1: {"id": 1, "path": "moved.txt"}}


def test_a_writer_erases_what_is_due_before_it_does_anything_else(store):
    with open_writer(store) as writer:
        put(writer, 0, 1)
        writer.promise_erasure(time.time() - 1)
        put(writer, drop=[0])
    assert any(b"text 0" in data for data in bytes_below(store.path).values())  # else this test proves nothing
    with open_writer(store) as writer:
        assert writer.erasure_due is None
        assert not any(b"text 0" in data for data in bytes_below(store.path).values())
    assert ids(store) == ([1], [1])


def test_a_repaired_vector_index_is_noted_unless_it_was_to_be_built_anew(store):
    with open_writer(store) as writer:
        put(writer, 0, 1)
        assert (writer.finish(), writer.finish(rebuild=True)) == ("", "")
    for rebuild in (True, False):
        shutil.rmtree(store.location.vectors(store.head().vectors))
        damage = Snapshot.latest(store).damage
        with open_writer(store) as writer:
            note = writer.finish(rebuild=rebuild)
        assert note == ("" if rebuild else f"built the vector index anew from the store, because {damage}")
        assert damage is not None and Snapshot.latest(store).damage is None


def test_orphans_are_dropped(store):
    with open_writer(store) as writer:
        put(writer, 0, 1)
        writer.stage(chunks(chunk_row(2, 77)))
        writer.commit(drop=[], documents=document_schema().empty_table())
        writer.drop_orphans([1])
    assert ids(store) == ([0], [0])


def test_chunks_and_documents_lead_to_each_other(store):
    with open_writer(store) as writer:
        writer.stage(chunks(*(chunk_row(number, number // 3) for number in range(9))))
        writer.commit(drop=[], documents=documents(*(document_row(number, chunks=3) for number in range(3))))
    snapshot = Snapshot.latest(store)
    assert snapshot.documents_of(np.array([8, 0, 4, 4])).tolist() == [2, 0, 1, 1]
    assert snapshot.chunks_of(np.array([0, 2])).tolist() == [0, 1, 2, 6, 7, 8]


def test_the_vector_at_a_line_is_that_of_the_nearest_passage(store):
    first = chunk_row(0, 0) | {"line_end": 3}
    last = chunk_row(1, 0, "the dog ran") | {"line_start": 8, "line_end": 10, "char_start": 30, "char_end": 41}
    with open_writer(store) as writer:
        writer.stage(chunks(last, first))
        writer.commit(drop=[], documents=documents(document_row(0, chunks=2, text="x\n" * 10)))
    snapshot = Snapshot.latest(store)
    assert stored_documents.line_range(snapshot, "0.txt") == (1, 10)
    for line, row in [*((line, first) for line in range(1, 6)), *((line, last) for line in range(6, 11))]:
        stored, context = stored_documents.stored_vector(snapshot, "0.txt", line)
        assert (stored.tolist(), context) == (row["vector"], row["context"])
    for line in (0, 11):
        with pytest.raises(InputError, match=f"'0.txt' has lines 1 to 10, not line {line}$"):
            stored_documents.stored_vector(snapshot, "0.txt", line)


def test_what_a_person_does_not_see_in_a_file_is_left_out_of_its_text_on_request(store):
    text = "The white cat.\nThe dog sat."
    row = document_row(0, source="file", metadata='{"hidden": [4, 10, 23, 26]}', text=text)
    passage = chunk_row(0, 0, text) | {"line_end": 2}
    with open_writer(store) as writer:
        writer.stage(chunks(passage))
        writer.commit(drop=[], documents=documents(row))
    snapshot = Snapshot.latest(store)
    assert stored_documents.text(snapshot, "0.txt") == text
    assert stored_documents.text(snapshot, "0.txt", hidden=False) == "The cat.\nThe dog ."
    assert stored_documents.lines(snapshot, "0.txt", 2, 2) == "The dog sat."
    assert stored_documents.lines(snapshot, "0.txt", 2, 2, hidden=False) == "The dog ."


def test_batches_give_every_chunk_in_order_in_bounded_pieces(store):
    with open_writer(store) as writer:
        for start in (0, 10, 20):
            put(writer, *range(start, start + 10), drop=[start - 1] if start else [])
    batches = list(Snapshot.latest(store).batches(["id"], rows=4))
    assert [number for batch in batches for number in batch["id"].to_pylist()] == [
        number for number in range(30) if number not in (9, 19)
    ]
    assert max(map(len, batches)) <= 10


def test_rows_that_compaction_puts_behind_others_come_in_order_of_id(store, small_fragments):
    with open_writer(store) as writer:
        for start in (0, 10, 20):
            put(writer, *range(start, start + 10))
        for number in (5, 15):  # the second builds the vector index from what the first has moved
            writer.forget([document_row(number)])
    snapshot, left = Snapshot.latest(store), [number for number in range(30) if number not in (5, 15)]
    assert snapshot.read("chunks", ["id"])["id"].to_pylist() != left  # else this test proves nothing
    batches = list(snapshot.batches(["text", "id", "vector"], rows=4))
    assert {tuple(batch.schema.names) for batch in batches} == {("text", "id", "vector")}
    assert [number for batch in batches for number in batch["id"].to_pylist()] == left
    assert max(map(len, batches)) == 4
    found = np.array([value for batch in batches for value in batch["vector"].to_pylist()], np.float32)
    np.testing.assert_array_equal(found, vectors_of(snapshot, left))
    some = snapshot.batches(["id"], first=4, last=21)
    assert [number for batch in some for number in batch["id"].to_pylist()] == [4, *range(6, 15), *range(16, 22)]
    assert snapshot.damage is None
    assert snapshot.index.published.ids.tolist() == left
    assert_whole(store)


@pytest.mark.parametrize(("files", "says"), [("data/*", "bytes: is the disk full"), ("_indices/*/*", "is cut short")])
def test_a_file_that_the_disk_did_not_take_whole_is_named(files, says, retriever):
    location = TableLocation(str(retriever.path / "chunks.lance"))
    version = retriever.snapshot().head.chunks
    check(location, location.at(version))
    for file in (retriever.path / "chunks.lance").glob(files):
        os.truncate(file, file.stat().st_size - 1)
    with pytest.raises(OSError, match=says):
        check(location, location.at(version))


def test_rows_that_the_disk_did_not_take_whole_are_no_damaged_index(store):
    resource = pytest.importorskip("resource")
    with open_writer(store) as writer:
        put(writer, 1)
        (file,) = store.path.glob("chunks.lance/data/*")
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size - 1, before[1]))
        try:
            with pytest.raises(StoreError, match="cannot write to .* bytes: is the disk full.*before is kept$"):
                writer.stage(chunks(chunk_row(2, 2)))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with open_writer(store) as writer:
        put(writer, 2, drop=[1])
    assert_whole(store)


def test_a_new_index_that_the_disk_did_not_take_whole_is_made_by_the_next_run(folder, tiny_model, monkeypatch):
    create = lance.LanceDataset.create_scalar_index

    def cut_short(table, *arguments, **options):
        create(table, *arguments, **options)
        for file in Path(table.uri).glob("_indices/*/metadata.lance"):
            os.truncate(file, 0)

    with monkeypatch.context() as patch:
        patch.setattr(lance.LanceDataset, "create_scalar_index", cut_short)
        with pytest.raises(StoreError, match="is cut short: is the disk full"):
            Retriever.open(folder, model=tiny_model).sync()
    retriever = Retriever.open(folder, model=tiny_model)
    assert retriever.sync().indexed == 7
    assert retriever.verify().faults == []


def test_a_repair_mends_a_full_text_index_that_is_cut_short(retriever):
    for file in (retriever.path / "chunks.lance").glob("_indices/*/*.lance"):
        os.truncate(file, file.stat().st_size // 2)
    assert "full-text index" in {fault.kind for fault in retriever.verify().faults}
    (retriever.folder / "new.md").write_text("The river runs to the sea.\n")
    with pytest.raises(StoreError, match="cannot write to"):
        Retriever.open(retriever.path).sync()
    Retriever.open(retriever.path).repair()
    assert retriever.verify().faults == []
    assert [hit.path for hit in retriever.search("river", mode="lexical")] == ["new.md"]
