"""Train a reader: for each question, one window of its passage, and the two tokens between which the answer stands."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...retriever.models.heads.head_settings import READER
from ...retriever.models.heads.reader import Reader, ReaderSettings
from ...retriever.models.heads.torch_head import arrays, moved, outputs, tensors
from ...retriever.models.heads.windows import windows
from ..data.heads.squad import Question
from ..encoders import heldout
from ..evaluation.heads import span_metrics
from . import calibration
from .config import ReaderConfig
from .head_training import HeadTraining
from .reader_teacher import WEIGHT, ReaderTeacher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Doubles, Integers
    from ...retriever.models.heads.head import EncoderWithHead
    from ...retriever.models.heads.reader import Span
    from ...retriever.models.heads.windows import Window
    from ..runs.training_run import TrainingRun
    from .head_training import Base
    from .reader_teacher import Lesson

    # the model's input, the answers' positions, and the teacher's input
    _Windows = tuple[dict[str, Integers], list[list[tuple[int, int]]], list[Lesson | None]]

_GLANCE = 150  # held-out questions that are measured during the run
_NONE = -1e9  # score of a passage without words
_CANDIDATES = 16  # passages without the answer; the nearest in length is read
_NO_ANSWER = [(0, 0)]  # [CLS]: no answer
_WITH_ANSWER = 0.8  # chance that the window of a long passage contains the answer


class ReaderTraining(HeadTraining[Question, "_Windows", ReaderConfig]):
    """The training of one reader (Devlin et al. 2019, arXiv:1810.04805, section 4.2)."""

    kind = READER
    metric = "F1"
    objective = "cross-entropy of start and end (arXiv:1810.04805); [CLS] where there is no answer (arXiv:1806.03822)"

    def __init__(
        self,
        run: TrainingRun[ReaderConfig],
        base: Base,
        rows: Sequence[Question],
        held_out: Sequence[Question],
        teacher: ReaderTeacher | None,
    ) -> None:
        super().__init__(run, base, rows, held_out)
        self._teacher = teacher
        if teacher is not None:
            self.objective += "; divergence from the teacher's probabilities (arXiv:1503.02531)"
        self._counts: dict[str, int] = {}  # tokens of each text
        self._document_passages = _DocumentPassages(rows)
        self._judged = [*held_out]
        if run.config.unanswerable:
            passages = _DocumentPassages(held_out)
            random = np.random.default_rng(run.config.seed)
            elsewhere = (passages.without_answer(question, random) for question in held_out if question.answers)
            self._judged += [question for question in elsewhere if question is not None]

    @classmethod
    def load(
        cls,
        run: TrainingRun[ReaderConfig],
        rows: Sequence[Question],
        held_out: Sequence[Question],
        teacher: str | None = None,
    ) -> ReaderTraining:
        """Load the base of a run with a new head, and the teacher.

        :param teacher: name or folder of a reader to learn from, beside the answers.
        """
        base = cls.load_base(run)
        return cls(run, base, rows, held_out, None if teacher is None else ReaderTeacher.load(teacher))

    def length(self, row: Question) -> int:
        """Return the tokens of question and passage, or of a whole window."""
        return min(self.size, self._count(row.text) + self._count(row.passage))

    def _count(self, text: str) -> int:
        if text not in self._counts:
            self._counts[text] = len(self.tokenizer.encode(text, add_special_tokens=False).ids)
        return self._counts[text]

    def prepare(self, rows: list[Question], random: np.random.Generator) -> _Windows:
        """Draw a window for each question."""
        parts, targets, lessons = zip(*(self._drawn(question, random) for question in rows), strict=True)
        return arrays(self.model, parts), [*targets], [*lessons]

    def loss(self, batch: _Windows) -> torch.Tensor:
        """Return the mean cross-entropy of the first and of the last token of each answer.

        With a teacher, the divergence from its probabilities is the larger part.
        """
        inputs, targets, lessons = tensors(self.model, batch[0]), *batch[1:]
        logits = outputs(self.model(**inputs)).float()
        logits = logits.masked_fill(inputs["attention_mask"][:, :, None] == 0, -1e4)
        loss = span_loss(logits, targets)
        return loss if self._teacher is None else loss.lerp(self._teacher.loss(logits, lessons), WEIGHT)

    def _drawn(
        self, question: Question, random: np.random.Generator
    ) -> tuple[Window, list[tuple[int, int]], Lesson | None]:
        """Draw a window of a question's passage, or of another one, with the positions of the answers' ends there.

        The teacher is not asked about another passage, which certainly does not answer.
        """
        passage = question.passage
        if random.random() < self.config.unanswerable and question.answers:
            question = self._document_passages.without_answer(question, random) or question
        parts = windows(self.tokenizer, question.text, question.passage, self.size, self.config.stride)
        answered = [part for part in parts if _targets(part, question) != _NO_ANSWER]
        candidates = answered if answered and random.random() < _WITH_ANSWER else parts
        window = candidates[random.integers(len(candidates))]
        if self._teacher is None or question.passage is not passage:
            return window, _targets(window, question), None
        lesson = self._teacher.lesson(question.text, passage, window)
        return window, _targets(window, question), lesson

    def measure(self) -> float:
        """Return F1 on the first held-out questions."""
        answered = [question for question in self.held_out if question.answers] or self.held_out
        questions = answered[:: max(1, len(answered) // _GLANCE)]
        spans = _spans(Reader(self.head, self._settings()), questions)
        return float(_values(span_metrics.f1, spans, questions).mean())

    def judge(self, head: EncoderWithHead) -> tuple[dict[str, Any], list[heldout.Estimate]]:
        """Choose the threshold of no answer, calibrate the probabilities, and measure the answers."""
        settings = self._settings()
        if not self.held_out:
            return settings.as_dict(), []
        questions, seed = self._judged, self.config.seed
        spans = _spans(Reader(head, settings), questions)
        scores = np.array([_NONE if span is None else span.score for span in spans])
        f1, exact = (_values(of, spans, questions) for of in (span_metrics.f1, span_metrics.exact_match))
        has_answer = np.array([bool(question.answers) for question in questions])
        exact = exact * has_answer  # a span is wrong where there is no answer
        threshold = best_threshold(scores, f1, has_answer)
        finite = scores > _NONE
        slope, offset = calibration.platt(scores[finite], exact[finite])
        settings = replace(settings, slope=slope, offset=offset, threshold=threshold)
        is_given, is_right = scores >= threshold, exact > 0
        likely = calibration.probabilities(slope * scores[finite] + offset)
        values = {
            "exact match": exact[has_answer],
            "F1": f1[has_answer],
            "no answer found where there is none": ~is_given[~has_answer],
            "right answers that are given": is_given[is_right],
        }
        rows = [heldout.mean(name, array.astype(np.float32), seed) for name, array in values.items() if len(array)]
        return settings.as_dict(), rows + calibration.measures(likely, exact[finite], seed)

    def _settings(self) -> ReaderSettings:
        return ReaderSettings(window=self.size, stride=self.config.stride)


class _DocumentPassages:
    """The passages of each document, to pair a question with a passage that does not answer it."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self._passages: dict[str, list[str]] = {}
        for question in questions:
            passages = self._passages.setdefault(question.document, [])
            if not passages or passages[-1] != question.passage:
                passages.append(question.passage)
        self._all = [passage for passages in self._passages.values() for passage in passages]

    def without_answer(self, question: Question, random: np.random.Generator) -> Question | None:
        """Return the question with another passage of its document, or of any document if its own has no other.

        None if there is no other passage, or that passage has one of the answers.
        """
        passages = self._passages.get(question.document, [])
        passages = [text for text in passages if text != question.passage] or self._all
        drawn = random.choice(len(passages), _CANDIDATES) if passages else ()
        candidates = [passages[number] for number in drawn if passages[number] != question.passage]
        if not candidates:
            return None
        passage = min(candidates, key=lambda text: abs(len(text) - len(question.passage)))  # fits into the same batch
        folded = passage.casefold()
        if any(answer.casefold() in folded for answer in question.answers):
            return None
        return replace(question, passage=passage, answers=(), starts=())


def span_loss(logits: torch.Tensor, targets: list[list[tuple[int, int]]]) -> torch.Tensor:
    """Return the mean cross-entropy of an answer's start and end, half of each.

    The probabilities of several positions are added (Clark and Gardner 2018, arXiv:1710.10723, section 3.1).

    :param logits: (texts, tokens, 2), of start and end.
    :param targets: of each text, the positions of the first and the last token of its answers; at least one.
    """
    counts = np.array([len(pairs) for pairs in targets])
    positions = np.zeros((len(targets), counts.max(), 2), np.int64)
    for row, pairs in zip(positions, targets, strict=True):
        row[: len(pairs)] = pairs
    is_missing = moved(np.arange(positions.shape[1]) >= counts[:, None], logits.device)
    likely = logits.log_softmax(1).gather(1, moved(positions, logits.device)).sum(2)
    return -likely.masked_fill(is_missing, -torch.inf).logsumexp(1).mean() / 2


def _targets(window: Window, question: Question) -> list[tuple[int, int]]:
    """Return the positions of the first and last token of each answer inside a window; else those of [CLS]."""
    spans = (_answer_span(window, *answer) for answer in zip(question.answers, question.starts, strict=True))
    return sorted({span for span in spans if span}) or _NO_ANSWER


def _answer_span(window: Window, answer: str, start: int) -> tuple[int, int] | None:
    """Return the positions of an answer's first and last token; None if the window lacks a part of it."""
    end = start + len(answer)
    inside = [position for position, (left, right) in enumerate(window.offsets) if left < end and right > start]
    if inside and window.offsets[inside[0]][0] <= start and window.offsets[inside[-1]][1] >= end:
        return window.first + inside[0], window.first + inside[-1]
    return None


def _spans(reader: Reader, questions: Sequence[Question]) -> list[Span | None]:
    return reader.read_pairs([(question.text, question.passage) for question in questions])


def _values(
    measure: Callable[[str, Sequence[str]], float], spans: list[Span | None], rows: Sequence[Question]
) -> Doubles:
    """Return a measure of each question's span."""
    pairs = zip(spans, rows, strict=True)
    return np.array([measure(span.text if span else "", question.answers) for span, question in pairs])


def best_threshold(scores: NDArray[Any], f1: NDArray[Any], has_answer: NDArray[Any]) -> float:
    """Return the lowest score of an answer, chosen for the highest mean F1, as SQuAD's script chooses it.

    :param scores: of the best span of each question.
    :param f1: of that span.
    :param has_answer: whether the question has one: if not, to give none is worth 1.
    """
    order = np.argsort(-scores, kind="stable")
    gains = np.cumsum(np.where(has_answer, f1, -1.0)[order])
    if not has_answer.any() or has_answer.all():
        return 0.0
    best = int(gains.argmax())
    following = scores[order[best + 1]] if best + 1 < len(order) else scores[order[best]] - 1
    return float((scores[order[best]] + max(following, scores[order[best]] - 10)) / 2)
