"""Train an encoder on prepared rows, in one process.

The siamese network of Reimers and Gurevych 2019 (arXiv:1908.10084): one transformer, pooled, on both sides. The loop
and the losses are sentence-transformers'.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cached_property, partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from datasets import DatasetDict
from sentence_transformers.sentence_transformer.trainer import SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.training_args import SentenceTransformerTrainingArguments

from ...core.units import count_of
from ...retriever.models.load import load_encoder
from ...retriever.models.model_files import find
from ...retriever.models.settings import is_reranker, read_modules
from ..data import dataset as datasets
from ..data.dataset import Shape, TrainingSet
from ..evaluation.best_so_far import BestSoFar
from ..runs import environment, start_weights
from ..runs.trainers.resumable_trainer import ResumableTrainer
from ..runs.trainers.trainer import affordable, count_steps, make_trainer, paced
from . import heldout
from .base_model import make_model, merge_adapter, save_model, shortest
from .config import SAMPLERS, EncoderConfig
from .evaluator import HeldOutEvaluator
from .objectives.objective_data import CHARACTERS, ObjectiveData
from .objectives.objectives import OBJECTIVES
from .result import TrainingResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...core.arrays import Floats
    from ...retriever.models.encoder import Encoder
    from ..runs.model_card import Card
    from ..runs.training_run import LoopResult, TrainingRun

    Origin = tuple[str, dict[str, Any]]


class EncoderTrainer(ResumableTrainer, SentenceTransformerTrainer):
    """sentence-transformers' trainer with our checkpoints."""


class EncoderTraining:
    """The training of one encoder.

    :param model: the `SentenceTransformer` to train.
    :param base_prompts: the prompts of its base, by kind.
    :param parts: the data sets by name. Held-out rows of the first measure the encoder.
    :param account: of the rows of each data set, for people.
    :param teacher: for texts alone, the encoder to learn vectors from.
    :param origin: base and data facts for the card, if they are not the run's own.
    """

    def __init__(
        self,
        run: TrainingRun[EncoderConfig],
        model: Any,
        base_prompts: Mapping[str, str],
        parts: Mapping[str, ObjectiveData],
        account: str,
        *,
        teacher: str | None = None,
        origin: Origin | None = None,
    ) -> None:
        self.run, self.config, self.model, self.parts = run, run.config, model, parts
        self.base_prompts, self.account = base_prompts, account
        self.teacher, self.origin = teacher, origin or (run.base, {})
        self.first = next(iter(parts.values()))
        self.data = self.first.data
        self.objective = ", ".join(dict.fromkeys(part.objective for part in parts.values()))
        self.loss = self.first.loss if len(parts) == 1 else torch.nn.ModuleList(part.loss for part in parts.values())
        self.columns = max(len(part.data.texts) for part in parts.values())

    @classmethod
    def load(
        cls,
        run: TrainingRun[EncoderConfig],
        data: TrainingSet,
        objective: str,
        *,
        name: str = "data",
        auxiliary: Sequence[tuple[str, TrainingSet, str]] = (),
        teacher: str | None = None,
        origin: Origin | None = None,
    ) -> EncoderTraining:
        """Load the base of a run, and build the loss of each data set.

        :param data: rows that fit the objective.
        :param name: of these data; further data sets have other names.
        :param auxiliary: further data sets with their names and objectives, without held-out rows.
        """
        more = [
            f"{count_of(len(part.training()), 'row')} of {name} ({objective})" for name, part, objective in auxiliary
        ]
        account = "; ".join([heldout.account(data), *more])
        run.report(account)
        if is_reranker(find(run.base)):
            run.report(f"{run.base} is a reranker: the encoder starts with its layers, and their states are averaged")
        run.report("loading the model")
        model = make_model(run.base, run.config)
        base_prompts = dict(model.prompts)
        prompts = {"query": run.config.query_prompt, "document": run.config.document_prompt}
        model.prompts |= {kind: prompt for kind, prompt in prompts.items() if prompt is not None}
        parts = {name: ObjectiveData.build(run, data, objective, model, teacher)}
        parts |= {name: ObjectiveData.build(run, part, objective, model) for name, part, objective in auxiliary}
        return cls(run, model, base_prompts, parts, account, teacher=teacher, origin=origin)

    def train(self) -> TrainingResult:
        """Train, measure and write the encoder."""
        trainer = self._trainer()
        start_weights.share(self.run, self.loss)
        before = self._before()
        loop = self.run.train(trainer)
        result = TrainingResult.of(self.run, self.objective, loop, before)
        result.rows, result.account = datasets.counts(self.data), self.account
        if self._is_unmeasured:
            result.loop_notes.append("nothing is measured, since texts alone have no measure without a teacher")
        if environment.is_main_process():
            self._finish(result, loop)
        return result

    def _before(self) -> heldout.Estimate | None:
        """Measure the base model on the held-out rows, once per run."""

        def measure() -> dict[str, Any] | None:
            self._report_measuring("the model to begin with")
            estimate = self._estimate(self._base_encode())
            return None if estimate is None else estimate.as_dict_with_values()

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

    def _base_encode(self) -> heldout.Encode:
        """Return how the base encodes: unlike this model, if an earlier round trained it or it pools in another way."""
        base, is_pooled_anew = self.origin[0], bool(self.config.pooling or self.config.pooling_layers)
        if base != self.run.base or (is_pooled_anew and read_modules(find(base))):
            return _served(base)
        return partial(self._encode, prompts=self.base_prompts)

    def _teacher_encode(self) -> heldout.Encode | None:
        return None if self.teacher is None else _served(self.teacher)

    # The trainer

    def _trainer(self) -> Any:
        batches = [part.make_batches() for part in self.parts.values()]
        steps = count_steps(self.config, range(self._batches_in_epoch()))
        metric, evaluations = self._metric(), self._evaluations(steps)
        if metric and not evaluations:
            self.run.report("no evaluation during the run: it would take more than a tenth of the time")
            metric = None
        size = batches[0].batch_size
        trainer = make_trainer(
            self.run,
            EncoderTrainer,
            SentenceTransformerTrainingArguments,
            paced(self.run, steps, size, self.config.learning_rate, metric) | self._data_options(),
            texts=size * self.config.accumulate * self.columns,
            metric=metric,
            evaluations=evaluations,
            model=self.model,
            **self._data(),
            evaluator=HeldOutEvaluator(metric, self._measure, BestSoFar(self.run.folder / "best.json"))
            if metric
            else None,
        )
        trainer.data_collator.max_length = shortest(self.config.max_length, self.model)
        return trainer

    def _data(self) -> dict[str, Any]:
        """Return dataset and loss, or one of each for every data set."""
        if len(self.parts) == 1:
            return {"train_dataset": self.first.dataset(), "loss": self.loss}
        rows = DatasetDict({name: part.dataset() for name, part in self._modules().items()})
        return {"train_dataset": rows, "loss": {name: part.loss for name, part in self._modules().items()}}

    def _modules(self) -> dict[str, ObjectiveData]:
        """Return the data sets by names that a module of torch may have, without dots."""
        return {f"data-{number}": part for number, part in enumerate(self.parts.values(), 1)}

    def _data_options(self) -> dict[str, Any]:
        """Return the training arguments that say how rows are read."""
        prompts: dict[str, Any] = {name: part.prompts() for name, part in self._modules().items() if part.prompts()}
        turns = cycle(self.parts.values())  # the trainer asks for the sampler of each data set in order
        return {
            "prompts": (prompts if len(self.parts) > 1 else self.first.prompts()) or None,
            "batch_sampler": lambda dataset, **options: next(turns).sampler(dataset, **options),
            "multi_dataset_batch_sampler": SAMPLERS[self.config.sampler],
            "activation_checkpointing": self.config.checkpointing,
        }

    def _batches_in_epoch(self) -> int:
        counts = [part.batches_in_epoch() for part in self.parts.values()]
        return sum(counts) if self.config.sampler == "proportional" else min(counts) * len(counts)

    def _evaluations(self, steps: int) -> int:
        """Return the number of evaluations during the run, for the lengths of the texts that are read."""
        batches = steps * self.config.accumulate * environment.processes()
        counts = {name: part.batches_in_epoch() for name, part in self.parts.items()}
        if self.config.sampler != "proportional":
            counts = dict.fromkeys(counts, 1)
        read = 0.0
        for name, part in self.parts.items():
            rows = part.rows[np.linspace(0, len(part.rows) - 1, min(len(part.rows), 2_000)).astype(int)]
            sample = datasets.take(part.table.select(list(part.data.texts)), rows)
            characters = float(np.mean(heldout.lengths(sample, part.longest())))
            read += batches * counts[name] / sum(counts.values()) * part.batches.batch_size * characters
        limit = CHARACTERS * (self.model.max_seq_length or 512)
        return affordable(self.config, read, heldout.characters(self.data, limit, self._distractors))

    @property
    def _is_unmeasured(self) -> bool:
        """Whether the data have no measure: texts agree with a teacher or with nothing."""
        return self.data.shape is Shape.TEXTS and self.teacher is None

    def _metric(self) -> str | None:
        """Return the measure that checkpoints are chosen by, if the held-out rows suffice."""
        return None if self._is_unmeasured or not heldout.can_tell(self.data) else heldout.NAMES[self.data.shape]

    def _measure(self) -> heldout.Estimate | None:
        return self._estimate(self._encode)

    @cached_property
    def _distractors(self) -> list[str]:
        return heldout.choose_distractors(self.data)

    def _estimate(self, encode: heldout.Encode) -> heldout.Estimate | None:
        return heldout.measure(
            encode,
            self.data,
            distractors=self._distractors,
            teacher=self._teacher_encode(),
            has_queries=self.first.has_queries,
            seed=self.config.seed,
        )

    # The finished encoder

    def _finish(self, result: TrainingResult, loop: LoopResult) -> None:
        """Write the encoder, and measure it as a search loads it."""
        if self.config.lora:
            merge_adapter(self.model)
        if self.config.keep:
            start_weights.average(self.run, self.loss, self.config.keep)
        folder = self.run.new_model_folder()
        save_model(self.model, folder)
        self._report_measuring("the trained model")
        encoder = load_encoder(str(folder))
        result.measured(self._estimate(_encode_of(encoder)))
        result.fingerprint = encoder.fingerprint
        self.run.finish(self._card(result, loop), result.history, result.after.name if result.after else None)

    def _auxiliary(self) -> dict[str, Any]:
        """Describe the data sets after the first."""
        auxiliary = {
            name: {**datasets.describe(part.data), "objective": part.objective}
            for name, part in self.parts.items()
            if part is not self.first
        }
        return {"more": auxiliary} if auxiliary else {}

    def _card(self, result: TrainingResult, loop: LoopResult) -> Card:
        base, facts = self.origin
        card = self.run.card(
            kind="encoder",
            objective="; ".join(f"{name} ({OBJECTIVES[name].source})" for name in self.objective.split(", ")),
            data=datasets.describe(self.data) | self._auxiliary() | facts,
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


def _served(name: str) -> heldout.Encode:
    """Return how an encoder encodes when it is used in a search."""
    return _encode_of(load_encoder(name))


def _encode_of(encoder: Encoder) -> heldout.Encode:
    return lambda texts, kind: encoder.encode(list(texts), kind="query" if kind == "query" else "document")
