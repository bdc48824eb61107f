"""Which candidates are negatives: the rules, and their choice for a block of queries."""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ...core.checks import is_whole
from ...core.errors import InputError
from .text_db import text_key, words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...core.arrays import Floats, Ids, Mask
    from ...indexes.flat import FlatIndex
    from ...retriever.models.encoder import Encoder
    from ...retriever.search.query import Mode
    from .candidates import FirstStage
    from .text_db import TextDatabase


STRATEGIES = ("top", "random")

_GROUP = 256  # queries whose texts are in memory together
_SPREAD = np.int64(-7046029254386353131)  # odd, near 2^64 / golden ratio: makes one key of a row's number and a key


class Judge(Protocol):
    """A cross-encoder."""

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """How well the second text of each pair answers the first: float32, higher is better."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MiningConfig:
    """What makes a candidate a negative. Scores are cosines, for encoders whose vectors have length 1.

    Where a query has several positives, the lowest of their scores counts.
    """

    negatives: int = 5  # for each query
    depth: int = 100  # candidates looked at, positives among them
    skip_top: int = 0  # best candidates that are passed over, positives not counted
    margin: float | None = None  # a negative scores lower than the positive by at least this
    relative_margin: float | None = None  # … by at least this share of the positive's score
    max_score: float | None = None  # a negative scores at most this
    min_score: float | None = None  # … at least this
    judge: Judge | None = None
    judge_margin: float = 0.0  # the judge scores a negative lower than the positive by at least this
    strategy: str = "top"  # the best of what remains, or "random" ones
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("negatives", 1), ("depth", 1), ("skip_top", 0), ("seed", 0)):
            _check_whole(name, getattr(self, name), least)
        for name in ("margin", "relative_margin", "max_score", "min_score"):
            if getattr(self, name) is not None:
                _check_number(name, getattr(self, name), at_least_0="margin" in name)
        _check_number("judge_margin", self.judge_margin, at_least_0=True)
        if self.relative_margin is not None and self.relative_margin >= 1:
            raise InputError(f"relative_margin is a share, from 0 to below 1, not {self.relative_margin}")
        if self.min_score is not None and self.max_score is not None and self.min_score > self.max_score:
            raise InputError(f"no score is at least min_score {self.min_score} and at most max_score {self.max_score}")
        if self.negatives + self.skip_top > self.depth:
            raise InputError(
                f"{self.negatives} negatives after {self.skip_top} skipped cannot come from {self.depth} candidates: "
                "raise depth"
            )
        if self.strategy not in STRATEGIES:
            raise InputError(f"there is no strategy {self.strategy!r}: expected one of {', '.join(STRATEGIES)}")
        if self.judge is not None and not callable(getattr(self.judge, "score_pairs", None)):
            raise InputError(f"{self.judge!r} is no judge: expected an object with score_pairs, such as a Reranker")


def _check_whole(name: str, value: Any, least: int) -> None:
    if not is_whole(value, least):
        raise InputError(f"{name} is a whole number of at least {least}, not {value!r}")


def _check_number(name: str, value: Any, *, at_least_0: bool) -> None:
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and np.isfinite(value)
    if not number or (at_least_0 and value < 0):
        raise InputError(f"{name} is a number{' of at least 0' if at_least_0 else ''}, not {value!r}")


@dataclass(slots=True)
class MiningReport:
    """What was mined from how much, and what was dropped why."""

    model: str = ""
    mode: Mode = "semantic"
    searched_by: str = "the CPU"
    pairs: int = 0  # different ones
    queries: int = 0  # different ones
    documents: int = 0  # texts, or passages of an index, that negatives were taken from
    rows: int = 0  # written
    negatives: int = 0  # chosen, over all queries
    short: int = 0  # queries that have fewer than asked for
    none: int = 0  # … of which without any
    candidates: int = 0  # looked at, over all queries
    dropped: dict[str, int] = field(default_factory=dict)  # of those, by the first rule that did
    seconds: dict[str, float] = field(default_factory=dict)  # by what was done

    def as_dict(self) -> dict[str, Any]:
        seconds = {name: round(value, 3) for name, value in self.seconds.items()}
        return asdict(self) | {"seconds": seconds}

    def drop(self, why: str, count: int) -> None:
        if count:
            self.dropped[why] = self.dropped.get(why, 0) + count

    @contextlib.contextmanager
    def timed(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[what] = self.seconds.get(what, 0.0) + time.monotonic() - began


class Mined(NamedTuple):
    """A pair and the negatives of its query, best first."""

    query: str
    positive: str
    negatives: list[str]
    scores: list[float]  # of the positive, then of each negative: the judge's if there is one, else the encoder's
    document_id: str = ""  # the name of the positive's document, where documents have names


@dataclass(frozen=True, slots=True)
class _Block:
    """Queries, who answers them, and their candidates."""

    first: int  # number of the first query
    queries: list[str]
    rows: Ids  # of the pairs: which query, counted from the first; ascending
    answers: Ids  # … which document
    answer_scores: Floats
    ids: Ids  # of candidates, best first: (queries, depth)
    scores: Floats


class Miner:
    """Chooses negatives for the queries of a collection.

    :param keys: the collection's.
    :param index: the vectors of its documents.
    :param stage: what finds candidates, among them or elsewhere.
    """

    def __init__(
        self,
        collection: TextDatabase,
        keys: tuple[Ids, Ids],
        index: FlatIndex,
        stage: FirstStage,
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

    def mined(self, first: int, end: int) -> Iterator[list[Mined]]:
        """Every pair of these queries that has a negative, a group of queries at a time."""
        block = self._block(first, end)
        usable = self._usable(block)
        for start in range(0, end - first, _GROUP):
            with self._report.timed("choosing"):
                group = self._chosen(block, usable, range(start, min(start + _GROUP, end - first)))
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
        """Which candidates pass the rules that need no text."""
        with self._report.timed("choosing"):
            usable = block.ids >= 0
            self._report.candidates += int(usable.sum())
            for why, dropped in self._drops(block, usable):
                self._report.drop(why, int((usable & dropped).sum()))
                usable &= ~dropped
        return usable

    def _drops(self, block: _Block, usable: Mask) -> Iterator[tuple[str, Mask]]:
        """For each rule in turn what it drops; `usable` is what those before it left."""
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

    def _chosen(self, block: _Block, usable: Mask, rows: range) -> list[Mined]:
        """The pairs of these rows of a block with their negatives, tried in turn until there are enough."""
        answers = self._answers(block, rows)
        turns = {row: iter(self._in_turn(block.first + row, usable[row])) for row in rows}
        chosen: dict[int, list[_Candidate]] = {row: [] for row in rows}
        while some := [
            (row, column) for row in rows for column in islice(turns[row], self._rules.negatives - len(chosen[row]))
        ]:
            for candidate in self._passing(block, answers, some):
                chosen[candidate.row].append(candidate)
        for found in chosen.values():
            found.sort(key=lambda candidate: candidate.column)
            self._report.negatives += len(found)
            self._report.short += len(found) < self._rules.negatives
            self._report.none += not found
        return [
            Mined(
                block.queries[row],
                answer.text,
                [candidate.text for candidate in chosen[row]],
                [answer.score, *(candidate.score for candidate in chosen[row])],
                answer.document_id,
            )
            for row in rows
            for answer in answers[row]
            if chosen[row]
        ]

    def _in_turn(self, number: int, usable: Mask) -> list[int]:
        """Columns in the order in which they are tried; the first random ones that pass are a random choice."""
        columns = np.flatnonzero(usable)
        if self._rules.strategy == "random":
            columns = np.random.default_rng((self._rules.seed, number)).permutation(columns)
        return columns.tolist()

    def _answers(self, block: _Block, rows: range) -> dict[int, list[_Answer]]:
        """The positives of these rows of a block."""
        here = slice(*np.searchsorted(block.rows, (rows.start, rows.stop)))
        owners, scores = block.rows[here].tolist(), block.answer_scores[here].tolist()
        known = self._collection.named(block.answers[here])
        answers = [known[number] for number in block.answers[here].tolist()]
        if self._rules.judge:
            scores = self._judged([(block.queries[row], text) for row, (_, text) in zip(owners, answers, strict=True)])
        told = self._collection.has_names  # a row has no name of which others, whose text no corpus holds, have none
        found: dict[int, list[_Answer]] = {row: [] for row in rows}
        for row, (name, text), score in zip(owners, answers, scores, strict=True):
            found[row].append(_Answer(text, words(text) if self._stage.cut else "", score, name if told else ""))
        return found

    def _passing(
        self, block: _Block, answers: dict[int, list[_Answer]], places: list[tuple[int, int]]
    ) -> Iterator[_Candidate]:
        """Of the candidates at these rows and columns those that pass the rules that need their texts."""
        ids = [int(block.ids[place]) for place in places]
        texts = self._stage.texts(np.array(ids, np.int64))
        tried = [
            _Candidate(row, column, texts[number], float(block.scores[row, column]))
            for (row, column), number in zip(places, ids, strict=True)
        ]
        if self._stage.cut:
            bodies = self._stage.bodies(np.array(ids, np.int64))
            whole = [
                one
                for one, number in zip(tried, ids, strict=True)
                if not _is_part(words(bodies[number]), answers[one.row])
            ]
            self._report.drop("part of a positive", len(tried) - len(whole))
            tried = whole
        if self._rules.judge is None:
            yield from tried
            return
        scores = self._judged([(block.queries[one.row], one.text) for one in tried])
        for one, score in zip(tried, scores, strict=True):
            lowest = min(answer.score for answer in answers[one.row])
            if score > lowest - self._rules.judge_margin:
                self._report.drop("judge", 1)
            else:
                yield one._replace(score=score)

    def _judged(self, pairs: list[tuple[str, str]]) -> list[float]:
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
    """Whether a passage is cut from a positive, or the other way round."""
    return any(f" {text} " in f" {answer.words} " or f" {answer.words} " in f" {text} " for answer in answers)


def _first_of_each(keys: Ids, usable: Mask) -> Mask:
    """Where a usable key stands for the first time."""
    places = np.flatnonzero(usable)
    first = np.zeros(usable.size, bool)
    first[places[np.unique(keys.ravel()[places], return_index=True)[1]]] = True
    return first.reshape(usable.shape)


def _lowest(scores: Floats, rows: Ids, count: int) -> Floats:
    """The lowest score of each row, shape (count,)."""
    lowest = np.full(count, np.inf, np.float32)
    np.minimum.at(lowest, rows, scores)
    return lowest
