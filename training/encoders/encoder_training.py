"""Train an encoder on prepared rows, in one process.

The siamese network of Reimers and Gurevych 2019 (arXiv:1908.10084): one transformer, pooled, on both sides. The loop
and the losses are sentence-transformers'.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
import torch
from datasets import Dataset
from sentence_transformers.sentence_transformer.trainer import SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.training_args import BatchSamplers, SentenceTransformerTrainingArguments

from ...core.errors import InputError
from ...retriever.models.load import load_encoder
from ..data import dataset as datasets
from ..data.batches import Batches, largest_batch
from ..data.dataset import Shape, TrainingSet
from ..data.distributed_batches import SharedBatches
from ..evaluation.best_so_far import BestSoFar
from ..runs import environment, start_weights
from ..runs.resumable_trainer import ResumableTrainer
from ..runs.trainer import affordable, count_steps, make_trainer, schedule
from . import heldout, losses
from .base_model import make_model, merge_adapter, shortest
from .config import EncoderConfig
from .evaluator import HeldOutEvaluator
from .objectives import OBJECTIVES
from .result import TrainingResult
from .teacher_vectors import teacher_vectors, with_vectors
from .tsdae import delete_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ...core.arrays import Floats
    from ..runs.model_card import Card
    from ..runs.training_run import LoopResult, TrainingRun

    Origin = tuple[str, dict[str, Any]]

CHARACTERS = 4  # of a token, about


class EncoderTrainer(ResumableTrainer, SentenceTransformerTrainer):
    """sentence-transformers' trainer with our checkpoints."""


class EncoderTraining:
    """The training of one encoder.

    :param data: rows that fit the objective.
    :param teacher: for texts alone, the encoder to learn vectors from.
    :param origin: base and data facts for the card, if they are not the run's own.
    """

    def __init__(
        self,
        run: TrainingRun[EncoderConfig],
        data: TrainingSet,
        objective: str,
        *,
        teacher: str | None = None,
        origin: Origin | None = None,
    ) -> None:
        self.run, self.config, self.data, self.objective = run, run.config, data, objective
        self.teacher, self.origin = teacher, origin or (run.base, {})
        self.table = data.table()
        self.account = heldout.account(data)
        run.report(self.account)
        run.report("loading the model")
        self.model = make_model(run.base, self.config, self._typical_tokens())
        self.base_prompts = dict(self.model.prompts)
        prompts = {"query": self.config.query_prompt, "document": self.config.document_prompt}
        self.model.prompts |= {kind: prompt for kind, prompt in prompts.items() if prompt is not None}
        options = losses.LossOptions(
            scale=self.config.scale,
            margin=self.config.margin,
            mini_batch=self.config.mini_batch,
            gather=environment.processes() > 1,
            temperature=self.config.temperature,
            guide=self._guide(),
        )
        self.loss = losses.build(objective, self.model, data, options, self.config.matryoshka)
        self.columns = len(data.texts)

    def _guide(self) -> Any:
        """Load the encoder that drops false negatives, if the objective takes one."""
        if "guide" not in OBJECTIVES[self.objective].takes:
            return None
        unchanged = EncoderConfig(seed=self.config.seed)
        return make_model(self.config.guide or self.run.base, unchanged, self._typical_tokens()).eval()

    def _typical_tokens(self) -> float:
        """Estimate the tokens of the longer texts, at four characters each."""
        sample = self.table.slice(0, 2_000)
        lengths = [np.percentile(pc.utf8_length(sample[name]).to_numpy(), 75) for name in self.data.texts]
        return float(max(lengths, default=0)) / 4

    def train(self) -> TrainingResult:
        """Train, measure and write the encoder."""
        trainer = self._trainer()
        start_weights.share(self.run, self.loss)
        before = self._before()
        texts = self.config.batch_size * self.config.accumulate * self.columns
        loop = self.run.train(trainer, texts=texts)
        result = TrainingResult.of(self.run, self.objective, loop, before)
        result.rows, result.account = datasets.counts(self.data), self.account
        if environment.is_main_process():
            self._finish(result, loop)
        return result

    def _before(self) -> heldout.Estimate | None:
        """Measure the base model on the held-out rows, once per run."""

        def measure() -> dict[str, Any] | None:
            self._report_measuring("the model to begin with")
            teacher = self._teacher_encode()
            encode = partial(self._encode, prompts=self.base_prompts)
            estimate = heldout.measure(encode, self.data, teacher=teacher, seed=self.config.seed)
            return None if estimate is None else estimate.as_json()

        return heldout.Estimate.of(self.run.measure_once(measure))

    def _report_measuring(self, model: str) -> None:
        if heldout.can_measure(self.data):
            self.run.report(f"measuring {model}")

    def _encode(self, texts: Any, kind: str, prompts: Mapping[str, str] | None = None) -> Floats:
        prompt = (prompts or self.model.prompts).get(kind) or None
        device = self.model.device.type
        with torch.autocast(device, torch.bfloat16, enabled=self.run.bf16), torch.no_grad():
            training = self.model.training
            vectors = self.model.encode(
                list(texts), prompt=prompt, normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True
            )
            self.model.train(training)
        return np.asarray(vectors, np.float32)

    def _teacher_encode(self) -> heldout.Encode | None:
        if self.teacher is None:
            return None
        teacher = load_encoder(self.teacher)
        return lambda texts, kind: teacher.encode(list(texts), kind="query" if kind == "query" else "document")

    # The trainer

    def _trainer(self) -> Any:
        training = self.data.training()
        if len(training) < 2:
            raise InputError(f"there are {len(training)} rows to train on: expected at least two")
        dataset = self._dataset(training)
        self.batches = batches = self._batches(training)
        metric, evaluations = self._metric(), self._evaluations(training, batches)
        if metric and not evaluations:
            self.run.report("no evaluation during the run: it would take more than a tenth of the time")
            metric = None
        grouped = OBJECTIVES[self.objective].grouped
        options = schedule(self.run, batches, metric) | {
            "prompts": self._prompts(),
            "batch_sampler": BatchSamplers.GROUP_BY_LABEL if grouped else lambda *_, **__: batches,
            "activation_checkpointing": self.config.checkpointing,
        }
        trainer = make_trainer(
            self.run,
            EncoderTrainer,
            SentenceTransformerTrainingArguments,
            options,
            texts=batches.batch_size * self.config.accumulate * self.columns,
            metric=metric,
            evaluations=evaluations,
            model=self.model,
            train_dataset=dataset,
            loss=self.loss,
            evaluator=HeldOutEvaluator(metric, self._measure, BestSoFar(self.run.folder / "best.json"))
            if metric
            else None,
        )
        trainer.data_collator.max_length = shortest(self.config.max_length, self.model)
        return trainer

    def _evaluations(self, training: NDArray[np.uint32], batches: Batches | SharedBatches) -> int:
        """Return the number of evaluations during the run, for the lengths of the texts that are read."""
        rows = np.linspace(0, len(training) - 1, min(len(training), 2_000)).astype(int)
        sample = datasets.take(self.table.select(list(self.data.texts)), training[rows])
        characters = float(np.mean(heldout.lengths(sample, self._longest()))) * environment.processes()
        read = count_steps(self.config, batches) * self.config.accumulate * batches.batch_size
        limit = CHARACTERS * (self.model.max_seq_length or 512)
        return affordable(self.config, read * characters, heldout.characters(self.data, limit))

    def _metric(self) -> str | None:
        """Return the measure that checkpoints are chosen by, if the held-out rows suffice."""
        needs_teacher = self.data.shape is Shape.TEXTS and self.teacher is None
        return None if needs_teacher or not heldout.can_tell(self.data) else heldout.NAMES[self.data.shape]

    def _measure(self) -> heldout.Estimate | None:
        return heldout.measure(self._encode, self.data, teacher=self._teacher_encode(), seed=self.config.seed)

    def _batches(self, training: NDArray[np.uint32]) -> Batches | SharedBatches:
        objective, processes = OBJECTIVES[self.objective], self._sharing_processes()
        batches = Batches(
            self.table,
            training,
            self._distinct(),
            batch_size=self._grouped_size(training) if objective.grouped else self._size(training),
            different=objective.different,
            seed=self.config.seed,
            longest=self._longest(),
        )
        return SharedBatches(batches, processes) if processes > 1 else batches

    def _size(self, training: NDArray[np.uint32]) -> int:
        """Return the rows of a batch: fewer than configured if the data have too few different texts."""
        processes = self._sharing_processes()
        size = max(1, min(self.config.batch_size, len(training) // processes)) * processes
        if not OBJECTIVES[self.objective].different:
            return size
        maximum = largest_batch(self.table, training, self._distinct(), size)
        if maximum == 1 < size and self.data.shape is Shape.PAIRS:
            raise InputError(
                f"the objective {self.objective} sets the positives of other rows against a query's own, but one text "
                "is in every row: give others, or negatives"
            )
        if maximum < size:
            self.run.report(
                f"batches have {maximum:,} rows, not {size:,}, since no two may share a text and few are different: "
                "where texts stand for classes, give text and label"
            )
        return max(1, maximum // processes) * processes

    def _longest(self) -> int:
        """Return about how many characters of a text are read in training."""
        return CHARACTERS * (shortest(self.config.max_length, self.model) or self.model.max_seq_length or 512)

    def _distinct(self) -> tuple[str, ...]:
        """Return the columns in which no two rows of a batch are equal: their texts, and the document they are from.

        A passage of a document may answer the query of another passage, so it would be a false negative.
        """
        return (*self.data.texts, *(["group"] if "group" in self.table.column_names else []))

    def _sharing_processes(self) -> int:
        """Return the number of processes that use each other's texts as negatives."""
        return environment.processes() if OBJECTIVES[self.objective].different else 1

    def _grouped_size(self, training: NDArray[np.uint32]) -> int:
        """Return an even number of rows, so that a batch has at least two of each of its classes."""
        counts = np.bincount(self.table["label"].to_numpy()[training])
        pairs = np.sort(counts[counts >= 2] // 2)[::-1]
        if len(pairs) < 2:
            raise InputError(
                f"the objective {self.objective} sets texts of a class against those of others: expected two classes "
                f"of two texts or more to train on, but {len(pairs)} of {np.count_nonzero(counts):,} have as many"
            )
        return max(4, min(self.config.batch_size, 2 * int(np.minimum(pairs, pairs[1]).sum())) // 2 * 2)

    def _prompts(self) -> dict[str, str] | None:
        """Return the base model's prompt for each column of queries or documents."""
        if self.objective == "tsdae":  # the target is the text without its prompt
            return {"noisy": self.model.prompts["document"]} if self.model.prompts["document"] else None
        queries = () if self.objective == "embeddings" else ("query", "sentence1")
        prompts = {
            column: self.model.prompts.get("query" if column in queries else "document") for column in self.data.texts
        }
        return {column: prompt for column, prompt in prompts.items() if prompt} or None

    def _dataset(self, training: NDArray[np.uint32]) -> Any:
        columns = [*self.data.texts, *(["label"] if "label" in self.table.column_names else [])]
        dataset = Dataset.from_file(str(self.data.folder / "rows.arrow")).select_columns(columns)
        if OBJECTIVES[self.objective].grouped:  # its sampler takes every row of the dataset
            dataset = dataset.select(training)
        if self.objective == "tsdae":
            dataset.set_transform(self._delete_words)
        if self.objective == "embeddings":
            assert self.teacher is not None
            length = int(self.model.get_embedding_dimension())
            dataset = with_vectors(dataset, teacher_vectors(self.run, self.teacher, dataset, length))
        return dataset

    def _delete_words(self, batch: dict[str, list[str]]) -> dict[str, list[str]]:
        epoch, seed = self.batches.epoch, self.config.seed
        return {"noisy": [delete_words(text, epoch, seed) for text in batch["text"]], "text": batch["text"]}

    # The finished encoder

    def _finish(self, result: TrainingResult, loop: LoopResult) -> None:
        """Write the encoder, and measure it as a search loads it."""
        if self.config.lora:
            merge_adapter(self.model)
        if self.config.keep:
            start_weights.average(self.run, self.loss, self.config.keep)
        folder = self.run.new_model_folder()
        self.model.eval()
        self.model.save_pretrained(str(folder), create_model_card=False)
        self._report_measuring("the trained model")
        encoder = load_encoder(str(folder))
        result.measured(
            heldout.measure(
                lambda texts, kind: encoder.encode(texts, kind="query" if kind == "query" else "document"),
                self.data,
                teacher=self._teacher_encode(),
                seed=self.config.seed,
            )
        )
        result.fingerprint = encoder.fingerprint
        self.run.finish(self._card(result, loop), result.history, result.after.name if result.after else None)

    def _card(self, result: TrainingResult, loop: LoopResult) -> Card:
        base, facts = self.origin
        card = self.run.card(
            kind="encoder",
            objective=f"{self.objective} ({OBJECTIVES[self.objective].source})",
            data=datasets.describe(self.data) | facts,
            measures=result.measures(),
            loop=loop,
            fingerprint=result.fingerprint,
        )
        return replace(
            card,
            base=base,
            config={**asdict(self.config), "teacher": self.teacher},
            notes=tuple(result.notes),
            verdict=result.difference.as_dict() if result.difference else None,
        )
