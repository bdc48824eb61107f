"""Train an encoder: data, base model and objective in; a sentence-transformers folder with its card out.

The siamese network of Reimers and Gurevych 2019 (arXiv:1908.10084): one transformer, pooled, on both sides. The loop
and the losses are sentence-transformers'; here is what they are given.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError
from ...retriever.models.load import load_encoder
from ..data import dataset as rows
from ..data.batches import Batches, fitting
from ..data.dataset import Shape, TrainingSet
from ..data.distributed_batches import SharedBatches
from ..runs import environment
from ..runs.callbacks import watcher
from ..runs.checkpoints import resumable
from ..runs.model_card import Card
from ..runs.run_folder import RunFolder, files_of
from ..runs.trainer import arguments, quiet, schedule
from . import heldout
from . import losses as objectives
from .base_model import make_model, merge_adapter, shortest
from .config import EncoderConfig, check
from .result import TrainingResult
from .teacher_vectors import teacher_vectors, with_vectors
from .tsdae import delete_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..runs.progress import Progress


def train_encoder(
    data: str | Path | Iterable[Mapping[str, Any]],
    out: str | Path,
    *,
    base: str | None = None,
    config: EncoderConfig | None = None,
    split: str = "train",
    development: str | Path | None = None,
    teacher: str | None = None,
    progress: Progress | None = None,
    tell: Callable[[str], None] | None = None,
    origin: tuple[str, dict[str, Any]] | None = None,
) -> TrainingResult:
    """Train an encoder and write it to the folder `out`, which `SentenceTransformer(out)` loads too.

    Killed, the same call goes on from its last checkpoint and takes the steps that it would have taken.

    :param data: what `data.prepare` reads.
    :param base: a sentence-transformers folder or name, or any Hugging Face encoder; all-MiniLM-L6-v2 unless given.
    :param development: rows to choose the best checkpoint by, instead of some held out from `data`.
    :param teacher: an encoder whose vectors are to be learned, for texts alone.
    :param origin: the base and facts of the data that the card is to name, where both were made on the way.
    :raises InputError: before the first step, for data or settings that do not fit.
    """
    environment.require("training")
    from ...retriever.models.files import DEFAULT_MODEL, find

    config = config or EncoderConfig()
    check(config)
    base = base or DEFAULT_MODEL
    for model in filter(None, (base, teacher)):  # before a large file is read
        find(model)
    more: dict[str, Any] = {"split": split, "teacher": teacher, "development": development and rows.named(development)}
    more["files"] = files_of(data, development)
    run = RunFolder(Path(out), {"base": base, "config": asdict(config), "data": rows.named(data), **more})
    run.open()
    parts = {"held_out": config.held_out, "development": development, "seed": config.seed}
    prepared = rows.once(run, data, split=split, **parts)
    with run.unless_wrong():
        if teacher is not None and prepared.shape is not Shape.TEXTS:
            raise InputError(
                f"a teacher's vectors are learned from texts alone, but the data are {prepared.shape.value}: leave the "
                "teacher out, or give texts"
            )
        name = objectives.choose(config.objective, prepared.shape, teacher=teacher is not None)
        objectives.check_uses(name, config)
        return _Session(run, base, config, prepared, name, teacher, progress, tell, origin).train()


class _Session:
    """One training run in one process."""

    def __init__(
        self,
        run: RunFolder,
        base: str,
        config: EncoderConfig,
        data: TrainingSet,
        objective: str,
        teacher: str | None,
        progress: Progress | None,
        tell: Callable[[str], None] | None,
        origin: tuple[str, dict[str, Any]] | None,
    ) -> None:
        self.run, self.base, self.config, self.data, self.objective = run, base, config, data, objective
        self.progress, self.origin = progress, origin or (base, {})
        self.tell = tell if tell and environment.is_main_process() else lambda _: None
        self.table = data.table()
        self.account = heldout.account(data)
        self.tell(self.account)
        self.tell("loading the model")
        self.model = make_model(base, config, self._typical_tokens())
        self.teacher = teacher
        options = objectives.LossOptions(
            scale=self.config.scale,
            margin=self.config.margin,
            mini_batch=self.config.mini_batch,
            gather=environment.processes() > 1,
            temperature=self.config.temperature,
        )
        self.loss = objectives.build(objective, self.model, data, options, self.config.matryoshka)
        self.columns = len(data.texts)

    def _typical_tokens(self) -> float:
        """About how many tokens the longer texts have, at four characters each."""
        import pyarrow.compute as pc

        some = self.table.slice(0, 2_000)
        lengths = [np.percentile(pc.utf8_length(some[name]).to_numpy(), 75) for name in self.data.texts]
        return float(max(lengths, default=0)) / 4

    def train(self) -> TrainingResult:
        trainer = self._trainer()
        self.run.begin(self.loss)
        before = self._before()
        texts = self.config.batch_size * self.config.accumulate * self.columns
        ran = self.run.train(trainer, patience=self.config.patience, texts=texts)
        made = TrainingResult.of(self.run, self.objective, ran, before)
        made.rows, made.account = rows.counts(self.data), self.account
        if environment.is_main_process():
            self._finish(made)
        return made

    def _before(self) -> heldout.Estimate | None:
        """The base model on the held-out rows."""

        def measure() -> heldout.Estimate | None:
            self._tell_measuring("the model to begin with")
            return heldout.measure(self._encode, self.data, teacher=self._teacher_encode(), seed=self.config.seed)

        with self.run.alone():
            return heldout.Estimate.read_or_measure(self.run.folder / "before.json", measure)

    def _tell_measuring(self, what: str) -> None:
        if heldout.can_measure(self.data):
            self.tell(f"measuring {what}")

    def _encode(self, texts: Any, kind: str) -> Any:
        import torch

        prompt = self.model.prompts.get(kind) or None
        device = self.model.device.type
        with torch.autocast(device, torch.bfloat16, enabled=environment.bf16(self.config)), torch.no_grad():
            training = self.model.training
            vectors = self.model.encode(
                list(texts), prompt=prompt, normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True
            )
            self.model.train(training)
        return np.asarray(vectors, np.float32)

    def _teacher_encode(self) -> Any:
        if self.teacher is None:
            return None

        loaded = load_encoder(self.teacher)
        return lambda texts, kind: loaded.encode(list(texts), kind=kind)

    def _trainer(self) -> Any:
        from sentence_transformers.sentence_transformer.trainer import SentenceTransformerTrainer
        from sentence_transformers.sentence_transformer.training_args import (
            BatchSamplers,
            SentenceTransformerTrainingArguments,
        )
        from transformers import EarlyStoppingCallback

        config, training = self.config, self.data.training()
        if len(training) < 2:
            raise InputError(f"there are {len(training)} rows to train on: expected at least two")
        dataset = self._dataset(training)
        objective = objectives.OBJECTIVES[self.objective]
        whole = Batches(
            self.table,
            training,
            self.data.texts,
            batch_size=self._grouped_size(training) if objective.grouped else self._size(training),
            different=objective.different,
            seed=config.seed,
        )
        together = self._together()
        self.batches = batches = SharedBatches(whole, together) if together > 1 else whole
        measurable = heldout.can_tell(self.data) and (self.data.shape is not Shape.TEXTS or self.teacher is not None)
        metric = heldout.NAMES[self.data.shape] if measurable else None
        options = schedule(config, batches, metric) | {
            "prompts": self._prompts(),
            "batch_sampler": BatchSamplers.GROUP_BY_LABEL if objective.grouped else _sampler(batches),
            "activation_checkpointing": config.checkpointing,
        }
        callbacks = [
            watcher(
                self.progress,
                texts=batches.batch_size * config.accumulate * self.columns,
                metric=metric,
                log=self.run.folder / "log.jsonl",
            )
        ]
        if metric and config.patience:
            callbacks.append(EarlyStoppingCallback(early_stopping_patience=config.patience))
        trainer = resumable(SentenceTransformerTrainer)(
            model=self.model,
            args=SentenceTransformerTrainingArguments(**arguments(self.run.checkpoints, **options)),
            train_dataset=dataset,
            loss=self.loss,
            evaluator=self._evaluator(metric) if metric else None,
            callbacks=callbacks,
        )
        trainer.data_collator.max_length = shortest(config.max_length, self.model)
        quiet(trainer)
        return trainer

    def _size(self, training: Any) -> int:
        """Rows of a batch: fewer than asked for where so many different texts are not there to be told apart."""
        together = self._together()
        size = max(1, min(self.config.batch_size, len(training) // together)) * together
        if not objectives.OBJECTIVES[self.objective].different:
            return size
        most = fitting(self.table, training, self.data.texts, size)
        if most == 1 < size and self.data.shape is Shape.PAIRS:
            raise InputError(
                f"the objective {self.objective} sets the positives of other rows against a query's own, but one text "
                "is in every row: give others, or negatives"
            )
        if most < size:
            self.tell(
                f"batches have {most:,} rows, not {size:,}, since no two may share a text and few are different: "
                "where texts stand for classes, give text and label"
            )
        return max(1, most // together) * together

    def _together(self) -> int:
        """How many processes have each other's texts for negatives."""
        return environment.processes() if objectives.OBJECTIVES[self.objective].different else 1

    def _grouped_size(self, training: Any) -> int:
        """Rows of a batch in which each class has two at least: an even number, and no more than take turns in it."""
        counts = np.bincount(self.table["label"].to_numpy()[training])
        twos = np.sort(counts[counts >= 2] // 2)[::-1]
        if len(twos) < 2:
            raise InputError(
                f"the objective {self.objective} sets texts of a class against those of others: expected two classes "
                f"of two texts or more to train on, but {len(twos)} of {np.count_nonzero(counts):,} have as many"
            )
        return max(4, min(self.config.batch_size, 2 * int(np.minimum(twos, twos[1]).sum())) // 2 * 2)

    def _prompts(self) -> dict[str, str] | None:
        """The base model's prompts, for the columns that are queries and those that are documents."""
        if self.objective == "tsdae":  # whose target is the text alone
            return {"noisy": self.model.prompts["document"]} if self.model.prompts["document"] else None
        found = {
            column: self.model.prompts.get("query" if column in ("query", "sentence1") else "document")
            for column in self.data.texts
        }
        return {column: prompt for column, prompt in found.items() if prompt} or None

    def _dataset(self, training: Any) -> Any:
        from datasets import Dataset

        columns = [*self.data.texts, *(["label"] if "label" in self.table.column_names else [])]
        dataset = Dataset.from_file(str(self.data.folder / "rows.arrow")).select_columns(columns)
        if objectives.OBJECTIVES[self.objective].grouped:  # whose sampler takes all that it is given
            dataset = dataset.select(training)
        if self.objective == "tsdae":
            dataset.set_transform(self._noised)
        if self.objective == "embeddings":
            assert self.teacher is not None
            length = int(self.model.get_embedding_dimension())
            dataset = with_vectors(dataset, teacher_vectors(self.run, self.teacher, dataset, length, self.tell))
        return dataset

    def _noised(self, batch: dict[str, list[str]]) -> dict[str, list[str]]:
        epoch, seed = self.batches.epoch, self.config.seed
        return {"noisy": [delete_words(text, epoch, seed) for text in batch["text"]], "text": batch["text"]}

    def _evaluator(self, metric: str) -> Any:
        from sentence_transformers.base.evaluation import BaseEvaluator

        session, teacher = self, self._teacher_encode()

        class Evaluator(BaseEvaluator):
            primary_metric = metric

            def __call__(self, *_: Any, **__: Any) -> dict[str, float]:
                found = heldout.measure(session._encode, session.data, teacher=teacher, seed=session.config.seed)
                assert found is not None
                return found.as_metrics()

        return Evaluator()  # type: ignore[no-untyped-call]

    def _finish(self, made: TrainingResult) -> None:
        """Write the model beside the run, then in its place."""
        if self.config.lora:
            merge_adapter(self.model)
        if self.config.keep:
            self.run.average(self.loss, self.config.keep)
        ready = self.run.ready
        shutil.rmtree(ready, ignore_errors=True)
        self.model.eval()
        self.model.save_pretrained(str(ready), create_model_card=False)
        self._tell_measuring("the trained model")
        loaded = load_encoder(str(ready))
        teacher = self._teacher_encode()
        made.after = heldout.measure(
            lambda texts, kind: loaded.encode(texts, kind="query" if kind == "query" else "document"),
            self.data,
            teacher=teacher,
            seed=self.config.seed,
        )
        made.fingerprint = loaded.fingerprint
        self.run.finish(self._card(made), made.history, made.after.name if made.after else None)

    def _card(self, made: TrainingResult) -> Card:
        base, facts = self.origin
        return Card(
            kind="encoder",
            base=base,
            objective=f"{self.objective} ({objectives.OBJECTIVES[self.objective].source})",
            data=rows.describe(self.data) | facts,
            config={**asdict(self.config), "teacher": self.teacher},
            measures=[
                m.as_dict() | {"when": when} for when, m in (("before", made.before), ("after", made.after)) if m
            ],
            seconds=made.seconds,
            steps=made.steps,
            texts_per_second=made.texts_per_second,
            fingerprint=made.fingerprint,
            device=environment.device(),
            bf16=environment.bf16(self.config),
        )


def _sampler(batches: Batches | SharedBatches) -> Any:
    def of(dataset: Any, **_: Any) -> Batches | SharedBatches:  # noqa: ARG001 - sentence-transformers' signature
        return batches

    return of
