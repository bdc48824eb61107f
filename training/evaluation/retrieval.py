"""Evaluate retrieval on a test collection: index the corpus, run its queries, measure the rankings.

The collection is in BEIR's layout, as `beir` reads it. Any folder of documents will do too, with files of your own for
queries and judgements; the id of a document is then its path.
"""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ...core.progress import Progress, ignore
from ...core.units import count_of
from ...retriever.models.load import load_reranker
from ...retriever.retriever import Retriever
from ...retriever.search.arguments import check_reranking
from ...retriever.search.mode import check_mode
from ..data import beir
from .indexed_collection import count_documents, fill, live_index
from .judgements import read_qrels, read_queries
from .measures import intervals, mean, values
from .result import RetrievalResult
from .trec_run import check_run_file, write_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...core.progress import OnProgress
    from ...retriever.search.results.hits import Hits
    from ...retriever.searches import Rerank

    Ranking = list[tuple[str, float]]  # documents with their scores, best first

_DEPTH = 100  # documents ranked for each query
_TIMED = 50  # queries searched one at a time, for the time of a query; the others together
_TOGETHER, _MAX_HITS = 64, 20_000  # queries searched together, and their hits in memory


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
    progress: OnProgress = ignore,
) -> RetrievalResult:
    """Evaluate the engine on a test collection. A document ranks by its best passage.

    :param folder: a test collection; or any folder of documents, with `queries` and `qrels` for its files. If it has an
        index, that one is evaluated unchanged, unless you name another model or index.
    :param index: keep the index here, so that another mode need not build it again; by default it is temporary.
    :param queries: queries of your own: JSON lines {_id, text} or "id, tab, text".
    :param qrels: judgements of your own: query, document and grade, or TREC's four columns.
    :param rerank: a cross-encoder that reranks the first `rerank_depth` passages, as `Retriever.search` does.
    :param run_file: write the rankings in TREC's format here.
    :raises InputError: when the folder is not a collection, naming the file and line.
    """
    folder = Path(folder)
    _check_arguments(folder, split, mode, run_file)
    check_reranking(rerank_depth, None)
    reranker = None if rerank is None else load_reranker(rerank)
    texts, judged = judged_queries(folder, split, queries, qrels)
    with tempfile.TemporaryDirectory(prefix="binocle-") as temporary:
        path = index or live_index(folder, model) or Path(temporary) / "index"
        retriever = Retriever.open(path, model=model)
        progress(Progress(f"indexing {folder.name}"))
        index_seconds = fill(retriever, folder, progress)
        documents, chunks = count_documents(retriever, judged), retriever.snapshot().chunks.count_rows()
        options: dict[str, Any] = {"mode": mode}
        if reranker is not None:
            options |= {"rerank": reranker, "rerank_depth": rerank_depth}
        passages = 2 * _DEPTH * math.ceil(chunks / max(1, documents))
        run, seconds = _run(retriever, judged, texts, passages, progress, **options)
        encoder_name = retriever.encoder.name
    if run_file is not None:
        write_run(Path(run_file), run, mode)
    per_query = values(judged, run)
    return RetrievalResult(
        collection=folder.resolve().name,
        split=split if qrels is None else Path(qrels).stem,
        mode=mode,
        model=encoder_name,
        reranker=reranker.name if reranker else None,
        measures={name: round(mean(by_query), 4) for name, by_query in per_query.items()},
        queries=len(judged),
        documents=documents,
        chunks=chunks,
        index_seconds=round(index_seconds, 3),
        query_milliseconds=round(1e3 * seconds, 3),
        intervals=intervals(per_query),
        per_query=per_query,
    )


def _check_arguments(folder: Path, split: str, mode: str, run_file: str | Path | None) -> None:
    if not folder.is_dir():
        problem = f"{folder} is a file" if folder.exists() else f"there is no folder {folder}"
        raise InputError(f"{problem}: expected a folder with corpus.jsonl, queries.jsonl and qrels/{split}.tsv")
    check_run_file(run_file, folder)
    check_mode(mode)


def judged_queries(
    folder: Path, split: str, queries: str | Path | None, qrels: str | Path | None
) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Read queries and their judgements from the collection, or from the named files."""
    if not beir.is_collection(folder) and (queries is None or qrels is None):
        if queries is not None or qrels is not None:
            alone, lacking = ("queries", "qrels") if qrels is None else ("qrels", "queries")
            raise InputError(f"{alone} came without {lacking}: {folder} has none of its own, so give both")
        raise InputError(
            f"{folder / 'corpus.jsonl'} is missing: a collection has corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv; "
            "to search the files of the folder, give queries and qrels of your own, or index it to have queries made"
        )
    texts = beir.queries(folder) if queries is None else read_queries(Path(queries))
    judged = beir.qrels(folder, split) if qrels is None else read_qrels(Path(qrels))
    unknown = sorted(judged.keys() - texts.keys())
    if unknown:
        by = qrels or f"{folder}/qrels/{split}.tsv"
        raise InputError(f"{by} judges query {unknown[0]!r}, which {queries or 'queries.jsonl'} does not have")
    return texts, judged


def _run(
    retriever: Retriever,
    judged: Mapping[str, Mapping[str, int]],
    texts: Mapping[str, str],
    passages: int,
    progress: OnProgress,
    **options: Any,
) -> tuple[dict[str, Ranking], float]:
    """Rank documents for each judged query. Also return the mean seconds of the queries that were searched alone.

    :param passages: to search for each query.
    """
    run: dict[str, Ranking] = {}
    queries, stage = list(judged), count_of(len(judged), "query")
    progress(Progress(stage, 0, len(queries)))
    start = time.monotonic()
    for query in queries[:_TIMED]:
        run[query] = _ranking(retriever.search(texts[query], passages, collapse=False, **options))
        progress(Progress(stage, len(run), len(queries)))
    seconds = (time.monotonic() - start) / max(1, len(run))
    size = max(1, min(_TOGETHER, _MAX_HITS // max(1, passages)))
    for first in range(_TIMED, len(queries), size):
        batch = queries[first : first + size]
        hits = retriever.search_many([texts[query] for query in batch], passages, collapse=False, **options)
        run |= zip(batch, map(_ranking, hits), strict=True)
        progress(Progress(stage, len(run), len(queries)))
    return run, seconds


def _ranking(hits: Hits) -> Ranking:
    """The paths of the best documents, with the score of the best passage of each."""
    best: dict[str, float] = {}
    for hit in hits:
        best.setdefault(hit.path, hit.score)
    return list(best.items())[:_DEPTH]
