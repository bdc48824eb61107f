"""SQuAD's measures equal those of its published script."""

from __future__ import annotations

import collections
import re
import string

import numpy as np
import pytest

from binocle.training.evaluation.heads import span_metrics

# From evaluate-v2.0.py of https://rajpurkar.github.io/SQuAD-explorer, letter by letter but for type hints.


def normalize_answer(s):
    def remove_articles(text):
        regex = re.compile(r"\b(a|an|the)\b", re.UNICODE)
        return re.sub(regex, " ", text)

    def white_space_fix(text):
        return " ".join(text.split())

    def remove_punc(text):
        exclude = set(string.punctuation)
        return "".join(ch for ch in text if ch not in exclude)

    def lower(text):
        return text.lower()

    return white_space_fix(remove_articles(remove_punc(lower(s))))


def get_tokens(s):
    if not s:
        return []
    return normalize_answer(s).split()


def compute_exact(a_gold, a_pred):
    return int(normalize_answer(a_gold) == normalize_answer(a_pred))


def compute_f1(a_gold, a_pred):
    gold_toks = get_tokens(a_gold)
    pred_toks = get_tokens(a_pred)
    common = collections.Counter(gold_toks) & collections.Counter(pred_toks)
    num_same = sum(common.values())
    if len(gold_toks) == 0 or len(pred_toks) == 0:
        return int(gold_toks == pred_toks)
    if num_same == 0:
        return 0
    precision = 1.0 * num_same / len(pred_toks)
    recall = 1.0 * num_same / len(gold_toks)
    return (2 * precision * recall) / (precision + recall)


def published(answers, predicted):
    gold_answers = [a for a in answers if normalize_answer(a)]
    if not gold_answers:
        gold_answers = [""]
    return max(compute_exact(a, predicted) for a in gold_answers), max(compute_f1(a, predicted) for a in gold_answers)


PIECES = "the a an The cat dog, U.S. $5 5 co-operative déjà 東京 year's year “quoted” - . Ankara İstanbul".split()


def test_exact_match_and_f1_are_the_published_scripts_on_1000_random_predictions():
    random = np.random.default_rng(0)

    def text():
        return " ".join(PIECES[pick] for pick in random.integers(0, len(PIECES), random.integers(0, 6)))

    exact, partial = set(), set()
    for _ in range(1_000):
        answers, predicted = [text() for _ in range(random.integers(0, 4))], text()
        expected = published(answers, predicted)
        own = span_metrics.exact_match(predicted, answers), span_metrics.f1(predicted, answers)
        assert own == pytest.approx(expected, abs=1e-9)
        exact.add(expected[0])
        partial.add(0 < expected[1] < 1)
    assert (exact, partial) == ({0, 1}, {False, True})
