"""One query: lexical and semantic search over the chunks, fused, filtered, and explained stage by stage.

The default fusion adds, for each candidate, its standard scores: how many standard deviations its BM25 score and its
cosine lie above the mean of all candidates. Candidates are the 200 best of either side; a candidate that only the
words found gets its true cosine, one that only the meaning found gets BM25 0. Measured on one set of chunks (nDCG@10):

                                      scifact  cranfield  SQuAD dev  Debian descriptions  mean
    standard scores (this)              .737       .417       .892                 .893   .735
    scores over their maximum           .735       .407       .891                 .893   .732
    min-max                             .730       .411       .886                 .887   .728
    reciprocal ranks, k = 60            .720       .407       .849                 .877   .713

(`benchmarks/quality.py`, in one run; the search itself gives .739, .416, .890 and .895.)
On score-based fusion against ranks: Bruch et al. 2023, arXiv:2210.11934.

A reranker then reads the best passages together with the query. Those that it reached come first, by the mean of two
standard scores among them, the reranker's and the first stage's, weighted as the model folder says (unless it does,
the reranker alone decides); the others follow in the order they had.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from ...core.arrays import are_among
from ...core.checks import is_whole
from ...core.errors import InputError
from ...core.words import encodable
from ...indexes.tuning.benchmark import DEPTH
from ..documents.chunker import context_of
from ..store.tables import rows_among

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from ...core.arrays import Floats, Ids
    from ..models.reranker import Reranker
    from ..store.filters import Filter
    from ..store.snapshot import Passing, Snapshot


Mode = Literal["hybrid", "semantic", "lexical"]
MODES: tuple[str, ...] = get_args(Mode)

_MAX_WORDS = 256  # different words of a query that full-text search looks up: more tells it nothing
_SPARE = 1.5  # times as many results of full-text search as should do for enough of them to pass a filter
_MORE = 4  # times as many are asked for next


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage found, and the citation it can be checked by: `text` is the document's text[char_start:char_end].

    Lines are those of the file where it is made of lines, else of the extracted text. `score` orders the hits of one
    query and is not comparable between queries: the fused score, the cosine or BM25, as the mode says, or what a
    reranker made of it. `scores` has what each stage gave, None where the stage did not find or reach the passage.
    """

    rank: int
    score: float
    scores: dict[str, float | None] = field(hash=False)
    path: str
    sha256: str
    char_start: int
    char_end: int
    line_start: int
    line_end: int
    page: int | None
    heading: tuple[str, ...]
    text: str
    title: str
    format: str
    metadata: dict[str, Any] = field(hash=False)
    source: str  # "file" or "added"
    document: int
    chunk: int
    explanation: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def context(self) -> str:
        """What the encoder and a reranker are given of it: the heading path on a line of its own, then the text."""
        return context_of(self.heading, self.text)


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Chunks in play with the score of each stage; NaN where a stage did not score them."""

    ids: Ids
    lexical: Floats
    semantic: Floats
    score: Floats
    reranker: Floats | None = None


@dataclass(frozen=True, slots=True)
class Reranking:
    """With what, and how far: the `depth` best passages of the first stage, or as many as `seconds` allow."""

    reranker: Reranker
    depth: int
    seconds: float | None

    def scores(self, query: str, passages: list[str]) -> Floats:
        """Of the first passages, as many as were reached."""
        if self.seconds is None:
            return self.reranker.score(query, passages)
        return self.reranker.score_within(self.seconds, query, passages)


class Query:
    """A query against one snapshot. `vector` is called only if the mode needs it, and once."""

    def __init__(self, snapshot: Snapshot, text: str, vector: Callable[[], Floats]) -> None:
        self._snapshot = snapshot
        self._text = text
        self._vector = cache(vector)
        self._seconds: dict[str, float] = {}

    def hits(
        self,
        k: int,
        *,
        mode: Mode,
        where: Filter | None,
        without: int | None = None,
        reranking: Reranking | None = None,
    ) -> list[Hit]:
        """The k best passages, best first; of equal ones the first in the index.

        :param without: a chunk that is not to be answered.
        """
        total = self._snapshot.chunks.count_rows()
        k = min(k, total)
        if k == 0:
            return []
        passing = None if where is None else self._snapshot.passing(where)
        if passing and not len(passing.chunks):
            return []
        depth = max(k, reranking.depth) if reranking else k
        found, order = self._ranked(min(total, depth + (without is not None)), mode, passing)
        order = order[found.ids[order] != without] if without is not None else order
        if reranking:
            found, order = self._reranked(found, order, reranking)
        return self._cited(found, order[:k], mode)

    def ranked(self, k: int, *, mode: Mode) -> tuple[Ids, Floats]:
        """The k best passages without their citations, which cost more than the search: ids and cosines, best first."""
        total = self._snapshot.chunks.count_rows()
        if min(k, total) == 0:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        found, order = self._ranked(min(k, total), mode, None)
        return found.ids[order[:k]], found.semantic[order[:k]]

    def _ranked(self, k: int, mode: Mode, passing: Passing | None) -> tuple[_Candidates, NDArray[np.intp]]:
        """At least k candidates where there are as many, and their order, best first."""
        depth = min(self._snapshot.chunks.count_rows(), max(DEPTH, k))
        found = {"hybrid": self._hybrid, "semantic": self._semantic, "lexical": self._lexical}[mode](depth, passing)
        return found, np.lexsort((found.ids, -found.score))

    def _lexical(self, depth: int, passing: Passing | None) -> _Candidates:
        began = time.perf_counter()
        words = " ".join(list(dict.fromkeys(self._text.split()))[:_MAX_WORDS])
        table = self._snapshot.full_text(words, depth) if passing is None else self._passing(words, depth, passing)
        scores, ids = table["_score"].to_numpy(), table["id"].to_numpy()
        order = np.lexsort((ids, -scores))[:depth]
        scores, ids = scores[order].astype(np.float32), ids[order]
        self._seconds["lexical"] = time.perf_counter() - began
        return _Candidates(ids, scores, np.full(len(ids), np.nan, np.float32), scores)

    def _passing(self, words: str, depth: int, passing: Passing) -> pa.Table:
        """The `depth` best by words of the chunks that pass, or more.

        Lance takes about as long for a document in a condition as for one more result. So where many documents pass,
        all chunks are searched for as many as should do, and for more if too few of those pass.
        """
        share = len(passing.chunks) / self._snapshot.chunks.count_rows()
        limit = math.ceil(_SPARE * depth / share)
        while limit < len(passing.documents):
            table = self._snapshot.full_text(words, limit)
            found = table.filter(are_among(table["id"].to_numpy(), passing.chunks))
            if len(found) >= depth or len(table) < limit:
                return found
            limit *= _MORE
        return self._snapshot.full_text(words, depth, rows_among("document", passing.documents.tolist()))

    def _semantic(self, depth: int, passing: Passing | None) -> _Candidates:
        began = time.perf_counter()
        vector = self._vector()
        self._seconds["encoding"] = time.perf_counter() - began
        began = time.perf_counter()
        allowed = None if passing is None else passing.chunks
        scores, ids = (row[0] for row in self._snapshot.index.search(vector, depth, allowed=allowed))
        real = ids >= 0
        self._seconds["semantic"] = time.perf_counter() - began
        return _Candidates(ids[real], np.full(int(real.sum()), np.nan, np.float32), scores[real], scores[real])

    def _hybrid(self, depth: int, passing: Passing | None) -> _Candidates:
        by_words, by_meaning = self._lexical(depth, passing), self._semantic(depth, passing)
        ids = np.union1d(by_words.ids, by_meaning.ids)
        lexical = _aligned(ids, by_words.ids, by_words.lexical)
        semantic = _aligned(ids, by_meaning.ids, by_meaning.semantic)
        unseen = np.isnan(semantic)
        if unseen.any():
            semantic[unseen] = self._snapshot.index.reconstruct(ids[unseen]) @ self._vector()[0]
        leading = np.isin(ids, np.concatenate([by_words.ids[:DEPTH], by_meaning.ids[:DEPTH]]))
        score = (standard_scores(np.nan_to_num(lexical), leading) + standard_scores(semantic, leading)) / np.float32(2)
        return _Candidates(ids, lexical, semantic, score)

    def _reranked(
        self, found: _Candidates, order: NDArray[np.intp], reranking: Reranking
    ) -> tuple[_Candidates, NDArray[np.intp]]:
        """The candidates with scores that put those that the reranker reached first, and their order."""
        began = time.perf_counter()
        ids = found.ids[order[: reranking.depth]].tolist()
        rows = self._snapshot.chunks_by_id(ids, ["context"])
        given = reranking.scores(self._text, [rows[number]["context"] for number in ids])
        self._seconds["reranker"] = time.perf_counter() - began
        reached, rest = order[: len(given)], order[len(given) :]
        reranker, score = np.full(len(found.ids), np.nan, np.float32), found.score.copy()
        reranker[reached] = given
        if len(reached):
            score[reached] = mean_standard_scores(given, found.score[reached], reranking.reranker.first_stage_weight)
        if len(reached) and len(rest):
            score[rest] += score[reached].min() - 1 - score[rest].max()
        best = np.argsort(-score[reached], kind="stable")
        return replace(found, score=score, reranker=reranker), np.concatenate([reached[best], rest])

    def _cited(self, found: _Candidates, order: NDArray[np.intp], mode: Mode) -> list[Hit]:
        ids = found.ids[order].tolist()
        chunks = self._snapshot.chunks_by_id(ids, _CHUNK_COLUMNS)
        rows = self._snapshot.documents_by_id(sorted({row["document"] for row in chunks.values()}), _DOCUMENT_COLUMNS)
        explained = self._explained(found, order, mode)
        hits = []
        for rank, (place, number, (scores, explanation)) in enumerate(zip(order, ids, explained, strict=True), 1):
            chunk = chunks[number]
            row = rows[chunk["document"]]
            hits.append(
                Hit(
                    rank=rank,
                    score=float(found.score[place]),
                    scores=scores,
                    path=row["path"],
                    sha256=row["sha256"],
                    char_start=chunk["char_start"],
                    char_end=chunk["char_end"],
                    line_start=chunk["line_start"],
                    line_end=chunk["line_end"],
                    page=chunk["page"],
                    heading=tuple(chunk["heading"]),
                    text=chunk["text"],
                    title=row["title"],
                    format=row["format"],
                    metadata=json.loads(row["metadata"]),
                    source=row["source"],
                    document=row["id"],
                    chunk=number,
                    explanation=explanation,
                )
            )
        return hits

    def _explained(
        self, found: _Candidates, order: NDArray[np.intp], mode: Mode
    ) -> Iterator[tuple[dict[str, float | None], dict[str, Any]]]:
        """Of each hit its scores, stage by stage, and what else there is to say of how it was found."""
        stages = {"lexical": found.lexical, "semantic": found.semantic}
        every: dict[str, Any] = {"mode": mode}
        if found.reranker is not None:
            stages["reranker"] = found.reranker
            every["reranked"] = int((~np.isnan(found.reranker)).sum())
        ranks = {stage: _ranks(scores) for stage, scores in stages.items()}
        for place in order.tolist():
            scores = {stage: _real(given[place]) for stage, given in stages.items()}
            yield (
                scores,
                {
                    **every,
                    "ranks": {stage: ranks[stage].get(place) for stage in scores},
                    "milliseconds": {stage: round(1e3 * seconds, 2) for stage, seconds in self._seconds.items()},
                },
            )


_CHUNK_COLUMNS = ("document", "char_start", "char_end", "line_start", "line_end", "page", "heading", "text")
_DOCUMENT_COLUMNS = ("id", "path", "sha256", "title", "format", "metadata", "source")


def check(query: str, k: int, mode: Mode) -> str:
    """The query without surrounding white space, if it and the rest can be answered."""
    if not isinstance(query, str):
        raise InputError(f"a query is a text, but this one is of type {type(query).__name__}")
    if not is_whole(k, 0):
        raise InputError(f"k is how many passages to give, a whole number of at least 0, not {k!r}")
    if mode not in MODES:
        raise InputError(f"there is no mode {mode!r}: expected one of {', '.join(MODES)}")
    query = encodable(query).strip()
    if not query:
        raise InputError("the query is empty: say what to look for")
    return query


def check_reranking(depth: int, seconds: float | None) -> None:
    if not is_whole(depth, 1):
        raise InputError(f"rerank_depth is how many passages to rerank, a whole number from 1, not {depth!r}")
    if seconds is None:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float, np.floating)) or not 0 <= seconds < math.inf:
        raise InputError(f"rerank_seconds is the time for reranking, a number of seconds from 0, not {seconds!r}")


def _aligned(ids: Ids, known: Ids, values: Floats) -> Floats:
    aligned = np.full(len(ids), np.nan, np.float32)
    aligned[np.searchsorted(ids, known)] = values
    return aligned


def standard_scores(values: Floats, leading: NDArray[np.bool_] | slice = slice(None)) -> Floats:
    """Standard deviations above the mean of the leading values, all unless told; 0 where they are all the same."""
    deviation = values[leading].std()
    if deviation < 1e-6:
        return np.zeros_like(values)
    made: Floats = (values - values[leading].mean()) / deviation
    return made


def mean_standard_scores(reranker: Floats, first: Floats, first_weight: float) -> Floats:
    """The weighted mean of the standard scores of two stages for the same passages."""
    mean: Floats = (1 - first_weight) * standard_scores(reranker) + first_weight * standard_scores(first)
    return mean


def _ranks(scores: Floats) -> dict[int, int]:
    """Place -> rank from 1, of those that have a score."""
    scored: Sequence[int] = np.flatnonzero(~np.isnan(scores)).tolist()
    return {place: rank for rank, place in enumerate(sorted(scored, key=lambda place: -scores[place]), 1)}


def _real(value: np.float32) -> float | None:
    return None if np.isnan(value) else float(value)
