"""Measure how often the relevance of an index is wrong, without labels.

Everyday questions stand for questions without an answer, except on subjects that the index seems to treat. Sentences
of passages stand for questions with an answer: the longest sentence of each passage in a sample. These are 200 short
texts to encode. An index of 1,000 passages or more is measured, and again when it is twice or half as large, or has
another encoder.

The default encoder keeps its scale, which was fitted with labels. On the collections of that fit, a scale measured on
the index itself was no better. With other encoders, the two medians are the scale. Errors are measured with every
encoder.

A hit is weak if its relevance is below a threshold, .5. If this threshold misjudges more than a tenth of either kind
of text, the index takes the nearest one that does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...models.encoder import encode_finite
from ...store.derived.relevance_scale import (
    DEFAULT_ENCODERS,
    LINE,
    TOLERANCE,
    RelevanceScale,
    read_scale,
    store_scale,
)
from .everyday import SUBJECTS
from .relevance import ALL_WORDS, DEPTH, relevance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....core.arrays import Floats
    from ...models.encoder import Encoder
    from ...store.snapshot import Snapshot

_PASSAGES = 1_000  # of an index that is worth the time
_GROWTH = 2.0
_SENTENCES = 96
_SHARE, _SHARE_ELSEWHERE = 0.6, 0.3  # the share of a question's words in its best passage: with an answer, and without


def renew_scale(snapshot: Snapshot, encoder: Encoder) -> None:
    """Measure the scale of an index if it has none, or one of far fewer or far more passages.

    An index without an encoder has no scale, since it cannot encode questions.
    """
    if snapshot.head.encoder.is_none:
        return
    passages, location = snapshot.passage_count, snapshot.store.location
    earlier = read_scale(location, snapshot.head.encoder)
    is_current = (
        earlier is not None and earlier.line is not None and 1 / _GROWTH < passages / earlier.passages < _GROWTH
    )
    if passages >= _PASSAGES and not is_current:
        store_scale(location, measure_scale(snapshot, encoder), snapshot.head.encoder)


def measure_scale(snapshot: Snapshot, encoder: Encoder) -> RelevanceScale:
    """Measure the scale and the errors of an index with at least one passage."""
    from ...store.derived.benchmark_queries import sentences  # a search needs none of it

    ids = snapshot.chunk_ids["id"].to_numpy()
    sample = ids[np.linspace(0, len(ids) - 1, min(len(ids), _SENTENCES)).astype(np.intp)].tolist()
    rows = snapshot.chunks_by_id(sample, ["text"])
    pieces = [sentences(rows[number]["text"]) for number in sample]
    longest = [max(sentences_of_one, key=len) for sentences_of_one in pieces if sentences_of_one]
    if not longest:
        return RelevanceScale(passages=len(ids))
    own = _nearest(snapshot, encoder, longest)
    questions = [question for subject in SUBJECTS for question in subject]
    everyday = _nearest(snapshot, encoder, questions).reshape(len(SUBJECTS), -1, own.shape[1])
    best = everyday[:, :, 0]
    middles = float(np.median(best)), float(np.median(own[:, 0]))
    scale = RelevanceScale(passages=len(ids))
    if encoder.fingerprint not in DEFAULT_ENCODERS:
        scale = replace(scale, everyday=middles[0], own=middles[1])
        if not scale.tells_apart:
            return RelevanceScale(passages=len(ids))
    untreated = everyday[np.median(best, axis=1) <= sum(middles) / 2].reshape(-1, own.shape[1])
    without, having = _best(untreated, _SHARE_ELSEWHERE, scale), _best(own, _SHARE, scale)
    line = best_line(without, having)
    answered, refused = (float(share) for share in ((without >= line).mean(), (having < line).mean()))
    return replace(scale, answered=answered, refused=refused, line=line)


def best_line(without: Floats, having: Floats) -> float:
    """Return the threshold nearest to .5 that misjudges at most a tenth of either kind of text; .5 if there is none.

    :param without: the best relevance of each text without an answer, shape (n,).
    :param having: the best relevance of each text with an answer, shape (m,).
    """
    allowed = int(TOLERANCE * len(without))
    lowest = float(np.nextafter(np.sort(without)[-1 - allowed], 1)) if len(without) else 0.0
    highest = min(float(np.sort(having)[int(TOLERANCE * len(having))]), ALL_WORDS)
    return min(max(LINE, lowest), highest) if lowest <= highest else LINE


def _nearest(snapshot: Snapshot, encoder: Encoder, texts: Sequence[str]) -> Floats:
    """The cosines of the nearest passages of each text, shape (n, 10), or fewer columns in a smaller index."""
    depth = min(DEPTH, snapshot.passage_count)
    nearest: Floats = snapshot.index.search(encode_finite(encoder, texts, kind="query"), depth)[0]
    return nearest


def _best(cosines: Floats, share: float, scale: RelevanceScale) -> Floats:
    """Return the highest relevance for each text, given its ten highest cosines, and the share of its words there."""
    shares, literal = np.full(cosines.shape[1:], share), np.zeros(cosines.shape[1:], bool)
    values = [relevance(nearest, shares, literal, scale, nearest, scale.passages)[0] for nearest in cosines]
    return np.array(values, np.float32)
