"""Span F1 of names is that of seqeval."""

from __future__ import annotations

import numpy as np
import pytest

from binocle.retriever.models.heads.tagger import entities
from binocle.training.evaluation.heads.span_f1 import counts, span_f1

# From seqeval 1.2.2, seqeval/metrics/sequence_labeling.py, without its option `suffix`.


def end_of_chunk(prev_tag, tag, prev_type, type_):
    chunk_end = False
    if prev_tag == "B" and tag in ("B", "S", "O"):
        chunk_end = True
    if prev_tag == "I" and tag in ("B", "S", "O"):
        chunk_end = True
    if prev_tag not in ("O", ".") and prev_type != type_:
        chunk_end = True
    return chunk_end


def start_of_chunk(prev_tag, tag, prev_type, type_):
    chunk_start = tag in ("B", "S")
    if prev_tag in ("E", "S", "O") and tag in ("E", "I"):
        chunk_start = True
    if tag not in ("O", ".") and prev_type != type_:
        chunk_start = True
    return chunk_start


def get_entities(seq):
    if any(isinstance(s, list) for s in seq):
        seq = [item for sublist in seq for item in [*sublist, "O"]]
    prev_tag, prev_type, begin_offset, chunks = "O", "", 0, []
    for i, chunk in enumerate([*seq, "O"]):
        tag = chunk[0]
        type_ = chunk[1:].split("-", maxsplit=1)[-1] or "_"
        if end_of_chunk(prev_tag, tag, prev_type, type_):
            chunks.append((prev_type, begin_offset, i - 1))
        if start_of_chunk(prev_tag, tag, prev_type, type_):
            begin_offset = i
        prev_tag, prev_type = tag, type_
    return chunks


def published_f1(y_true, y_pred):
    true, predicted = set(get_entities(y_true)), set(get_entities(y_pred))
    correct = len(true & predicted)
    p = correct / len(predicted) if predicted else 0
    r = correct / len(true) if true else 0
    return 2 * p * r / (p + r) if p + r else 0


def test_span_f1_is_seqevals_on_1000_random_sequences():
    random = np.random.default_rng(0)
    tags = ["O", "O", "B-A", "I-A", "B-B", "I-B"]
    for _ in range(1_000):
        sizes = random.integers(1, 12, random.integers(1, 4))
        true, predicted = ([[tags[pick] for pick in random.integers(0, 6, size)] for size in sizes] for _ in range(2))
        own = span_f1(*counts(list(map(entities, predicted)), list(map(entities, true))))
        assert own == pytest.approx(published_f1(true, predicted), abs=1e-9)
