"""Judge a tuned encoder against its base, by meaning and in hybrid search, on queries made from held-out documents.

Real queries of a log have no labels. The held-out ones tell whether the tuned encoder ranks more like the teacher.
Queries made from documents, for which the teacher ranks better, tell whether the tuning costs anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..evaluation import significance
from ..mining.bm25 import BM25
from .queries import query_generation
from .teachers import standard_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats
    from ...retriever.models.encoder import Kind
    from .passages import Passages
    from .queries.query_generation import SyntheticPair
    from .teachers import Teacher

NATURAL = ("title", "section", "claim", "link")  # kinds of queries that people wrote, though not as queries
_SUBSTITUTES = ("cloze", "definition", "dropped", "keywords")  # in this order, they replace missing natural kinds
_MODES = ("semantic", "hybrid")
_ALPHA = 0.05
_MAX_LOSS = 0.005  # nDCG@10 that one kind of queries may lose in a mode; the mean of all kinds may lose none
_DEPTH = 10  # passages of a ranking that are compared with the teacher's
_JUDGES = 12  # documents that judge, or half of all if there are fewer
_EQUAL = 1e-6  # scores closer than this are equal


@dataclass(frozen=True, slots=True)
class RankingComparison:
    """The difference between two rankings of the same queries; all kinds of queries have the same weight."""

    before: float  # nDCG@10
    after: float
    difference: significance.Difference
    kinds: dict[str, float]  # kind of query -> difference

    @property
    def loses(self) -> bool:
        """Whether the mean is lower, or a kind of query loses more than half a point."""
        return self.difference.value < 0 or min(self.kinds.values(), default=0.0) < -_MAX_LOSS

    @property
    def loses_much(self) -> bool:
        """Whether the mean or a kind of query loses more than half a point, or the mean loses significantly."""
        return self.difference.verdict == "worse" or min([self.difference.value, *self.kinds.values()]) < -_MAX_LOSS

    @property
    def carried_by(self) -> str | None:
        """The kind without which there is no gain, if any."""
        for kind in self.kinds:
            rest = [gain for name, gain in self.kinds.items() if name != kind]
            if rest and float(np.mean(rest)) <= 0:
                return kind
        return None

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison for JSON, rounded to 4 digits."""
        return {
            "before": round(self.before, 4),
            "after": round(self.after, 4),
            "difference": self.difference.as_dict(),
            "kinds": {name: round(value, 4) for name, value in self.kinds.items()},
        }


@dataclass(frozen=True, slots=True)
class LogComparison:
    """How two encoders agree with the teacher on real queries without labels, by nDCG@10 (see `agreement`)."""

    queries: int
    before: float
    after: float
    difference: significance.Difference

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison for JSON, rounded to 4 digits."""
        return {
            "queries": self.queries,
            "before": round(self.before, 4),
            "after": round(self.after, 4),
            "difference": self.difference.as_dict(),
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """The change of each mode of search by tuning."""

    queries: int
    modes: dict[str, RankingComparison]
    log: LogComparison | None = None  # by meaning, if queries of a log were held back

    @property
    def loses_much(self) -> bool:
        """Whether a mode loses more than is allowed when a log decides."""
        return any(mode.loses_much for mode in self.modes.values())

    @property
    def is_gain(self) -> bool:
        """Whether no mode and no kind of query loses, and a mode gains significantly and not by one kind alone.

        With queries of a log they must gain significantly, and no mode and no kind of query may lose much.
        """
        if self.log is not None:
            return self.log.difference.verdict == "better" and not self.loses_much
        if any(comparison.loses for comparison in self.modes.values()):
            return False
        comparisons = list(self.modes.values())
        corrected = significance.holm([comparison.difference.p for comparison in comparisons])
        gains = zip(comparisons, corrected, strict=True)
        return any(p < _ALPHA and gain.difference.value > 0 and gain.carried_by is None for gain, p in gains)

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict for JSON."""
        modes = {mode: comparison.as_dict() for mode, comparison in self.modes.items()}
        return {"queries": self.queries, "gain": self.is_gain, "modes": modes, "log": self.log and self.log.as_dict()}


def judging_share(documents: int, share: float) -> float:
    """Return the share of documents to hold out for the verdict: as configured, or more if that is too few."""
    return max(share, min(0.5, _JUDGES / max(1, documents)))


def natural(pairs: Iterable[SyntheticPair], maximum: int, seed: int) -> list[SyntheticPair]:
    """Draw about as many queries of each natural kind, so that none decides alone.

    If there are fewer than two natural kinds, the best other kinds replace them.
    """
    kinds: dict[str, list[SyntheticPair]] = {}
    for pair in pairs:
        kinds.setdefault(pair.kind, []).append(pair)
    names = [name for name in NATURAL if name in kinds]
    names += [name for name in _SUBSTITUTES if name in kinds][: max(0, 2 - len(names))]
    each = -(-maximum // max(1, len(names)))
    return [pair for name in names for pair in query_generation.sample(kinds[name], each, seed)]


class Encodes(Protocol):
    """An encoder, or a model in training."""

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Floats:
        """Return one vector a text."""
        ...


@dataclass(frozen=True, slots=True)
class LogJudges:
    """Queries of a log, and the teacher's ranking of some passages for them."""

    queries: list[str]
    vectors: Floats  # of the passages, by the base
    teacher: Floats  # scores, shape (queries, passages)
    seed: int

    def agreement(self, encoder: Encodes, vectors: Floats | None = None) -> Floats:
        """Return the agreement of an encoder with the teacher on each query, by nDCG@10.

        :param vectors: the encoder's vectors of the passages; those of the base by default.
        """
        vectors = self.vectors if vectors is None else vectors
        return agreement(encoder.encode(self.queries, kind="query") @ vectors.T, self.teacher)

    def compare(self, before: Floats, after: Floats) -> LogComparison:
        """Compare the agreement of two encoders."""
        difference = significance.difference(after, before, seed=self.seed)
        return LogComparison(len(before), float(before.mean()), float(after.mean()), difference)


class Judges:
    """A collection for queries from held-out documents: the passage of each query, and passages of other documents.

    The text of a query is taken out of its passage, since its words would find it.

    :param pairs: queries with their own passages.
    :param rivals: passages of documents that no query is from.
    """

    def __init__(self, pairs: Sequence[SyntheticPair], rivals: Passages) -> None:
        self.pairs = pairs
        self.queries = [pair.query for pair in pairs]
        self.texts = [*rivals.texts, *(pair.positive for pair in pairs)]
        own = np.unique([pair.document for pair in pairs], return_inverse=True)[1]
        self._own = own + int(rivals.documents.max(initial=-1)) + 1  # document of each query
        self._documents = np.concatenate([rivals.documents, self._own])
        self.rivals = rivals

    def vectors(self, encoder: Encodes) -> Floats:
        """Return an encoder's vectors of the passages."""
        return encoder.encode(self.texts)

    def stored_vectors(self, encoder: Encodes) -> Floats:
        """Return the index encoder's vectors of the passages; those of the rivals are read from the index."""
        return np.concatenate([self.rivals.vectors, encoder.encode([pair.positive for pair in self.pairs])])

    def by_mode(self, encoder: Encodes, vectors: Floats) -> dict[str, Floats]:
        """Return nDCG@10 of each query by meaning, and by words and meaning."""
        semantic = encoder.encode(self.queries, kind="query") @ vectors.T
        return {
            "semantic": self.ndcg(semantic),
            "hybrid": self.ndcg(standard_rows(semantic) + self._lexical),
        }

    def by_teacher(self, teacher: Teacher) -> Floats:
        """Return nDCG@10 of each query in a teacher's ranking of these passages."""
        return self.ndcg(teacher.scores(self.queries))

    @cached_property
    def _lexical(self) -> Floats:
        bm25 = BM25.of(self.texts)
        return standard_rows(np.stack([bm25.scores(query) for query in self.queries]))

    @cached_property
    def _numbers(self) -> NDArray[np.int64]:
        """A number for each text, the same for equal ones."""
        return np.asarray(np.unique([text.strip() for text in self.texts], return_inverse=True)[1], np.int64)

    def ndcg(self, scores: Floats) -> Floats:
        """Return nDCG@10 of each query over documents, each ranked by its best passage; only its own is relevant.

        A document with the same score ranks first, so that an encoder gains nothing by giving all passages one vector.
        An equal passage of another document does not compete.

        :param scores: of the passages, shape (queries, passages).
        """
        columns = np.arange(len(self.pairs)) + len(self.rivals.texts)
        own = scores[np.arange(len(scores)), columns][:, None] - _EQUAL
        above = (scores >= own) & (self._documents != self._own[:, None])
        above &= self._numbers != self._numbers[columns][:, None]
        ranks = np.array([1 + len(np.unique(self._documents[row])) for row in above])
        return np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0).astype(np.float32)

    def compare(self, before: Floats, after: Floats, seed: int) -> RankingComparison:
        """Compare nDCG@10 of the queries in two rankings.

        Queries of one document gain and lose together, so the significance test takes one value per document.
        """
        return compare(self.pairs, before, after, seed)

    def judge(self, before: Mapping[str, Floats], after: Mapping[str, Floats], seed: int) -> Verdict:
        """Compare both modes of search."""
        return Verdict(len(self.pairs), {mode: self.compare(before[mode], after[mode], seed) for mode in _MODES})


def compare(pairs: Sequence[SyntheticPair], before: Floats, after: Floats, seed: int) -> RankingComparison:
    """Compare the values of the queries, by document and with the same weight for each kind."""
    kinds = np.array([pair.kind for pair in pairs])
    weights = np.empty(len(pairs))  # mean 1, with the same sum for each kind
    for kind in set(kinds.tolist()):
        weights[kinds == kind] = len(pairs) / len(set(kinds.tolist())) / (kinds == kind).sum()
    documents = np.unique([pair.document for pair in pairs], return_inverse=True)[1]

    def document_values(values: Floats) -> NDArray[np.float64]:
        """Return a value for each document; their mean is the mean of all queries."""
        totals = np.bincount(documents, weights * values)
        return totals * len(totals) / len(pairs)

    gains = after - before
    return RankingComparison(
        float((weights * before).mean()),
        float((weights * after).mean()),
        significance.difference(document_values(after), document_values(before), seed=seed),
        {kind: float(gains[kinds == kind].mean()) for kind in sorted(set(kinds.tolist()))},
    )


def agreement(student: Floats, teacher: Floats) -> Floats:
    """Return nDCG@10 of each query, where the teacher's best passage has the relevance 10 and its tenth has 1.

    :param student: scores of the passages, shape (queries, passages), as `teacher`.
    """
    depth = min(_DEPTH, teacher.shape[1])
    relevance = np.arange(_DEPTH, _DEPTH - depth, -1, dtype=np.float32)
    gains = np.zeros(teacher.shape, np.float32)
    np.put_along_axis(gains, _best(teacher, depth), relevance[None], axis=1)
    discounts = 1 / np.log2(np.arange(2, depth + 2))
    values = np.take_along_axis(gains, _best(student, depth), axis=1) @ discounts / (relevance @ discounts)
    return np.asarray(values, np.float32)


def _best(scores: Floats, depth: int) -> NDArray[np.int64]:
    """Return the columns of the best scores of each row, best first; the first among equals."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :depth]
