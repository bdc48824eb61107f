"""Train a reranker on prepared rows: a cross-encoder that reads query and passage together.

The loop and the losses are sentence-transformers'.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import losses
from sentence_transformers.cross_encoder.trainer import CrossEncoderTrainer
from sentence_transformers.cross_encoder.training_args import CrossEncoderTrainingArguments

from ...core.errors import InputError
from ...core.units import count_of
from ...retriever.models import model_files
from ...retriever.models import settings as model_settings
from ...retriever.models.load import load_reranker
from ...retriever.models.torch_loading import check_vocabulary, loading
from ..data import dataset as datasets
from ..data.batches import Batches
from ..encoders import heldout
from ..encoders.base_model import join_segments, keep_first_layers, save_model, set_dropout, shortest
from ..encoders.evaluator import HeldOutEvaluator
from ..encoders.objectives.objectives import are_cosines
from ..encoders.result import TrainingResult
from ..evaluation.best_so_far import BestSoFar
from ..runs import attention, environment, start_weights
from ..runs.trainers.resumable_trainer import ResumableTrainer
from ..runs.trainers.trainer import affordable, count_steps, make_trainer, schedule
from . import rows as reranker_rows
from .first_stage_weight import choose_weight
from .length_sorting import group_by_length
from .ranking_objectives import LISTS, OBJECTIVES

if TYPE_CHECKING:
    from pathlib import Path

    from ..runs.training_run import LoopResult, TrainingRun
    from .config import RerankerConfig

_SURE = 20.0  # of cosines, or of 1 and 0: ListNet's target is their softmax, which would be nearly uniform


class RerankerTrainer(ResumableTrainer, CrossEncoderTrainer):
    """sentence-transformers' trainer with our checkpoints."""


class RerankerTraining:
    """The training of one reranker.

    :param model: the `CrossEncoder` to train.
    """

    def __init__(
        self, run: TrainingRun[RerankerConfig], rows: reranker_rows.RerankerRows, objective: str, model: Any
    ) -> None:
        self.run, self.config, self.rows, self.data, self.objective = run, run.config, rows, rows.data, objective
        self.has_lists = self.data.shape in LISTS
        self.as_pairs = objective in ("binary", "mse") and self.has_lists
        self.table = self.data.table()
        options = {"mini_batch_size": -1} if OBJECTIVES[objective].whole_batch else {}
        self.model, self.loss = model, getattr(losses, OBJECTIVES[objective].loss)(model, **options)

    def train(self) -> TrainingResult:
        """Train, measure and write the reranker."""
        dataset, batches, texts = self._dataset()
        trainer = self._trainer(dataset, batches, texts)
        start_weights.share(self.run, self.loss)
        before = heldout.Estimate.of(self.run.measure_once(self._before))
        loop = self.run.train(trainer)
        result = TrainingResult.of(self.run, self.objective, loop, before)
        if self.config.keep:
            start_weights.average(self.run, self.loss, self.config.keep)
        self._report_measuring("the trained model")
        result.measured(self._measure())
        self._finish(result, loop)
        return result

    def _before(self) -> dict[str, Any] | None:
        self._report_measuring("the model to begin with")
        estimate = self._measure()
        return None if estimate is None else estimate.as_dict_with_values()

    def _trainer(self, dataset: Any, batches: Batches, texts: int) -> Any:
        metric = "ndcg@10" if self.has_lists else "spearman"
        count = self._evaluations(batches)
        evaluated = heldout.can_tell(self.data) and count > 0
        options = schedule(self.run, batches, metric if evaluated else None)
        return make_trainer(
            self.run,
            RerankerTrainer,
            CrossEncoderTrainingArguments,
            options | {"batch_sampler": lambda *_, **__: batches},
            texts=texts * self.config.accumulate,
            metric=metric if evaluated else None,
            evaluations=count,
            model=self.model,
            train_dataset=dataset,
            loss=self.loss,
            evaluator=HeldOutEvaluator(metric, self._measure, BestSoFar(self.run.folder / "best.json"))
            if evaluated
            else None,
        )

    def _evaluations(self, batches: Batches) -> int:
        """Return the number of evaluations during the run, for the rows that are read."""
        read = count_steps(self.config, batches) * self.config.accumulate * batches.batch_size
        width = len(self.data.texts) - 1 if self.as_pairs else 1  # rows of one query
        return affordable(self.config, read / width, len(self.data.held_out()))

    def _dataset(self) -> tuple[Any, Batches, int]:
        """Return the rows in the form that the loss takes, their batches, and the pairs of a batch."""
        names, numbers = self.data.texts, self.data.training()
        table, columns, width = self.table, names, 1
        if self.as_pairs:
            table, columns, width = reranker_rows.pairs(self.table, names), ("query", "passage"), len(names) - 1
            numbers = (numbers[:, None] + np.arange(width, dtype=np.uint32) * len(self.table)).ravel()
            dataset = Dataset(table, fingerprint="pairs")  # computing one would read the whole table
        else:
            labels = ["label"] if "label" in table.column_names else []
            dataset = Dataset.from_file(str(self.data.folder / "rows.arrow")).select_columns([*names, *labels])
        if len(numbers) < 2:
            raise InputError(f"the data have {count_of(len(numbers), 'row')} to train on: expected at least two")
        size = min(self.config.batch_size * width, len(numbers))
        batches = Batches(table, numbers, columns, batch_size=size, different=False, seed=self.config.seed)
        if not self.has_lists or self.as_pairs:
            return dataset, batches, size
        is_flat = not labels or are_cosines(self.data)
        scale = _SURE if self.objective == "listwise" and is_flat else 1.0
        spread = self.objective == "lambda"
        dataset.set_transform(partial(reranker_rows.as_lists, names=names, scale=scale, spread=spread))
        return dataset, batches, size * (len(names) - 1)

    def _report_measuring(self, model: str) -> None:
        if heldout.can_measure(self.data):
            self.run.report(f"measuring {model}")

    def _measure(self) -> heldout.Estimate | None:
        """Measure nDCG@10 of the positive among its candidates, or Spearman, on the held-out rows."""
        if not heldout.can_measure(self.data):
            return None
        table = datasets.take(self.table, self.data.held_out())
        columns = [table[name].to_pylist() for name in self.data.texts]
        scores = self._scores([(query, text) for query, *texts in zip(*columns, strict=True) for text in texts])
        seed = self.config.seed
        if not self.has_lists:
            return heldout.statistic("spearman", scores, table["label"].to_numpy(), seed)
        scores = scores.reshape(len(table), -1)
        ranks = (scores[:, 1:] >= scores[:, :1]).sum(1)  # of the positive, from 0; a tie counts against it
        values = np.where(ranks < 10, 1 / np.log2(ranks + 2), 0).astype(np.float32)
        return heldout.mean("ndcg@10", values, seed)

    def _scores(self, pairs: list[tuple[str, str]]) -> Any:
        training = self.model.training
        with torch.autocast(self.model.device.type, torch.bfloat16, enabled=self.run.bf16), torch.no_grad():
            scores = self.model.predict(
                pairs, batch_size=32, activation_fn=torch.nn.Identity(), show_progress_bar=False
            )
        self.model.train(training)
        return np.asarray(scores, np.float32)

    def _finish(self, result: TrainingResult, loop: LoopResult) -> None:
        folder = self.run.new_model_folder()
        save_model(self.model, folder)
        measures = result.measures()
        stages = [(stage.retriever, relevant) for stage in self.rows.stages if (relevant := stage.relevant())]
        if stages:
            self.run.report("choosing how much of the first stage to keep")
            measures += choose_weight(folder, stages, self.config.seed)
        result.fingerprint = load_reranker(str(folder)).fingerprint
        card = self.run.card(
            kind="reranker",
            objective=f"{self.objective} ({OBJECTIVES[self.objective].source})",
            data=datasets.describe(self.data),
            measures=measures,
            loop=loop,
            fingerprint=result.fingerprint,
        )
        verdict = result.difference.as_dict() if result.difference else None
        card = replace(card, notes=tuple(result.notes), verdict=verdict)
        self.run.finish(card, result.history, result.after.name if result.after else None)


def make_model(base: str, config: RerankerConfig) -> Any:
    """Load the `CrossEncoder` to train: one score for a pair.

    The base is a trained reranker, any Hugging Face encoder, or the transformer of a sentence-transformers encoder. A
    head is added if there is none.
    """
    environment.silence()
    torch.manual_seed(config.seed)
    folder = model_files.find(base)
    with loading(base, "a base for a reranker"):
        model = CrossEncoder(
            str(folder),
            num_labels=1,
            max_length=config.max_length,
            local_files_only=True,
            trust_remote_code=False,
            device=environment.device(),
            model_kwargs={"use_safetensors": True},
        )
    check_vocabulary(folder, model.tokenizer, model.transformers_model)
    if config.layers is not None:
        keep_first_layers(base, model[0].auto_model, config.layers)
    model.max_seq_length = shortest(config.max_length, model)
    set_dropout(model, config.dropout)
    attention.speed_up(getattr(model[0], "auto_model", None))
    group_by_length(model)
    if not _has_head(folder):
        join_segments(model)
    return model


def _has_head(folder: Path) -> bool:
    architectures = model_settings.read_config(folder).get("architectures") or [""]
    return str(architectures[0]).endswith("ForSequenceClassification")
