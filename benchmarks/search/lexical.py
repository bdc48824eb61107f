"""Full-text search: our inverted index against Lance's, tantivy and bm25s, in one run.

    python -m benchmarks.search.lexical --data DIR [--sizes 10000,63000,1000000]

DIR is as in `benchmarks.search.quality`. Speed is measured on the descriptions of Debian's packages. Sizes beyond their
number repeat them with one word in ten replaced by another of the same texts. Every library gets the same texts and
queries and returns the 200 best ids. Building is measured in processor time of all threads. All stem English words
(Snowball). Ours and Lance remove the same stop words, bm25s its own, tantivy none. Needs `tantivy` and `bm25s`.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from binocle.core.terms import query_stems
from binocle.indexes.inverted.build import SegmentBuilder
from binocle.indexes.inverted.lexical_index import LexicalIndex, LiveSegment
from binocle.indexes.inverted.segment import MAX_ROWS, Segment
from binocle.retriever.store.tables import FULL_TEXT
from binocle.training.data import beir
from binocle.training.evaluation.measures import ndcg_at_10

from .. import collections
from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPTH, SEED, QUERIES, REPLACED = 200, 0, 300, 0.1


class Library(Protocol):
    """A library for full-text search, with its index in a folder."""

    def build(self, texts: list[str]) -> None: ...

    def open(self) -> None: ...

    def search(self, query: str) -> list[int]: ...


class Ours:
    """Segments of 65,536 passages, as `binocle index` writes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def build(self, texts: list[str]) -> None:
        sizes = []
        for start in range(0, len(texts), MAX_ROWS):
            builder = SegmentBuilder()
            part = texts[start : start + MAX_ROWS]
            builder.add(np.arange(start, start + len(part)), part)
            segment = builder.build()
            segment.write(self.folder / f"{len(sizes)}.bin")
            sizes.append(segment.sizes())
        (self.folder / "sizes.json").write_text(json.dumps(sizes))

    def open(self) -> None:
        sizes = json.loads((self.folder / "sizes.json").read_text())
        parts = [LiveSegment(Segment.open(self.folder / f"{number}.bin", size)) for number, size in enumerate(sizes)]
        self.index = LexicalIndex(parts)

    def search(self, query: str) -> list[int]:
        return self.index.search(query_stems(query), DEPTH)[1].tolist()


class Lance:
    """The full text of an index's table, with the same settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def build(self, texts: list[str]) -> None:
        import lance

        table = lance.write_dataset(pa.table({"id": range(len(texts)), "context": texts}), self.folder / "t.lance")
        table.create_scalar_index("context", "INVERTED", **FULL_TEXT)

    def open(self) -> None:
        import lance

        self.table = lance.dataset(self.folder / "t.lance")

    def search(self, query: str) -> list[int]:
        from lance.query import MatchQuery

        words = " ".join(dict.fromkeys(query.split()))
        rows = self.table.scanner(
            columns=["id", "_score"], full_text_query=MatchQuery(words, "context"), limit=DEPTH
        ).to_table()
        return rows["id"].to_pylist()


class Tantivy:
    """Its tokenizer `en_stem`, one thread to write with; ids from a fast field."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _schema(self) -> Any:
        import tantivy

        schema = tantivy.SchemaBuilder()
        schema.add_integer_field("id", stored=True, fast=True)
        schema.add_text_field("text", stored=False, tokenizer_name="en_stem", index_option="freq")
        return schema.build()

    def build(self, texts: list[str]) -> None:
        import tantivy

        index = tantivy.Index(self._schema(), path=str(self.folder))
        writer = index.writer(heap_size=200_000_000, num_threads=1)
        for number, text in enumerate(texts):
            writer.add_document(tantivy.Document(id=number, text=text))
        writer.commit()
        writer.wait_merging_threads()

    def open(self) -> None:
        import tantivy

        self.index = tantivy.Index.open(str(self.folder))
        self.searcher = self.index.searcher()

    def search(self, query: str) -> list[int]:
        parsed, _ = self.index.parse_query_lenient(re.sub(r"\W+", " ", query).lower(), ["text"])
        hits = self.searcher.search(parsed, DEPTH, count=False).hits
        return self.searcher.fast_field_values("id", [address for _, address in hits])


class Bm25s:
    """Scores of all terms computed when it is built (Lù 2024), mapped from disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _tokenize(self, texts: list[str], **options: Any) -> Any:
        import bm25s
        import Stemmer

        stemmer = Stemmer.Stemmer("english")
        return bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False, **options)

    def build(self, texts: list[str]) -> None:
        import bm25s

        index = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
        index.index(self._tokenize(texts), show_progress=False)
        index.save(str(self.folder))

    def open(self) -> None:
        import bm25s

        self.index = bm25s.BM25.load(str(self.folder), mmap=True)
        self.size = self.index.scores["num_docs"]

    def search(self, query: str) -> list[int]:
        tokens = self._tokenize([query], return_ids=False)
        k = min(DEPTH, self.size)
        ids, scores = self.index.retrieve(tokens, k=k, show_progress=False, n_threads=0)
        return ids[0][scores[0] > 0].tolist()


LIBRARIES = {"binocle": Ours, "lance": Lance, "tantivy": Tantivy, "bm25s": Bm25s}
_CHILD = """
import sys, time
from pathlib import Path
from benchmarks.search.lexical import LIBRARIES
library = LIBRARIES[sys.argv[1]](Path(sys.argv[2]))
getattr(library, "_tokenize", lambda texts: None)(["warm up"])  # the import is not the library's opening
start = time.perf_counter()
library.open()
library.search(sys.argv[3])
print(time.perf_counter() - start)
"""


def measure(name: str, texts: list[str], queries: list[str], folder: Path) -> dict[str, Any]:
    """Build, open in a process of its own, and search."""
    folder.mkdir()
    library: Library = LIBRARIES[name](folder)
    gc.collect()
    start = time.process_time()
    library.build(texts)
    seconds = time.process_time() - start
    texts_of_table = folder / "t.lance" / "data"
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and file.parent != texts_of_table)
    command = [sys.executable, "-c", _CHILD, name, str(folder), queries[0]]
    opened = min(float(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(5))
    library.open()
    times = []
    for query in [*queries[:10], *queries]:
        start = time.perf_counter()
        library.search(query)
        times.append(time.perf_counter() - start)
    shutil.rmtree(folder)
    return {
        "passages_per_processor_second": round(len(texts) / seconds),
        "megabytes": round(size / 1e6, 1),
        "cold_open_and_query_ms": round(1e3 * opened, 1),
        "query_p50_ms": round(1e3 * statistics.median(times[10:]), 2),
        "query_p95_ms": round(1e3 * statistics.quantiles(times[10:], n=20)[-1], 2),
    }


def quality(name: str, collection: Path, folder: Path) -> float:
    """nDCG@10, each document as one passage."""
    folder.mkdir()
    documents = [(row["_id"], f"{row['title']}\n{row['text']}") for row in _rows(collection / "corpus.jsonl")]
    library: Library = LIBRARIES[name](folder)
    library.build([text for _, text in documents])
    library.open()
    queries, qrels = beir.queries(collection), beir.qrels(collection, "test")
    runs = {}
    for number in qrels:
        positions = library.search(queries[number])[:100]
        runs[number] = [(documents[position][0], -float(rank)) for rank, position in enumerate(positions)]
    shutil.rmtree(folder)
    return round(ndcg_at_10(qrels, runs), 4)


def repeated(texts: list[str], count: int) -> list[str]:
    """Return `count` texts: these, then copies with one word in ten replaced by another of their words."""
    draw = random.Random(SEED)
    words = [word for text in draw.sample(texts, min(2_000, len(texts))) for word in text.split()]
    copies = texts[:count]
    while len(copies) < count:
        for text in texts[: count - len(copies)]:
            copies.append(" ".join(draw.choice(words) if draw.random() < REPLACED else word for word in text.split()))
    return copies


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as stream:
        yield from map(json.loads, stream)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sizes", default="10000,63000")
    options = parser.parse_args()
    data, sizes = options.data, [int(size) for size in options.sizes.split(",")]
    for variable in ("LANCE_CPU_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[variable] = "1"
    packages = data / "debian_descriptions" / "debian12_descriptions.jsonl.gz"
    rows = list(_rows(packages))
    texts = [f"{row['package']}\n{row['long']}" for row in rows]
    queries = [row["short"] for row in random.Random(SEED).sample(rows, QUERIES)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        speed = {
            size: {name: measure(name, repeated(texts, size), queries, folder / "index") for name in LIBRARIES}
            for size in sizes
        }
        folders = {name: data / name for name in ("scifact", "cranfield") if (data / name).is_dir()}
        folders["squad"] = collections.squad(data / "squad11" / "squad11_dev.jsonl.gz", folder / "squad")
        folders["debian"] = collections.debian(packages, folder / "debian")
        measured = {
            collection: {name: quality(name, path, folder / "index") for name in LIBRARIES}
            for collection, path in folders.items()
        }
    save("lexical", {"speed": speed, "ndcg_at_10": measured}, seed=SEED)


if __name__ == "__main__":
    main()
