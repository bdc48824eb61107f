"""Train a tagger: the tag of each word, at its first token."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...retriever.models.heads.head_settings import TAGGER
from ...retriever.models.heads.tagger import Tagger, TaggerSettings, first_tokens, touching, word_spans
from ...retriever.models.heads.torch_head import arrays, has_types, outputs, tensors
from ...retriever.models.heads.windows import ignores_case, text_windows
from ..data.heads.tagged import TaggedText
from ..encoders import heldout
from ..evaluation.heads.span_f1 import counts, span_f1
from . import calibration
from .config import HeadConfig
from .crf import log_transitions, negative_log_likelihood
from .head_training import HeadTraining, label_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.arrays import Integers
    from ...retriever.models.heads.head import EncoderWithHead
    from ...retriever.models.heads.tagger import Entity
    from ..data.heads.tagged import TaggedSplit
    from ..runs.training_run import TrainingRun
    from .head_training import Base

    _Batch = tuple[dict[str, Integers], Integers, Integers]  # the model's input; tokens, labels, touches; their counts

_GLANCE = 200  # held-out texts that are measured during the run


class TaggerTraining(HeadTraining[TaggedText, "_Batch", HeadConfig]):
    """The training of one tagger (Devlin et al. 2019, arXiv:1810.04805, section 5.3), as a linear chain.

    The scores of its steps are the frequencies in the learned texts; the model learns the scores of words beside them.
    """

    kind = TAGGER
    metric = "span F1"
    objective = "likelihood of a linear chain of tags at each word's first token (arXiv:1810.04805, arXiv:1603.01360)"

    def __init__(self, run: TrainingRun[HeadConfig], base: Base, texts: TaggedSplit) -> None:
        super().__init__(run, base, texts.learned, texts.held_out)
        self._numbers = {label: number for number, label in enumerate(texts.labels)}
        capitals = ignores_case(self.tokenizer) and has_types(self.model)
        transitions = log_transitions(map(self._sequence, texts.learned), len(texts.labels))
        self._table = torch.from_numpy(transitions)
        self.settings = TaggerSettings(self.size, capitals=capitals, transitions=transitions.tolist())

    @classmethod
    def load(cls, run: TrainingRun[HeadConfig], texts: TaggedSplit) -> TaggerTraining:
        """Load the base of a run with a head for the labels of the texts."""
        return cls(run, cls.load_base(run, **label_options(texts.labels)), texts)

    def length(self, row: TaggedText) -> int:
        """Return the characters of a text."""
        return len(row.text)

    def prepare(self, rows: list[TaggedText], random: np.random.Generator) -> _Batch:
        """Draw a window of each text, and find the first token of each word there."""
        parts, drawn = [], []
        for row in rows:
            choices = text_windows(self.tokenizer, row.text, self.size, capitals=self.settings.capitals)
            parts.append(choices[random.integers(len(choices))])
            numbers, touch = self._sequence(row)
            words = np.array([*first_tokens(word_spans(row.text), parts[-1])], np.int64).reshape(-1, 2)
            drawn.append((words[:, 1] + parts[-1].first, np.array(numbers, np.int64)[words[:, 0]], touch[words[:, 0]]))
        counts = np.array([len(tokens) for tokens, _, _ in drawn], np.int64)
        filled = np.zeros((3, len(rows), max(1, counts.max())), np.int64)
        for number, columns in enumerate(drawn):
            filled[:, number, : counts[number]] = columns
        return arrays(self.model, parts), filled, counts

    def loss(self, batch: _Batch) -> torch.Tensor:
        """Return the mean negative log-likelihood of the words of a window of each text."""
        inputs, filled, counts = batch
        logits = outputs(self.model(**tensors(self.model, inputs))).float()
        tokens, labels, touches = torch.from_numpy(filled).to(logits.device)
        scores = logits.gather(1, tokens[:, :, None].expand(-1, -1, logits.shape[2]))
        return negative_log_likelihood(
            scores, labels, touches, torch.from_numpy(counts).to(logits.device), self._table.to(logits.device)
        )

    def _sequence(self, row: TaggedText) -> tuple[list[int], Integers]:
        """Return the label of each word, and whether it touches the word before it."""
        words = word_spans(row.text)
        return [self._numbers[tag] for tag in row.tags(words)], touching(words)

    def measure(self) -> float:
        """Return the span F1 on the first held-out texts."""
        rows = self.held_out[:_GLANCE]
        hits, totals = _counts(Tagger(self.head, self.settings).tag([row.text for row in rows]), rows)
        return span_f1(hits, totals)

    def judge(self, head: EncoderWithHead) -> tuple[dict[str, Any], list[heldout.Estimate]]:
        """Measure the tagger as it will be served, calibrate its probabilities, and note their precisions."""
        settings, seed, rows = self.settings, self.config.seed, self.held_out
        if not rows:
            return settings.as_dict(), []
        tagged = Tagger(head, settings).tag([row.text for row in rows])
        hits, totals = _counts(tagged, rows)
        measures = [heldout.resampled("span F1", span_f1, hits, totals, seed)]
        pairs = [(entity, row) for entities, row in zip(tagged, rows, strict=True) for entity in entities]
        owners = np.repeat(np.arange(len(tagged)), [len(entities) for entities in tagged])
        scores = np.array([entity.score for entity, _ in pairs], np.float64)
        right = np.array([_key(entity) in row.spans for entity, row in pairs], np.float64)
        slope, offset = calibration.platt(scores, right) if pairs else (1.0, 0.0)
        likely = calibration.probabilities(slope * scores + offset)
        settings = replace(settings, slope=slope, offset=offset, sure=calibration.precisions(likely, right))
        return settings.as_dict(), measures + calibration.measures(likely, right, seed, owners)


def _key(entity: Entity) -> tuple[str, int, int]:
    return entity.label, entity.start, entity.end


def _counts(tagged: list[list[Entity]], rows: Sequence[TaggedText]) -> tuple[Any, Any]:
    return counts([list(map(_key, entities)) for entities in tagged], [list(row.spans) for row in rows])
