"""What ranks passages for a query better than the encoder that is to learn it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from ...core.progress import counted, ignore
from ...retriever.models.files import find
from ...retriever.models.load import load_encoder, load_reranker
from ..evaluation.scorers import reads_pairs, unit_vectors
from .bm25 import BM25

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.arrays import Floats
    from ...core.progress import OnProgress
    from ...retriever.models import encoder as encoders
    from ..evaluation.scorers import CrossEncoder


HYBRID = "hybrid"
NEVER = np.float32(-1e4)  # the score of a passage that the teacher has no opinion of
_DEPTH = 200  # best passages that mean and deviation are taken over, as hybrid search does
_AT_ONCE = 2_048  # passages
_READ = 16  # passages of the hybrid's that a cross-encoder reads for each query


class Teacher(Protocol):
    """Gives scores that a softmax makes a distribution of."""

    def scores(self, queries: Sequence[str]) -> Floats:
        """Shape (queries, passages)."""
        ...


class Hybrid:
    """The words' standard scores plus the meaning's, as the index's own hybrid search adds them."""

    def __init__(self, encoder: encoders.Encoder, passages: Sequence[str], vectors: Floats) -> None:
        self._encoder, self._vectors = encoder, vectors
        self._words = BM25(passages)

    def scores(self, queries: Sequence[str]) -> Floats:
        words = np.stack([self._words.scores(query) for query in queries])
        return standard_scores(words) + standard_scores(
            self._encoder.encode(list(queries), kind="query") @ self._vectors.T
        )


class EncoderTeacher:
    """Another encoder's cosines."""

    def __init__(self, encoder: encoders.Encoder, passages: Sequence[str], on_progress: OnProgress = ignore) -> None:
        self._encoder = encoder
        stage = f"asking the teacher for {len(passages):,} vectors"
        starts = counted(range(0, len(passages), _AT_ONCE), on_progress, stage)
        self._vectors = np.concatenate([unit_vectors(encoder, passages[at : at + _AT_ONCE]) for at in starts])

    def scores(self, queries: Sequence[str]) -> Floats:
        return 2 * standard_scores(unit_vectors(self._encoder, queries, kind="query") @ self._vectors.T)


class CrossEncoderTeacher:
    """A cross-encoder's scores of the passages that another teacher has highest; of the others it has no opinion."""

    def __init__(self, reranker: CrossEncoder, first: Teacher, passages: Sequence[str]) -> None:
        self._reranker, self._first, self._passages = reranker, first, passages

    def scores(self, queries: Sequence[str]) -> Floats:
        found = self._first.scores(queries)
        best = np.argsort(-found, axis=1, kind="stable")[:, :_READ]
        found[:] = NEVER
        for row, (query, places) in enumerate(zip(queries, best, strict=True)):
            read = self._reranker.score(query, [self._passages[place] for place in places])
            found[row, places] = 2 * standard_scores(read[None])[0]
        return found


def teacher(
    name: str,
    encoder: encoders.Encoder,
    passages: Sequence[str],
    vectors: Floats,
    on_progress: OnProgress = ignore,
) -> Teacher:
    """
    :param name: "hybrid", or a cross-encoder or an encoder by name or folder.
    :param encoder: that of the index, and `vectors` what it gives the passages.
    """
    if name != HYBRID and not reads_pairs(find(name)):
        return EncoderTeacher(load_encoder(name), passages, on_progress)
    hybrid = Hybrid(encoder, passages, vectors)
    return hybrid if name == HYBRID else CrossEncoderTeacher(load_reranker(name), hybrid, passages)


def standard_scores(scores: Floats) -> Floats:
    """Standard deviations of each row's best scores that a score lies above their mean."""
    best = -np.partition(-scores, min(_DEPTH, scores.shape[1]) - 1, axis=1)[:, :_DEPTH]
    deviations = np.maximum(best.std(1, keepdims=True), 1e-6)
    found: Floats = ((scores - best.mean(1, keepdims=True)) / deviations).astype(np.float32)
    return found
