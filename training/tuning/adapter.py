"""Fit an adapter: a linear map of the query vectors, learned on vectors alone while the encoder stays as it is.

Each query has its own passage, and the best passages of other documents by hybrid search. The loss is the mean of two
cross-entropies of the own passage: of the cosines, and of the fused score of hybrid search, where the words' part is
constant. So the map learns only what adds to the words. It begins as the identity, and a penalty holds it there.
At the end it moves back towards the identity (Wortsman et al. 2021, arXiv:2109.01903), by the share that ranks the
queries of some held-back documents best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.progress import counted
from ...retriever.models.encoders.adapted_encoder import mapped
from .bm25 import BM25
from .teachers import leading_moments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats
    from ...core.progress import OnProgress
    from ...retriever.models.encoder import Encoder
    from .passages import Passages
    from .query_generation import SyntheticPair

_CANDIDATES = 100  # of each query
_SCALES = (30.0, 1.5)  # of cosines and of fused scores, for their softmax
_STEPS, _BATCH, _RATE, _PENALTY = 200, 400, 5e-4, 1e-3
_DEVELOPMENT = 0.2  # share of the documents that choose the share of the map
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
_BLOCK = 256  # queries that are scored together


@dataclass(frozen=True, slots=True)
class Candidates:
    """Queries with vectors of their candidates: the own passage first, and the best of other documents.

    The fused score of a candidate is `slope * cosine + rest`.
    """

    queries: Floats  # (n, dim)
    own: Floats  # (n, dim), of the own passages without the query's words
    rivals: NDArray[np.int64]  # (n, candidates), rows of `passages`
    passages: Floats  # (passages, dim)
    slope: Floats  # (n, 1), 1 / standard deviation of the leading cosines
    rest: Floats  # (n, 1 + candidates), standard score of the words, less that of a cosine of 0
    documents: NDArray[np.int64]  # (n,)

    def vectors(self, rows: NDArray[np.int64]) -> Floats:
        """Return the vectors of the candidates of some queries, shape (rows, 1 + candidates, dim)."""
        return np.concatenate([self.own[rows, None], self.passages[self.rivals[rows]]], axis=1)

    def fused(self, rows: NDArray[np.int64], cosines: Floats) -> Floats:
        """Return fused scores, shape (rows, 1 + candidates)."""
        return self.slope[rows] * cosines + self.rest[rows]


def candidates(base: Encoder, pairs: Sequence[SyntheticPair], passages: Passages, progress: OnProgress) -> Candidates:
    """Encode the queries and their own passages, and find the best passages of other documents for each."""
    own = base.encode([pair.positive for pair in pairs])
    queries = base.encode([pair.query for pair in pairs], kind="query")
    count = min(_CANDIDATES, len(passages.texts) - 1)
    rivals = np.empty((len(pairs), count), np.int64)
    slope, rest = np.empty((len(pairs), 1), np.float32), np.empty((len(pairs), 1 + count), np.float32)
    bm25 = BM25([*passages.texts, *(pair.positive for pair in pairs)])
    documents = np.array([passages.numbers[pair.document] for pair in pairs])
    size = len(passages.texts)
    for row in counted(range(len(pairs)), progress, "finding passages for each query"):
        cosines, words = passages.vectors @ queries[row], bm25.scores(pairs[row].query)
        mean, deviation = leading_moments(cosines)
        words_mean, words_deviation = leading_moments(words[:size])
        words = (words - words_mean) / words_deviation
        scores = np.where(passages.documents == documents[row], -np.inf, cosines / deviation + words[:size])
        rivals[row] = np.argpartition(-scores, count - 1)[:count]
        slope[row] = 1 / deviation
        rest[row] = np.append(words[size + row], words[rivals[row]]) - mean / deviation
    return Candidates(queries, own, rivals, passages.vectors, slope, rest, documents)


def fit_adapter(data: Candidates, seed: int) -> tuple[Floats, float]:
    """Return the map, shape (dim, dim), and its share; the rest of it is the identity."""
    generator = np.random.default_rng(seed)
    documents = np.unique(data.documents)
    held_back = generator.permutation(documents)[: round(_DEVELOPMENT * len(documents))]
    is_held_back = np.isin(data.documents, held_back)
    learned = _learn(data, np.flatnonzero(~is_held_back), generator)
    identity = np.eye(len(learned), dtype=np.float32)
    maps = [(1 - share) * identity + share * learned for share in _SHARES]
    gains = [_reciprocal_rank(data, np.flatnonzero(is_held_back), matrix) for matrix in maps]
    best = int(np.argmax(gains))  # the first of equal ones is the nearest to the base
    return np.ascontiguousarray(maps[best], np.float32), _SHARES[best]


def _learn(data: Candidates, rows: NDArray[np.int64], generator: np.random.Generator) -> Floats:
    """Minimise the loss by Adam (Kingma and Ba 2015), with a rate that falls to 0."""
    identity = np.eye(data.queries.shape[1], dtype=np.float32)
    matrix: Floats = identity
    mean: Any = np.zeros_like(identity)
    square: Any = np.zeros_like(identity)
    for step in range(_STEPS):
        batch = generator.permutation(rows)[:_BATCH]
        gradient = _gradient(data, batch, matrix) + _PENALTY * (matrix - identity)
        mean = np.float32(0.9) * mean + np.float32(0.1) * gradient
        square = np.float32(0.999) * square + np.float32(0.001) * gradient**2
        direction = mean / (1 - 0.9 ** (step + 1)) / (np.sqrt(square / (1 - 0.999 ** (step + 1))) + 1e-8)
        matrix = matrix - np.float32(_RATE * (1 - step / _STEPS)) * direction
    return matrix


def _gradient(data: Candidates, rows: NDArray[np.int64], matrix: Floats) -> Floats:
    """Return the gradient of the loss by the matrix, mean over queries."""
    queries = data.queries[rows]
    images = queries @ matrix
    lengths = np.linalg.norm(images, axis=1, keepdims=True)
    images = images / lengths
    vectors = data.vectors(rows)
    cosines = np.matmul(vectors, images[:, :, None])[:, :, 0]
    by_cosine = _SCALES[0] * _errors(_SCALES[0] * cosines)
    by_cosine += _SCALES[1] * data.slope[rows] * _errors(_SCALES[1] * data.fused(rows, cosines))
    by_image = np.matmul(by_cosine[:, None], vectors)[:, 0] / (2 * len(rows))
    by_image = (by_image - (by_image * images).sum(1, keepdims=True) * images) / lengths
    gradient: Floats = queries.T @ by_image
    return gradient


def _errors(scores: Floats) -> Floats:
    """Return softmax(scores) less 1 for the first candidate: the gradient of its cross-entropy."""
    shares = np.exp(scores - scores.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    shares[:, 0] -= 1
    errors: Floats = shares
    return errors


def _reciprocal_rank(data: Candidates, rows: NDArray[np.int64], matrix: Floats) -> float:
    """Return the mean reciprocal rank of the own passages, by cosine and by fused score."""
    values = [np.zeros(0)]
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        cosines = np.matmul(data.vectors(block), mapped(data.queries[block], matrix)[:, :, None])[:, :, 0]
        ranks = [1 + (scores[:, 1:] > scores[:, :1]).sum(1) for scores in (cosines, data.fused(block, cosines))]
        values += [1 / rank for rank in ranks]
    return float(np.concatenate(values).mean()) if len(rows) else 0.0
