"""Attack with candidates: pick a name, number or year out of thirty, and tell if a text is indexed.

He puts each candidate into the part of the text that he knows, encodes the result and takes the candidate nearest to
the stolen vector. A text counts as indexed if its vector is nearer to a stolen one than 99 % of other texts' vectors.
Neither attack learns anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.words import folded, name_spans, number_spans
from ...inversion.metrics import mean_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ....core.arrays import Floats
    from ....retriever.models.encoder import Encoder
    from ...inversion.metrics import Value
    from ..texts import LeakTexts

    Span = tuple[int, int]

CANDIDATES = 30
REST_KNOWN, HALF_KNOWN, UNKNOWN = "rest known", "half known", "unknown"
_KNOWN = {REST_KNOWN: 1.0, HALF_KNOWN: 0.5, UNKNOWN: 0.0}  # share of the other words
_QUESTIONS = 40  # of a kind
_QUICK_QUESTIONS = 20  # of a kind in a quick audit
_MIN_QUESTIONS = 5  # questions of a kind, and candidates of a question
_LENGTH = 32  # tokens of the texts; the nearest length of the audit is taken
OUTSIDERS = 1_000  # texts that are not in the index
_FALSE_POSITIVES = 0.01
_YEAR = re.compile(r"(?:1[5-9]|20)\d\d(?:-\d\d){0,2}")


def _years(text: str) -> list[Span]:
    return [span for span in number_spans(text) if _YEAR.fullmatch(text[slice(*span)])]


def _numbers(text: str) -> list[Span]:
    return [span for span in number_spans(text) if not _YEAR.fullmatch(text[slice(*span)])]


_SPANS: dict[str, Callable[[str], list[Span]]] = {"names": name_spans, "numbers": _numbers, "dates": _years}


@dataclass(frozen=True, slots=True)
class FactResult:
    """The success of picking one kind of fact, for each share of the text that is known."""

    questions: int
    candidates: int  # the mean number for a question, the true one included
    first: dict[str, Value]  # share of questions with the true candidate nearest
    rank: dict[str, float]  # of the true candidate, the median

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {
            "questions": self.questions,
            "candidates": self.candidates,
            **{
                known: {"first": value.value, "low": value.low, "high": value.high, "median rank": self.rank[known]}
                for known, value in self.first.items()
            },
        }


@dataclass(frozen=True, slots=True)
class FactQuestion:
    """A fact of a text, and the candidates' texts for each share that is known; the true one comes first."""

    kind: str
    row: int  # of the text, among the texts of its length
    texts: dict[str, list[str]]


def questions(texts: LeakTexts, seed: int, count: int = _QUESTIONS) -> tuple[int, list[FactQuestion]]:
    """Return the length of the texts that are asked about, and at most `count` questions of each kind."""
    random = np.random.default_rng(seed)
    length = min(texts.true, key=lambda size: (abs(size - _LENGTH), size))
    selected: list[FactQuestion] = []
    for kind, spans in _SPANS.items():
        pool = sorted({text[first:last] for text in texts.corpus for first, last in spans(text)})
        rows = [(row, text) for row, text in enumerate(texts.true[length]) if spans(text)][:count]
        of_kind = [_question(kind, row, text, spans(text), pool, random) for row, text in rows]
        of_kind = [question for question in of_kind if len(question.texts[UNKNOWN]) >= _MIN_QUESTIONS]
        selected += of_kind if len(of_kind) >= _MIN_QUESTIONS else []
    return length, selected


def _question(
    kind: str, row: int, text: str, spans: Sequence[Span], pool: Sequence[str], random: np.random.Generator
) -> FactQuestion:
    first, last = spans[int(random.integers(len(spans)))]
    true = text[first:last]
    rivals = [rival for rival in pool if folded(rival) not in folded(text)]
    alike = [rival for rival in rivals if kind == "names" or len(rival) == len(true)]
    rivals = alike if len(alike) >= CANDIDATES else rivals
    distractors = random.choice(len(rivals), min(CANDIDATES - 1, len(rivals)), replace=False) if rivals else ()
    candidates = [true, *(rivals[number] for number in distractors)]
    before, after = text[:first].split(), text[last:].split()
    by_knowledge = {}
    for known, share in _KNOWN.items():
        parts = [[word for word in words if random.random() < share] for words in (before, after)]
        by_knowledge[known] = [" ".join([*parts[0], candidate, *parts[1]]) for candidate in candidates]
    by_knowledge[REST_KNOWN] = [text[:first] + candidate + text[last:] for candidate in candidates]
    return FactQuestion(kind, row, by_knowledge)


@dataclass(frozen=True, slots=True)
class AttackerSpace:
    """A thief's space, into which he brings texts and stolen vectors to compare them."""

    stolen: Callable[[Floats], Floats]
    texts: Callable[[Floats, Sequence[str]], Floats]  # from their vectors without the defence
    defended: bool = False  # whether the defence is applied to texts; else stolen vectors are brought back


class CandidateAttack:
    """The candidates of an audit, encoded once."""

    def __init__(self, texts: LeakTexts, encoder: Encoder, seed: int, *, quick: bool = False) -> None:
        self._seed = seed
        self.length, self._questions = questions(texts, seed, _QUICK_QUESTIONS if quick else _QUESTIONS)
        every = dict.fromkeys(text for question in self._questions for rows in question.texts.values() for text in rows)
        self._row_of = {text: row for row, text in enumerate(every)}
        self._texts = list(every)
        self._plain = encoder.encode(self._texts) if every else np.empty((0, encoder.dim), np.float32)

    def facts(self, stolen: Floats, comparison: AttackerSpace) -> dict[str, FactResult]:
        """Rank the candidates of each question by their nearness to the stolen vectors of the texts."""
        vectors, targets = comparison.texts(self._plain, self._texts), comparison.stolen(stolen)
        results = {}
        for kind in dict.fromkeys(question.kind for question in self._questions):
            of_kind = [question for question in self._questions if question.kind == kind]
            ranks = {
                known: [self._rank(question.texts[known], vectors, targets[question.row]) for question in of_kind]
                for known in _KNOWN
            }
            results[kind] = FactResult(
                len(of_kind),
                round(float(np.mean([len(question.texts[UNKNOWN]) for question in of_kind]))),
                {known: mean_value([first for first, _ in pairs], self._seed) for known, pairs in ranks.items()},
                {known: float(np.median([rank for _, rank in pairs])) for known, pairs in ranks.items()},
            )
        return results

    def _rank(self, texts: Sequence[str], vectors: Floats, target: Floats) -> tuple[float, float]:
        """The chance that the first text is chosen as the nearest, and its rank; equally near texts share both."""
        scores = vectors[[self._row_of[text] for text in texts]] @ target
        nearer, equal = int((scores > scores[0]).sum()), int((scores == scores[0]).sum())
        return (0.0 if nearer else 1 / equal), nearer + (equal + 1) / 2


def membership(members: Floats, outsiders: Floats, store: Floats, seed: int) -> Value:
    """The share of indexed texts that are recognized, if 1 % of other texts are mistaken for indexed ones.

    :param members: (n, dim), vectors of texts that have their stolen vectors in `store`.
    :param store: all stolen vectors; these and the members are in the space of a comparison.
    """
    scores = [np.array([float((store @ vector).max()) for vector in vectors]) for vectors in (members, outsiders)]
    limit = np.quantile(scores[1], 1 - _FALSE_POSITIVES)
    return mean_value((scores[0] > limit).astype(float).tolist(), seed)
