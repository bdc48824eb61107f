"""Learn the probabilities that a larger reader gives to each start and end (Hinton et al. 2015, arXiv:1503.02531).

The teacher reads the same part of a passage with its own tokenizer. Its probability of a token goes to the student's
token that has the same character, so the two vocabularies may differ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from ...retriever.models import model_files
from ...retriever.models.heads.head import load_head
from ...retriever.models.heads.head_settings import READER, HeadSettings
from ...retriever.models.heads.torch_head import TorchHead, moved
from ...retriever.models.heads.windows import windows
from ..runs import environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ...core.arrays import Floats, Integers
    from ...retriever.models.heads.head import EncoderWithHead
    from ...retriever.models.heads.windows import Window

    Probabilities = NDArray[np.float16]  # (1 + tokens of the passage, 2): of start and end; the first row is no answer

_TEMPERATURE = 2.0  # as in arXiv:1910.01108's code for SQuAD
WEIGHT = 0.8  # of the divergence; arXiv:1503.02531, section 2, gives the labels a much lower weight


@dataclass(frozen=True, slots=True)
class Lesson:
    """The teacher's tokens of one window of the student, and how the two tokenizers correspond."""

    key: int  # of the question and the part of the passage
    window: Window  # the teacher's, without its offsets: another process may send it
    starts: Integers  # for each of its tokens of the passage, the student's token where it starts
    ends: Integers  # and the one where it ends
    first: int  # position of the passage's first token in the student's window
    tokens: int  # of the passage in the student's window


class ReaderTeacher:
    """A larger reader. It computes the probabilities of each window once and keeps them."""

    def __init__(self, head: EncoderWithHead) -> None:
        self._head = head
        self._tokenizer = head.tokenizer()
        self._known: dict[int, Probabilities] = {}

    @classmethod
    def load(cls, name: str) -> ReaderTeacher:
        """Load a reader by folder or name: on the GPU if there is one, else with the fastest class for the CPU.

        :raises InputError: when the model is no reader, or is damaged.
        """
        if environment.device() == "cpu":
            return cls(load_head(name, READER))
        folder = model_files.find(name, READER.role)
        return cls(TorchHead.load(name, folder, "", HeadSettings.read(folder, READER), READER))

    def lesson(self, question: str, passage: str, window: Window) -> Lesson | None:
        """Return the teacher's window for a window of the student; None if the text is too long for one."""
        if not window.offsets:
            return None
        left, right = window.offsets[0][0], window.offsets[-1][1]
        part = passage[left:right]
        own, *following = windows(self._tokenizer, question, part, self._head.settings.limit, 0)
        if following or not own.offsets:
            return None
        lefts = np.array([start for start, _ in window.offsets]) - left
        starts, ends = np.array(own.offsets).T
        first, last = (
            np.maximum(0, np.searchsorted(lefts, characters, "right") - 1) for characters in (starts, ends - 1)
        )
        key = hash((question, part))
        return Lesson(key, replace(own, offsets=[]), first, last, window.first, len(window.offsets))

    def loss(self, logits: torch.Tensor, lessons: Sequence[Lesson | None]) -> torch.Tensor:
        """Return the mean divergence of the student's probabilities from the teacher's, of start and end.

        :param logits: (texts, tokens, 2), of start and end; those of padding are far below the others.
        :param lessons: of each text; None counts as no divergence.
        """
        targets = np.zeros(logits.shape, np.float32)
        for row, lesson, probabilities in zip(targets, lessons, self._probabilities(lessons), strict=True):
            if lesson is not None and probabilities is not None:
                row[0] = probabilities[0]
                row[lesson.first : lesson.first + lesson.tokens] = probabilities[1:]
        likely = (logits / _TEMPERATURE).log_softmax(1)
        divergence = torch.nn.functional.kl_div(likely, moved(targets, logits.device), reduction="sum")
        return divergence * _TEMPERATURE**2 / (2 * len(lessons))  # of the scale of the labels' loss

    def _probabilities(self, lessons: Sequence[Lesson | None]) -> list[Probabilities | None]:
        missing = {lesson.key: lesson for lesson in lessons if lesson is not None and lesson.key not in self._known}
        every = self._head.logits([lesson.window for lesson in missing.values()])
        for lesson, logits in zip(missing.values(), every, strict=True):
            self._known[lesson.key] = _of_student(lesson, logits)
        return [None if lesson is None else self._known[lesson.key] for lesson in lessons]


def _of_student(lesson: Lesson, logits: Floats) -> Probabilities:
    """Give the teacher's probabilities to the student's tokens.

    :param logits: (tokens, 2), the teacher's.
    """
    first = lesson.window.first
    own = np.concatenate([logits[:1], logits[first : first + len(lesson.starts)]]) / _TEMPERATURE
    own = np.exp(own - own.max(0))
    own /= own.sum(0)
    probabilities = np.zeros((1 + lesson.tokens, 2), np.float32)
    probabilities[0] = own[0]
    for column, tokens in enumerate((lesson.starts, lesson.ends)):
        np.add.at(probabilities[1:, column], tokens, own[1:, column])
    return probabilities.astype(np.float16)
