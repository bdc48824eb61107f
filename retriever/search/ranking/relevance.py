"""The relevance of a hit: how likely the index answers the query, judged by this passage. From 0 to 1.

It is comparable between queries of one index. It is calibrated as if the index answered half of all
queries. Then it answers half of the queries with a best relevance of 0.5.

    relevance = 1 / (1 + exp(-(a + b cosine + c share + d mean + e log10(1000 / passages))))

The best of many passages is near to any query by chance, and the best of few is not. So the same values say more if
fewer than 1,000 passages were searched. A filter leaves fewer passages than the index has.

The share counts the query's words in the passage, each weighed by its inverse document frequency. The mean is that of
the ten highest cosines: a passage that is near by chance is often alone. The weights are constants, fitted for
all-MiniLM-L6-v2 on five collections; most questions of one have no answer in the others. Cosines of another encoder
are first put on its scale: see `relevance_calibration`. A passage with all words of the query, or with an
exact part of it, counts as an answer. docs/relevance.md has the figures, also of ideas that failed.

The vector of a passage with many subjects is far from a question about one of them. So the best sentences of the first
three passages are compared too. This is done if the best of fewer than 1,000 passages is nearly relevant.

Relevance never rises with the rank, although the stages order passages by more than this. So each of the first ten
hits gets at least the relevance of every later one. Every further hit gets the lowest one so far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....core.checks import is_real
from ....core.errors import DamagedError, InputError
from ...store.derived.relevance_scale import LINE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ....core.arrays import Floats, Ids
    from ....indexes.inverted.lexical_index import LexicalIndex
    from ...store.derived.relevance_scale import RelevanceScale
    from ...store.snapshot import Snapshot
    from ..mode import Mode

DEPTH = 10  # hits among which the best decides

_BOTH = (-12.5, 21.0, 4.9, 5.4)  # the constant, and the weights of the cosine, the share of words and the mean
_FEW_CANDIDATES = (-12.3, 24.0, 5.2, 0.0)  # of fewer than ten passages
_MEANING = (-13.0, 30.0, 0.0, 0.0)  # without an inverted index
_WORDS = (-4.6, 0.0, 9.9, 0.0)  # without vectors
ALL_WORDS, _LITERAL = 0.6, 0.9  # of a passage with all words of the query; with an exact part of it
_FEWER = 2.0  # for each tenth of the passages, from 1,000 down to 10
_PASSAGES = (10, 1_000)
FIRST = 3  # passages with sentences to compare
HIGHER = 0.3  # cosine of a sentence above that of its passage, at most: no more is expected, so none is compared
_SENTENCE = 0.1  # a sentence is nearer to a query than its passage, also by chance
_SENTENCES = 24  # of the first three passages, at most
NEARLY_ALL = 1 - 1e-6  # a greater share is that of all words
_MAX_WORDS = 64  # different words of a query that are looked up


def relevance(
    cosines: Floats,
    shares: Floats,
    literal: NDArray[np.bool_],
    scale: RelevanceScale,
    nearest: Floats,
    passages: int,
    sentences: Floats | None = None,
) -> NDArray[np.float64]:
    """The relevance of passages in order of their rank, shape (n,), never rising.

    :param cosines: NaN without vectors.
    :param shares: of the words of the query in each passage; NaN without an inverted index or words to look for.
    :param literal: whether each passage holds an exact part of the query.
    :param nearest: the ten highest cosines of all candidates, or fewer.
    :param passages: the number of searched passages.
    :param sentences: the cosine of the best sentence of each of the first passages.
    """
    scaled = scale.as_default(cosines)
    if sentences is not None:
        scaled[: len(sentences)] = np.fmax(scaled[: len(sentences)], scale.as_default(sentences) - _SENTENCE)
    mean = float(scale.as_default(nearest).mean()) if len(nearest) == DEPTH else np.nan
    by_words, by_meaning, by_both = (
        np.array(weights)[:, None] for weights in (_WORDS, _MEANING, _FEW_CANDIDATES if np.isnan(mean) else _BOTH)
    )
    weights = np.where(np.isnan(cosines), by_words, np.where(np.isnan(shares), by_meaning, by_both))
    values = np.stack([np.ones(len(scaled)), scaled, shares, np.full(len(scaled), mean)])
    lowest, highest_count = _PASSAGES
    fewer = _FEWER * np.log10(highest_count / np.clip(passages, lowest, highest_count))
    evidence = (weights * np.nan_to_num(values)).sum(0) + np.where(np.isnan(cosines), 0.0, fewer)
    raw = 1 / (1 + np.exp(-evidence))
    raw = np.where(shares > NEARLY_ALL, np.maximum(raw, ALL_WORDS), raw)
    return _falling(np.where(literal, np.maximum(raw, _LITERAL), raw))


def is_small(passages: int) -> bool:
    """Whether so few passages were searched that sentences decide too. Larger indexes measure their own errors."""
    return passages < _PASSAGES[1]


def first_sentences(texts: Sequence[str]) -> list[list[str]]:
    """Return the sentences of the first passages. A passage of one sentence gives none: its own vector serves."""
    from ..results.snippet import sentences

    room = _SENTENCES
    chosen: list[list[str]] = []
    for passage in map(sentences, texts):
        chosen.append(passage[:room] if len(passage) > 1 else [])
        room -= len(chosen[-1])
    return chosen


def highest(cosines: Floats) -> Floats:
    """The ten highest cosines, or fewer; NaN is none."""
    nearest: Floats = np.sort(cosines[~np.isnan(cosines)])[-DEPTH:]
    return nearest


def _falling(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Make values fall: raise the first `DEPTH` values to later maxima, and lower the rest to earlier minima."""
    first = np.maximum.accumulate(values[:DEPTH][::-1])[::-1]
    return np.minimum.accumulate(np.concatenate([first, values[DEPTH:]]))


def check_relevance(minimum: float | None) -> None:
    """Check the least relevance of a hit."""
    if minimum is not None and not (is_real(minimum) and 0 <= minimum <= 1):
        raise InputError(f"min_relevance is the least relevance of a hit, from 0 to 1, not {minimum!r}")


def line(snapshot: Snapshot, mode: Mode) -> float:
    """The relevance below which a hit is weak; 0 if it cannot be judged, or was often judged wrongly."""
    is_promised = mode != "lexical" and snapshot.lexical is not None and snapshot.scale.is_reliable
    if not is_promised:
        return 0.0
    return LINE if snapshot.scale.line is None else snapshot.scale.line


def shares(lexical: LexicalIndex | None, stems: Sequence[str], ids: Ids) -> Floats:
    """The share of a query's stems in each passage, by inverse document frequency, shape (len(ids),).

    It is NaN without an inverted index, or without stems.
    """
    terms = list(dict.fromkeys(stems))[:_MAX_WORDS]
    unknown = np.full(len(ids), np.nan, np.float32)
    if lexical is None or not terms:
        return unknown
    order = np.argsort(ids)
    try:
        table, idf = lexical.frequency_table(terms, ids[order])
    except DamagedError:  # the inverted index is a cache
        return unknown
    weights = np.array(idf)
    coverage = np.empty(len(ids), np.float32)
    coverage[order] = weights @ (table > 0) / weights.sum()
    return coverage
