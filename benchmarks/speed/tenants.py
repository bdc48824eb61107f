"""Benchmark filters that were never seen before: the processor time of a search for each of 1,000 tenants in turn.

    python -m benchmarks.speed.tenants [--counts 20000,1000000] [--dim 64]

Each document has one passage of eight words, drawn as often as words of a text are (Zipf), and a random vector. Its
metadata have one of 1,000 tenants and a number of its own. Unfiltered and filtered searches, hybrid, answer the same
queries; no query is encoded. The results of other counts are kept. `first_ms` is the first filter on a key, which
sorts the values of the key once for a state of the index; the others take `filtered_ms` each.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from binocle.retriever.models.identity import EncoderId
from binocle.retriever.search.query import Query
from binocle.retriever.store.filters.filter import F
from binocle.retriever.store.filters.where import Where, parse
from binocle.retriever.store.snapshot import Snapshot
from binocle.retriever.store.store import Store
from binocle.retriever.store.tables import chunk_schema, document_schema
from binocle.retriever.store.writer import open_writer

from ..machine import RESULTS, save
from ..vectors.filters import fill_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from binocle.core.arrays import Floats

SEED, K = 0, 10
TENANTS, WORDS, WORDS_OF_PASSAGE, WORDS_OF_QUERY = 1_000, 30_000, 8, 5
STEP = 50_000  # documents of one commit

FILTERS: dict[str, Callable[[int], Where]] = {
    'F.tenant == "t7"': lambda tenant: F.tenant == f"t{tenant}",
    '{"tenant": "t7"}': lambda tenant: {"tenant": f"t{tenant}"},
    "tenant=t7": lambda tenant: f"tenant=t{tenant}",
    '(F.tenant == "t7") & ~(F.n < 7)': lambda tenant: (F.tenant == f"t{tenant}") & ~(F.n < tenant),
    "path=/d/7/": lambda tenant: f"path=/d/{tenant}/",
}


class Draw:
    """Random vectors, and texts with words as frequent as in language."""

    def __init__(self, dim: int) -> None:
        self._random = np.random.default_rng(SEED)
        self._dim = dim
        shares = 1 / np.arange(1, WORDS + 1)
        self._shares = shares / shares.sum()

    def vectors(self, count: int) -> Floats:
        """Return unit vectors, shape (count, dim)."""
        vectors = self._random.standard_normal((count, self._dim), np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def texts(self, count: int, words: int) -> list[str]:
        """Return texts of so many words."""
        numbers = self._random.choice(WORDS, (count, words), p=self._shares)
        return [" ".join(f"w{number}" for number in row) for row in numbers.tolist()]


def fill(folder: Path, count: int, dim: int) -> Snapshot:
    """Fill an index with documents of one passage each."""
    draw = Draw(dim)
    store = Store.create(folder, EncoderId("benchmark", "benchmark", dim))
    with open_writer(store) as writer:
        for ids in np.array_split(np.arange(count), -(-count // STEP)):
            texts = draw.texts(len(ids), WORDS_OF_PASSAGE)
            column = pa.FixedSizeListArray.from_arrays(pa.array(draw.vectors(len(ids)).reshape(-1)), dim)
            chunks = {"id": ids, "document": ids, "key": ids, "text": texts, "context": texts, "vector": column}
            paths = [f"d/{number % TENANTS}/{number}" for number in ids.tolist()]
            documents = {"id": ids, "path": paths, "text": texts, "chunks": np.ones(len(ids), np.int32)}
            documents |= {name: [value] * len(ids) for name, value in (("source", "added"), ("state", "indexed"))}
            documents["metadata"] = [
                json.dumps({"tenant": f"t{number * 7919 % TENANTS}", "n": number}) for number in ids.tolist()
            ]
            writer.stage(fill_table(chunks, chunk_schema(dim), len(ids)))
            writer.commit(drop=[], documents=fill_table(documents, document_schema(), len(ids)))
        writer.finish()
    return Snapshot.latest(store)


def measure(snapshot: Snapshot, dim: int, queries: int) -> dict[str, Any]:
    """Return the figures of searches without a filter, and with each of them."""
    draw = Draw(dim)
    texts, vectors = draw.texts(queries, WORDS_OF_QUERY), draw.vectors(queries)

    def milliseconds(where: Callable[[int], Where], numbers: range) -> float:
        start = time.process_time()
        for number in numbers:
            query = Query(snapshot, texts[number], lambda number=number: vectors[number : number + 1])
            query.hits(K, mode="hybrid", where=parse(where(number)))
        return 1e3 * (time.process_time() - start) / len(numbers)

    milliseconds(lambda _: None, range(min(20, queries)))
    unfiltered = milliseconds(lambda _: None, range(queries))
    rows = []
    for name, where in FILTERS.items():
        first, rest = milliseconds(where, range(1)), milliseconds(where, range(1, queries))
        ratio = (first + rest * (queries - 1)) / queries / unfiltered
        rows.append(
            {"filter": name, "first_ms": round(first, 1), "filtered_ms": round(rest, 2), "ratio": round(ratio, 2)}
        )
        print(rows[-1], flush=True)
    return {"queries": queries, "unfiltered_ms": round(unfiltered, 2), "filters": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", default="20000,1000000")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--queries", type=int, default=TENANTS, help="searches of each filter, at most one a tenant")
    arguments = parser.parse_args()
    before = RESULTS / "tenants.json"
    rows = json.loads(before.read_text("utf-8"))["results"]["indexes"] if before.is_file() else []
    results = {row["documents"]: row for row in rows}
    for count in map(int, arguments.counts.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            snapshot = fill(Path(folder) / "index", count, arguments.dim)
            figures = measure(snapshot, arguments.dim, min(arguments.queries, TENANTS))
        results[count] = {"documents": count, "dim": arguments.dim, **figures}
        save("tenants", {"tenants": TENANTS, "indexes": [results[count] for count in sorted(results)]}, seed=SEED)


if __name__ == "__main__":
    main()
