"""transformers' trainer with our batches, our losses and our measure."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

from .batches import Order
from .masking import IGNORED

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from .perplexity import Perplexity


class _Numbers:
    """The rows as a data set: which of them in which epoch is all that a batch needs to be made."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, drawn: tuple[int, int]) -> tuple[int, int]:
        return drawn


@cache
def masked_trainer() -> type[Any]:
    """`MaskedTrainer`, made when torch is first needed."""
    from torch.nn.functional import cross_entropy
    from transformers import Trainer

    from ..runs.resumable_trainer import ResumableTrainer

    class MaskedTrainer(ResumableTrainer, Trainer):
        """
        :param lengths: of the rows to train on.
        :param measure: what an evaluation is.
        """

        def __init__(self, lengths: NDArray[Any], measure: Callable[[], Perplexity | None], **options: Any) -> None:
            self._lengths, self._measure = lengths, measure
            super().__init__(train_dataset=_Numbers(len(lengths)), eval_dataset=_Numbers(0), **options)

        def _get_train_sampler(self, train_dataset: Any = None) -> Any:  # noqa: ARG002
            return Order(self._lengths, self.args.train_batch_size, self.args.seed)

        def compute_loss(
            self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            """The mean over the tokens asked for in the whole step, and that over the pairs."""
            made = model(**inputs)
            asked = len(made["tokens"]) if num_items_in_batch is None else num_items_in_batch
            loss = made["tokens"].sum() / max(asked, 1)
            if num_items_in_batch is not None and self.args.average_tokens_across_devices:
                loss = loss * self.accelerator.num_processes
            if made["pairs"] is not None:
                labels = inputs["pair_labels"]
                pairs = cross_entropy(made["pairs"], labels, ignore_index=IGNORED, reduction="sum")
                pairs = pairs / (labels != IGNORED).sum().clamp(min=1)
                loss = loss + pairs / self.current_gradient_accumulation_steps
            return (loss, made) if return_outputs else loss

        def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
            found = self._measure()
            assert found is not None
            metrics = {"eval_perplexity": found.value, "eval_loss": math.log(found.value)}
            if found.pair_accuracy is not None:
                metrics["eval_pair_accuracy"] = found.pair_accuracy
            self.log(metrics)
            self.control: Any = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
            return metrics

    return MaskedTrainer
