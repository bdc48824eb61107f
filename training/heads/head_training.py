"""The training of one head with its encoder: the steps, the checkpoints, and the folder that comes out."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from ...core.progress import Progress
from ...retriever.models.heads.head import load_head
from ...retriever.models.heads.head_settings import HeadSettings
from ...retriever.models.heads.torch_head import TorchHead
from ..pretraining.data.masked_batches import by_length
from ..runs import environment, start_weights
from ..runs.loop import Schedule, run_loop
from ..runs.prepared_steps import PreparedSteps
from ..runs.trainers import trackers
from .config import default_learning_rate
from .head_model import make_model
from .result import HeadResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from ...core.arrays import Integers
    from ...retriever.models.heads.head import EncoderWithHead
    from ...retriever.models.heads.head_settings import HeadKind
    from ..encoders.heldout import Estimate
    from ..runs.training_run import TrainingRun
    from .config import HeadConfig

    Base = tuple[Any, Any]  # a model of transformers, and its tokenizer

RowT = TypeVar("RowT")
BatchT = TypeVar("BatchT")
ConfigT = TypeVar("ConfigT", bound="HeadConfig")
_WARMUP = 0.1  # share of the steps
_TIMED_WARMUP = 50  # steps, where time limits the run: an epoch may have many more than fit


class HeadTraining(ABC, Generic[RowT, BatchT, ConfigT]):
    """Train a head on rows, and measure it on others."""

    kind: HeadKind
    metric: str  # the held-out measure during the run
    objective: str  # for the card

    def __init__(self, run: TrainingRun[ConfigT], base: Base, rows: Sequence[RowT], held_out: Sequence[RowT]) -> None:
        """:param base: the model to train and its tokenizer, of `load_base`."""
        self.run, self.config, self.rows, self.held_out = run, run.config, rows, held_out
        self.model, self._tokenizer = base
        settings = HeadSettings.of(Path(run.base), self.model.config.to_dict(), self.kind)
        self.head: EncoderWithHead = TorchHead(run.base, run.folder, "", settings, *base)
        self.tokenizer = self.head.tokenizer()
        self.size = min(self.config.max_length, settings.limit)
        self._order: tuple[int, Any] = (-1, None)  # of the rows in an epoch

    @classmethod
    def load_base(cls, run: TrainingRun[ConfigT], **options: Any) -> Base:
        """Load the base of a run with a new head, and complete the run's configuration with its learning rate.

        :param options: of the model's configuration, such as the names of its labels.
        """
        run.report("loading the model")
        model, tokenizer = make_model(run.base, cls.kind, run.config, **options)
        rate = run.config.learning_rate or default_learning_rate(model.config.hidden_size)
        run.config = replace(run.config, learning_rate=rate)  # for the card
        return model, tokenizer

    def train(self, facts: dict[str, Any], left_out: int = 0) -> HeadResult:
        """Train, measure and write the model.

        :param facts: of the data, for the card.
        :param left_out: number of rows in neither part, because a held-out row has their text.
        """
        start_weights.share(self.run, self.model)
        prepared = PreparedSteps(self._prepare)
        with trackers.reporting(self.run.report_to, self.run.out) as report:
            loop = run_loop(
                self.model,
                lambda step: self.loss(prepared(step)),
                self._schedule(),
                folder=self.run.checkpoints,
                measure=self.measure if self.held_out else None,
                progress=self.run.progress,
                report=report,
            )
        self.run.progress(Progress("measuring the model"))
        folder = self.run.new_model_folder()
        self.model.save_pretrained(str(folder))
        self._tokenizer.save_pretrained(str(folder))
        head = load_head(folder, self.kind)  # as it will be served
        settings, measures = self.judge(head)
        (folder / "binocle.json").write_text(json.dumps({self.kind.noun: settings}), "utf-8")
        rows = {"training": len(self.rows), "held_out": len(self.held_out)}
        rows |= {"left_out": left_out} if left_out else {}
        card_rows = [measure.as_dict() | {"when": "after"} for measure in measures]
        fingerprint = self.fingerprint(head)
        card = self.run.card(self.kind.noun, self.objective, facts | rows, card_rows, loop, fingerprint)
        self.run.finish(card, loop.history, self.metric if self.held_out else None)
        result = HeadResult(self.run.out, self.kind.noun, rows, loop, measures, fingerprint)
        if not self.held_out and self.config.held_out:
            result.notes.append(
                f"nothing was measured, and no probability is calibrated: {len(self.rows):,} rows are of too few "
                "documents to hold any out"
            )
        return result

    def fingerprint(self, head: EncoderWithHead) -> str:
        """Return the fingerprint of the finished model."""
        return head.fingerprint

    @abstractmethod
    def length(self, row: RowT) -> int:
        """Return a row's length, in any unit: rows of one length share a batch."""

    @abstractmethod
    def prepare(self, rows: list[RowT], random: np.random.Generator) -> BatchT:
        """Return what `loss` takes of a batch of rows. It must not use the GPU: other processes prepare for one."""

    @abstractmethod
    def loss(self, batch: BatchT) -> Tensor:
        """Return the loss of a batch."""

    @abstractmethod
    def measure(self) -> float:
        """Return the metric on held-out rows, of the model in its present state."""

    @abstractmethod
    def judge(self, head: EncoderWithHead) -> tuple[dict[str, Any], list[Estimate]]:
        """Return the settings of the finished model, and its measures on held-out rows."""

    def _prepare(self, step: int) -> BatchT:
        return self.prepare(self._batch(step), np.random.default_rng((self.config.seed, step)))

    @cached_property
    def _lengths(self) -> Integers:
        return np.array([self.length(row) for row in self.rows], np.int64)

    def _batch(self, step: int) -> list[RowT]:
        size = self.config.batch_size
        epoch, batch = divmod(step, math.ceil(len(self.rows) / size))
        if self._order[0] != epoch:
            self._order = epoch, by_length(self._lengths, size, np.random.default_rng((self.config.seed, epoch)))
        return [self.rows[number] for number in self._order[1][batch * size : (batch + 1) * size]]

    def _schedule(self) -> Schedule:
        config, count = self.config, len(self.rows)
        assert config.learning_rate is not None
        steps = config.steps or max(1, math.ceil(count / config.batch_size * config.epochs))
        return Schedule(
            learning_rate=config.learning_rate,
            batch_size=config.batch_size,
            steps=None if config.minutes else steps,
            seconds=60 * config.minutes if config.minutes else None,
            seed=config.seed,
            bf16=self.run.bf16 and environment.has_bf16(),
            evaluations=config.evaluations,
            rows=count,
            warmup=_TIMED_WARMUP if config.minutes else max(1, math.ceil(_WARMUP * steps)),
            metric=self.metric,
        )


def label_options(labels: Sequence[str]) -> dict[str, Any]:
    """Return the options of `load_base` for a head that has a logit for each label."""
    numbers = {label: number for number, label in enumerate(labels)}
    return {
        "num_labels": len(labels),
        "id2label": dict(enumerate(labels)),
        "label2id": numbers,
        "ignore_mismatched_sizes": True,
    }
