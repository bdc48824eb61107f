"""Retrieval quality on a test collection: indexes a corpus, runs its queries, and measures the rankings.

The collection is in BEIR's layout, as `beir` reads it. Any folder of documents will do as well, with queries and
judgements in files of one's own, in which a document's id is its path.

Measures are trec_eval's, and the tests hold them to `ir-measures`.
"""

from __future__ import annotations

import math
import re
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError, NoIndexError
from ...retriever.documents.scan import INDEX_NAME
from ...retriever.models.load import load_reranker
from ...retriever.retriever import Retriever
from ...retriever.search.query import MODES, check_reranking
from ..data import beir
from ..runs.progress import counted, seldom
from .judgements import read_qrels, read_queries
from .measures import _mean, _relevant, intervals, values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...retriever.retriever import Rerank
    from ..runs.progress import Tell
    from .measures import Qrels, Run

_DEPTH = 100  # documents ranked for each query


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Measures are means over the queries that have a relevant document; one that found nothing counts as 0."""

    collection: str
    split: str
    mode: str
    model: str
    measures: dict[str, float]
    queries: int
    documents: int
    chunks: int
    index_seconds: float
    query_milliseconds: float  # mean, one at a time
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)  # 95 %, by the bootstrap over queries
    per_query: dict[str, dict[str, float]] = field(default_factory=dict, repr=False)  # measure -> query -> value
    reranker: str | None = None

    def as_dict(self, *, per_query: bool = False) -> dict[str, Any]:
        """For JSON; the values of each query only if asked."""
        found = asdict(self)
        if not per_query:
            del found["per_query"]
        return found


def evaluate(
    folder: str | Path,
    *,
    mode: str = "hybrid",
    split: str = "test",
    model: str | None = None,
    index: str | Path | None = None,
    queries: str | Path | None = None,
    qrels: str | Path | None = None,
    rerank: Rerank = None,
    rerank_depth: int = 50,
    run_file: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> Evaluation:
    """Measure the engine on a test collection. A document ranks where its best passage does.

    :param folder: a test collection; or any folder of documents, where `queries` and `qrels` name its files. One that
        is indexed is measured as its index stands, unless another model or index is asked for.
    :param index: where to keep the index, so that another mode need not make it again; else it is made and removed.
    :param queries: queries of your own: JSON lines {_id, text} or "id, tab, text".
    :param qrels: judgements of your own: query, document and grade, or TREC's four columns.
    :param rerank: a cross-encoder to rerank the first `rerank_depth` passages with, as `Retriever.search` does.
    :param run_file: where to write the rankings in TREC's format.
    :raises InputError: when the folder is not a collection, naming the file and line.
    """
    folder = Path(folder)
    if not folder.is_dir():
        what = f"{folder} is a file" if folder.exists() else f"there is no folder {folder}"
        raise InputError(f"{what}: expected a folder with corpus.jsonl, queries.jsonl and qrels/{split}.tsv")
    if run_file is not None and not Path(run_file).parent.is_dir():
        raise InputError(f"there is no folder {Path(run_file).parent} to write the run into")
    if mode not in MODES:
        raise InputError(f"there is no mode {mode!r}: expected one of {', '.join(MODES)}")
    check_reranking(rerank_depth, None)
    reranker = None if rerank is None else load_reranker(rerank)
    asked, judged = judged_queries(folder, split, queries, qrels)
    tell = progress or (lambda _: None)
    with tempfile.TemporaryDirectory(prefix="binocle-") as temporary:
        place = index or _live_index(folder, model) or Path(temporary) / "index"
        retriever = Retriever.open(place, model=model)
        tell(f"indexing {folder.name}")
        index_seconds = _fill(retriever, folder, tell)
        documents, chunks = _count(retriever, judged), retriever.snapshot().chunks.count_rows()
        tell(f"{len(judged)} queries")
        passages = 2 * _DEPTH * math.ceil(chunks / max(1, documents))
        began = time.monotonic()
        options: dict[str, Any] = {"mode": mode, "rerank": reranker, "rerank_depth": rerank_depth}
        searched = counted(judged, tell, f"{len(judged)} queries")
        run = {query: _ranked(retriever, asked[query], passages, **options) for query in searched}
        seconds = time.monotonic() - began
        name = retriever.encoder.name
    if run_file is not None:
        Path(run_file).write_text("".join(trec(run, mode)), "utf-8")
    per_query = values(judged, run)
    return Evaluation(
        collection=folder.resolve().name,
        split=split if qrels is None else Path(qrels).stem,
        mode=mode,
        model=name,
        reranker=reranker.name if reranker else None,
        measures={measure: round(_mean(found), 4) for measure, found in per_query.items()},
        queries=len(judged),
        documents=documents,
        chunks=chunks,
        index_seconds=round(index_seconds, 3),
        query_milliseconds=round(1e3 * seconds / max(1, len(judged)), 3),
        intervals=intervals(per_query),
        per_query=per_query,
    )


def judged_queries(
    folder: Path, split: str, queries: str | Path | None, qrels: str | Path | None
) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Queries and their judgements: the collection's, or those of files of one's own."""
    if not beir.is_collection(folder) and (queries is None or qrels is None):
        raise InputError(
            f"{folder / 'corpus.jsonl'} is missing: a collection has corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv; "
            "to search the files of the folder, give queries and qrels of your own"
        )
    asked = beir.queries(folder) if queries is None else read_queries(Path(queries))
    judged = beir.qrels(folder, split) if qrels is None else read_qrels(Path(qrels))
    unknown = sorted(judged.keys() - asked.keys())
    if unknown:
        by = qrels or f"{folder}/qrels/{split}.tsv"
        raise InputError(f"{by} judges query {unknown[0]!r}, which {queries or 'queries.jsonl'} does not have")
    return asked, judged


def _live_index(folder: Path, model: str | None) -> Path | None:
    """The index that a folder of documents has already, if it will do."""
    live = folder / INDEX_NAME
    return live if model is None and not beir.is_collection(folder) and (live / "HEAD.json").is_file() else None


def _fill(retriever: Retriever, folder: Path, tell: Tell) -> float:
    """Index what is to be searched and give the seconds it took; a folder's own index is left as it stands."""
    told = seldom(tell)
    if not beir.is_collection(folder):
        if retriever.path == (folder / INDEX_NAME).resolve():
            return 0.0
        return retriever.sync(folder, progress=lambda at: told(at.message)).seconds
    _check_index(retriever, folder)
    report = retriever.add(_counted(folder, told))
    if not report.indexed + report.unchanged:
        raise InputError(f"{folder / 'corpus.jsonl'} holds no documents")
    return report.seconds


def _counted(folder: Path, tell: Tell) -> Iterator[dict[str, str]]:
    for number, document in enumerate(beir.documents(folder), 1):
        tell(f"{number:,} documents read")
        yield document


def _count(retriever: Retriever, judged: Qrels) -> int:
    """How many documents can be found.

    :raises InputError: when no judgement is of any of them, as when ids are written in another way.
    """
    held = {row["path"] for row in retriever.documents() if row["chunks"]}
    relevant = {document for grades in judged.values() for document in _relevant(grades)}
    if held and not held & relevant:
        raise InputError(
            f"none of the judged documents, such as {min(relevant)!r}, is among those indexed, such as {min(held)!r}: "
            "they must have the same ids"
        )
    return len(held)


def _check_index(retriever: Retriever, folder: Path) -> None:
    """An index that is already there may hold this collection and nothing else."""
    try:
        held = {row["path"] for row in retriever.documents()}
    except NoIndexError:
        return
    others = held - {document["id"] for document in beir.documents(folder)}
    if others:
        raise InputError(
            f"the index at {retriever.path} holds other documents, such as {min(others)!r}: give another with --index"
        )


def _ranked(retriever: Retriever, query: str, passages: int, **options: Any) -> list[tuple[str, float]]:
    best: dict[str, float] = {}
    for hit in retriever.search(query, passages, **options):
        best.setdefault(hit.path, hit.score)
    return list(best.items())[:_DEPTH]


def trec(run: Run, tag: str) -> Iterator[str]:
    """The lines of a run in TREC's format: query, Q0, document, rank, score, tag."""
    for query, ranking in run.items():
        for rank, (document, score) in enumerate(ranking, 1):
            yield f"{_joined(query)} Q0 {_joined(document)} {rank} {score:.6f} binocle-{tag}\n"


def _joined(name: str) -> str:
    """A name without white space, which separates the columns of a run."""
    return re.sub(r"\s", "%20", name)


# Measures of one query: grades of its documents, and the documents ranked
