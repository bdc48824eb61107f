"""Teachers: rankers that order passages for a query better than the encoder that is tuned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from ...core.progress import counted, ignore
from ...retriever.models.files import find
from ...retriever.models.load import load_encoder, load_reranker
from ...retriever.search.fusion import standard_scores
from ..evaluation.scorers import reads_pairs, unit_vectors
from .bm25 import BM25
from .tuning_config import HYBRID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats
    from ...core.progress import OnProgress
    from ...retriever.models.encoder import Encoder
    from ..evaluation.scorers import CrossEncoder


NEVER = np.float32(-1e4)  # the score of a passage that the teacher has not scored
_LEADING = 200  # best passages for mean and deviation, as in hybrid search
_BATCH_SIZE = 2_048  # passages
_READ = 16  # passages that a cross-encoder reads for each query


class Teacher(Protocol):
    """Gives scores; their softmax is a distribution over passages."""

    def scores(self, queries: Sequence[str]) -> Floats:
        """Return scores of shape (queries, passages)."""
        ...


class Hybrid:
    """The standard scores of words plus the standard scores of meaning, as the index's own hybrid search adds them."""

    def __init__(self, encoder: Encoder, passages: Sequence[str], vectors: Floats) -> None:
        self._encoder, self._vectors = encoder, vectors
        self._bm25 = BM25(passages)

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


def teacher(
    name: str, encoder: Encoder, passages: Sequence[str], vectors: Floats, on_progress: OnProgress = ignore
) -> Teacher:
    """Return the teacher of a name.

    :param name: "hybrid", or a cross-encoder or an encoder by name or folder.
    :param encoder: of the index.
    :param vectors: of the passages by that encoder.
    """
    if name != HYBRID and not reads_pairs(find(name)):
        return EncoderTeacher(load_encoder(name), passages, on_progress)
    hybrid = Hybrid(encoder, passages, vectors)
    return hybrid if name == HYBRID else CrossEncoderTeacher(load_reranker(name), hybrid, passages)


def standard_rows(scores: Floats) -> Floats:
    """Return the standard scores of each row, relative to its best passages."""
    return np.stack([standard_scores(row, _leading(row)) for row in scores]).astype(np.float32)


def _leading(scores: Floats) -> NDArray[np.bool_]:
    """Mark the best passages."""
    is_leading = np.zeros(len(scores), np.bool_)
    is_leading[np.argpartition(-scores, min(_LEADING, len(scores)) - 1)[:_LEADING]] = True
    return is_leading
