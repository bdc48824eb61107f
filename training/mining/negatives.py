"""Choose negatives among the candidates of a block of queries."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .text_db import join_words, text_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...core.arrays import Floats, Ids, Mask
    from ...indexes.flat import FlatIndex
    from ...retriever.models.encoder import Encoder
    from .candidate_search import CandidateSource
    from .config import MiningConfig
    from .mining_report import MiningReport
    from .text_db import TextDatabase


_GROUP = 256  # queries with their texts in memory together
_SPREAD = np.int64(-7046029254386353131)  # odd, near 2^64 / golden ratio: mixes a row's number into a key


class MinedPair(NamedTuple):
    """A pair and the negatives of its query, best first."""

    query: str
    positive: str
    negatives: list[str]
    scores: list[float]  # of the positive, then of each negative: the judge's if there is one, else the encoder's
    document_id: str = ""  # the name of the positive's document, if documents have names


@dataclass(frozen=True, slots=True)
class _Block:
    """Queries, their positives and their candidates."""

    first: int  # number of the first query
    queries: list[str]
    rows: Ids  # of the pairs: the query, counted from the first; ascending
    answers: Ids  # … the document
    answer_scores: Floats
    ids: Ids  # of candidates, best first: (queries, depth)
    scores: Floats


class Miner:
    """Chooses negatives for the queries of a collection.

    :param keys: the collection's `keys`.
    :param index: the vectors of its documents.
    :param stage: finds candidates, among these documents or elsewhere.
    """

    def __init__(
        self,
        collection: TextDatabase,
        keys: tuple[Ids, Ids],
        index: FlatIndex,
        stage: CandidateSource,
        encoder: Encoder,
        rules: MiningConfig,
        report: MiningReport,
    ) -> None:
        self._collection = collection
        self._text_keys, self._name_keys = keys
        self._index = index
        self._stage = stage
        self._encoder = encoder
        self._rules = rules
        self._report = report

    def mine(self, first: int, end: int) -> Iterator[list[MinedPair]]:
        """Yield the pairs of these queries that have a negative, a group of queries at a time."""
        block = self._block(first, end)
        usable = self._usable(block)
        for start in range(0, end - first, _GROUP):
            with self._report.timed("choosing"):
                group = self._mine_rows(block, usable, range(start, min(start + _GROUP, end - first)))
            yield group

    def _block(self, first: int, end: int) -> _Block:
        queries = self._collection.query_texts(first, end)
        with self._report.timed("encoding queries"):
            vectors = self._encoder.encode(queries, kind="query")
        with self._report.timed("searching"):
            rows, answers = self._collection.positives(first, end)
            answer_scores = np.einsum("ij,ij->i", vectors[rows], self._index.reconstruct(answers))
            scores, ids = self._stage.search(queries, vectors, min(self._rules.depth, self._stage.size))
        return _Block(first, queries, rows, answers, answer_scores, ids, scores)

    def _usable(self, block: _Block) -> Mask:
        """Mark the candidates that pass the rules without texts."""
        with self._report.timed("choosing"):
            usable = block.ids >= 0
            self._report.candidates += int(usable.sum())
            for rule, dropped in self._drops(block, usable):
                self._report.drop(rule, int((usable & dropped).sum()))
                usable &= ~dropped
        return usable

    def _drops(self, block: _Block, usable: Mask) -> Iterator[tuple[str, Mask]]:
        """Yield each rule with the candidates that it drops.

        :param usable: the candidates that the rules before have left; the caller updates it.
        """
        rules, scores = self._rules, block.scores
        text_keys, name_keys = self._stage.keys(block.ids)
        numbers = np.arange(len(block.queries))
        own_keys = np.array([text_key(query) for query in block.queries], np.int64)
        text_keys = text_keys + numbers[:, None] * _SPREAD
        answers = self._text_keys[block.answers] + block.rows * _SPREAD
        yield "positive", np.isin(text_keys, np.concatenate([answers, own_keys + numbers * _SPREAD]))
        named = self._name_keys[block.answers]
        owners = (named + block.rows * _SPREAD)[named != 0]
        yield "positive's document", np.isin(name_keys + numbers[:, None] * _SPREAD, owners)
        yield "duplicate", ~_first_of_each(text_keys, usable)
        yield "skipped", usable.cumsum(1) <= rules.skip_top
        floor = _lowest(block.answer_scores, block.rows, len(numbers))[:, None]
        if rules.margin is not None:
            yield "margin", scores > floor - np.float32(rules.margin)
        if rules.relative_margin is not None:
            yield "relative margin", scores > floor - np.abs(floor) * np.float32(rules.relative_margin)
        if rules.max_score is not None:
            yield "highest score", scores > rules.max_score
        if rules.min_score is not None:
            yield "lowest score", scores < rules.min_score

    def _mine_rows(self, block: _Block, usable: Mask, rows: range) -> list[MinedPair]:
        """Pair the positives of these rows of a block with their negatives."""
        answers = self._answers(block, rows)
        negatives_of = self._choose(block, usable, rows, answers)
        for negatives in negatives_of.values():
            self._report.negatives += len(negatives)
            self._report.short += len(negatives) < self._rules.negatives
            self._report.none += not negatives
        return [
            MinedPair(
                block.queries[row],
                answer.text,
                [candidate.text for candidate in negatives_of[row]],
                [answer.score, *(candidate.score for candidate in negatives_of[row])],
                answer.document_id,
            )
            for row in rows
            for answer in answers[row]
            if negatives_of[row]
        ]

    def _choose(
        self, block: _Block, usable: Mask, rows: range, answers: dict[int, list[_Answer]]
    ) -> dict[int, list[_Candidate]]:
        """Try candidates in turn until each row has enough; return them best first."""
        turns = {row: iter(self._order(block.first + row, usable[row])) for row in rows}
        negatives_of: dict[int, list[_Candidate]] = {row: [] for row in rows}
        while cells := [
            (row, column)
            for row in rows
            for column in islice(turns[row], self._rules.negatives - len(negatives_of[row]))
        ]:
            for candidate in self._passing(block, answers, cells):
                negatives_of[candidate.row].append(candidate)
        for negatives in negatives_of.values():
            negatives.sort(key=lambda candidate: candidate.column)
        return negatives_of

    def _order(self, number: int, usable: Mask) -> list[int]:
        """Order the usable columns for trial; in a random order the first that pass are a random choice."""
        columns = np.flatnonzero(usable)
        if self._rules.strategy == "random":
            columns = np.random.default_rng((self._rules.seed, number)).permutation(columns)
        return columns.tolist()

    def _answers(self, block: _Block, rows: range) -> dict[int, list[_Answer]]:
        """Return the positives of these rows of a block."""
        here = slice(*np.searchsorted(block.rows, (rows.start, rows.stop)))
        owners, scores = block.rows[here].tolist(), block.answer_scores[here].tolist()
        named = self._collection.named(block.answers[here])
        texts = [named[number] for number in block.answers[here].tolist()]
        if self._rules.judge:
            scores = self._judge([(block.queries[row], text) for row, (_, text) in zip(owners, texts, strict=True)])
        has_names = self._collection.has_names  # names from the corpus alone would name only a part of the rows
        answers: dict[int, list[_Answer]] = {row: [] for row in rows}
        for row, (name, text), score in zip(owners, texts, scores, strict=True):
            own_words = join_words(text) if self._stage.cut else ""
            answers[row].append(_Answer(text, own_words, score, name if has_names else ""))
        return answers

    def _passing(
        self, block: _Block, answers: dict[int, list[_Answer]], cells: list[tuple[int, int]]
    ) -> Iterator[_Candidate]:
        """Yield the candidates at these rows and columns that pass the rules about texts."""
        ids = np.array([block.ids[cell] for cell in cells], np.int64)
        texts = self._stage.texts(ids)
        candidates = [
            _Candidate(row, column, texts[number], float(block.scores[row, column]))
            for (row, column), number in zip(cells, ids.tolist(), strict=True)
        ]
        if self._stage.cut:
            candidates = self._without_parts(candidates, ids, answers)
        if self._rules.judge is None:
            yield from candidates
            return
        scores = self._judge([(block.queries[candidate.row], candidate.text) for candidate in candidates])
        for candidate, score in zip(candidates, scores, strict=True):
            lowest = min(answer.score for answer in answers[candidate.row])
            if score > lowest - self._rules.judge_margin:
                self._report.drop("judge", 1)
            else:
                yield candidate._replace(score=score)

    def _without_parts(
        self, candidates: list[_Candidate], ids: Ids, answers: dict[int, list[_Answer]]
    ) -> list[_Candidate]:
        """Drop passages that are parts of a positive of their query."""
        bodies = self._stage.bodies(ids)
        remaining = [
            candidate
            for candidate, number in zip(candidates, ids.tolist(), strict=True)
            if not _is_part(join_words(bodies[number]), answers[candidate.row])
        ]
        self._report.drop("part of a positive", len(candidates) - len(remaining))
        return remaining

    def _judge(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        assert self._rules.judge is not None
        scores: list[float] = np.asarray(self._rules.judge.score_pairs(pairs), np.float32).tolist() if pairs else []
        return scores


class _Answer(NamedTuple):
    text: str
    words: str
    score: float
    document_id: str


class _Candidate(NamedTuple):
    row: int
    column: int
    text: str
    score: float


def _is_part(text: str, answers: list[_Answer]) -> bool:
    """Whether a passage is part of a positive, or a positive is part of it."""
    return any(f" {text} " in f" {answer.words} " or f" {answer.words} " in f" {text} " for answer in answers)


def _first_of_each(keys: Ids, usable: Mask) -> Mask:
    """Mark the first usable position of each key."""
    positions = np.flatnonzero(usable)
    first = np.zeros(usable.size, bool)
    first[positions[np.unique(keys.ravel()[positions], return_index=True)[1]]] = True
    return first.reshape(usable.shape)


def _lowest(scores: Floats, rows: Ids, count: int) -> Floats:
    """Return the lowest score of each row, shape (count,)."""
    lowest = np.full(count, np.inf, np.float32)
    np.minimum.at(lowest, rows, scores)
    return lowest
