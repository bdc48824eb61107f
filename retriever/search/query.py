"""Answer one query: candidates by words and by meaning, fusion, reranking, citation.

    query ─┬─ BM25 over the inverted index ──┬─ fusion ── reranker, if any ── hits
           └─ cosines over the vector index ─┘

A reranker reads the best passages together with the query. The passages that it reached come first; the rest follow in
the order of the first stage. Among those reached, the score is the mean of two standard scores, the reranker's and the
first stage's. The model folder sets the weights; by default the reranker alone decides.

The exact parts of a query decide first: see `words.exact`. Passages with an identifier of the query come before the
others, also after a reranker: it has learnt from questions in words, and reads an identifier in pieces. If a query has
one or two different words, passages with all of them come before the others, unless a reranker decides.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.arrays import isin_sorted
from ...indexes.base import SEARCH_DEPTH
from ..documents.document import context_of
from .candidates.exact_matches import ExactMatches
from .candidates.first_stage import FirstStage, without
from .candidates.word_search import WordSearch
from .deadline import StageTimes
from .ranking import relevance as relevances
from .ranking.fusion import Candidates, reranked_score
from .results.duplicates import RankedPassage, distinct, in_deviations, select
from .results.hit import cite
from .results.hits import Hits
from .selection import DEEPER, Selection
from .steps import finish

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from numpy.typing import NDArray

    from ...core.arrays import Floats, Ids
    from ..store.snapshot import Passing, Snapshot
    from .deadline import Deadline
    from .mode import Mode
    from .results.duplicates import Group
    from .selection import Reranking
    from .steps import Rows, Steps
    from .words.exact import ExactQuery

    Chosen = dict[int, list[int]]  # the best passages, best first, each with its copies

_SHORT = 2  # different words of a query that a passage has to hold to come first
_READ, _READ_AT_LEAST = 2, 20  # candidates read first, to collapse copies: this many for each hit, and some more


class Query:
    """A query against one snapshot.

    :param vector: returns the vector of the query, shape (1, dim). It is called once, if the mode needs it.
    :param parts: the exact parts of the query.
    :param deadline: no stage but the reranker begins after it.
    :param nearest: cosines and ids of the passages nearest to the vector, if the caller knows them: see `FirstStage`.
    :param encode_texts: returns the vectors of sentences, shape (n, dim), if the relevance needs them.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        text: str,
        vector: Callable[[], Floats],
        parts: ExactQuery | None = None,
        deadline: Deadline | None = None,
        nearest: tuple[Floats, Ids] | None = None,
        encode_texts: Callable[[list[str]], Floats] | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._text = text
        self._words = WordSearch(snapshot, text)
        self._exact = ExactMatches(snapshot, parts, self._words) if parts else None
        self._total = snapshot.passage_count
        self._vector = cache(vector)
        self._deadline = deadline
        self._encode_texts = encode_texts
        self._timed = StageTimes(deadline)
        self._first = FirstStage(snapshot, self._words, self._exact, self._vector, nearest, self._timed)
        self._deeper: list[Ids] = []  # candidates that each deeper search found, ascending

    def hits(self, k: int, **options: Any) -> Hits:
        """The k best passages: `steps` without a stop.

        :param options: the other fields of `Selection`.
        """
        return finish(self.steps(Selection(k, **options)))

    def steps(self, selection: Selection) -> Steps:
        """Search in steps: before each, yield the rows that it reads, so that several searches can read rows together.

        The result is the k best passages, best first; equal ones in the order of the index. The best of several copies
        cites the others.
        """
        where, mode = selection.where, selection.mode
        passing = self._snapshot.passing(where) if where is not None and self._total else None
        total = len(passing.chunks) if passing else self._total
        selection = replace(selection, k=min(selection.k, self._total))
        if not selection.k or not total:
            return Hits(total=total)
        if self._exact and (mode != "semantic" or self._exact.required):
            yield "chunks", self._ids_with_words(self._exact, passing)
        stage, candidates, chosen = yield from self._search_deeper(selection, passing, total)
        if selection.reranking and len(stage.ids):
            candidates, chosen = self._choose(self._rerank(stage, selection.reranking, mode), selection)
        relevance = self._relevance(candidates, chosen, total, mode)
        if selection.diversity:
            vectors_of = self._snapshot.index.reconstruct
            chosen = selection.diversity.choose(candidates, chosen, relevance, selection.k, vectors_of)
        cited = [number for first in chosen for number in (first, *chosen[first])]
        yield "documents", [row["document"] for row in self._snapshot.passages.of(cited).values()]
        return self._cited(candidates, chosen, relevance, selection, total)

    def _search_deeper(
        self, selection: Selection, passing: Passing | None, total: int
    ) -> Generator[Rows, None, tuple[Candidates, Candidates, Chosen]]:
        """Take the best candidates by words and meaning, and more of them while too few become hits.

        :returns: the first stage, and what `_choose` returns of it.
        """
        reranked = selection.reranking.depth if selection.reranking else 0
        depth = max(SEARCH_DEPTH, reranked + (selection.without is not None))
        excludes_words = self._exact is not None and self._exact.excluded
        deepest = selection.deepest(depth, total, excludes_words=excludes_words)
        stage = None
        while True:
            batch = self._first.candidates(depth, selection.mode, passing)
            needed = [batch.ids[: _READ * selection.pool + _READ_AT_LEAST]]
            if self._exact:
                needed.append(batch.ids[self._exact.can_hold(batch.ids)])
            yield "chunks", np.concatenate(needed).tolist()
            stage = self._in_order(batch, selection, stage)
            candidates, chosen = self._choose(stage, selection)
            if len(chosen) >= selection.pool or depth >= deepest or len(batch.ids) < depth:
                return stage, candidates, chosen
            depth *= DEEPER

    def _ids_with_words(self, exact: ExactMatches, passing: Passing | None) -> list[int]:
        with self._timed("exact"):
            ids: list[int] = exact.with_words(passing).tolist()
        return ids

    def _cited(
        self,
        candidates: Candidates,
        chosen: Chosen,
        relevance: NDArray[np.float64],
        selection: Selection,
        total: int,
    ) -> Hits:
        """The chosen passages as hits with their citations."""
        mode = selection.mode
        line = relevances.line(self._snapshot, mode)
        seconds = self._timed.seconds()
        hits = cite(self._snapshot, candidates, chosen, relevance, line, mode=mode, seconds=seconds)
        if selection.with_vectors:
            vectors = self._snapshot.index.reconstruct(np.array([hit.passage for hit in hits], np.int64))
            hits = [replace(hit, vector=vector) for hit, vector in zip(hits, vectors, strict=True)]
        if self._exact:
            for hit in hits:
                self._exact.explain(hit)
        answerable = None if hits and not line else bool(hits) and not hits[0].weak
        return Hits(hits, answerable=answerable, seconds=seconds, total=total)

    def _choose(self, stage: Candidates, selection: Selection) -> tuple[Candidates, Chosen]:
        """Return all candidates with scores that fall with the rank, and the best passages with the copies of each."""
        candidates = self._lifted(stage, selection.mode)
        if selection.collapse:
            groups = self._distinct(candidates, selection)
            return candidates, {group.first.passage: [copy.passage for copy in group.copies] for group in groups}
        ids = candidates.ids
        if selection.by_document:
            ids = ids[np.sort(np.unique(self._snapshot.documents_of(ids), return_index=True)[1])]
        return candidates, {number: [] for number in ids[: selection.pool].tolist()}

    def _relevance(self, candidates: Candidates, chosen: Chosen, total: int, mode: Mode) -> NDArray[np.float64]:
        """The relevance of candidates in order of their rank, up to the last chosen one."""
        last = int(np.flatnonzero(np.isin(candidates.ids, list(chosen))).max(initial=0))
        read = candidates.take(np.arange(len(candidates.ids))[: max(last + 1, relevances.DEPTH)])
        literal = self._exact.contain_parts(read.ids) if self._exact else np.zeros(len(read.ids), bool)
        shares = relevances.shares(self._snapshot.lexical, self._words.stems, read.ids)
        nearest = relevances.highest(candidates.semantic)
        judge = partial(relevances.relevance, read.semantic, shares, literal, self._snapshot.scale, nearest, total)
        relevance = judge()
        line = relevances.line(self._snapshot, mode)
        is_weak = len(relevance) > 0 and relevance[0] < line
        if is_weak and self._encode_texts and relevances.is_small(total):
            first = read.take(np.arange(min(relevances.FIRST, len(read.ids))))
            if judge(first.semantic + relevances.HIGHER)[0] >= line:
                relevance = judge(self._best_sentences(first.ids))
        return relevance

    def _best_sentences(self, ids: Ids) -> Floats:
        """The cosine of the best sentence of each of these passages; NaN for none."""
        assert self._encode_texts
        with self._timed("sentences"):
            rows = self._snapshot.passages.of(ids.tolist())
            sentences = relevances.first_sentences([rows[number]["text"] for number in ids.tolist()])
            best = np.full(len(ids), np.nan, np.float32)
            if texts := [sentence for passage in sentences for sentence in passage]:
                cosines = self._encode_texts(texts) @ self._vector()[0]
                start = 0
                for number, passage in enumerate(sentences):
                    best[number] = cosines[start : start + len(passage)].max(initial=-1.0) if passage else np.nan
                    start += len(passage)
        return best

    def _in_order(self, candidates: Candidates, selection: Selection, earlier: Candidates | None) -> Candidates:
        """The candidates of the first stage, best first; candidates with exact parts before the others.

        :param earlier: the candidates of a less deep search. They come first, so that earlier pages do not change.
        """
        known = np.empty(0, np.int64) if earlier is None else np.sort(earlier.ids)
        if selection.without is not None:
            candidates = candidates.take(np.flatnonzero(candidates.ids != selection.without))
        candidates = candidates.take(np.flatnonzero(~isin_sorted(candidates.ids, known)))
        if self._exact:
            candidates = self._exact.passing(candidates)
        candidates = candidates.take(np.argsort(-self._word_levels(candidates, selection.mode), kind="stable"))
        if earlier is None or not len(earlier.ids):
            return candidates
        self._deeper.append(np.sort(candidates.ids))
        return earlier.followed_by(candidates)

    def _levels(self, candidates: Candidates, mode: Mode) -> NDArray[np.intp]:
        """Number the levels that decide before scores, from 0: the depth of the search, then the exact parts."""
        levels = self._word_levels(candidates, mode)
        for ids in self._deeper:
            levels[~isin_sorted(candidates.ids, ids)] += levels.max(initial=0) + 1
        return levels

    def _word_levels(self, candidates: Candidates, mode: Mode) -> NDArray[np.intp]:
        """Number how well each candidate holds the exact parts and, unless a reranker decides, a short query."""
        levels = np.zeros(len(candidates.ids), np.intp)
        if self._exact:
            levels += self._exact.levels(candidates, mode)
        if candidates.reranker is None:
            levels = 2 * levels + self._short_levels(candidates, mode)
        return levels

    def _short_levels(self, candidates: Candidates, mode: Mode) -> NDArray[np.intp]:
        """Number with 1 the candidates that hold all words of a query of one or two words, unless all or none do.

        Cosines with one or two words say little, and some passages of few words are near to every word.
        """
        ids = candidates.ids
        if mode != "hybrid" or not len(ids) or not 0 < len(set(self._words.stems)) <= _SHORT:
            return np.zeros(len(ids), np.intp)
        shares = relevances.shares(self._snapshot.lexical, self._words.stems, ids)
        holds = self._words.hold_all(ids) if np.isnan(shares).any() else shares > relevances.NEARLY_ALL
        return np.zeros(len(ids), np.intp) if holds.all() else holds.astype(np.intp)

    def _are_deeper(self, ids: Ids) -> NDArray[np.bool_]:
        """Whether each candidate was found by a deeper search than the first."""
        return isin_sorted(ids, np.sort(np.concatenate([np.empty(0, np.int64), *self._deeper])))

    def _lifted(self, candidates: Candidates, mode: Mode) -> Candidates:
        """Add to the scores, if words decide, so that each level is above the next: scores fall with the rank."""
        if not self._word_levels(candidates, mode).any():
            return candidates
        return replace(candidates, score=_by_level(candidates.score, self._levels(candidates, mode)))

    def _distinct(self, candidates: Candidates, selection: Selection) -> list[Group]:
        """The k best passages, each with its copies. It reads all texts only if the first ones give too few."""
        count, k = len(candidates.ids), selection.pool
        per_document = 1 if selection.by_document else selection.per_document
        levels = self._levels(candidates, selection.mode).tolist()
        scores = in_deviations(candidates.score, levels, ~self._are_deeper(candidates.ids)).tolist()
        groups = None
        for limit in (_READ * k + _READ_AT_LEAST, count):
            ids = candidates.ids[:limit].tolist()
            rows = self._snapshot.passages.of(ids)
            passages = distinct(RankedPassage.of_rows(rows, levels, scores))
            groups = select(passages, k, per_document, all_read=limit >= count, pages=selection.pages)
            if groups is not None:
                break
        return groups or []

    def candidates(self, k: int) -> Candidates:
        """The first stage of a hybrid search, best first: at least k passages if the index has as many."""
        return self._first.candidates(max(SEARCH_DEPTH, k), "hybrid", None)

    def ranked(self, k: int, *, mode: Mode) -> tuple[Ids, Floats]:
        """Ids and cosines of the k best passages, best first; no citations, which cost more than the search."""
        if min(k, self._total) == 0:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        candidates = self._first.candidates(max(SEARCH_DEPTH, k), mode, None)
        return candidates.ids[:k], candidates.semantic[:k]

    def _rerank(self, candidates: Candidates, reranking: Reranking, mode: Mode) -> Candidates:
        """Reorder the candidates: the reranked ones first, by their new scores, then the others."""
        candidates = replace(candidates, score=_by_level(candidates.score, self._short_levels(candidates, mode)))
        with self._timed("reranker"):
            ids = candidates.ids[: reranking.depth].tolist()
            rows = self._snapshot.passages.of(ids).values()
            contexts = [context_of(row["heading"], row["text"]) for row in rows]
            scores = reranking.scores(self._text, contexts, self._deadline)
        reached = len(scores)
        if not reached:
            return replace(candidates, reranker=np.full(len(candidates.ids), np.nan, np.float32))
        mean = reranked_score(scores, candidates.score[:reached], reranking.reranker.first_stage_weight)
        rest = candidates.score[reached:]
        rest = rest + (mean.min() - 1 - rest.max()) if len(rest) else rest  # just below the last reranked passage
        reranker = np.full(len(candidates.ids), np.nan, np.float32)
        reranker[:reached] = scores
        best = np.argsort(-mean, kind="stable")
        reordered = replace(candidates, score=np.concatenate([mean, rest]).astype(np.float32), reranker=reranker)
        ranked = reordered.take(np.concatenate([best, np.arange(reached, len(candidates.ids))]))
        first = np.sort(ranked.ids[:reached])
        self._deeper = [without(ids, first) for ids in self._deeper]
        return ranked.take(np.argsort(-self._levels(ranked, mode), kind="stable")) if self._exact else ranked


def _by_level(scores: Floats, levels: NDArray[np.intp]) -> Floats:
    """Lift the scores of each level above the scores of the level below."""
    if not levels.any():
        return scores
    lifted: Floats = (scores + levels * (np.ptp(scores) + 1)).astype(np.float32)
    return lifted
