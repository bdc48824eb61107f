"""The modules that pretraining trains: a masked language model with its loss, and a head for pairs of segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from .data.masking import IGNORED
from .data.token_rows import sample
from .masked_model import masked_predictions
from .perplexity import Perplexity

if TYPE_CHECKING:
    from .data.masked_batches import MaskedBatches
    from .teacher import MaskedTeacher

MEASURED = 1_000  # rows in an evaluation; more would slow it and hardly sharpen the figure


class PairHead(nn.Module):
    """Two logits from the state of a pair's first token: BERT's pooler and next-sentence classifier."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense, self.classifier = nn.Linear(width, width), nn.Linear(width, 2)
        for layer in (self.dense, self.classifier):
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)

    def forward(self, state: Tensor) -> Tensor:
        """Logits (rows, 2) of states (rows, width)."""
        logits: Tensor = self.classifier(torch.tanh(self.dense(state)))
        return logits


class MaskedLearner(nn.Module):
    """A masked language model with its loss, and for pairs of segments a second head.

    :param teacher: compares the predictions in training; it is no part of the module.
    """

    def __init__(self, model: Any, *, pairs: bool, teacher: MaskedTeacher | None = None) -> None:
        super().__init__()
        self.model = model
        self.pair_head = PairHead(model.config.hidden_size) if pairs else None
        self._teacher = teacher

    def forward(
        self,
        labels: Tensor,
        pair_labels: Tensor | None = None,  # noqa: ARG002 - batches have them
        **inputs: Tensor,
    ) -> dict[str, Tensor | None]:
        """`tokens`: the loss of each masked token (tokens,), in order. `pairs`: logits (rows, 2), or None.

        In training with a teacher also `guesses` and `states`, as in `Lessons`.
        """
        positions = (labels.flatten() != IGNORED).nonzero()[:, 0]
        logits, states = masked_predictions(self.model, positions, inputs)
        losses = cross_entropy(logits.float(), labels.flatten()[positions], reduction="none")
        pairs = None if self.pair_head is None else self.pair_head(states[:, 0]).float()
        outputs = {"tokens": losses, "pairs": pairs}
        if self._teacher and self.training:
            outputs |= self._teacher.lessons(logits, states, positions, inputs)._asdict()
        return outputs


class _RowLosses(NamedTuple):
    """Arrays (rows,) of one batch."""

    losses: np.ndarray[Any, Any]  # sum over the row's masked tokens
    counts: np.ndarray[Any, Any]  # of masked tokens
    correct: np.ndarray[Any, Any]  # whether the pair is classified right
    labelled: np.ndarray[Any, Any]  # whether the row is a pair


def measure_perplexity(
    learner: MaskedLearner, batches: MaskedBatches, *, batch_size: int, bf16: bool, seed: int
) -> Perplexity | None:
    """Measure held-out rows, masked the same way each time; None if there are none."""
    if not len(batches.rows):
        return None
    device = next(learner.parameters()).device
    rows = sample(batches.rows, MEASURED)
    parts: list[_RowLosses] = []
    training = learner.training
    learner.eval()
    with torch.autocast(device.type, torch.bfloat16, enabled=bf16), torch.no_grad():
        for start in range(0, len(rows), batch_size):
            batch = batches([(0, row) for row in rows[start : start + batch_size]])
            parts.append(_row_losses(learner, {name: tensor.to(device) for name, tensor in batch.items()}))
    learner.train(training)
    losses, counts, correct, labelled = (np.concatenate(part) for part in zip(*parts, strict=True))
    accuracy = float(correct.sum() / labelled.sum()) if labelled.any() else None
    return Perplexity.from_losses(losses, counts, seed, pair_accuracy=accuracy)


def _row_losses(learner: MaskedLearner, batch: dict[str, Tensor]) -> _RowLosses:
    labels, pair_labels = batch["labels"], batch.get("pair_labels")
    outputs = learner(**batch)
    row = (labels != IGNORED).nonzero()[:, 0]
    sums = outputs["tokens"].new_zeros(len(labels)).index_add_(0, row, outputs["tokens"]).double().cpu().numpy()
    counts = (labels != IGNORED).sum(1).cpu().numpy()
    if pair_labels is None:
        nothing = np.zeros(len(labels), bool)
        return _RowLosses(sums, counts, nothing, nothing)
    correct = outputs["pairs"].argmax(1) == pair_labels
    return _RowLosses(sums, counts, correct.cpu().numpy(), (pair_labels != IGNORED).cpu().numpy())
