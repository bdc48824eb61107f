"""Hybrid search in one process as an index grows to a million passages: latency, rate and memory.

    python -m benchmarks.speed.million --debian debian12_descriptions.jsonl.gz --work DIR [--counts 10000,1000000]

A passage is two to four of 30,000 sentences from the descriptions of Debian packages, so that few are near copies. Its
vector is the mean of the sentences' vectors of the default encoder, with noise of a quarter of its length. The queries
are one-line descriptions of other packages, each asked once. Passages are written into the store in batches; then a
process of its own builds all indexes, as the last step of `binocle index` does. An index that is in DIR is used again.

Another process searches: after `warm_up` and 50 queries, one query after the other, then in eight threads. Its memory
is read at the end. Anonymous memory is its own; the rest is mapped files, which the system takes back when it needs it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import subprocess
import sys
import threading
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from binocle import Retriever
from binocle.core import sentences
from binocle.core.runtime.freed_memory import return_freed_memory
from binocle.retriever.models.identity import EncoderId
from binocle.retriever.models.load import load_encoder
from binocle.retriever.models.model_files import DEFAULT_MODEL
from binocle.retriever.store.store import Store
from binocle.retriever.store.tables import SYMBOLS, chunk_schema, document_schema
from binocle.retriever.store.writer import open_writer

from ..document_row import ROW
from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from binocle.core.arrays import Floats, Ids

SEED, COMMIT, IN_DOCUMENT, THREADS, WARMING = 0, 24_000, 12, 8, 50
SENTENCE_WORDS = (6, 40)  # of the sentences that passages are made of
SENTENCES = 30_000
NOISE = 0.25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--debian", type=Path, help="debian12_descriptions.jsonl.gz")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--counts", default="10000,100000,1000000", help="passages")
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--part", choices=("build", "search"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part == "build":
        build_indexes(arguments.work)
        return
    if arguments.part == "search":
        print(json.dumps(measure(arguments.work)))
        return
    arguments.work.mkdir(parents=True, exist_ok=True)
    rows = []
    for count in map(int, arguments.counts.split(",")):
        folder = arguments.work / str(count)
        if not (folder / "built.json").is_file():
            make(folder, count, arguments.debian, arguments.queries)
        built = json.loads((folder / "built.json").read_text("utf-8"))
        rows.append({"passages": count, **built, **json.loads(child("search", folder))})
        print(rows[-1], flush=True)
    growth = [round(after["p50_ms"] / before["p50_ms"], 2) for before, after in pairwise(rows)]
    save("million", {"queries": arguments.queries, "sizes": rows, "growth_of_p50": growth}, seed=SEED)


def child(part: str, folder: Path) -> str:
    """Run a part of this benchmark in a process of its own; return its last line."""
    command = [sys.executable, "-m", "benchmarks.speed.million", "--part", part, "--work", str(folder)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return output.splitlines()[-1] if output else ""


# The index


def make(folder: Path, count: int, debian: Path, queries: int) -> None:
    """Write a store of `count` passages with its queries, and build its indexes."""
    with gzip.open(debian, "rt", encoding="utf-8") as stream:
        packages = [json.loads(line) for line in stream]
    random.Random(SEED).shuffle(packages)
    query_packages, described = packages[:queries], packages[queries:]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "queries.json").write_text(json.dumps([row["short"] for row in query_packages]), "utf-8")
    texts = list(dict.fromkeys(text for row in described for text in long_sentences(row["long"])))
    texts = random.Random(SEED).sample(texts, min(SENTENCES, len(texts)))
    encoder = load_encoder(DEFAULT_MODEL)
    cached = folder.parent / "sentences.npy"
    if not cached.is_file():
        np.save(cached, encoder.encode(texts, kind="document"))
    start = time.perf_counter()
    store = Store.create(folder / "index", EncoderId.of_encoder(encoder))
    with open_writer(store) as writer:
        for chunks, documents in tables(texts, np.load(cached), count):
            writer.stage(chunks)
            writer.commit(drop=[], documents=documents)
    written = time.perf_counter()
    child("build", folder)
    seconds = {"write_seconds": round(written - start, 1), "build_seconds": round(time.perf_counter() - written, 1)}
    size = sum(file.stat().st_size for file in (folder / "index").rglob("*") if file.is_file())
    facts = {**seconds, "bytes_a_passage": round(size / count)}
    (folder / "built.json").write_text(json.dumps(facts), "utf-8")


def long_sentences(text: str) -> list[str]:
    minimum, maximum = SENTENCE_WORDS
    sentences_of_text = (" ".join(text[start:end].split()) for start, end in sentences.spans(text))
    return [sentence for sentence in sentences_of_text if minimum <= len(sentence.split()) <= maximum]


def tables(texts: list[str], vectors: Floats, count: int) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield passages with the rows of their documents, as the store takes them."""
    numbers, schema = np.random.default_rng(SEED), chunk_schema(vectors.shape[1])
    for first in range(0, count, COMMIT):
        ids = np.arange(first, min(first + COMMIT, count))
        parts = numbers.integers(0, len(texts), (len(ids), 4))
        parts[np.arange(4) >= numbers.integers(2, 5, (len(ids), 1))] = -1
        passages = [" ".join(texts[part] for part in row if part >= 0) for row in parts.tolist()]
        mean = (vectors[parts] * (parts >= 0)[..., None]).sum(1)
        mean /= np.linalg.norm(mean, axis=1, keepdims=True)
        mean += numbers.standard_normal(mean.shape, np.float32) * (NOISE / mean.shape[1] ** 0.5)
        mean /= np.linalg.norm(mean, axis=1, keepdims=True)
        columns = {
            "id": ids,
            "document": ids // IN_DOCUMENT,
            "key": ids,
            "text": passages,
            "context": passages,
            "heading": [[]] * len(ids),
            **rows_by_length(ids, np.array([len(passage) for passage in passages])),
        }
        rest = {"page": None, SYMBOLS: None}
        arrays = [
            pa.array(columns.get(field.name, [rest.get(field.name, 1)] * len(ids)), field.type)
            for field in schema
            if field.name != "vector"
        ]
        arrays.append(pa.FixedSizeListArray.from_arrays(pa.array(mean.ravel()), mean.shape[1]))
        documents = [
            {"id": number, "path": f"{number}", **ROW, "chunks": IN_DOCUMENT}
            for number in sorted({*(ids // IN_DOCUMENT).tolist()})
        ]
        yield pa.Table.from_arrays(arrays, schema=schema), pa.Table.from_pylist(documents, document_schema())


def rows_by_length(ids: Ids, lengths: Ids) -> dict[str, Ids]:
    """Return where each passage stands in its document: one after another, with an empty line between two.

    Lance reads a column of equal values slower than any other; in documents they differ.

    :param lengths: of the passages, in characters.
    """
    ends = np.cumsum(lengths + 2)
    starts = ends - lengths - 2
    starts -= starts[np.searchsorted(ids // IN_DOCUMENT, ids // IN_DOCUMENT)]
    lines = 1 + 2 * (ids % IN_DOCUMENT)
    return {"char_start": starts, "char_end": starts + lengths, "line_start": lines, "line_end": lines}


def build_indexes(folder: Path) -> None:
    """Build all indexes of a store."""
    return_freed_memory()
    with open_writer(Store.open(folder / "index", trusted=True)) as writer:
        writer.finish()


# The searches


def measure(folder: Path) -> dict[str, Any]:
    """Search with all queries, one after the other and in threads."""
    queries = json.loads((folder / "queries.json").read_text("utf-8"))
    retriever = Retriever.open(folder / "index", trust=True)
    retriever.warm_up()
    for query in queries[:WARMING]:
        retriever.search(query)
    queries = queries[WARMING:]
    encode = partial(retriever.encoder.encode, kind="query")
    encoding = [timed(encode, [query]) for query in queries[:200]]
    processor = time.process_time()
    alone, alone_seconds = run(retriever, queries, 1)
    processor = time.process_time() - processor
    together, seconds = run(retriever, queries, THREADS)
    return {
        "query_encoding_p50_ms": round(1e3 * float(np.median(encoding)), 2),
        **percentiles(alone),
        "processor_ms": round(1e3 * processor / len(queries), 1),
        "queries_per_second": round(len(queries) / alone_seconds, 1),
        f"{THREADS} threads": {**percentiles(together), "queries_per_second": round(len(queries) / seconds, 1)},
        "resident_mb": memory(),
    }


def run(retriever: Retriever, queries: list[str], threads: int) -> tuple[list[float], float]:
    """Return the seconds of each query, and of all by the clock."""
    times: list[float] = []
    rest = iter(queries)
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                query = next(rest, None)
            if query is None:
                return
            times.append(timed(retriever.search, query))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return times, time.perf_counter() - start


def timed(call: Callable[[Any], Any], query: Any) -> float:
    start = time.perf_counter()
    call(query)
    return time.perf_counter() - start


def percentiles(times: list[float]) -> dict[str, float]:
    return {f"p{share}_ms": round(1e3 * float(np.percentile(times, share)), 2) for share in (50, 99)}


def memory() -> dict[str, int]:
    """Return the resident MB of this process, and its anonymous part."""
    lines = Path("/proc/self/smaps_rollup").read_text("utf-8").splitlines()[1:]
    sizes = {name.rstrip(":"): int(size) for name, size, *_ in map(str.split, lines)}
    return {"whole": round(sizes["Rss"] / 1024), "anonymous": round(sizes["Anonymous"] / 1024)}


if __name__ == "__main__":
    main()
