"""Teachers: rankers that order passages for a query better than the encoder that is tuned."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ...core.progress import counted, ignore
from ...retriever.models.load import load_encoder, load_reranker
from ...retriever.models.model_files import find
from ...retriever.models.settings import reads_pairs
from ...retriever.search.query import Query
from ...retriever.search.ranking.fusion import standard_scores
from ..evaluation.scorers import unit_vectors
from ..mining.bm25 import BM25
from .tuning_config import HYBRID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats
    from ...core.progress import OnProgress
    from ...retriever.models.encoder import Encoder
    from ...retriever.search.ranking.fusion import Candidates
    from ...retriever.store.snapshot import Snapshot
    from ..evaluation.scorers import CrossEncoder
    from .passages import Passages


NEVER = np.float32(-1e4)  # the score of a passage that the teacher has not scored
_LEADING = 200  # best passages for mean and deviation, as in hybrid search
_BATCH_SIZE = 256  # passages between two events: a large encoder takes seconds for them
_READ = 16  # passages that a cross-encoder reads for each query


class Teacher(Protocol):
    """Gives scores; their softmax is a distribution over passages."""

    def scores(self, queries: Sequence[str]) -> Floats:
        """Return scores of shape (queries, passages)."""
        ...


class SearchTeacher:
    """The index's own hybrid search.

    A listed passage has the score of the search. Any other passage has the standard score of its cosine, as if it had
    no word of the query, and ranks below the listed ones.
    """

    def __init__(self, snapshot: Snapshot, encoder: Encoder, passages: Passages) -> None:
        self._snapshot, self._encoder, self._passages = snapshot, encoder, passages
        self._candidates: dict[str, Candidates] = {}  # by query, which comes again in later steps

    def scores(self, queries: Sequence[str]) -> Floats:
        """Search the whole index for each query; passages that are not learned from are left out."""
        vectors = self._encoder.encode(list(queries), kind="query")
        semantic = standard_rows(vectors @ self._passages.vectors.T)
        return np.stack([self._row(*parts) for parts in zip(queries, vectors, semantic, strict=True)])

    def _row(self, query: str, vector: Floats, row: Floats) -> Floats:
        if query not in self._candidates:
            self._candidates[query] = Query(self._snapshot, query, lambda: vector[None]).candidates(_LEADING)
        candidates = self._candidates[query]
        if not len(candidates.ids):
            return row
        scores = 2 * candidates.score  # it is the mean of two standard scores, and the others add them
        rows = np.searchsorted(self._passages.ids, candidates.ids)
        rows = np.minimum(rows, len(self._passages.ids) - 1)
        listed = self._passages.ids[rows] == candidates.ids
        words = np.nan_to_num(candidates.lexical)
        row = np.minimum(row + _no_words(words), scores.min())
        row[rows[listed]] = scores[listed]
        return row


def _no_words(words: Floats) -> np.float32:
    """Return the standard score of BM25 0 among the scores of the listed passages."""
    deviation = words.std()
    return np.float32(-words.mean() / deviation if deviation > 1e-6 else 0.0)


class Hybrid:
    """The standard scores of words plus the standard scores of meaning, over passages in memory."""

    def __init__(self, encoder: Encoder, passages: Sequence[str], vectors: Floats) -> None:
        self._encoder, self._vectors = encoder, vectors
        self._bm25 = BM25.of(passages)

    def scores(self, queries: Sequence[str]) -> Floats:
        """Score every passage by BM25 and by one product with all vectors."""
        lexical = np.stack([self._bm25.scores(query) for query in queries])
        semantic = self._encoder.encode(list(queries), kind="query") @ self._vectors.T
        return standard_rows(lexical) + standard_rows(semantic)


class EncoderTeacher:
    """The cosines of another encoder."""

    def __init__(self, encoder: Encoder, passages: Sequence[str], on_progress: OnProgress = ignore) -> None:
        self._encoder = encoder
        stage = f"asking the teacher for {len(passages):,} vectors"
        starts = counted(range(0, len(passages), _BATCH_SIZE), on_progress, stage)
        batches = [unit_vectors(encoder, passages[start : start + _BATCH_SIZE]) for start in starts]
        self._vectors = np.concatenate(batches)

    def scores(self, queries: Sequence[str]) -> Floats:
        """Encode the queries and multiply with all vectors; doubled, as the hybrid adds two standard scores."""
        return 2 * standard_rows(unit_vectors(self._encoder, queries, kind="query") @ self._vectors.T)


class CrossEncoderTeacher:
    """A cross-encoder's scores of another teacher's best passages; it does not score the others."""

    def __init__(self, reranker: CrossEncoder, first: Teacher, passages: Sequence[str]) -> None:
        self._reranker, self._first, self._passages = reranker, first, passages

    def scores(self, queries: Sequence[str]) -> Floats:
        """Read the 16 best passages of each query, one call a query; all others score `NEVER`."""
        scores = self._first.scores(queries)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :_READ]
        scores[:] = NEVER
        for row, (query, numbers) in enumerate(zip(queries, best, strict=True)):
            read = self._reranker.score(query, [self._passages[number] for number in numbers])
            scores[row, numbers] = 2 * standard_rows(read[None])[0]
        return scores


class Mixture:
    """The mean of the scores of several teachers, which are all standard scores.

    A passage that a cross-encoder has not read has the lowest score that the cross-encoder gave for the query.
    """

    def __init__(self, teachers: Sequence[Teacher]) -> None:
        self._teachers = teachers

    def scores(self, queries: Sequence[str]) -> Floats:
        """Score the queries by each teacher."""
        scores = [_with_unread(teacher.scores(queries)) for teacher in self._teachers]
        mean: Floats = np.mean(scores, axis=0, dtype=np.float32)
        return mean


def _with_unread(scores: Floats) -> Floats:
    """Give each passage without a score the lowest score of its row."""
    is_unread = scores <= NEVER
    lowest = np.where(is_unread, np.float32(np.inf), scores).min(1, keepdims=True)
    return np.where(is_unread, lowest, scores)


def teacher(
    names: Sequence[str],
    passages: Sequence[str],
    hybrid: Callable[[], Teacher],
    on_progress: OnProgress = ignore,
) -> Teacher:
    """Return the teacher of a name, or the mixture of several.

    :param names: "hybrid", and cross-encoders and encoders by name or folder.
    :param hybrid: makes the hybrid search of these passages; a cross-encoder reads its hits.
    """
    first = cache(hybrid)
    parts = [_teacher(name, passages, first, on_progress) for name in names]
    return parts[0] if len(parts) == 1 else Mixture(parts)


def _teacher(name: str, passages: Sequence[str], hybrid: Callable[[], Teacher], on_progress: OnProgress) -> Teacher:
    if name == HYBRID:
        return hybrid()
    if reads_pairs(find(name)):
        return CrossEncoderTeacher(load_reranker(name), hybrid(), passages)
    return EncoderTeacher(load_encoder(name), passages, on_progress)


def standard_rows(scores: Floats) -> Floats:
    """Return the standard scores of each row, relative to its best passages."""
    return np.stack([standard_scores(row, _leading(row)) for row in scores]).astype(np.float32)


def _leading(scores: Floats) -> NDArray[np.bool_]:
    """Mark the best passages."""
    is_leading = np.zeros(len(scores), np.bool_)
    is_leading[np.argpartition(-scores, min(_LEADING, len(scores)) - 1)[:_LEADING]] = True
    return is_leading
