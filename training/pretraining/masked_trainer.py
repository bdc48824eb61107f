"""transformers' trainer with our batches, losses and measure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch.nn.functional import cross_entropy
from transformers import Trainer

from ..runs.trainers.resumable_trainer import ResumableTrainer
from .data.masked_batches import EpochRows
from .data.masking import IGNORED
from .teacher import combined

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor

    from ..evaluation.best_so_far import BestSoFar
    from .data.masked_batches import RowInEpoch
    from .perplexity import Perplexity


class _RowNumbers:
    """A data set of row numbers: a batch needs only the epoch and the row."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: RowInEpoch) -> RowInEpoch:
        return row


class MaskedTrainer(ResumableTrainer, Trainer):
    """Train a `MaskedLearner`.

    :param lengths: of the rows to train on.
    :param measure: evaluates the held-out rows.
    :param best: of the evaluations.
    """

    def __init__(
        self, lengths: NDArray[Any], measure: Callable[[], Perplexity | None], best: BestSoFar, **options: Any
    ) -> None:
        self._lengths, self._measure, self._best = lengths, measure, best
        super().__init__(train_dataset=_RowNumbers(len(lengths)), eval_dataset=_RowNumbers(0), **options)

    def _get_train_sampler(self, train_dataset: Any = None) -> EpochRows:  # noqa: ARG002
        return EpochRows(self._lengths, self.args.train_batch_size, self.args.seed)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The mean over the masked tokens of the whole step, with a teacher's lessons, plus the mean over the pairs."""
        outputs = model(**inputs)

        def mean(values: Tensor) -> Tensor:
            count = len(values) if num_items_in_batch is None else num_items_in_batch
            value = values.sum() / max(count, 1)
            if num_items_in_batch is not None and self.args.average_tokens_across_devices:
                value = value * self.accelerator.num_processes
            return value

        loss = mean(outputs["tokens"])
        if "guesses" in outputs:
            states = outputs["states"]
            states = None if states is None else states.mean() / self.current_gradient_accumulation_steps
            loss = combined(loss, mean(outputs["guesses"]), states)
        if outputs["pairs"] is not None:
            labels = inputs["pair_labels"]
            pairs = cross_entropy(outputs["pairs"], labels, ignore_index=IGNORED, reduction="sum")
            pairs = pairs / (labels != IGNORED).sum().clamp(min=1)
            loss = loss + pairs / self.current_gradient_accumulation_steps
        return (loss, outputs) if return_outputs else loss

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Measure by our own function, which ignores the arguments, and log perplexity, loss and pair accuracy."""
        perplexity = self._measure()
        assert perplexity is not None
        metrics = {f"eval_{name}": value for name, value in self._best.metrics(perplexity).items()}
        metrics["eval_loss"] = math.log(perplexity.value)
        if perplexity.pair_accuracy is not None:
            metrics["eval_pair_accuracy"] = perplexity.pair_accuracy
        self.log(metrics)
        self.control: Any = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics
