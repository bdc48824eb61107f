"""Whether passages with all words of a short query should come first: queries of one to four words from titles.

    python -m benchmarks.search.short_queries --data DIR
    python -m benchmarks.search.short_queries --unseen DIR

The folder of --data holds scifact/ and cranfield/ in BEIR's layout, that of --unseen cacm/ and cisi/ with the files of
`benchmarks.collections`. Documents are indexed without their titles. A query is some words of a title, drawn at
random. Its one relevant document is that of the title, whether the text has the words or not. Each query is
searched twice: as queries of any length are ranked, and with the passages that hold all words first.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from binocle.core.terms import query_stems
from binocle.retriever.retriever import Retriever
from binocle.retriever.search import query as engine
from binocle.training.data import beir
from binocle.training.evaluation import significance
from binocle.training.evaluation.measures import ndcg_at_10

from .. import collections
from ..machine import save

if TYPE_CHECKING:
    from collections.abc import Sequence

_QUERIES = 300  # of each length
_LENGTHS = (1, 2, 3, 4)
_DOCUMENTS = 2_500
_LETTERS = 4  # of a word, at least


def documents_of(folder: Path) -> list[dict[str, str]]:
    """Documents with a title and a text, drawn at random; a text that begins with the title loses it."""
    documents = []
    for document in beir.documents(folder):
        title = document["title"].strip()
        text = document["text"].strip().removeprefix(title).strip(" .")
        if title and text:
            documents.append({"id": document["id"], "title": title, "text": text})
    random.Random(0).shuffle(documents)
    return documents[:_DOCUMENTS]


def queries_of(documents: Sequence[dict[str, str]], length: int) -> dict[str, str]:
    """Map documents to words of their titles, in the order of the title."""
    draw, queries = random.Random(length), {}
    for document in documents:
        words = [word.strip(".,:;()\"'").lower() for word in document["title"].split()]
        chosen = list(dict.fromkeys(word for word in words if len(word) >= _LETTERS and len(query_stems(word)) == 1))
        if len(chosen) >= length and len(queries) < _QUERIES:
            positions = sorted(draw.sample(range(len(chosen)), length))
            queries[document["id"]] = " ".join(chosen[position] for position in positions)
    return queries


def values_of(retriever: Retriever, queries: dict[str, str]) -> list[float]:
    """The nDCG@10 of each query."""
    values = []
    for document, query in queries.items():
        ranking = [(hit.path, -float(rank)) for rank, hit in enumerate(retriever.search(query, 10, per_document=1))]
        values.append(ndcg_at_10({"query": {document: 1}}, {"query": ranking}))
    return values


def measure(folder: Path, index: Path) -> dict[str, Any]:
    documents = documents_of(folder)
    retriever = Retriever.open(index)
    retriever.add({"id": document["id"], "text": document["text"]} for document in documents)
    results: dict[str, Any] = {"documents": len(documents)}
    default = engine._SHORT  # noqa: SLF001 - no option: the benchmark asks whether it is right
    try:
        for length in _LENGTHS:
            queries, values = queries_of(documents, length), {}
            for short in (0, length):
                engine._SHORT = short  # noqa: SLF001
                values[short] = values_of(retriever, queries)
            gain = significance.difference(values[length], values[0])
            results[f"{length} words"] = {
                "queries": len(queries),
                "as other queries": round(sum(values[0]) / len(queries), 4),
                "all words first": round(sum(values[length]) / len(queries), 4),
                "difference": gain.as_dict(),
                "better": sum(a > b for a, b in zip(values[length], values[0], strict=True)),
                "worse": sum(a < b for a, b in zip(values[length], values[0], strict=True)),
            }
    finally:
        engine._SHORT = default  # noqa: SLF001
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path)
    source.add_argument("--unseen", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        if options.unseen:
            folders = collections.unseen(options.unseen, Path(work))
            folders.pop("npl", None)  # its documents have no titles
        else:
            folders = {name: options.data / name for name in ("scifact", "cranfield")}
        results = {name: measure(folder, Path(work) / f"{name}-index") for name, folder in folders.items()}
    save("short_queries-unseen" if options.unseen else "short_queries", results, seed=0)


if __name__ == "__main__":
    main()
