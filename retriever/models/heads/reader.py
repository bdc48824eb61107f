"""Extractive question answering: mark the span of a passage that answers a question, or say that none does.

Devlin et al. 2019 (arXiv:1810.04805), sections 4.2 and 4.3: a token's two logits say how well an answer starts and ends
there, and those of [CLS] stand for no answer.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from ....core.checks import is_real, is_whole
from ....core.errors import InputError
from ....core.words import encodable
from ..encoder import check_texts
from .head import load_head
from .head_settings import READER, check_settings, read_settings
from .windows import windows

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ....core.arrays import Floats
    from .head import EncoderWithHead
    from .windows import Window

_LONGEST = 30  # tokens of an answer, as in SQuAD's baselines
_PIECE = 256  # pairs in memory together


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """The windows of a reader and the scale of its scores, as its folder's `binocle.json` has them."""

    window: int = 384  # tokens of question and passage together
    stride: int = 128  # tokens that neighbouring windows share
    slope: float = 1.0  # the probability of a right answer is the logistic function of slope * score + offset
    offset: float = 0.0
    threshold: float = 0.0  # of the score: below it, the passage has no answer

    @classmethod
    def read(cls, folder: Path) -> ReaderSettings:
        """Read them; the defaults are those of SQuAD 2.0.

        :raises InputError: when a value is wrong.
        """
        settings = read_settings(folder, "reader", cls)
        rules = {name: (is_real(getattr(settings, name)), "a number") for name in ("slope", "offset", "threshold")}
        rules["window"] = is_whole(settings.window, 8), "a whole number of tokens from 8"
        rules["stride"] = is_whole(settings.stride, 0), "a whole number of tokens from 0"
        check_settings(folder, "reader", settings, rules)
        return settings

    def as_dict(self) -> dict[str, float]:
        """Return the settings for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Span:
    """The best answer in a passage: `text` is its characters `start` to `end`."""

    text: str
    start: int
    end: int
    score: float  # logit of the span less the logit of no answer; comparable between passages
    probability: float  # that the answer is right, calibrated on held-out questions


class Reader:
    """A model that finds answers in passages; `load_reader` returns one."""

    def __init__(self, head: EncoderWithHead, settings: ReaderSettings) -> None:
        self.head, self.settings = head, settings
        self.name, self.fingerprint = head.name, head.fingerprint
        self._size = min(settings.window, head.settings.limit)

    def read(self, question: str, passages: Sequence[str]) -> list[Span | None]:
        """Return the best answer in each passage, likely or not; None for a passage without words.

        An answer with a score below `settings.threshold` is probably wrong.
        """
        if not isinstance(question, str) or not question.strip():
            raise InputError(f"a question is a text with words, not {question!r}")
        question = encodable(question)
        return self.read_pairs([(question, passage) for passage in check_texts(passages)])

    def read_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[Span | None]:
        """Return the best answer of each pair of a question and a passage, as `read` does."""
        spans: list[Span | None] = []
        remaining = iter(pairs)
        while piece := list(islice(remaining, _PIECE)):
            spans += self._read(piece)
        return spans

    def _read(self, pairs: list[tuple[str, str]]) -> Iterator[Span | None]:
        tokenizer, settings = self.head.tokenizer(), self.settings
        by_pair = [windows(tokenizer, *pair, self._size, settings.stride) for pair in pairs]
        logits = iter(self.head.logits([window for parts in by_pair for window in parts]))
        for (_, passage), parts in zip(pairs, by_pair, strict=True):
            spans = [_best(window, next(logits)) for window in parts]
            yield self._span(passage, max(spans, key=lambda span: span[0]))

    def _span(self, passage: str, best: tuple[float, int, int]) -> Span | None:
        score, start, end = best
        text = passage[start:end]
        start += len(text) - len(text.lstrip())
        text = text.strip()
        if not text or not np.isfinite(score):
            return None
        logit = self.settings.slope * score + self.settings.offset
        probability = float(1 / (1 + np.exp(-np.clip(logit, -500, 500))))
        return Span(text, start, start + len(text), score, probability)


def _best(window: Window, logits: Floats) -> tuple[float, int, int]:
    """Return the score of a window's best span, and its characters.

    :param logits: (tokens, 2), of start and end.
    """
    count = len(window.offsets)
    if not count:
        return -np.inf, 0, 0
    start, end = logits[window.first : window.first + count].T
    padded = np.concatenate([end, np.full(_LONGEST - 1, -np.inf, np.float32)])
    ends = np.lib.stride_tricks.sliding_window_view(padded, _LONGEST)  # (tokens, longest): the ends of each start
    scores = start[:, None] + ends
    first, length = divmod(int(scores.argmax()), _LONGEST)
    score = float(scores[first, length] - logits[0].sum())
    return score, window.offsets[first][0], window.offsets[first + length][1]


def load_reader(name: str | os.PathLike[str] | Reader) -> Reader:
    """Load a reader by folder or name, without torch if it is of the BERT family. A loaded one is returned as it came.

    :raises ModelNotFoundError: when the weights are neither on this machine nor on the hub.
    :raises InputError: when the model is no reader, or is damaged.
    :raises MissingExtraError: when the model needs torch and it is not installed.
    """
    if isinstance(name, Reader):
        return name
    head = load_head(name, READER)
    return Reader(head, ReaderSettings.read(head.folder))
