"""Train a masked language model: train, measure and write the folder."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import TrainingArguments

from ...core.files import write_atomic
from ...retriever.models.settings import ModelSettings, fingerprint
from ..data.tokenized import TokenRows
from ..encoders.base_model import set_dropout
from ..evaluation.best_so_far import BestSoFar
from ..runs import attention, environment
from ..runs.trainers.trainer import affordable, make_trainer, paced
from .data.masked_batches import MaskedBatches
from .data.masking import Masking
from .learner import MEASURED, MaskedLearner, measure_perplexity
from .masked_trainer import MaskedTrainer
from .perplexity import Perplexity
from .result import PretrainingResult, result_file
from .starting_model import StartingModel, row_files

if TYPE_CHECKING:
    from ..runs.training_run import TrainingRun
    from .config import PretrainingConfig


class MaskedTraining:
    """The training of one masked language model, in one process."""

    def __init__(self, run: TrainingRun[PretrainingConfig], start: StartingModel) -> None:
        config, tokenizer = run.config, start.masked.tokenizer
        self.run, self.config, self.start = run, config, start
        self.train_rows, self.held_out = map(TokenRows, row_files(run))
        torch.manual_seed(config.seed)
        set_dropout(start.masked.model, config.dropout)
        attention.speed_up(start.masked.model)
        self.learner = MaskedLearner(start.masked.model, pairs=config.objective != "mlm", teacher=start.teacher)
        self.learner.to(environment.device())
        masking = Masking.of(
            tokenizer.mask_token_id,
            tokenizer.all_special_ids,
            len(tokenizer),
            share=config.share,
            whole_words=config.whole_words,
        )
        self.batches, self.held_out_batches = (
            MaskedBatches(rows, masking, start.frame, start.max_length, config.objective, config.seed)
            for rows in (self.train_rows, self.held_out)
        )

    def train(self) -> PretrainingResult:
        """Train, measure, and write the model into the run's folder."""
        self.run.report("measuring the model to begin with")
        before = self.run.measure_once(self._measures)
        loop = self.run.train(self._trainer())
        result = PretrainingResult(
            folder=str(self.run.out),
            base=self.run.base,
            objective=self.config.objective,
            new_head=self.start.masked.new_head and self.run.settings["base"] is not None,
            counts=self.start.counts,
            steps=loop.steps,
            seconds=loop.seconds,
            texts_per_second=loop.texts_per_second,
            before=Perplexity.from_dict(before),
            after=self.measure(),
            resumed_from=loop.resumed_from,
            history=loop.history,
            planned=loop.planned,
            best_step=loop.best_step,
            loop_notes=loop.notes,
        )
        if result.before and result.after and result.before.losses:
            result.difference = result.after.difference(result.before.values)
        if environment.is_main_process():
            self._write(result)
        return result

    def _trainer(self) -> Any:
        config = self.config
        batch = config.batch_size * environment.processes()
        epoch_steps = math.ceil(math.ceil(len(self.train_rows) / batch) / config.accumulate)
        steps = config.steps or math.ceil(epoch_steps * config.epochs)
        rate = config.learning_rate or (5e-4 if self.start.masked.new_head else 1e-4)
        read = steps * batch * config.accumulate * float(np.mean(self.train_rows.lengths))
        measured = float(self.held_out.lengths.sum()) * min(1, MEASURED / max(1, len(self.held_out)))
        evaluations = affordable(config, read, measured)
        metric = "perplexity" if len(self.held_out) and evaluations else None
        options = paced(self.run, steps, config.batch_size, rate, metric)
        options |= {"greater_is_better": False, "remove_unused_columns": False, "ddp_find_unused_parameters": False}
        return make_trainer(
            self.run,
            MaskedTrainer,
            TrainingArguments,
            options,
            texts=batch * config.accumulate,
            metric=metric,
            evaluations=evaluations,
            lengths=self.train_rows.lengths,
            measure=self.measure,
            best=BestSoFar(self.run.folder / "best.json"),
            model=self.learner,
            data_collator=self.batches,
        )

    def measure(self) -> Perplexity | None:
        """Measure the rows kept for evaluation, masked the same way each time; None without such rows."""
        return measure_perplexity(
            self.learner,
            self.held_out_batches,
            batch_size=2 * self.config.batch_size,
            bf16=self.run.bf16,
            seed=self.config.seed,
        )

    def _measures(self) -> dict[str, Any] | None:
        perplexity = self.measure()
        return None if perplexity is None else asdict(perplexity)

    def _write(self, result: PretrainingResult) -> None:
        """Write the model's folder, and last the result, which marks it as complete."""
        folder = self.run.new_model_folder()
        self.start.masked.model.eval().save_pretrained(str(folder))
        self.start.masked.tokenizer.save_pretrained(str(folder))
        result.fingerprint = fingerprint(folder, ModelSettings.read(folder))
        write_atomic(result_file(self.run.folder), json.dumps(asdict(result)))
