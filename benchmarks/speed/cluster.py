"""Index a folder on a Ray cluster of four nodes into a store on S3, kill a node in the middle, and compare.

    python -m benchmarks.speed.cluster --folder DIR [--only killed | --only scaling] [--scaling-files 1500] [--seed 0]

The nodes come from `ray.cluster_utils.Cluster` on this machine, one worker each; moto serves S3. When a third of the
files are committed by `binocle index`, one node is killed. The index must then equal an index of the same files
made by one machine: the same documents and passages, none lost, none twice, `binocle verify` clean. For 200
queries in each mode the answers must be the same, paths, places, order and scores, asked of the shards that the
cluster serves. Run it with OMP_NUM_THREADS=1, so that all encode with one thread.

Then some of the files with one worker and with two, into fresh stores, on a machine of two cores that does nothing
else: the S3 server, Ray and the process that commits share these cores with the workers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from binocle.retriever.retriever import Retriever
from binocle.retriever.store.locations.open_location import open_location
from binocle.retriever.store.snapshot import Snapshot
from binocle.retriever.store.store import Store

from ..machine import RESULTS, save
from ..trust.crash import queries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from binocle.core.progress import Progress

MODES = ("hybrid", "semantic", "lexical")
OBJECT_STORE = 128 * 2**20  # bytes a node


def sample(folder: Path, count: int, seed: int, to: Path) -> None:
    files = sorted(file for file in folder.rglob("*") if file.is_file() and ".binocle" not in file.parts)
    for file in sorted(random.Random(seed).sample(files, min(count, len(files)))):
        target = to / file.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)


@contextlib.contextmanager
def s3(work: Path) -> Iterator[None]:
    """A local S3 server with a bucket, and an environment that names it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "BINOCLE_CACHE": str(work / "cache"),
    }
    command = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(endpoint, timeout=5).close()
                break
            time.sleep(0.2)
        import boto3

        boto3.client("s3").create_bucket(Bucket="bucket")
        yield
    finally:
        server.terminate()
        server.wait()


@contextlib.contextmanager
def cluster(workers: int) -> Iterator[tuple[Any, list[Any]]]:
    """A cluster with a head that does not work and so many nodes that do, each with one CPU."""
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": OBJECT_STORE}
    ray_cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        nodes = [ray_cluster.add_node(num_cpus=1, object_store_memory=OBJECT_STORE) for _ in range(workers)]
        ray_cluster.wait_for_nodes()
        yield ray_cluster, nodes
    finally:
        ray.shutdown()
        ray_cluster.shutdown()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "binocle.cli", *arguments]


def killed(folder: Path, work: Path, seed: int) -> dict[str, Any]:
    """Index with four workers, kill one when a third is done, and compare with one machine's index."""
    files = sum(file.is_file() for file in folder.rglob("*"))
    began = time.perf_counter()
    alone = subprocess.run(command("index", str(folder), "--index", str(work / "one"), "--json"), stdout=-1, check=True)
    figures: dict[str, Any] = {"files": files, "one_machine": log_figures(alone.stdout, began)}
    single, index = Retriever.open(work / "one"), "s3://bucket/killed"
    with cluster(4) as (nodes, workers):
        began = time.perf_counter()
        arguments = command("index", str(folder), "--index", index, "--ray", nodes.address, "--json")
        # To a file, and in a session of its own: what ends a node here closes pipes and ends processes around it.
        report = (work / "report.json").open("wb")
        with report, subprocess.Popen(arguments, stdout=report, start_new_session=True) as process:
            committed = wait_for(index, files // 3, process)
            nodes.remove_node(workers[-1], allow_graceful=False)
            if process.wait():
                raise SystemExit(f"indexing ended with {process.returncode}")
        figures["node_killed"] = {
            "nodes": 4,
            "files_committed_before": committed,
            **log_figures((work / "report.json").read_bytes(), began),
        }
        verified = subprocess.run(command("verify", "--index", index), stdout=-1, stderr=-1, check=False)
        figures["verify"] = {"exit_code": verified.returncode, "says": verified.stdout.decode().strip()}
        print(json.dumps(figures, indent=1), flush=True)
        spread = Retriever.open(index, ray=nodes.address)
        figures["bytes_a_passage"] = {
            name: round(retriever.location.size() / retriever.snapshot().chunks.count_rows())
            for name, retriever in (("one_machine", single), ("on_s3", spread))
        }
        figures["shards"] = len(Snapshot.latest(spread).head.parts)
        figures |= contents(single, spread)
        figures["answers"] = compared(single, spread, seed)
    return figures


def log_figures(output: bytes, began: float) -> dict[str, Any]:
    report = json.loads(output)
    return {"seconds": round(time.perf_counter() - began, 1), "files": report["files"], "chunks": report["passages"]}


def wait_for(index: str, files: int, process: subprocess.Popen[bytes]) -> int:
    """Until so many files are committed; gives how many are."""
    location = open_location(index)
    while process.poll() is None:
        with contextlib.suppress(Exception):  # there is no index yet
            if (done := Store.open(location).head().next_document) >= files:
                return done
        time.sleep(0.5)
    raise SystemExit("indexing ended before a node could be killed")


def contents(single: Retriever, spread: Retriever) -> dict[str, Any]:
    """Documents and passages of two indexes against each other."""
    both = []
    for retriever in (single, spread):
        rows = {row["id"]: row for row in retriever.documents()}
        table = retriever.snapshot().chunks.to_table(columns=["document", "char_start", "char_end", "text", "vector"])
        passages = {}
        for row in table.to_pylist():
            key = (rows[row["document"]]["path"], row["char_start"], row["char_end"], row["text"])
            passages.setdefault(key, []).append(np.array(row["vector"], np.float32))
        documents = {(row["path"], row["sha256"], row["state"], row["chunks"]) for row in rows.values()}
        both.append((documents, len(rows), passages))
    (documents, _, passages), (spread_documents, count, spread_passages) = both
    differences = np.array(
        [np.abs(passages[key][0] - spread_passages[key][0]).max() for key in passages if key in spread_passages]
    )
    return {
        "documents": count,
        "documents_lost": len(documents - spread_documents),
        "documents_doubled": count - len(spread_documents),
        "passages": sum(map(len, spread_passages.values())),
        "passages_lost": len(passages.keys() - spread_passages.keys()),
        "passages_doubled": sum(map(len, spread_passages.values())) - len(spread_passages),
        "vectors_that_differ": int((differences > 0).sum()),
        "largest_difference_of_a_number": float(differences.max()),
    }


def compared(single: Retriever, spread: Retriever, seed: int) -> dict[str, Any]:
    """Whether the ten best passages of 200 queries are the same."""
    query_texts, figures = queries(single, seed), {}
    for mode in MODES:
        same = order = 0
        largest, began = 0.0, time.perf_counter()
        for query in query_texts:
            mine, theirs = (answers(retriever, query, mode) for retriever in (single, spread))
            same += list(mine.items()) == list(theirs.items())
            order += list(mine) == list(theirs)
            largest = max([largest, *(abs(mine[passage] - theirs[passage]) for passage in theirs if passage in mine)])
        figures[mode] = {
            "same_paths_places_and_order": f"{order} of {len(query_texts)}",
            "and_exactly_the_same_scores": f"{same} of {len(query_texts)}",
            "largest_difference_of_a_score": round(largest, 7),
            "seconds": round(time.perf_counter() - began, 1),
        }
        print(mode, figures[mode], flush=True)
    return figures


def answers(retriever: Retriever, query: str, mode: str) -> dict[tuple[Any, ...], float]:
    """Passages with their scores, best first."""
    hits = retriever.search(query, mode=mode)
    return {(hit.path, hit.char_start, hit.char_end, hit.text): hit.score for hit in hits}


def scaling(folder: Path) -> dict[str, Any]:
    """The rate at which passages are committed, with one worker and with two: the slope over all commits."""
    rates: dict[int, dict[str, float]] = {}
    for workers in (1, 2):
        with cluster(workers) as (nodes, _):
            moments: list[tuple[float, int]] = []
            retriever = Retriever.open(f"s3://bucket/workers-{workers}", ray=nodes.address)

            def note(_: Progress, retriever: Retriever = retriever, moments: list[tuple[float, int]] = moments) -> None:
                moments.append((time.perf_counter(), retriever.snapshot().chunks.count_rows()))

            report = retriever.sync(folder, progress=note)
            times, chunks = np.array(moments).T
            rates[workers] = {
                "seconds_in_all": round(report.seconds, 1),
                "passages": report.chunks_total,
                "commits": len(moments),
                "passages_per_second": round(float(np.polyfit(times - times[0], chunks, 1)[0]), 1),
            }
            print(rates, flush=True)
    return {
        "cores": os.cpu_count(),
        "workers": rates,
        "efficiency_of_two": round(rates[2]["passages_per_second"] / rates[1]["passages_per_second"] / 2, 3),
        "with_starting_and_the_index": round(rates[1]["seconds_in_all"] / rates[2]["seconds_in_all"] / 2, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--files", type=int, default=1_000_000, help="How many of the folder's files.")
    parser.add_argument("--scaling-files", type=int, default=1_500)
    parser.add_argument("--only", choices=("killed", "scaling"), help="The other is left as it was.")
    parser.add_argument("--name", default="cluster", help="of the file in results/")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    before = RESULTS / f"{arguments.name}.json"
    results = json.loads(before.read_text("utf-8"))["results"] if arguments.only and before.is_file() else {}
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        for part, count in (("killed", arguments.files), ("scaling", arguments.scaling_files)):
            sample(arguments.folder, count, arguments.seed, work / part)
        with s3(work):
            if arguments.only != "scaling":
                results["killed"] = killed(work / "killed", work, arguments.seed)
            if arguments.only != "killed":
                results["scaling"] = scaling(work / "scaling")
    save(arguments.name, results, seed=arguments.seed)


if __name__ == "__main__":
    main()
