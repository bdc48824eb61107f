"""SQuAD's measures of an answer: exact match, and F1 over words, as its published script computes them.

https://rajpurkar.github.io/SQuAD-explorer: evaluate-v2.0.py, which agrees with evaluate-v1.1.py on answered questions.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normal(answer: str) -> str:
    """Return an answer in lower case, without punctuation, articles and superfluous white space."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(predicted: str, answers: Sequence[str]) -> float:
    """Return 1 if the prediction equals an answer, else 0. The prediction "" says that there is no answer."""
    return max(float(normal(predicted) == normal(answer)) for answer in _possible(answers))


def f1(predicted: str, answers: Sequence[str]) -> float:
    """Return the harmonic mean of precision and recall of words, for the answer where it is highest."""
    return max(_f1(normal(predicted).split(), normal(answer).split()) for answer in _possible(answers))


def _possible(answers: Sequence[str]) -> Sequence[str]:
    return [answer for answer in answers if normal(answer)] or [""]


def _f1(predicted: list[str], answer: list[str]) -> float:
    if not predicted or not answer:
        return float(predicted == answer)
    same = (Counter(predicted) & Counter(answer)).total()
    if not same:
        return 0.0
    precision, recall = same / len(predicted), same / len(answer)
    return 2 * precision * recall / (precision + recall)
