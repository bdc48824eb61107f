"""Answer one query: candidates by words and by meaning, fusion, reranking, citation.

    query ─┬─ BM25 over the full-text index ─┬─ fusion ── reranker, if any ── hits
           └─ cosines over the vector index ─┘

A reranker reads the best passages together with the query. The passages that it reached come first; the rest follow in
the order of the first stage. Among those reached, the score is the mean of two standard scores, the reranker's and the
first stage's. The model folder sets the weights; by default the reranker alone decides.

The exact parts of a query decide first: see `exact`. Passages with an identifier of the query come before the others,
also after a reranker: it has learnt from questions in words, and reads an identifier in pieces.
"""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from ...core.arrays import isin_sorted
from ...core.errors import DamagedError
from ...core.terms import query_stems
from ...indexes.base import SEARCH_DEPTH
from ..documents.chunker import context_of
from ..store.tables import rows_among
from .ranking import relevance as relevances
from .ranking.fusion import Candidates, fuse, reranked_score
from .ranking.neighbours import Ranking
from .results.duplicates import Passage, distinct, in_deviations, select
from .results.hit import cite
from .results.hits import Hits

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from ...core.arrays import Floats, Ids
    from ..models.reranker import Reranker
    from ..store.derived.recent_rows import RecentRows
    from ..store.filters.filter import Filter
    from ..store.snapshot import Passing, Snapshot
    from .deadline import Deadline
    from .results.diversity import Diversity
    from .results.duplicates import Group
    from .words import exact

    Steps = Generator[tuple[str, list[int]], None, Hits]  # table and ids of the rows that the next step reads


Mode = Literal["hybrid", "semantic", "lexical"]
MODES: tuple[str, ...] = get_args(Mode)

_MAX_WORDS = 256  # distinct words of a query that full-text search looks up; more do not help
_MAX_TERMS = 2_048  # of a query: users paste long texts
_SPARE = 1.5  # times the results of full-text search that should suffice for enough of them to pass a filter
_MORE = 4  # times as many in the next attempt
_DEEPER = 8  # times as many candidates, if too few hits remain without copies
_READ, _READ_AT_LEAST = 2, 20  # candidates read first, to collapse copies: this many for each hit, and some more
_LOOKED_UP = 1_000  # passages with all words of an exact part, to be searched for it
_MOST_ROWS = 20_000  # read at once for several searches


@dataclass(frozen=True, slots=True)
class Reranking:
    """A reranker and its limits."""

    reranker: Reranker
    depth: int  # passages of the first stage, the best
    seconds: float | None  # it scores as many as this time allows; None: all of them

    def scores(self, query: str, passages: list[str], deadline: Deadline | None = None) -> Floats:
        """Score the first passages, as many as the time allows."""
        remaining = None if deadline is None else deadline.remaining
        limits = [limit for limit in (self.seconds, remaining) if limit is not None]
        if not limits:
            return self.reranker.score(query, passages)
        if min(limits) <= 0:
            return np.empty(0, np.float32)
        return self.reranker.score_within(min(limits), query, passages)


class Query:
    """A query against one snapshot.

    :param vector: gives the vector of the query, shape (1, dim). It is called once, if the mode needs it.
    :param parts: the exact parts of the query.
    :param deadline: no stage but the reranker begins after it.
    :param nearest: cosines and ids of the passages nearest to the vector, if they are known, best first. Used only
            without a filter, and if there are as many as the first stage takes.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        text: str,
        vector: Callable[[], Floats],
        parts: exact.ExactQuery | None = None,
        deadline: Deadline | None = None,
        nearest: tuple[Floats, Ids] | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._text = text
        self._stems = query_stems(text)
        self._exact = parts or None
        self._contexts: dict[int, str] = {}  # by id, as read for the exact parts
        self._held: dict[int, tuple[int, int]] = {}  # how well passages hold the exact parts, by id
        self._looked_up: Ids | None = None
        self._total = snapshot.chunks.count_rows()
        self._vector = cache(vector)
        self._deadline = deadline
        self._nearest = nearest
        self._seconds: dict[str, float] = {}  # by stage

    def hits(self, k: int, **options: Any) -> Hits:
        """The k best passages: `steps` without a stop."""
        return finish(self.steps(k, **options))

    def steps(
        self,
        k: int,
        *,
        mode: Mode,
        where: Filter | None,
        without: int | None = None,
        reranking: Reranking | None = None,
        per_document: int | None = None,
        collapse: bool = True,
        with_vectors: bool = False,
        by_document: bool = False,
        diversity: Diversity | None = None,
        offset: int = 0,
    ) -> Steps:
        """Search in steps: before each, yield the rows that it reads. Several searches can then read theirs at once.

        The result is the k best passages, best first; of equal ones the first in the index. The best of copies cites
        the others.

        :param without: the id of a chunk to leave out.
        :param per_document: as in `duplicates.select`.
        :param collapse: leave out copies, and passages beyond the limit of a document.
        :param with_vectors: give each hit the stored vector of its passage.
        :param by_document: give the best passage of each of k documents.
        :param offset: the number of passages on earlier pages, the first of the k.
        :param diversity: choose among more than k passages, for hits that differ.
        """
        total = self._total
        passing = self._snapshot.passing(where) if where is not None and total else None
        k = min(k, total)
        if passing:
            total = len(passing.chunks)
        if not k or not total:
            return Hits(total=total)
        depth = max(k, reranking.depth) if reranking else k
        depth, pool = max(SEARCH_DEPTH, depth + (without is not None)), max(k, diversity.pool) if diversity else k
        limit_each, skipped = 1 if by_document else per_document if collapse else 0, 0 if diversity else offset
        limit = depth * _DEEPER if collapse and not reranking else depth
        deepest = min(self._total, math.inf if by_document else limit)
        if self._exact and (mode != "semantic" or self._exact.required):
            yield "chunks", self._with_words_of(self._exact, passing).tolist()
        while True:
            stage = self._candidates(depth, mode, passing)
            yield "chunks", stage.ids[: None if self._exact else _READ * pool + _READ_AT_LEAST].tolist()
            stage = self._first_stage(stage, mode, without)
            candidates = self._lifted(stage, mode)
            copies = self._selected(candidates, pool, mode, limit_each, collapse=collapse, offset=skipped)
            if len(copies) >= k or depth >= deepest or len(stage.ids) + 1 < depth:  # one may be left out
                break
            depth *= _DEEPER
        if reranking and len(stage.ids):
            candidates = self._lifted(self._rerank(stage, reranking, mode), mode)
            copies = self._selected(candidates, pool, mode, limit_each, collapse=collapse, offset=skipped)
        last = int(np.flatnonzero(np.isin(candidates.ids, list(copies))).max(initial=0))
        read = candidates.take(np.arange(len(candidates.ids))[: max(last + 1, relevances.DEPTH)])
        relevance = self._relevance(read, relevances.highest(candidates.semantic))
        if diversity:
            copies = diversity.choose(candidates, copies, relevance, k, self._snapshot.index.reconstruct)
        cited = self._snapshot.cited_passages.of(number for first in copies for number in (first, *copies[first]))
        yield "documents", [row["document"] for row in cited.values()]
        return self._cited(candidates, copies, relevance, mode, total, with_vectors=with_vectors)

    def _cited(
        self,
        candidates: Candidates,
        copies: Mapping[int, list[int]],
        relevance: NDArray[np.float64],
        mode: Mode,
        total: int,
        *,
        with_vectors: bool,
    ) -> Hits:
        """The chosen passages as hits with their citations."""
        line = relevances.line(self._snapshot, mode)
        hits = cite(self._snapshot, candidates, copies, relevance, line, mode=mode, seconds=self._seconds)
        if with_vectors:
            vectors = self._snapshot.index.reconstruct(np.array([hit.passage for hit in hits], np.int64))
            hits = [replace(hit, vector=vector) for hit, vector in zip(hits, vectors, strict=True)]
        for hit in hits if self._exact else ():
            hit.explanation["exact"] = self._exact.held(hit.context, hit.heading) if self._exact else {}
        answerable = None if hits and not line else bool(hits) and not hits[0].weak
        return Hits(hits, answerable=answerable, seconds=self._seconds, total=total)

    def _selected(
        self, candidates: Candidates, k: int, mode: Mode, per_document: int | None, *, collapse: bool, offset: int
    ) -> dict[int, list[int]]:
        """The k best passages, best first, with the copies of each."""
        if collapse:
            groups = self._distinct(candidates, k, mode, per_document, offset)
            return {group.first.passage: [copy.passage for copy in group.copies] for group in groups}
        ids = candidates.ids
        if per_document == 1:  # as only `by_document` has it here
            ids = ids[np.sort(np.unique(self._snapshot.documents_of(ids), return_index=True)[1])]
        return {number: [] for number in ids[:k].tolist()}

    def _relevance(self, candidates: Candidates, nearest: Floats) -> NDArray[np.float64]:
        """The relevance of candidates in order of their rank."""
        ids = candidates.ids
        literal = np.zeros(len(ids), bool)
        if self._exact:
            literal = np.array([count > 0 for count, _ in self._held_by(self._exact, ids)], bool)
        shares = relevances.shares(self._snapshot.lexical, self._stems, ids)
        return relevances.relevance(candidates.semantic, shares, literal, self._snapshot.scale, nearest)

    def _first_stage(self, candidates: Candidates, mode: Mode, without: int | None) -> Candidates:
        """The candidates of the first stage, best first, those with the exact parts before the others."""
        if without is not None:
            candidates = candidates.take(np.flatnonzero(candidates.ids != without))
        return self._exact_first(candidates, mode)

    def _distinct(
        self, candidates: Candidates, k: int, mode: Mode, per_document: int | None, offset: int
    ) -> list[Group]:
        """The k best passages, each with its copies. First only the texts of some candidates are read."""
        count = len(candidates.ids)
        levels = self._levels(candidates, self._exact, mode).tolist() if self._exact else [0] * count
        scores = in_deviations(candidates.score, levels).tolist()
        groups = None
        for limit in (_READ * k + _READ_AT_LEAST, count):
            ids = candidates.ids[:limit].tolist()
            rows = self._snapshot.cited_passages.of(ids)
            groups = select(
                distinct(Passage.of_rows(rows, levels, scores)), k, per_document, all_read=limit >= count, offset=offset
            )
            if groups is not None:
                break
        return groups or []

    def candidates(self, k: int) -> Candidates:
        """The first stage of a hybrid search, best first: at least k passages if the index has as many."""
        return self._candidates(k, "hybrid", None)

    def ranked(self, k: int, *, mode: Mode) -> tuple[Ids, Floats]:
        """Ids and cosines of the k best passages, best first; no citations, which cost more than the search."""
        if min(k, self._total) == 0:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        candidates = self._candidates(k, mode, None)
        return candidates.ids[:k], candidates.semantic[:k]

    def _candidates(self, k: int, mode: Mode, passing: Passing | None) -> Candidates:
        """The first stage: at least k candidates if the index has as many, best first."""
        depth = min(self._total, max(SEARCH_DEPTH, k))
        search = {"hybrid": self._hybrid, "semantic": self._semantic_exact, "lexical": self._lexical}[mode]
        return search(depth, passing).best_first()

    def _hybrid(self, depth: int, passing: Passing | None) -> Candidates:
        by_words, by_meaning = self._lexical(depth, passing), self._semantic(depth, passing)
        lexical, neighbourhood = self._snapshot.lexical, self._snapshot.neighbourhood
        if lexical is not None and neighbourhood is not None:
            with self._timed("neighbours"), contextlib.suppress(DamagedError):
                ranking = Ranking(lexical, neighbourhood, self._snapshot.index.reconstruct)
                return ranking.fuse(by_words, by_meaning, self._stems[:_MAX_TERMS], self._vector()[0])
        return fuse(by_words, by_meaning, self._cosines)

    def _lexical(self, depth: int, passing: Passing | None) -> Candidates:
        with self._timed("lexical"):
            scores, ids = self._by_words(self._text, depth, passing)
            best = np.lexsort((ids, -scores))[:depth]
            ids, scores = ids[best], scores[best]
        if self._exact and len(missing := _without(self._look_up(self._exact, passing), ids)):
            with self._timed("exact"):
                more_scores, more_ids = self._by_words(self._text, len(missing), among=missing)
                rest = _without(missing, more_ids)  # they hold stop words alone
                ids = np.concatenate([ids, more_ids, rest])
                scores = np.concatenate([scores, more_scores, np.zeros(len(rest), np.float32)])
        return Candidates.by_words(ids, scores)

    def _semantic_exact(self, depth: int, passing: Passing | None) -> Candidates:
        """The candidates by meaning, and passages with all required words."""
        candidates = self._semantic(depth, passing)
        if not self._exact or not self._exact.required:
            return candidates
        missing = _without(self._look_up(self._exact, passing), candidates.ids)
        ids = np.concatenate([candidates.ids, missing])
        return Candidates.by_meaning(ids, np.concatenate([candidates.semantic, self._cosines(missing)]))

    def _look_up(self, parts: exact.ExactQuery, passing: Passing | None) -> Ids:
        """Passages anywhere in the index that hold the exact parts, among the best with all words of one of them.

        The words of a token are split and stemmed, and each may be common: the best for the whole query may lack it.
        """
        with self._timed("exact"):
            ids = self._with_words_of(parts, passing)
            contexts = self._read(ids)
            holds = [parts.passes(context) and parts.level(context)[0] for context in contexts]
            literal: Ids = ids[np.array(holds, bool)]
            return literal

    def _with_words_of(self, parts: exact.ExactQuery, passing: Passing | None) -> Ids:
        """Passages with all words of an exact part, ascending, looked up once for a query."""
        if self._looked_up is None:
            ids = {number for words in parts.lookups for number in self._with_tokens(words, passing).tolist()}
            self._looked_up = np.array(sorted(ids), np.int64)
        return self._looked_up

    def _with_tokens(self, words: str, passing: Passing | None) -> Ids:
        """Passages with all tokens of these words; the best by words if they are too many to look at."""
        if self._snapshot.lexical:
            with contextlib.suppress(DamagedError):
                ids = self._snapshot.lexical.whole(words)
                ids = ids if passing is None else ids[isin_sorted(ids, passing.chunks)]
                best = ids if len(ids) <= _LOOKED_UP else self._by_words(words, _LOOKED_UP, among=ids)[1]
                return best if len(best) else ids[:_LOOKED_UP]
        return self._by_words(words, _LOOKED_UP, passing, every=True)[1]

    def _read(self, ids: Ids) -> list[str]:
        """The headings and texts of passages, each made once for a query."""
        unread = [number for number in ids.tolist() if number not in self._contexts]
        for number, row in self._snapshot.cited_passages.of(unread).items():
            self._contexts[number] = context_of(row["heading"], row["text"])
        return [self._contexts[number] for number in ids.tolist()]

    def _held_by(self, parts: exact.ExactQuery, ids: Ids) -> list[tuple[int, int]]:
        """How well passages hold the exact parts, each judged once for a query."""
        new = ids[[number not in self._held for number in ids.tolist()]]
        rows = self._snapshot.cited_passages.of(new.tolist())
        for (number, row), context in zip(rows.items(), self._read(new), strict=True):
            self._held[number] = parts.level(context, row["heading"])
        return [self._held[number] for number in ids.tolist()]

    def _exact_first(self, candidates: Candidates, mode: Mode) -> Candidates:
        """Leave out passages that fail the exact parts. More exact parts, or better ones, come first."""
        if (parts := self._exact) is None:
            return candidates
        passing = np.array([parts.passes(context) for context in self._read(candidates.ids)], bool)
        candidates = candidates.take(np.flatnonzero(passing))
        return candidates.take(np.argsort(-self._levels(candidates, parts, mode), kind="stable"))

    def _levels(self, candidates: Candidates, parts: exact.ExactQuery, mode: Mode) -> NDArray[np.intp]:
        """Number how well each candidate holds the exact parts, from 0. By meaning alone, all are equal."""
        if mode == "semantic" or not len(candidates.ids):
            return np.zeros(len(candidates.ids), np.intp)
        levels = self._held_by(parts, candidates.ids)
        order = {level: number for number, level in enumerate(sorted(set(levels)))}
        return np.array([order[level] for level in levels], np.intp)

    def _lifted(self, candidates: Candidates, mode: Mode) -> Candidates:
        """Lift the scores of each level above the next, so that scores fall with the rank."""
        if self._exact is None:
            return candidates
        levels = self._levels(candidates, self._exact, mode)
        if not levels.any():
            return candidates
        score = candidates.score + levels * (np.ptp(candidates.score) + 1)
        return replace(candidates, score=score.astype(np.float32))

    def _by_words(
        self, text: str, depth: int, passing: Passing | None = None, *, among: Ids | None = None, every: bool = False
    ) -> tuple[Floats, Ids]:
        """Scores and ids of the best chunks by words, from the inverted index or, without one, from Lance.

        :param among: ids, ascending: search among these chunks only.
        """
        allowed = passing.chunks if passing and among is None else among
        if self._snapshot.lexical:
            with contextlib.suppress(DamagedError):
                stems = self._stems if text == self._text else query_stems(text)
                return self._snapshot.lexical.search(stems[:_MAX_TERMS], depth, allowed=allowed, every=every)
        words = " ".join(list(dict.fromkeys(text.split()))[:_MAX_WORDS])
        if among is None:
            table = self._full_text(words, depth, passing, every=every)
        else:
            table = self._snapshot.full_text(words, depth, rows_among("id", among.tolist()), every=every)
        return table["_score"].to_numpy().astype(np.float32), table["id"].to_numpy()

    def _full_text(self, words: str, depth: int, passing: Passing | None, *, every: bool = False) -> pa.Table:
        """The `depth` best chunks by words that pass the filter, or more.

        Lance takes about as long for a document in a condition as for one more result. So if many documents pass, all
        chunks are searched for enough results, and again for more if too few of them pass.
        """
        if passing is None:
            return self._snapshot.full_text(words, depth, every=every)
        share = len(passing.chunks) / self._total
        limit = math.ceil(_SPARE * depth / share)
        while limit < len(passing.documents):
            table = self._snapshot.full_text(words, limit, every=every)
            matches = table.filter(isin_sorted(table["id"].to_numpy(), passing.chunks))
            if len(matches) >= depth or len(table) < limit:
                return matches
            limit *= _MORE
        if len(passing.chunks) < len(self._snapshot.chunks_of(passing.documents)):
            return self._snapshot.full_text(words, depth, rows_among("id", passing.chunks.tolist()), every=every)
        return self._snapshot.full_text(words, depth, rows_among("document", passing.documents.tolist()), every=every)

    def _semantic(self, depth: int, passing: Passing | None) -> Candidates:
        with self._timed("encoding"):
            vector = self._vector()
        with self._timed("semantic"):
            if self._nearest is not None and passing is None and len(self._nearest[1]) == depth:
                cosines, ids = self._nearest
            else:
                allowed = None if passing is None else passing.chunks
                cosines, ids = (row[0] for row in self._snapshot.index.search(vector, depth, allowed=allowed))
            exists = ids >= 0  # an index fills up with -1
            return Candidates.by_meaning(ids[exists], cosines[exists])

    def _cosines(self, ids: Ids) -> Floats:
        cosines: Floats = self._snapshot.index.reconstruct(ids) @ self._vector()[0]
        return cosines

    def _rerank(self, candidates: Candidates, reranking: Reranking, mode: Mode) -> Candidates:
        """Reorder the candidates: first by the new score as far as the reranker got, then the rest."""
        with self._timed("reranker"):
            ids = candidates.ids[: reranking.depth].tolist()
            rows = self._snapshot.cited_passages.of(ids).values()
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
        return self._exact_first(ranked, mode)

    @contextlib.contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        if self._deadline and stage != "reranker":
            self._deadline.check(stage)
        start = time.perf_counter()
        yield
        self._seconds[stage] = self._seconds.get(stage, 0) + time.perf_counter() - start


def _without(ids: Ids, excluded_ids: Ids) -> Ids:
    """The ids that are not among the excluded ones, in their order."""
    return ids[~isin_sorted(ids, np.sort(excluded_ids))]


def finish(steps: Steps) -> Hits:
    """Run all steps of a search; each reads its own rows."""
    [hits] = finish_together([steps], {})
    return hits


def finish_together(searches: Sequence[Steps], rows: Mapping[str, RecentRows]) -> list[Hits]:
    """Run several searches step by step, so that one read serves a step of all. Rows stay until the last search ends.

    :param rows: of each table, to read ahead of a step.
    """
    hits: dict[int, Hits] = {}
    with contextlib.ExitStack() as stack:
        for recent in rows.values():
            stack.enter_context(recent.all_kept())
        while len(hits) < len(searches):
            needed: dict[str, list[int]] = {table: [] for table in rows}
            for number, steps in enumerate(searches):
                if number not in hits:
                    try:
                        table, ids = next(steps)
                    except StopIteration as end:
                        hits[number] = end.value
                    else:
                        needed.get(table, []).extend(ids)
            for table, ids in needed.items():
                rows[table].of(ids[:_MOST_ROWS])
    return [hits[number] for number in range(len(searches))]
