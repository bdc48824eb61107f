"""An index on object storage, held against one in a folder, over objects in memory."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from lance.dataset import DatasetOptimizer

from binocle import Retriever
from binocle.core.errors import DamagedError, InputError, LockedError, StoreError
from binocle.indexes.flat import FlatIndex
from binocle.indexes.sharded import ShardedIndex
from binocle.retriever.cluster.batch_worker import CHUNK_IDS, FileBatch, Worker, fragments_of
from binocle.retriever.indexing.sync.changes import find_changes
from binocle.retriever.indexing.sync.sync import sync
from binocle.retriever.models.identity import EncoderId
from binocle.retriever.store import store as stores
from binocle.retriever.store import writer as writers
from binocle.retriever.store.locations import s3_location as buckets
from binocle.retriever.store.locations import s3_objects
from binocle.retriever.store.locations.folder_location import FolderLocation
from binocle.retriever.store.locations.location import ANY, NEW
from binocle.retriever.store.locations.open_location import open_location
from binocle.retriever.store.locations.s3_location import S3Location
from binocle.retriever.store.locations.s3_objects import Changed, S3Objects
from binocle.retriever.store.snapshot import Snapshot
from binocle.retriever.store.store import Store
from binocle.retriever.store.tables import TableLocation, document_schema
from binocle.retriever.store.writer import open_writer


class Memory:
    """`object_storage.Objects`, with the conditions of S3."""

    def __init__(self):
        self.held = {}
        self.clock = 1_000.0
        self.lock = threading.Lock()

    def get(self, key):
        if key not in self.held:
            raise FileNotFoundError(key)
        data, _ = self.held[key]
        return data, self.tag(data)

    @staticmethod
    def tag(data):
        return hashlib.md5(data, usedforsecurity=False).hexdigest()

    def put(self, key, data, over):
        with self.lock:
            there = self.held.get(key)
            if over == NEW and there is not None:
                raise Changed
            if over not in (ANY, NEW) and (there is None or self.tag(there[0]) != over):
                raise Changed
            self.held[key] = data, self.clock
            return self.tag(data)

    def age(self, key):
        return self.clock - self.held[key][1]

    def keys(self, prefix):
        for key, (data, put) in sorted(self.held.items()):
            if key.startswith(prefix):
                yield key, put, len(data)

    def remove(self, key):
        del self.held[key]

    def upload(self, file, key):
        self.put(key, file.read_bytes(), ANY)

    def download(self, key, file):
        file.write_bytes(self.get(key)[0])


class InMemory(S3Location):
    """A bucket with its tables in a folder, since Lance writes them by itself."""

    def __init__(self, objects, folder, machine="one"):
        super().__init__("s3://bucket/index", objects, folder / machine)
        self.tables = folder / "tables"

    def table(self, name):
        return TableLocation(str(self.tables / f"{name}.lance"))


@pytest.fixture
def objects():
    return Memory()


@pytest.fixture
def bucket(objects, tmp_path):
    return InMemory(objects, tmp_path)


def store_at(bucket, encoder):
    return Store.create(bucket, EncoderId(encoder.name, encoder.fingerprint, encoder.dim))


def rows_of(store, *without):
    """Every chunk by its document's path, ids left out, in order of id."""
    snapshot = Snapshot.latest(store)
    paths = {row["id"]: row["path"] for row in snapshot.document_rows.to_pylist()}
    rows = snapshot.chunks.to_table().sort_by("id").to_pylist()
    return [
        {**{k: v for k, v in row.items() if k not in ("id", *without)}, "document": paths[row["document"]]}
        for row in rows
    ]


def test_a_name_says_what_kind_of_place_it_is(tmp_path):
    assert isinstance(open_location(tmp_path), FolderLocation)
    with pytest.raises(InputError, match="s3://BUCKET/PREFIX"):
        open_location("s3://bucket")


def test_a_bucket_holds_what_a_folder_does(bucket, tmp_path, folder, tiny):
    in_folder, in_bucket = store_at(FolderLocation(tmp_path / "index"), tiny), store_at(bucket, tiny)
    for change in (None, "edit"):
        if change:
            (folder / "new.md").write_text("# Later\n\nA word that came later.\n")
        for store in (in_folder, in_bucket):
            with open_writer(store) as writer:
                sync(writer, folder, tiny)
        assert rows_of(in_folder) == rows_of(in_bucket)
    assert in_bucket.head().vectors is not None
    query = tiny.encode(["word"], kind="query")
    for mine, theirs in zip(
        Snapshot.latest(in_folder).index.search(query, 9),
        Snapshot.latest(in_bucket).index.search(query, 9),
        strict=True,
    ):
        np.testing.assert_array_equal(mine, theirs)


def test_another_machine_fetches_the_vector_index(bucket, objects, tmp_path, folder, tiny):
    store = store_at(bucket, tiny)
    with open_writer(store) as writer:
        sync(writer, folder, tiny)
    elsewhere = Snapshot.latest(Store.open(InMemory(objects, tmp_path, "two")))
    assert elsewhere.damage is None and len(elsewhere.index.published.ids) == elsewhere.chunks.count_rows()
    assert not list((tmp_path / "two" / "vectors").glob(".*"))


def test_a_machine_that_only_searches_keeps_what_is_in_service(bucket, objects, tmp_path, folder, tiny):
    objects.clock = time.time()
    store, reader = store_at(bucket, tiny), InMemory(objects, tmp_path, "two")
    cached, names = tmp_path / "two" / "vectors", []
    for _ in range(4):
        with open_writer(store) as writer:
            sync(writer, folder, tiny)
            writer.finish(rebuild=True)
        names.append(writer.head.vectors)
        if len(names) == 3:  # the first two were fetched long ago
            (cached / ".begun").mkdir()
            (cached / "built-here").mkdir()
            for name in (*names[:2], "built-here"):
                os.utime(cached / name, (time.time() - 3_600,) * 2)
        assert Snapshot.latest(Store.open(reader)).damage is None
    assert {file.name for file in cached.iterdir()} == {*names[2:], ".begun", "built-here"}
    for name in (".begun", "built-here"):
        os.utime(cached / name, (0, 0))
    os.utime(cached / names[3], (0, 0))
    shutil.rmtree(cached / names[2])
    reader.vectors(names[2])
    assert {file.name for file in cached.iterdir()} == {*names[2:]}


@pytest.mark.parametrize(("before", "left"), [(-600.0, True), (float("inf"), False)])
def test_a_writer_leaves_what_a_reader_of_its_machine_is_fetching(before, left, bucket, objects, folder, tiny):
    """Unless it is to erase: then what is being fetched holds what must go."""
    store = store_at(bucket, tiny)
    with open_writer(store) as writer:
        sync(writer, folder, tiny)
    name, download = store.head().vectors, objects.download
    shutil.rmtree(bucket.vectors(name))

    def tidied(key, file):
        download(key, file)
        InMemory(objects, bucket.cache.parent).tidy([name], time.time() + before)

    objects.download = tidied
    assert (bucket.vectors(name) / "manifest.json").exists() == left
    long_ago = bucket.cache / "vectors/.0123456789ab"
    long_ago.mkdir()
    os.utime(long_ago, (0, 0))
    bucket.tidy([name], time.time() + before)
    assert not long_ago.exists()


def test_a_vector_index_removed_while_it_is_fetched_is_searched_exactly(bucket, objects, tmp_path, folder, tiny):
    store = store_at(bucket, tiny)
    with open_writer(store) as writer:
        sync(writer, folder, tiny)
    elsewhere = Snapshot.latest(Store.open(InMemory(objects, tmp_path, "two")))
    listed = list(objects.keys(""))
    for key in [key for key in objects.held if key.startswith("vectors/")]:
        objects.remove(key)
    objects.keys = lambda prefix: (entry for entry in listed if entry[0].startswith(prefix))
    assert "is not a published vector index" in str(elsewhere.damage)
    assert len(elsewhere.index.unindexed.ids) == elsewhere.chunks.count_rows()
    assert not list((tmp_path / "two" / "vectors").iterdir())


def test_a_cache_that_cannot_be_used_is_told_in_one_line(bucket, objects, tmp_path, folder, tiny):
    with open_writer(store_at(bucket, tiny)) as writer:
        sync(writer, folder, tiny)
    (tmp_path / "two").write_text("a file where the cache should be")
    two = InMemory(objects, tmp_path, "two")
    with pytest.raises(StoreError) as raised:
        Retriever(two).search("cat", mode="semantic")
    assert str(raised.value) == f"{two.cache} cannot be used (Not a directory): set BINOCLE_CACHE to a folder with room"
    with pytest.raises(StoreError, match=r"two cannot be used \(File exists\): set BINOCLE_CACHE"):
        Retriever(two).add([{"text": "x"}])

    def full(key, file):
        raise OSError(errno.ENOSPC, "No space left on device")

    three = InMemory(objects, tmp_path, "three")
    objects.download = full
    with pytest.raises(StoreError, match=r"three cannot be used \(No space left on device\): set BINOCLE_CACHE"):
        Retriever(three).search("cat", mode="semantic")
    assert not list((three.cache / "vectors").iterdir())


def test_a_reader_goes_on_to_the_next_state_when_its_own_is_erased(bucket, tmp_path, tiny_model, monkeypatch):
    """Where a location is an address, a file that is missing is not said to be damage."""
    monkeypatch.setattr(bucket, "table", lambda name: TableLocation(f"file://{tmp_path}/tables/{name}.lance"))
    retriever = Retriever(bucket, model=tiny_model)
    retriever.add([{"id": name, "text": f"The {name} sat."} for name in ("cat", "dog")])
    commits = []

    def answer(snapshot):
        commits.append(snapshot.head.commits)
        if len(commits) == 1:
            Retriever(bucket).delete("dog", erase=True)
        return snapshot.read("chunks", ["text"])["text"].to_pylist()

    assert retriever._index.read(answer) == ["The cat sat."]
    assert len(set(commits)) == len(commits) == 2
    shutil.rmtree(tmp_path / "tables/chunks.lance")
    with pytest.raises(StoreError, match="cannot be read"):
        Retriever(bucket).search("cat")


@pytest.fixture
def machines(objects, tmp_path, tiny_model):
    """Two that search the same index of 36 documents, which the first has made."""
    objects.clock = time.time()
    nouns, colours = "cat dog ship moon king queen".split(), "red blue green sea sun oven".split()
    first, second = (Retriever(InMemory(objects, tmp_path, name), model=tiny_model) for name in ("one", "two"))
    first.add(
        {"id": noun + colour, "text": f"The {noun} sat on the {colour} mat near water."}
        for noun in nouns
        for colour in colours
    )
    return first, second


def test_another_machine_measures_with_the_queries_that_were_asked(machines, objects):
    first, second = machines
    words = "the cat dog ship moon king queen red blue green sea sun oven mat water".split()
    assert second.optimize(0.5, queries=[f"{a} {b}" for a in words for b in words]).met
    first.delete("catred", erase=True)
    assert first.snapshot().published.measurements["source"] == "225 of 225 queries that were given"
    assert [key for key in objects.held if key.startswith("queries-asked-")]


def test_what_was_forgotten_goes_from_the_other_machines_when_they_search_again(machines, objects):
    file, two = machines
    two.search("cat")
    assert two.optimize(0.5).met
    (queries,) = (key for key in objects.held if key.startswith("queries-made-"))
    before = objects.held[queries]
    file.search("cat")
    assert len(list((two.path / "vectors").iterdir())) > 1  # what it had fetched, and what it has built
    file.delete("catred", erase=True)
    assert objects.held.get(queries) != before  # made anew of what is left
    assert len(two.search("cat", k=99)) == 35
    for machine in machines:
        assert {file.name for file in (machine.path / "vectors").iterdir()} == {*machine.snapshot().head.published}
        assert not list(machine.path.glob("queries-*"))


def test_of_two_writers_one_commits(bucket, objects, tmp_path, folder, tiny):
    """The second takes the first for dead; what the first then commits, or had staged, is nowhere."""
    store = store_at(bucket, tiny)
    late = open_writer(store)
    with late as writer:
        objects.clock += 1
        with pytest.raises(LockedError, match="being written by process"), open_writer(store):
            pass
        objects.clock += buckets._LEASE_SECONDS + 1
        with open_writer(store) as second:
            report = sync(second, folder, tiny)
            before = rows_of(store)
            with pytest.raises(LockedError):
                sync(writer, folder, tiny)
        assert report.chunks_total == len(before) > 0
    with open_writer(store) as writer:
        assert sync(writer, folder, tiny).chunks_total == len(before)
    assert rows_of(store) == before


def test_rows_of_a_writer_taken_for_dead_are_noticed(bucket, objects, folder, tiny):
    store = store_at(bucket, tiny)
    with open_writer(store) as writer:
        table = bucket.table("chunks").at()
        table.delete("id = 7")  # changes nothing but the version, as anyone's write would
        bucket.table("chunks").write(table.to_table(), mode="append")
        with pytest.raises(LockedError, match="as well"):
            sync(writer, folder, tiny)
    with open_writer(store) as writer:
        sync(writer, folder, tiny)
    assert rows_of(store)


@pytest.mark.thorough
@pytest.mark.parametrize("step", ["optimize_indices", "compact_files"])
@pytest.mark.parametrize("deletes", [False, True])
def test_what_a_writer_taken_for_dead_does_while_another_finishes_is_not_committed(
    deletes, step, bucket, folder, tiny, monkeypatch
):
    monkeypatch.setattr(writers, "_FEW_ROWS", 0)
    store, chunks = store_at(bucket, tiny), bucket.table("chunks")
    with open_writer(store) as writer:
        sync(writer, folder, tiny)
    ours = getattr(DatasetOptimizer, step)

    def woken(self, **how):
        monkeypatch.setattr(DatasetOptimizer, step, ours)
        table = chunks.at()
        if deletes:
            table.delete("id < 2")
        else:
            chunks.write(table.to_table().slice(0, 1), mode="append")
        ours(self, **how)

    monkeypatch.setattr(DatasetOptimizer, step, woken)
    with open_writer(store) as writer:
        writer.commit(drop=[3], documents=document_schema().empty_table(), erase=True)
        with pytest.raises(StoreError, match="as well: run it again|Please retry"):  # or Lance itself refuses
            sync(writer, folder, tiny)
    committed = rows_of(store)
    with open_writer(store) as writer:
        assert sync(writer, folder, tiny).embedded == 0
    assert rows_of(store) == committed
    assert Retriever(bucket).verify().faults == []


def test_what_a_writer_taken_for_dead_does_while_rows_are_replaced_is_not_committed(bucket, folder, tiny, monkeypatch):
    store, documents = store_at(bucket, tiny), bucket.table("documents")
    with open_writer(store) as writer:
        sync(writer, folder, tiny)
    before, removed = rows_of(store), writers.delete

    def woken(table, condition):
        documents.at().delete("id = 0")
        removed(table, condition)

    with open_writer(store) as writer, monkeypatch.context() as patch:
        patch.setattr(writers, "delete", woken)
        with pytest.raises(LockedError, match="as well: run it again"):
            writer.replace_rows(documents.at().to_table(filter="id = 1"))
    assert rows_of(store) == before


def test_a_writer_taken_for_dead_does_not_tidy_away_what_another_has_not_committed_yet(bucket, objects, folder, tiny):
    store = store_at(bucket, tiny)
    with open_writer(store) as first:
        sync(first, folder, tiny)
        objects.clock += buckets._LEASE_SECONDS + 1
        (folder / "new.md").write_text("# Later\n\nA word that came later.\n")
        with open_writer(store) as second:
            entries = find_changes(folder, second.snapshot()).read
            worker = Worker.load(store, second.head)
            done = worker.do(FileBatch(tuple(entries), second.head.next_document, second.head.next_chunk), folder)
            worker.close()
            with pytest.raises(LockedError, match="as well: run it again"):
                first.finish()
            first._commits.check_alone = lambda: None  # it fell silent after it had looked
            first._commits.tidy()
            second.adopt(
                drop=[],
                documents=fragments_of(done.documents),
                chunks=fragments_of(done.chunks),
                next_document=done.next_document,
                next_chunk=done.next_chunk,
            )
    assert "new.md" in {row["document"] for row in rows_of(store)}
    assert Retriever(bucket).verify().faults == []


def test_a_writer_taken_for_dead_stages_no_more(bucket, objects, folder, tiny):
    store = store_at(bucket, tiny)
    with open_writer(store) as first:
        objects.clock += buckets._LEASE_SECONDS + 1
        with open_writer(store):
            pass
        with pytest.raises(LockedError, match="as well: run it again"):
            sync(first, folder, tiny)
    assert bucket.table("chunks").at().count_rows() == 0


class OfFewWords(BaseHTTPRequestHandler):
    """An S3 that stores an object, once, and loses the answer."""

    held = b""
    cut = 0  # the next answers end in the middle

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not OfFewWords.held:
            OfFewWords.held = body
            self.close_connection = True
        else:
            self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")

    def do_GET(self):
        self.answer(200, self.held)

    def do_HEAD(self):
        self.answer(200, b"")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("ETag", '"tag"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if OfFewWords.cut:
            OfFewWords.cut -= 1
            self.close_connection = True
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, *_args):
        pass


@pytest.fixture
def few_words(monkeypatch):
    """Objects of a storage that answers in few words."""
    pytest.importorskip("boto3")
    server = ThreadingHTTPServer(("127.0.0.1", 0), OfFewWords)
    threading.Thread(target=server.serve_forever).start()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "local")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    try:
        yield S3Objects("bucket", "index")
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(("is_stored", "tag"), [(b"", '"tag"'), (b"another's", None)])
def test_a_put_whose_answer_was_lost_has_been_made(is_stored, tag, few_words, monkeypatch):
    monkeypatch.setattr(OfFewWords, "held", is_stored)
    if tag:
        assert few_words.put("HEAD.json", b"mine", NEW) == tag
    for over in (NEW, '"other"'):
        with pytest.raises(Changed):
            few_words.put("HEAD.json", b"mine", over)


def test_an_answer_that_ends_in_the_middle_is_asked_for_again(few_words, monkeypatch):
    monkeypatch.setattr(OfFewWords, "held", b"whole")
    monkeypatch.setattr(OfFewWords, "cut", s3_objects._ATTEMPTS - 1)
    assert few_words.get("HEAD.json") == (b"whole", '"tag"')
    OfFewWords.cut = s3_objects._ATTEMPTS
    with pytest.raises(StoreError, match="s3://bucket/index cannot be reached .*2 bytes read, 3 more expected"):
        few_words.get("HEAD.json")


def test_an_answer_whose_headers_end_in_the_middle_is_told_in_one_line(few_words):
    with pytest.raises(StoreError, match="s3://bucket/index cannot be reached .an answer without 'LastModified'"):
        few_words.age("lock.json")


def test_a_storage_that_stalls_is_named_with_its_address(few_words, monkeypatch):
    monkeypatch.setattr(OfFewWords, "do_GET", lambda _: time.sleep(1))
    monkeypatch.setattr(s3_objects, "_SECONDS", 0.1)
    monkeypatch.setattr(s3_objects, "_RETRIES", {"total_max_attempts": 1})
    address = os.environ["AWS_ENDPOINT_URL"]
    with pytest.raises(StoreError, match=f'bucket/index cannot be reached .Read timeout .* "{address}/bucket/index/H'):
        S3Objects("bucket", "index").get("HEAD.json")


def test_an_object_above_the_size_limit_is_not_read(few_words, monkeypatch):
    monkeypatch.setattr(s3_objects, "LARGEST", 5)
    monkeypatch.setattr(OfFewWords, "held", b"whole")
    assert few_words.get("HEAD.json") == (b"whole", '"tag"')
    monkeypatch.setattr(OfFewWords, "held", b"larger")
    with pytest.raises(OSError, match="larger than 5 bytes"):
        few_words.get("HEAD.json")


def test_the_lease_is_given_up(bucket, objects, tiny):
    store = store_at(bucket, tiny)
    assert "lock.json" not in objects.held
    with open_writer(store):
        assert "lock.json" in objects.held
    assert "lock.json" not in objects.held


HELD = """
import sys, time
from pathlib import Path
from binocle.retriever.store.locations.s3_location import S3Location

class Objects:
    def put(self, key, data, over):
        return "tag"

    def get(self, key):
        return b"", "tag"

    def remove(self, key):
        print("removed", key, flush=True)

with S3Location("s3://bucket/index", Objects(), Path(sys.argv[1])).locked():
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_process_that_is_terminated_gives_up_its_lease(tmp_path):
    command = [sys.executable, "-c", HELD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        process.terminate()
        assert process.stdout.read() == "removed lock.json\n"
    assert process.returncode == -signal.SIGTERM


def test_a_lease_says_since_when_it_is_held_and_when_it_ends(bucket, objects, tiny, monkeypatch):
    store, times = store_at(bucket, tiny), iter(["08:00:00", "08:00:15"])
    monkeypatch.setattr(buckets, "now", lambda: next(times, "08:00:30"))
    monkeypatch.setattr(buckets, "_LEASE_SECONDS", 1.0)
    with open_writer(store):
        first, started = objects.held["lock.json"][0], time.monotonic()
        while objects.held["lock.json"][0] == first and time.monotonic() < started + 60:
            time.sleep(0.01)
        with pytest.raises(LockedError) as raised, open_writer(store):
            pass
    assert str(raised.value).endswith(
        f"{os.getpid()} on {socket.gethostname()}, since 08:00:00: try again when it has finished, or in a minute if "
        "it was killed, or let it wait: --wait SECONDS"
    )


@pytest.mark.parametrize("key", ["holiday.jpg", "vectors/logo.svg", "documents.lance/data", "settings.json"])
def test_a_bucket_with_something_else_in_it_is_left_alone(key, bucket, objects, tiny):
    objects.put(key, b"mine", NEW)
    with pytest.raises(StoreError, match="not empty"):
        store_at(bucket, tiny)
    assert objects.held[key][0] == b"mine"


def test_a_creation_in_a_bucket_cut_short_is_finished(bucket, objects, tiny, monkeypatch):
    def stop(*_args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stores, "document_schema", stop)
        with pytest.raises(KeyboardInterrupt):
            store_at(bucket, tiny)
    objects.put("documents.lance/data", b"half", NEW)
    assert store_at(bucket, tiny).head().commits == 0
    assert "documents.lance/data" not in objects.held


def test_old_vector_indexes_go_from_the_bucket(bucket, objects, folder, tiny):
    store = store_at(bucket, tiny)
    with open_writer(store) as writer:
        sync(writer, folder, tiny)
        first = writer.head.vectors
        writer.finish(rebuild=True)
        bucket.tidy(writer.head.parts, float("inf"))
        assert writer.head.vectors != first
    names = {key.split("/")[1] for key in objects.held if key.startswith("vectors/")}
    assert names == set(store.head().parts)


def test_an_index_in_a_bucket_is_kept_for_a_while_after_it_was_superseded(bucket, objects, folder, tiny):
    objects.clock = time.time() - 3_600
    store = store_at(bucket, tiny)
    with open_writer(store) as writer:
        sync(writer, folder, tiny)
        first = writer.head.vectors
        objects.clock = time.time()
        writer.finish(rebuild=True)
        assert f"vectors/{first}/manifest.json" in objects.held
        bucket.tidy(writer.head.parts, objects.clock + 1)
        assert not [key for key in objects.held if key.startswith(f"vectors/{first}/")]


def test_an_index_that_was_never_in_service_is_dropped(bucket, objects, folder, tiny):
    store = store_at(bucket, tiny)
    with open_writer(store) as writer:
        sync(writer, folder, tiny)
    for name in store.head().published:
        bucket.drop(name)
    bucket.drop("nothing")
    assert not [key for key in objects.held if key.startswith("vectors/")]
    assert not list((bucket.cache / "vectors").iterdir())


# Shards


def test_shards_answer_as_one_index_does():
    random = np.random.default_rng(0)
    ids = np.sort(random.choice(10_000, 300, replace=False))
    vectors = random.standard_normal((300, 8)).astype(np.float32)
    whole = FlatIndex(ids, vectors)
    queries = random.standard_normal((5, 8)).astype(np.float32)
    for cuts in ([100, 101], [1, 299], [150]):
        parts = np.split(np.arange(300), cuts)
        shards = ShardedIndex([FlatIndex(ids[part], vectors[part]) for part in parts])
        mask = random.random(300) < 0.3
        for allowed in (None, mask, np.flatnonzero(mask), np.array([0, 299]), np.empty(0, np.int64)):
            for k in (1, 10, 400):
                expected, actual = whole.search(queries, k, allowed=allowed), shards.search(queries, k, allowed=allowed)
                np.testing.assert_allclose(actual[0], expected[0], rtol=1e-5)
                np.testing.assert_array_equal(actual[1], expected[1])
        subset = random.permutation(ids)[:40]
        np.testing.assert_array_equal(shards.reconstruct(subset), whole.reconstruct(subset))
    with pytest.raises(DamagedError, match="overlap"):
        ShardedIndex([whole, whole])


# Portions


def test_portions_make_the_rows_that_one_machine_makes(tmp_path, folder, tiny):
    """Whichever is done first, done twice, or done by a worker that does not see the folder."""
    whole, spread = (
        store_at(FolderLocation(tmp_path / "whole"), tiny),
        store_at(FolderLocation(tmp_path / "spread"), tiny),
    )
    with open_writer(whole) as writer:
        expected = sync(writer, folder, tiny)
    with open_writer(spread) as writer:
        changes = find_changes(folder, writer.snapshot())
        entries, report = changes.read, changes.report
        portions = [
            FileBatch(tuple(entries[at : at + 2]), writer.head.next_document + at, at * CHUNK_IDS)
            for at in range(0, len(entries), 2)
        ]
        worker, done = Worker.load(spread, writer.head), {}
        for portion in [*reversed(portions), portions[0]]:
            done[portion.chunk] = worker.do(portion, folder)
        blind = portions[-1]
        assert worker.do(blind, tmp_path / "nowhere") is None
        contents = {entry.path: (folder / entry.path).read_bytes() for entry in blind.entries if not entry.reason}
        with_contents = FileBatch(blind.entries, blind.document, blind.chunk, contents)
        done[blind.chunk] = worker.do(with_contents, tmp_path / "nowhere")
        worker.close()
        for _, result in sorted(done.items()):
            writer.adopt(
                drop=[],
                documents=fragments_of(result.documents),
                chunks=fragments_of(result.chunks),
                next_document=result.next_document,
                next_chunk=result.next_chunk,
            )
            report.join(result.report)
        writer.finish()
    assert (report.indexed, report.skipped, report.failed) == (expected.indexed, expected.skipped, expected.failed)
    for mine, theirs in zip(rows_of(spread, "vector"), rows_of(whole, "vector"), strict=True):
        assert mine == theirs
    vectors = [np.array([row["vector"] for row in rows_of(store)]) for store in (spread, whole)]
    np.testing.assert_allclose(*vectors, atol=1e-6)
    with open_writer(spread) as writer:
        again = sync(writer, folder, tiny)
    assert (again.indexed, again.embedded, again.unchanged) == (0, 0, expected.indexed)
