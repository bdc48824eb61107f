"""A Ray cluster of this machine and a local S3 server: `benchmarks/speed/cluster.py` measures the same at length."""

from __future__ import annotations

import logging
import pickle
import random
import shutil
import subprocess
import sys
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest

from binocle import Retriever, __version__
from binocle.core.errors import InputError, MissingExtraError, StoreError
from binocle.indexes.manifest import IndexManifest, IndexMetadata
from binocle.indexes.registry import KINDS, IndexSpec
from binocle.indexes.tuning import optimize as optimizing
from binocle.indexes.tuning.requirements import Requirements
from binocle.retriever.cluster import cluster as clusters
from binocle.retriever.cluster import tasks
from binocle.retriever.cluster.batch_worker import FileBatch
from binocle.retriever.cluster.cluster import Cluster
from binocle.retriever.cluster.serving import RemoteShard, RemoteShardedIndex
from binocle.retriever.documents.scan import scan
from binocle.retriever.indexing.report import Report
from binocle.retriever.models.identity import EncoderId
from binocle.retriever.store.head import Head
from binocle.retriever.store.locations import s3_objects as object_storage
from binocle.retriever.store.tables import TableLocation


def test_a_missing_extra_is_told_by_other_processes_too():
    error = pickle.loads(pickle.dumps(MissingExtraError("ray", "ray", "--ray")))
    assert str(error) == "--ray needs ray, which is not installed: pip install 'binocle[ray]'"


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'binocle\[ray\]'"):
        Cluster.connect("auto")


def test_without_boto3_the_extra_for_object_storage_alone_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MissingExtraError, match=r"object storage.*pip install 'binocle\[s3\]'"):
        object_storage.S3Objects("bucket", "index")


def test_an_address_is_expected():
    pytest.importorskip("ray")
    with pytest.raises(InputError, match="address"):
        Cluster.connect("")


def test_importing_the_module_imports_no_ray():
    code = "import sys, binocle.retriever.cluster.cluster; sys.exit('ray' in sys.modules or 'boto3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "others", [{}, {"previous": EncoderId("old", "f0", 8), "demand": Requirements(0.9, memory=1e6)}]
)
def test_a_worker_has_the_state_that_it_was_sent_as_plain_values(others):
    head = Head(
        3, 4, EncoderId("new", "0f", 32), vectors="flat-1", shards=("flat-2",), index=IndexSpec("hnsw"), **others
    )
    assert Head.of(asdict(head)) == head


class Here(Cluster):
    """A cluster that does its tasks at once, in this process."""

    def __init__(self):
        self.workers = 3
        self.served = []

    def _remote(self, function, **_resources):
        return SimpleNamespace(remote=function)

    def _all(self, refs):
        return list(refs)

    def _kill(self, store, chosen):
        """No actors."""

    def retire(self, store, head):
        self.served.append(head.parts)


def build_shards(snapshot):
    ids = snapshot.chunk_ids["id"].to_numpy()
    return Here().build_shards(snapshot.store, snapshot.head, ids, IndexSpec("flat"))


class Actors:
    """A Ray that gives names to actors, and keeps them."""

    def __init__(self, *names):
        self.names = list(names)
        self.util = self

    def list_named_actors(self):
        return [*self.names, "other"]

    def get_actor(self, name):
        return name

    def kill(self, actor):
        self.names.remove(actor)

    def remote(self, **_resources):
        return lambda _class: SimpleNamespace(options=self.options)

    def options(self, name, **_how):
        self.names = [*dict.fromkeys([*self.names, name])]
        contents = SimpleNamespace(remote=lambda: (np.array([len(self.names)]), True))
        manifest = SimpleNamespace(remote=lambda: asdict(IndexManifest("flat", 1, 32, 1, {}, "dot", {}, {})))
        return SimpleNamespace(remote=lambda *_: SimpleNamespace(manifest=manifest, contents=contents))


def test_actors_of_shards_that_another_took_away_end_when_the_next_are_served(retriever, tmp_path):
    cluster, store = Here(), retriever._index.reopened()
    cluster._ray = ray = Actors()
    cluster._kill = Cluster._kill.__get__(cluster)
    elsewhere = clusters._name(str(tmp_path / "elsewhere"), "flat-1-0123456789abcdef")
    ray.names = [elsewhere]

    def served():
        cluster.serve(store, store.head())
        return [name.split("/")[1:] for name in ray.names if name != elsewhere]

    first = store.head().vectors
    assert served() == [[first, __version__]]
    retriever.build_index("flat")
    second = store.head().vectors
    assert served() == [[first, __version__], [second, __version__]]  # somebody may be searching the first
    shutil.rmtree(store.location.vectors(first))
    assert served() == [[second, __version__]] and elsewhere in ray.names


def test_the_ids_of_served_shards_are_held_once():
    held = [np.array([1, 2]), np.array([5]), np.array([7, 9, 11])]
    spread = RemoteShardedIndex(None, [RemoteShard(None, None, ids, compares_all=True) for ids in held])
    assert [shard.ids.tolist() for shard in spread.exact.shards] == [ids.tolist() for ids in held]
    assert all(np.shares_memory(shard.ids, spread.ids) for shard in spread.exact.shards)


class Slow:
    """A Ray that has an answer at its last look; at each look before it has these processors."""

    class exceptions:  # noqa: N801
        RayError = GetTimeoutError = type("RayError", (Exception,), {})
        RayTaskError = type("RayTaskError", (RayError,), {})

    def __init__(self, *processors):
        self.processors = list(processors)

    def get(self, ref, timeout):
        if self.processors:
            raise self.exceptions.GetTimeoutError
        return ref

    def cluster_resources(self):
        found = self.processors.pop(0)
        return {found: 1.0} if found else {}


@pytest.mark.parametrize(
    ("gpus", "processors", "expected"),
    [
        (0, ["", "CPU", "", "CPU", "CPU", ""], None),
        (0, ["CPU", "", "", ""], "has had no CPU for 0.5 minutes"),
        (2, ["GPU", "CPU", "CPU", ""], "has had no GPU for 0.5 minutes"),
    ],
)
def test_a_cluster_that_cannot_do_what_is_asked_of_it_is_not_waited_for_for_ever(
    gpus, processors, expected, monkeypatch
):
    monkeypatch.setattr(clusters, "_PATIENCE", 30.0)
    cluster = Here()
    cluster._ray, cluster._gpus = Slow(*processors), gpus
    if expected is None:
        assert cluster._get("done") == "done"
    else:
        with pytest.raises(StoreError, match=expected):
            cluster._get("done")


def test_shards_that_are_not_put_in_service_leave_nothing(retriever, monkeypatch):
    monkeypatch.setattr(clusters, "_MINIMUM_SHARD", 2)
    monkeypatch.setattr(tasks, "_share_processors", lambda: None)
    snapshot, folder = retriever.snapshot(), retriever.path / "vectors"

    def names():
        return {file.name for file in folder.iterdir()}

    before = names()
    shards = build_shards(snapshot)
    assert len(shards.names) == 3 and names() == before | {*shards.names}
    put = shards.publish(IndexMetadata(measurements={"recall": 1.0}))
    assert not {*put} & {*shards.names} and names() == before | {*put}
    other = build_shards(snapshot)
    other.discard()
    assert names() == before | {*put}


def test_a_cluster_is_told_after_every_write_what_is_in_service(retriever, make_model, tmp_path):
    retriever._index._cluster = cluster = Here()
    other = make_model(tmp_path / "other", seed=1)

    def amend():
        with retriever._index.writer() as writer:
            writer.index.amend(IndexMetadata())

    for write in (
        lambda: retriever.add([{"id": "a", "text": "The cat sat."}]),
        lambda: retriever.delete("a", erase=True),
        lambda: retriever.build_index("flat"),
        lambda: retriever.optimize(0.5),
        amend,
        lambda: retriever.switch(other),
        retriever.rollback,
        retriever.sync,
    ):
        cluster.served.clear()
        write()
        assert cluster.served == [retriever.snapshot().head.parts]


def test_shards_are_built_of_rows_that_do_not_lie_in_order_of_id(retriever, small_fragments, monkeypatch):
    monkeypatch.setattr(clusters, "_MINIMUM_SHARD", 2)
    monkeypatch.setattr(tasks, "_share_processors", lambda: None)
    retriever.add({"id": f"{number}", "text": f"The cat sat on {number} mats."} for number in range(10))
    retriever.delete("notes/cats.txt", erase=True)
    snapshot = retriever.snapshot()
    ids = snapshot.chunk_ids["id"].to_pylist()
    assert snapshot.read("chunks", ["id"])["id"].to_pylist() != ids  # else this test proves nothing
    shards = build_shards(snapshot)
    held = [KINDS["flat"].load(retriever.path / "vectors" / name, dim=32).ids for name in shards.names]  # type: ignore[call-arg]
    assert len(held) == 3 and np.concatenate(held).tolist() == ids


def test_a_worker_that_failed_leaves_no_rows_for_the_next_run(retriever, folder, write, monkeypatch):
    monkeypatch.setattr(tasks, "_workers", {})
    monkeypatch.setattr(tasks, "_share_processors", lambda: None)
    before = retriever.snapshot().chunks.count_rows()
    write(folder, {f"new/{number}.txt": f"The cat sat on {number} mats." for number in range(3)})
    written = TableLocation.fragments

    def full(self, rows):
        monkeypatch.setattr(TableLocation, "fragments", written)
        raise OSError("No space left on device")

    monkeypatch.setattr(TableLocation, "fragments", full)
    with retriever._index.writer() as writer:
        run = str(writer.snapshot().store.location), asdict(writer.head), str(folder), False
        entries = tuple(entry for entry in scan(folder) if entry.path.startswith("new/"))
        portion = FileBatch(entries, writer.head.next_document, writer.head.next_chunk)
        with pytest.raises(StoreError, match="No space left"):
            tasks.work(*run, portion)
        clusters._commit(writer, [(portion, tasks.work(*run, portion))], {}, Report())
        writer.finish()
    tasks._close_worker()
    assert retriever.snapshot().chunks.count_rows() == before + 3
    assert retriever.verify().faults == []


@pytest.fixture
def s3(monkeypatch, tmp_path):
    """A bucket on a local S3 server."""
    server = pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    pytest.importorskip("ray")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    started = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    host, port = started.get_host_and_port()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "BINOCLE_CACHE": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3").create_bucket(Bucket="bucket")
    yield "s3://bucket/index"
    started.stop()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_lost_node_costs_nothing_but_time(s3, write, tmp_path, tiny_model, monkeypatch):
    """Three nodes, one of them killed in the middle, give the rows and answers of one machine."""
    import ray
    from ray.cluster_utils import Cluster as Nodes

    monkeypatch.setattr(clusters, "_MINIMUM_SHARD", 40)
    words = "bread cheese salt moon sea ship cat dog tax task worker client".split()
    texts = {f"{n:03}.md": " ".join(random.Random(n).choices(words, k=7)) for n in range(100)}
    folder = write(tmp_path / "folder", texts)
    one = Retriever.open(tmp_path / "one", model=tiny_model)
    one.sync(folder)
    nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        workers = [nodes.add_node(num_cpus=1) for _ in range(3)]
        spread = Retriever.open(s3, model=tiny_model, ray=nodes.address)
        lost = []

        def kill(progress):
            if progress.done > progress.total // 5 and not lost:
                lost.append(nodes.remove_node(workers[0], allow_graceful=False))

        report = spread.sync(folder, progress=kill)
        assert lost and report.indexed == 100
        assert len(spread.snapshot().head.parts) > 1
        assert spread.verify().faults == []
        for query in ("moon", "the cat and the dog", "bread with salt"):
            mine, theirs = ([(hit.path, hit.text, hit.score) for hit in at.search(query)] for at in (one, spread))
            assert mine == theirs
        (folder / "000.md").unlink()
        (folder / "001.md").write_text("A line about cheese.\n")
        again = spread.sync()
        assert (again.indexed, again.removed, again.unchanged) == (1, 1, 98)
        assert spread.verify().faults == []
        asked = [" ".join(random.Random(n).choices(words, k=3)) for n in range(200)]
        for name, value in {"_FEW": 20, "TIE": 1e-6}.items():  # few passages as if they were many
            monkeypatch.setattr(optimizing, name, value)
        before = spread.snapshot().head.parts
        assert spread.optimize(0.5, kinds=["ivf_int8"], queries=asked).met
        made = spread.snapshot()
        left = {key.split("/")[1] for key, *_ in spread.location._objects.keys("vectors/")}  # type: ignore[attr-defined]
        assert left == {*before, *made.head.parts}  # none of those that were only measured
        assert made.published.kind == "ivf_int8" and len(made.head.parts) > 1
        assert made.published.measurements["recall"] >= 0.5 and len(spread.search("moon")) == 10
    finally:
        ray.shutdown()
        nodes.shutdown()


def told(capsys, index):
    """What `binocle search` says of an index, its exit code, and that it says it in one line."""
    from binocle import cli

    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and index in said.err
    return said.err, ended.value.code


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "cannot be reached"),
        ({"AWS_ENDPOINT_URL": "nowhere:5000"}, "cannot be opened"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "Unable to locate credentials"),
    ],
)
def test_storage_that_is_not_to_be_had_is_told_in_one_line(environment, expected, monkeypatch, capsys):
    pytest.importorskip("boto3")
    usual = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
    usual |= {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_EC2_METADATA_DISABLED": "true"}
    for name, value in {**usual, **environment}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setattr(object_storage, "_RETRIES", {"total_max_attempts": 1})
    monkeypatch.setattr(sys, "argv", ["binocle", "search", "x", "--index", "s3://bucket/index"])
    message, code = told(capsys, "s3://bucket/index")
    assert expected in message and "AWS_ENDPOINT_URL" in message and code == 2
