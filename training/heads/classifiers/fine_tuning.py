"""Fine-tune an encoder whole with the head of a classifier."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional

from ....retriever.models.heads.classifier import TUNED_ENCODER, ClassifierSettings, HeadScorer, load_classifier
from ....retriever.models.heads.head_settings import CLASSIFIER
from ....retriever.models.heads.torch_head import arrays, outputs, tensors
from ...data.heads.examples import Example
from ..config import ClassifierConfig
from ..head_training import HeadTraining, label_options
from .judge import METRICS, judge, values
from .probe import Probe

if TYPE_CHECKING:
    from pathlib import Path

    from ....core.arrays import Floats, Integers
    from ....retriever.models.heads.head import EncoderWithHead
    from ...data.heads.examples import Examples
    from ...encoders.heldout import Estimate
    from ...runs.training_run import TrainingRun
    from ..head_training import Base

    _Batch = tuple[dict[str, Integers], Floats]  # the model's input, and the targets

_LENGTH = "sentence_bert_config.json"  # sentence-transformers' file of the number of tokens that an encoder reads
_GLANCE = 500  # held-out rows that are measured during the run
_PROBLEMS = {
    "classes": "single_label_classification",
    "labels": "multi_label_classification",
    "number": "regression",
}


class ClassifierTraining(HeadTraining[Example, "_Batch", ClassifierConfig]):
    """The fine-tuning of one classifier (Devlin et al. 2019, arXiv:1810.04805, section 4.1)."""

    kind = CLASSIFIER
    objective = "cross-entropy, or squared error of numbers (arXiv:1810.04805)"

    def __init__(self, run: TrainingRun[ClassifierConfig], base: Base, examples: Examples) -> None:
        super().__init__(run, base, examples.learned, examples.held_out)
        self.examples, self.metric = examples, METRICS[examples.task]
        self.settings = ClassifierSettings(examples.task, examples.labels, examples.pairs, length=self.size)
        self._scorer = HeadScorer(self.head, self.size)
        self._weights = torch.from_numpy(_class_weights(examples)).to(self.model.device)
        self.held_out_logits: Floats | None = None  # of the finished model
        self.notes: list[str] = []  # for people

    @classmethod
    def load(cls, run: TrainingRun[ClassifierConfig], examples: Examples) -> ClassifierTraining:
        """Load the base of a run with a head for the labels of the examples."""
        base = cls.load_base(run, problem_type=_PROBLEMS[examples.task], **label_options(examples.labels))
        return cls(run, base, examples)

    def length(self, row: Example) -> int:
        """Return the characters of a text or pair."""
        return len(row.text) if isinstance(row.text, str) else sum(map(len, row.text))

    def prepare(self, rows: list[Example], random: np.random.Generator) -> _Batch:  # noqa: ARG002 - of the base
        """Tokenize the texts, and look up their targets."""
        encodings = self._scorer.encodings([row.text for row in rows])
        return arrays(self.model, encodings), self.examples.targets(rows)

    def loss(self, batch: _Batch) -> torch.Tensor:
        """Return the mean cross-entropy of the labels, or the squared error of numbers.

        A row of a rare class weighs more, as in a probe.
        """
        logits = outputs(self.model(**tensors(self.model, batch[0]))).float()
        targets = torch.from_numpy(batch[1]).to(logits.device)
        if self.examples.task == "number":
            return functional.mse_loss(logits, targets)
        if self.examples.task == "labels":
            return functional.binary_cross_entropy_with_logits(logits, targets)
        return functional.cross_entropy(logits, targets, weight=self._weights)

    def measure(self) -> float:
        """Return the metric on the first held-out rows."""
        rows = self.examples.held_out[:_GLANCE]
        logits = self._scorer.logits([row.text for row in rows])
        _, measures = judge(logits, self.examples.targets(rows), self.settings, self.config.seed)
        return measures[0].value

    def judge(self, head: EncoderWithHead) -> tuple[dict[str, Any], list[Estimate]]:
        """Calibrate the saved model, and measure it.

        A probe on the vectors of the trained encoder replaces the head, unless the head is right more often on the
        held-out rows. The probe also reads the words of the texts, and learns a rare class from few rows.
        """
        rows = self.examples.held_out
        targets = self.examples.targets(rows)
        self.held_out_logits = HeadScorer(head, self.size).logits([row.text for row in rows])
        settings, measures = judge(self.held_out_logits, targets, self.settings, self.config.seed)
        if not rows or self.examples.pairs:  # nothing tells which is better, or the encoder reads both texts at once
            return settings.as_dict(), measures
        folder = head.folder / TUNED_ENCODER
        _move_into(folder)
        (folder / _LENGTH).write_text(json.dumps({"max_seq_length": self.size}), "utf-8")
        probe = Probe.fit(self.run, self.examples, tuned=folder)
        by_head, by_probe = (
            values(logits, targets, self.settings).mean() for logits in (self.held_out_logits, probe.held_out_logits)
        )
        first, second = ("a probe on the trained encoder", probe.measures[0]), ("its own head", measures[0])
        if by_probe < by_head:
            first, second = second, first
        self.notes.append(
            f"kept {first[0]}, with {self.metric} {first[1].value:.4f}; {second[0]} has {second[1].value:.4f}"
        )
        if by_probe < by_head:
            (folder / _LENGTH).unlink()
            _move_out_of(folder)
            return settings.as_dict(), measures
        probe.save(head.folder)
        self.held_out_logits = probe.held_out_logits
        self.objective = f"{self.objective}, then {probe.objective}"
        return probe.settings.as_dict(), probe.measures

    def fingerprint(self, head: EncoderWithHead) -> str:
        """Return the fingerprint of the classifier, which is the head or a probe."""
        return load_classifier(head.folder).fingerprint


def _move_into(folder: Path) -> None:
    """Move everything beside a new folder into it."""
    files = list(folder.parent.iterdir())
    folder.mkdir()
    for file in files:
        file.rename(folder / file.name)


def _move_out_of(folder: Path) -> None:
    """Move everything in a folder beside it, and remove it."""
    for file in list(folder.iterdir()):
        file.rename(folder.parent / file.name)
    folder.rmdir()


def _class_weights(examples: Examples) -> Floats:
    """Return a weight for each class, (labels,): the inverse root of its frequency, with a mean of 1 over the rows."""
    counts = examples.targets(examples.learned).sum(0)
    weights = 1 / np.sqrt(np.maximum(counts, 1))
    scaled: Floats = (weights * counts.sum() / max(float(weights @ counts), 1e-9)).astype(np.float32)
    return scaled
