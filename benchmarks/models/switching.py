r"""An index changes its encoder to a larger one: the quality of searches before, meanwhile and after.

    python -m benchmarks.models.switching --scifact FOLDER --to FOLDER [--queries 300] [--others 700]

FOLDER holds scifact in BEIR's layout. The program draws test queries. It indexes all documents that are relevant to
them, and some others, so that a machine without a GPU is done in minutes. Its figures are higher than on all of
scifact. The encoder to change to, such as all-mpnet-base-v2, reads longer texts than the first one, all-MiniLM-L6-v2.
The switch runs in a process of its own, with one thread. This process goes on searching: it runs the queries at the
start of the switch and again when half of the texts are embedded. "new index" is an index made by the new encoder
alone, which cuts its own passages; contexts that the switch has embedded are not embedded again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from binocle import Retriever, load_encoder
from binocle.retriever.models import cache
from binocle.retriever.models.model_files import DEFAULT_MODEL
from binocle.training.data import beir
from binocle.training.evaluation.measures import mean, values
from binocle.training.evaluation.significance import align, difference

from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from binocle.core.arrays import Floats
    from binocle.retriever.models.encoder import Encoder, Kind

MODES = ("semantic", "hybrid")
DEPTH, SEED = 50, 0  # passages of a query
SWITCH = "import sys\nfrom binocle import Retriever\nRetriever.open(sys.argv[1]).switch(sys.argv[2])"
Quality = dict[str, dict[str, float]]  # mode -> query -> nDCG@10


class Remembering:
    """An encoder that does not encode known documents again."""

    def __init__(self, encoder: Encoder, known: dict[str, Floats]) -> None:
        self.name, self.dim, self.max_tokens = encoder.name, encoder.dim, encoder.max_tokens
        self.fingerprint, self.offsets = encoder.fingerprint, encoder.offsets
        self.embedded = 0
        self._encoder, self._known = encoder, known

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Floats:
        if kind == "query":
            return self._encoder.encode(texts, kind=kind)
        new = [text for text in texts if text not in self._known]
        if new:
            self._known |= dict(zip(new, self._encoder.encode(new), strict=True))
        self.embedded += len(new)
        return np.stack([self._known[text] for text in texts])


def draw(scifact: Path, out: Path, queries: int, documents: int) -> None:
    """Write a smaller collection."""
    every = beir.qrels(scifact, "test")
    judged = {query: every[query] for query in random.Random(SEED).sample(sorted(every), min(queries, len(every)))}
    relevant = {document for grades in judged.values() for document, grade in grades.items() if grade > 0}
    lines = (scifact / "corpus.jsonl").read_text("utf-8").splitlines()
    rest = [number for number, line in enumerate(lines) if json.loads(line)["_id"] not in relevant]
    chosen = set(random.Random(SEED).sample(rest, documents)) | (set(range(len(lines))) - set(rest))
    (out / "qrels").mkdir(parents=True)
    (out / "corpus.jsonl").write_text("".join(f"{lines[number]}\n" for number in sorted(chosen)), "utf-8")
    shutil.copyfile(scifact / "queries.jsonl", out / "queries.jsonl")
    header, *rows = (scifact / "qrels/test.tsv").read_text("utf-8").splitlines()
    judgements = [header, *(row for row in rows if row.split("\t")[0] in judged)]
    (out / "qrels/test.tsv").write_text("\n".join(judgements) + "\n", "utf-8")


def queries_of(collection: Path) -> list[str]:
    texts = beir.queries(collection)
    return [texts[query] for query in beir.qrels(collection, "test")]


def quality(retriever: Retriever, collection: Path, vectors: Floats | None = None) -> Quality:
    """Run the test queries; a document ranks by its best passage.

    :param vectors: of the queries, if they are known.
    """
    judged, queries = beir.qrels(collection, "test"), queries_of(collection)
    by_mode: Quality = {}
    for mode in MODES:
        run = {}
        answers = retriever.search_many(
            queries, DEPTH, vectors=None if mode == "lexical" else vectors, collapse=False, mode=mode
        )
        for query, hits in zip(judged, answers, strict=True):
            best: dict[str, float] = {}
            for hit in hits:
                best.setdefault(hit.path, hit.score)
            run[query] = list(best.items())
        by_mode[mode] = values(judged, run)["nDCG@10"]
    return by_mode


def means(measured: Quality) -> dict[str, float]:
    return {mode: round(mean(by_query), 4) for mode, by_query in measured.items()}


def shares(measured: Quality, before: Quality) -> dict[str, float]:
    return {mode: round(mean(measured[mode]) / mean(before[mode]), 4) for mode in MODES}


def switch(index: Path, model: Path, collection: Path, before: Quality) -> dict[str, Any]:
    """Change the encoder in another process and search meanwhile."""
    retriever = Retriever.open(index)
    first = queries_of(collection)[0]
    start = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", SWITCH, str(index), str(model)])
    retriever.search(first)
    answered = time.monotonic() - start
    rows = []
    for share in (0.0, 0.5):
        while share and process.poll() is None and not _is_at(retriever, share):
            time.sleep(0.5)
        seconds = time.monotonic() - start
        measured = quality(retriever, collection)
        progress = retriever.status().switching
        rows.append(
            {
                "seconds": round(seconds, 1),
                "embedded_at_the_end_of_the_queries": progress and progress["embedded"],
                "texts": progress and progress["texts"],
                "ndcg_at_10": means(measured),
                "share_of_the_old": shares(measured, before),
            }
        )
    assert process.wait() == 0
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "first_answer_seconds": round(answered, 3),
        "meanwhile": rows,
        "seconds": round(time.monotonic() - start, 1),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
    }


def _is_at(retriever: Retriever, share: float) -> bool:
    progress = retriever.status().switching
    return progress is not None and progress["embedded"] >= share * progress["texts"]


def new_index(index: Path, switched: Retriever, model: Path, collection: Path) -> tuple[Retriever, int]:
    """Index the documents with the new encoder from nothing; return how many texts it embedded too."""
    table = switched.snapshot().chunks.to_table(columns=["context", "vector"])
    vectors = np.array(table["vector"].to_pylist(), np.float32)
    encoder = Remembering(load_encoder(str(model)), dict(zip(table["context"].to_pylist(), vectors, strict=True)))
    with mock.patch.object(cache, "load_encoder", return_value=encoder):
        retriever = Retriever.open(index, model=str(model))
        retriever.add(beir.documents(collection))
    return retriever, encoder.embedded


def counts(retriever: Retriever) -> dict[str, Any]:
    status = retriever.status()
    return {"passages": status.chunks, "passage_tokens": status.passage_tokens or retriever.encoder.max_tokens}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scifact", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True, help="folder of the encoder to change to")
    parser.add_argument("--queries", type=int, default=300, help="of the test split")
    parser.add_argument("--others", type=int, default=700, help="documents that answer no query")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the other process
    with tempfile.TemporaryDirectory() as temporary:
        collection, index = Path(temporary) / "scifact", Path(temporary) / "index"
        draw(options.scifact, collection, options.queries, options.others)
        retriever = Retriever.open(index, model=DEFAULT_MODEL)
        retriever.add(beir.documents(collection))
        before, old = quality(retriever, collection), counts(retriever)
        print(json.dumps({"old": means(before)}), flush=True)
        run = switch(index, options.to, collection, before)
        retriever.snapshot()  # reads that the encoder has changed
        vectors = retriever.encoder.encode(queries_of(collection), kind="query")
        after = quality(retriever, collection, vectors)
        print(json.dumps({"run": run, "after": means(after)}), flush=True)
        fresh, embedded = new_index(Path(temporary) / "new", retriever, options.to, collection)
        own = quality(fresh, collection, vectors)
        results = {
            "documents": sum(retriever.status().documents.values()),
            "queries": len(beir.qrels(collection, "test")),
            "old": {"model": DEFAULT_MODEL, **old, "ndcg_at_10": means(before)},
            "switch": run,
            "after": {"model": options.to.name, **counts(retriever), "ndcg_at_10": means(after)},
            "new_index": {**counts(fresh), "embedded": embedded, "ndcg_at_10": means(own)},
            "after_less_new_index": {mode: difference(*align(after[mode], own[mode])).as_dict() for mode in MODES},
        }
    save("switching", results, seed=SEED)


if __name__ == "__main__":
    main()
