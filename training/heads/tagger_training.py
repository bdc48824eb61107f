"""Train a tagger: the tag of each word, at its first token."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from ...retriever.models.heads.head import TAGGER
from ...retriever.models.heads.tagger import Tagger, TaggerSettings, first_tokens, word_spans
from ...retriever.models.heads.torch_head import has_types, inputs, outputs
from ...retriever.models.heads.windows import ignores_case, text_windows
from ..data.heads.tagged import TaggedText
from ..encoders import heldout
from ..evaluation.heads.span_f1 import counts, span_f1
from . import calibration
from .config import HeadConfig
from .head_training import HeadTraining

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...retriever.models.heads.head import Head
    from ...retriever.models.heads.tagger import Entity
    from ...retriever.models.heads.windows import Window
    from ..data.heads.tagged import TaggedTexts
    from ..runs.training_run import TrainingRun

_GLANCE = 200  # held-out texts that are measured during the run
_IGNORED = -100  # target of a token that begins no word


class TaggerTraining(HeadTraining[TaggedText, HeadConfig]):
    """The training of one tagger (Devlin et al. 2019, arXiv:1810.04805, section 5.3)."""

    kind = TAGGER
    metric = "span F1"
    objective = "cross-entropy of the tag at each word's first token (arXiv:1810.04805), decoded by Viterbi's algorithm"

    def __init__(self, run: TrainingRun[HeadConfig], texts: TaggedTexts) -> None:
        labels = dict(enumerate(texts.labels))
        self._numbers = {label: number for number, label in labels.items()}
        super().__init__(
            run,
            texts.learned,
            texts.held_out,
            num_labels=len(labels),
            id2label=labels,
            label2id=self._numbers,
            ignore_mismatched_sizes=True,
        )
        capitals = ignores_case(self.tokenizer) and has_types(self.model)
        self.settings = TaggerSettings(self.size, capitals=capitals)

    def length(self, row: TaggedText) -> int:
        """Return the characters of a text."""
        return len(row.text)

    def loss(self, rows: list[TaggedText], random: np.random.Generator) -> torch.Tensor:
        """Return the mean cross-entropy of the words of a window of each text."""
        drawn = []
        for row in rows:
            parts = text_windows(self.tokenizer, row.text, self.size, capitals=self.settings.capitals)
            drawn.append((parts[random.integers(len(parts))], row))
        batch = inputs(self.model, [window for window, _ in drawn])
        logits = outputs(self.model(**batch)).float()
        targets = np.full(tuple(logits.shape[:2]), _IGNORED, np.int64)
        for number, (window, row) in enumerate(drawn):
            self._mark(targets[number], window, row)
        flat = torch.from_numpy(targets).to(logits.device).flatten()
        total = cross_entropy(logits.flatten(0, 1), flat, ignore_index=_IGNORED, reduction="sum")
        return total / (flat != _IGNORED).sum().clamp(min=1)

    def _mark(self, targets: np.ndarray[Any, np.dtype[np.int64]], window: Window, row: TaggedText) -> None:
        words = word_spans(row.text)
        tags = row.tags(words)
        for word, token in first_tokens(words, window):
            targets[window.first + token] = self._numbers[tags[word]]

    def measure(self) -> float:
        """Return the span F1 on the first held-out texts."""
        rows = self.held_out[:_GLANCE]
        hits, totals = _counts(Tagger(self.head, self.settings).tag([row.text for row in rows]), rows)
        return span_f1(hits, totals)

    def judge(self, head: Head) -> tuple[dict[str, Any], list[heldout.Estimate]]:
        """Measure the tagger as it will be served, and calibrate the probabilities of its spans."""
        settings, seed, rows = self.settings, self.config.seed, self.held_out
        if not rows:
            return settings.as_dict(), []
        tagged = Tagger(head, settings).tag([row.text for row in rows])
        hits, totals = _counts(tagged, rows)
        measures = [heldout.resampled("span F1", span_f1, hits, totals, seed)]
        pairs = [(entity, row) for entities, row in zip(tagged, rows, strict=True) for entity in entities]
        scores = np.array([entity.score for entity, _ in pairs], np.float64)
        right = np.array([_key(entity) in row.spans for entity, row in pairs], np.float64)
        slope, offset = calibration.platt(scores, right) if pairs else (1.0, 0.0)
        settings = replace(settings, slope=slope, offset=offset)
        likely = calibration.probabilities(slope * scores + offset)
        return settings.as_dict(), measures + calibration.measures(likely, right, seed)


def _key(entity: Entity) -> tuple[str, int, int]:
    return entity.label, entity.start, entity.end


def _counts(tagged: list[list[Entity]], rows: Sequence[TaggedText]) -> tuple[Any, Any]:
    return counts([list(map(_key, entities)) for entities in tagged], [list(row.spans) for row in rows])
