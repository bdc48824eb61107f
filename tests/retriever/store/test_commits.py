"""The writer's commits: other writers that they notice, versions that they keep, and work that they save."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import DatasetOptimizer, LanceDataset

from binocle import Retriever
from binocle.core.errors import DamagedError, InputError, LockedError, StoreError
from binocle.indexes.manifest import IndexManifest, IndexMetadata
from binocle.indexes.registry import IndexSpec
from binocle.indexes.tuning.requirements import Requirements, queries_needed
from binocle.retriever.store import commits, committed_rows
from binocle.retriever.store import writer as writing
from binocle.retriever.store.derived import benchmark_queries, text_checksums
from binocle.retriever.store.derived import vector_index as vectors
from binocle.retriever.store.snapshot import Snapshot
from binocle.retriever.store.store import Store
from binocle.retriever.store.tables import TableLocation, document_schema, manifests
from binocle.retriever.store.writer import open_writer

from .locations.test_location import InMemory, Memory
from .test_store import DIM, ENCODER, assert_whole, chunk_row, chunks, document_row, documents, ids, put


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "index", ENCODER)


# Another writer


def intrude(table):
    """Write a version of a table as a writer does that was taken for dead."""
    opened = table.at()
    opened.delete("id = 1000")
    table.write(opened.to_table().slice(0, 1), mode="append")


@pytest.mark.parametrize(
    ("call", "moment", "table"),
    [
        ("commit", "delete 1", "chunks"),
        ("commit", "delete 2", "documents"),
        ("commit", "append", "documents"),
        ("replace_rows", "delete 1", "documents"),
        ("replace_rows", "append", "documents"),
    ],
)
def test_a_writer_that_was_taken_for_dead_commits_nothing(call, moment, table, tmp_path, monkeypatch):
    place = InMemory(Memory(), tmp_path)
    store = Store.create(place, ENCODER)
    with open_writer(store) as writer:
        put(writer, 0, 1, 2)
    before, steps = store.head(), iter(["delete 1", "delete 2"])
    delete, write = writing.delete, TableLocation.write

    def deleting(opened, condition):
        if next(steps) == moment:
            intrude(place.table(table))
        delete(opened, condition)

    def appending(location, rows, **options):
        if moment == "append" and isinstance(rows, pa.Table) and rows.num_rows and "title" in rows.column_names:
            monkeypatch.undo()
            intrude(place.table(table))
        return write(location, rows, **options)

    with open_writer(store) as writer:
        monkeypatch.setattr(writing, "delete", deleting)
        monkeypatch.setattr(TableLocation, "write", appending)
        options = {"drop": [0]} if call == "commit" else {}
        rows = documents(document_row(1, title="new"))
        with pytest.raises(StoreError, match="as well: run it again|Please retry|conflict"):
            getattr(writer, call)(documents=rows, **options)
        monkeypatch.undo()
    assert (store.head().documents, store.head().chunks) == (before.documents, before.chunks)


def test_a_version_that_another_process_wrote_in_between_is_not_followed(store):
    with open_writer(store) as writer:
        put(writer, 0)
        followed = writer._commits
        latest = followed.latest["chunks"]
        first, _, third = (followed.table("chunks").write(chunks(chunk_row(1, 0)), mode="append") for _ in range(3))
        followed.follow("chunks", first)
        assert followed.latest["chunks"] == latest + 1
        with pytest.raises(LockedError, match="as well"):
            followed.follow("chunks", third)
        followed.follow("chunks", first)


def test_rows_are_followed_version_by_version(store, monkeypatch):
    with open_writer(store) as writer:
        put(writer, 0, 1)
        noted, follow = [], writer._commits.follow
        monkeypatch.setattr(
            writer._commits, "follow", lambda name, table: (noted.append((name, table.version)), follow(name, table))[1]
        )
        chunks_before, documents_before = writer.head.chunks, writer.head.documents
        put(writer, 2, drop=[0])
        assert noted == [
            ("chunks", chunks_before + 1),  # staged
            ("chunks", chunks_before + 2),  # deleted
            ("documents", documents_before + 1),
            ("documents", documents_before + 2),
        ]
        noted.clear()
        writer.replace_rows(documents(document_row(1)))
        assert noted == [("documents", documents_before + 3), ("documents", documents_before + 4)]
        assert (writer.head.chunks, writer.head.documents) == (chunks_before + 2, documents_before + 4)
        noted.clear()
        writer.replace_vectors(writer.snapshot().chunks.to_table().to_batches(), ENCODER, None)
        assert noted[:2] == [("chunks", chunks_before + 3), ("chunks", chunks_before + 4)]  # the rows, then their words


# Before anything is written


def test_a_damaged_table_is_not_written_to(store):
    with open_writer(store) as writer:
        put(writer, 0, 1)
    with open_writer(store) as writer:
        for file in (store.path / "chunks.lance/data").iterdir():
            os.truncate(file, 10)
        versions = manifests(store.location.table("chunks"))
        with pytest.raises(DamagedError, match=r"chunks.lance is damaged"):
            writer.commit(drop=[0], documents=document_schema().empty_table())
        assert manifests(store.location.table("chunks")) == versions


def test_versions_that_a_killed_writer_left_stay_while_the_committed_one_cannot_be_read(store):
    with open_writer(store) as writer:
        put(writer, 0)
    with open_writer(store) as writer:
        writer.stage(chunks(chunk_row(1, 1)))
    versions = dict(manifests(store.location.table("chunks")))
    whole = versions[store.head().chunks].read_bytes()
    versions[store.head().chunks].write_bytes(whole[:20])
    with pytest.raises(StoreError), open_writer(store):
        pass
    assert dict(manifests(store.location.table("chunks"))) == versions
    versions[store.head().chunks].write_bytes(whole)
    with open_writer(store):
        assert max(dict(manifests(store.location.table("chunks")))) == store.head().chunks


def test_an_index_whose_state_before_is_unknown_is_synced_whole(store, monkeypatch):
    with open_writer(store) as writer:
        put(writer, 0)
    head, begun = store.head(), []
    for commit, is_synced in ((head.commits, True), (head.commits - 1, True), (head.commits - 2, False), (None, False)):
        previous = json.loads((store.path / "HEAD.json").read_text()) | {"commits": commit}
        (store.path / "HEAD.previous.json").write_text(json.dumps(previous))
        monkeypatch.setattr(type(store.location), "begin", lambda _, *, synced: begun.append(synced))
        with open_writer(store):
            assert begun.pop() == is_synced


# Tidying


@pytest.mark.parametrize(("count", "is_merged"), [(32, False), (33, True)])
def test_more_than_32_fragments_are_merged(count, is_merged, store, monkeypatch):
    targets, compact = [], DatasetOptimizer.compact_files
    monkeypatch.setattr(
        DatasetOptimizer, "compact_files", lambda self, **how: (targets.append(how), compact(self, **how))[1]
    )
    with open_writer(store) as writer:
        for number in range(count):
            writer.commit(drop=[], documents=documents(document_row(number, chunks=0)))
        writer._commits.tidy()
        assert targets == ([{"target_rows_per_fragment": 1_024}] if is_merged else [])
        assert len(writer._commits.open("documents").get_fragments()) == (1 if is_merged else count)
    assert sorted(ids(store)[0]) == list(range(count))


def test_a_fragment_with_an_eighth_of_the_rows_is_large(store, monkeypatch):
    targets = []
    monkeypatch.setattr(commits, "_MAX_FRAGMENTS", 1)
    monkeypatch.setattr(DatasetOptimizer, "compact_files", lambda _, **how: targets.append(how))
    with open_writer(store) as writer:
        for start, end in ((0, 8_000), (8_000, 8_240)):
            writer.commit(
                drop=[], documents=documents(*(document_row(number, chunks=0) for number in range(start, end)))
            )
        writer._commits.tidy()
    assert targets == [{"target_rows_per_fragment": 8_240 // 8}]


def test_only_the_versions_of_the_last_two_states_are_kept_once_nobody_can_read_the_others(store, monkeypatch):
    monkeypatch.setattr(commits, "_KEEP_VERSIONS", timedelta(0))
    for number in range(3):
        with open_writer(store) as writer:
            put(writer, number, number + 10, drop=[number + 9] if number else [])
            writer.finish()
    head, previous = store.head(), store.previous()
    for name in ("documents", "chunks"):
        kept = sorted(number for number, _ in manifests(store.location.table(name)))
        assert kept == list(range(getattr(previous, name), getattr(head, name) + 1))


def test_versions_are_looked_at_once_when_they_are_old(store, monkeypatch):
    with open_writer(store) as writer:
        put(writer, 0)
        writer.finish()
    cleaned, clean = [], LanceDataset.cleanup_old_versions
    monkeypatch.setattr(commits, "_KEEP_VERSIONS", timedelta(0))
    monkeypatch.setattr(
        LanceDataset,
        "cleanup_old_versions",
        lambda *arguments, **how: (cleaned.append(how), clean(*arguments, **how))[1],
    )
    for expected in (2, 0):
        for name in ("documents", "chunks"):
            for _, manifest in manifests(store.location.table(name)):
                os.utime(manifest, (0, 0))
        with open_writer(store) as writer:
            writer.finish()
        assert len(cleaned) == expected
        assert all(how["delete_unverified"] for how in cleaned)
        cleaned.clear()


def test_a_long_run_is_tidied_every_50_commits(store, monkeypatch):
    tidied = []
    with open_writer(store) as writer:
        monkeypatch.setattr(commits.Commits, "tidy", lambda self: tidied.append(self.head.commits))
        while writer.head.commits < 101:
            writer.commit(drop=[], documents=document_schema().empty_table())
        writer.commit(drop=[], documents=document_schema().empty_table(), erase=True)
    assert tidied == [50, 100]


@pytest.mark.parametrize(("count", "is_updated"), [(16, False), (17, True)])
def test_a_search_analyses_up_to_16_new_rows_itself(count, is_updated, store):
    with open_writer(store) as writer:
        put(writer, 0)
        writer.finish()
        before = text_checksums.segments(writer.snapshot().chunks)
        put(writer, *range(1, count + 1))
        writer.finish()
        assert (text_checksums.segments(writer.snapshot().chunks) != before) == is_updated
    assert Snapshot.latest(store).full_text("cat", 99).num_rows == count + 1


def test_checksums_of_the_full_text_of_the_state_before_are_kept_until_it_is_erased(store, monkeypatch):
    monkeypatch.setattr(writing, "_FEW_ROWS", 0)
    with open_writer(store) as writer:
        for number in range(3):
            put(writer, number)
            writer.finish()
    before = text_checksums.segments(Snapshot(store, store.previous()).chunks)
    present = text_checksums.segments(Snapshot.latest(store).chunks)
    assert text_checksums.noted(store.location).keys() >= before | present
    with open_writer(store) as writer:
        writer.forget([document_row(0)])
    present = text_checksums.segments(Snapshot.latest(store).chunks)
    assert text_checksums.noted(store.location).keys() == present
    assert Snapshot.latest(store).has_current_text()


def test_a_full_text_index_that_was_checked_is_not_read_again_after_a_commit(store, monkeypatch):
    read, checksum = [], text_checksums._checksum
    monkeypatch.setattr(text_checksums, "_checksum", lambda table, name: (read.append(name), checksum(table, name))[1])
    with open_writer(store) as writer:
        put(writer, 0)
        writer.finish()
        first = writer.snapshot()
        first.check_text()
        read.clear()
        put(writer, 1)
        later = writer.snapshot()
        later.check_text()
        assert later is not first
        assert read == []
        later.check_text(again=True)
        assert set(read) == text_checksums.segments(later.chunks)


@pytest.mark.parametrize(
    "write", [lambda index: index.update(["a"], metadata={"n": 1}), lambda index: index.delete("a")]
)
def test_a_write_without_new_rows_leaves_the_full_text_alone(write, tmp_path, tiny_model, monkeypatch):
    retriever = Retriever.open(tmp_path / "index", model=tiny_model)
    retriever.add([{"id": "a", "text": "The cat sat."}, {"id": "b", "text": "The dog ran."}])
    monkeypatch.setattr(writing.Writer, "_index_text", lambda *_, **__: pytest.fail("looked at the full text"))
    write(retriever)
    assert len(retriever.search("dog", mode="lexical")) == 1


def test_replaced_indexes_are_kept_for_ten_minutes(store):
    location = store.location
    names = [f"flat-{number}-0123456789abcdef" for number in range(3)]
    for name in (*names, ".0123456789ab"):
        location.vectors(name).mkdir(parents=True)
    now = time.time()
    for name, age in zip(names, (599, 601, 9_999), strict=True):
        os.utime(location.vectors(name), (now - age, now - age))
    location.tidy([names[2]], now - 600)
    assert sorted(folder.name for folder in (store.path / "vectors").iterdir()) == [names[0], names[2]]
    location.tidy([], math.inf)
    assert list((store.path / "vectors").iterdir()) == []


def test_an_erasure_that_leaves_a_file_is_not_committed_as_done(store, monkeypatch):
    with open_writer(store) as writer:
        put(writer, 0, 1)
    for left in (
        "switching",
        "documents.lance/data/left.lance",
        "chunks.lance/data/left.lance",
        "chunks.lance/_indices/x",
    ):
        with open_writer(store) as writer, monkeypatch.context() as patch:
            patch.setattr(commits.shutil, "rmtree", lambda *_, **__: None)
            patch.setattr(LanceDataset, "cleanup_old_versions", lambda *_, **__: None)
            (store.path / left).mkdir(parents=True)
            with pytest.raises(
                StoreError, match="cannot be removed.*: the next command that writes tries to erase them"
            ):
                writer.forget([document_row(9)])
        assert store.head().erase
        shutil.rmtree(store.path / left)
        with open_writer(store):
            pass
        assert not store.head().erase


# Vector indexes


@pytest.mark.parametrize(
    ("newer", "masked", "stale"),
    [(1_500, 0, False), (2_000, 0, False), (2_000, 223, True), (2_300, 0, True), (0, 1_999, True)],
)
def test_a_tenth_of_many_rows_makes_a_vector_index_stale(newer, masked, stale):
    present = np.arange(masked, 20_000 + newer)
    snapshot = SimpleNamespace(
        head=SimpleNamespace(vectors="flat"), published_ids=np.arange(20_000), sorted_ids=present
    )
    assert vectors.is_stale(snapshot) == (newer + masked > len(present) / 10) == stale


def test_an_empty_vector_index_is_stale_with_more_than_a_thousand_rows():
    for count in (1_000, 1_001):
        snapshot = SimpleNamespace(
            head=SimpleNamespace(vectors="flat"), published_ids=np.arange(0), sorted_ids=np.arange(count)
        )
        assert vectors.is_stale(snapshot) == (count > 1_000)


def test_a_vector_index_that_is_refused_is_discarded_and_the_one_before_stays(store):
    def refuse(index):
        assert len(index.ids) == 2
        raise InputError("no")

    with open_writer(store) as writer:
        put(writer, 0, 1)
        writer.finish()
        before = {folder.name for folder in (store.path / "vectors").iterdir()}
        with pytest.raises(InputError, match="no"):
            writer.index.build(IndexSpec("flat"), refuse)
        assert {folder.name for folder in (store.path / "vectors").iterdir()} == before
        head = writer.head
        writer.index.build(IndexSpec("flat"), lambda _: IndexMetadata(measurements={"recall": 1.0}))
        assert writer.head.vectors != head.vectors
        manifest = IndexManifest.read(store.location.vectors(writer.head.vectors))
        assert (manifest.measurements, manifest.covers) == ({"recall": 1.0}, writer.head.rows)


def test_a_switch_that_erases_leaves_no_queries_of_the_old_encoder(store):
    with open_writer(store) as writer:
        put(writer, 0)
        writer.finish()
        for family in ("asked", "made"):
            (store.path / f"queries-{family}-0123456789abcdef.npy").touch()
        rows, commits_before = writer.snapshot().chunks.to_table(), writer.head
        other = replace(ENCODER, fingerprint="0" * 32)
        writer.replace_vectors(rows.to_batches(), other, None)
        assert len(list(store.path.glob("queries-*"))) == 2
        assert writer.head.rows == commits_before.rows + 1
        assert writer.head.encoder == other
        writer.replace_vectors(rows.to_batches(), ENCODER, None, erase=True)
        assert list(store.path.glob("queries-*")) == []
        assert (writer.head.rows, writer.head.erase) == (commits_before.rows + 2, False)
    assert_whole(store)


def test_an_orphan_is_dropped_with_its_document_and_the_counts_go_on(store):
    with open_writer(store) as writer:
        put(writer, 0)
        writer.commit(drop=[], documents=documents(document_row(7, chunks=0)))
        assert (writer.head.next_document, writer.head.next_chunk) == (8, 1)
        writer.adopt(drop=[7], documents=[], chunks=[], next_document=5, next_chunk=3)
        assert (writer.head.next_document, writer.head.next_chunk) == (8, 3)
        table = pa.Table.from_pylist([], document_schema())
        writer.commit(drop=[], documents=table)
        assert (writer.head.next_document, writer.head.next_chunk) == (8, 3)
    assert ids(store) == ([0], [0])


def test_readers_of_a_replaced_state_have_ten_minutes(store, monkeypatch):
    tidied = []
    with open_writer(store) as writer:
        put(writer, 0)
        monkeypatch.setattr(type(store.location), "tidy", lambda _, keep, before: tidied.append((keep, before)))
        with monkeypatch.context() as patch:
            patch.setattr(commits.time, "time", lambda: 1_000_000.0)
            writer._commits.tidy()
        assert tidied == [(set(), 1_000_000.0 - 600)]
        writer.finish()
        writer.index.build(IndexSpec("flat"))
        assert tidied[-1][0] == {*store.head().published, *store.previous().published}
        writer.forget([document_row(0)])
        assert tidied[-1][1] == math.inf


def test_an_amended_vector_index_is_there_for_all_machines(tmp_path):
    objects = Memory()
    store = Store.create(InMemory(objects, tmp_path), ENCODER)
    with open_writer(store) as writer:
        put(writer, 0, 1)
        writer.finish()
        before = writer.head
        writer.index.amend(IndexMetadata(measurements={"recall": 0.5}))
        assert (writer.head.demand, writer.head.shards) == (None, ())
        assert writer.head.vectors != before.vectors
        assert f"vectors/{writer.head.vectors}/manifest.json" in objects.held
    other = Snapshot.latest(Store.open(InMemory(objects, tmp_path, "two"), trusted=True))
    assert (other.damage, other.published.measurements) == (None, {"recall": 0.5})


def test_a_writer_opens_each_table_once(store, monkeypatch):
    with open_writer(store) as writer:
        put(writer, 0, 1)
        for module in (commits, committed_rows):
            monkeypatch.setattr(module, "open_table", lambda *_: pytest.fail("opened again"))
        put(writer, 2, drop=[0])
        writer.replace_rows(documents(document_row(1, title="new")))
        assert sorted(writer.snapshot().chunks.to_table(columns=["id"])["id"].to_pylist()) == [1, 2]
        assert writer.snapshot().documents_by_id([1], ["title"])[1]["title"] == "new"


def test_old_versions_of_one_table_go_though_the_other_has_none(store, monkeypatch):
    with open_writer(store) as writer:
        put(writer, 0)
        writer.finish()
    cleaned = []
    with open_writer(store) as writer:
        writer._commits.tidy()
        monkeypatch.setattr(commits, "_KEEP_VERSIONS", timedelta(0))
        writer._commits.tidy()
        monkeypatch.setattr(LanceDataset, "cleanup_old_versions", lambda table, *_, **__: cleaned.append(table.uri))
        for number in range(1, 4):
            writer.stage(chunks(chunk_row(number, 0)))
            writer.commit(drop=[], documents=document_schema().empty_table())
        writer._commits.tidy()
    assert [uri.rpartition("/")[2] for uri in cleaned] == ["chunks.lance"]


def test_search_parameters_that_were_settled_are_those_of_the_next_index_too(store):
    with open_writer(store) as writer:
        put(writer, *range(60))
        spec = IndexSpec("ivf", {"nlist": 2})
        writer.index.build(spec, lambda _: IndexMetadata({"nprobe": 2}))
        assert (writer.head.index.kind, writer.head.index.search) == ("ivf", {"nprobe": 2})
        writer.finish(rebuild=True)
        assert writer.snapshot().published.search == {"nprobe": 2}


def queries_from(passages, drawn, monkeypatch, *, encoder_of=lambda _: None, recall=0.5):
    """The benchmark queries of this number of passages; `drawn` limits how many can be drawn."""
    seeds = []

    def of_passages(_snapshot, _encoder, _requirements, *, seed):
        seeds.append(seed)
        return SimpleNamespace(vectors=np.empty((drawn, DIM)))

    monkeypatch.setattr(benchmark_queries, "of_passages", of_passages)
    snapshot = SimpleNamespace(
        chunks=SimpleNamespace(count_rows=lambda: passages), head=SimpleNamespace(encoder=ENCODER)
    )
    queries = vectors._queries_from_passages(snapshot, Requirements(recall), encoder_of)
    assert seeds in ([], [0])
    return queries


def test_queries_are_made_of_passages_if_they_can_prove_the_requirements(monkeypatch):
    needed = queries_needed(0.5)
    assert len(queries_from(9, 2 * needed, monkeypatch).vectors) == 2 * needed
    assert queries_from(9, 2 * needed - 1, monkeypatch) is None
    assert queries_from(0, 99, monkeypatch) is None
    assert queries_from(9, 99, monkeypatch, encoder_of=None) is None
    assert queries_from(9, 10**6, monkeypatch, recall=1.0) is None

    def gone(_):
        raise InputError("the encoder is gone")

    assert queries_from(9, 99, monkeypatch, encoder_of=gone) is None


def test_a_damaged_table_is_not_taken_for_a_damaged_full_text_index(store):
    with open_writer(store) as writer:
        put(writer, 0, 1)
        writer.finish(rebuild=True)
    for file in (store.path / "chunks.lance/data").iterdir():
        os.truncate(file, 10)
    with pytest.raises(DamagedError, match=r"chunks\.lance is damaged .*remove the folder"):
        Snapshot.latest(store).full_text("cat", 3)
