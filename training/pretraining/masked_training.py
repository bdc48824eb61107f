"""Train a masked language model: read the texts, train, measure and write the folder."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import TrainingArguments

from ...core.errors import InputError
from ...core.files import write_atomic
from ...retriever.models.settings import ModelSettings, fingerprint
from ..data.texts import documents
from ..data.tokenized import Rows
from ..encoders.base_model import keep_spread_layers, set_dropout
from ..evaluation.best_so_far import BestSoFar
from ..runs import attention, environment
from ..runs.trainers.trainer import affordable, make_trainer, paced
from . import model as masked_model
from .data.batches import Frame, MaskedBatches
from .data.masking import Masking
from .data.rows import prepare, split_held_out
from .learner import MEASURED, MaskedLearner, measure_perplexity
from .perplexity import Perplexity
from .result import PretrainingResult, result_file
from .teacher import MaskedTeacher
from .trainer import MaskedTrainer
from .vocabulary import learn_vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ..runs.training_run import TrainingRun
    from .config import PretrainingConfig
    from .data.rows import Counts
    from .model import MaskedModel

_LENGTH = 128  # tokens of a row: as Devlin et al. had for nine tenths of the steps


class MaskedTraining:
    """The training of one masked language model, in one process."""

    def __init__(self, run: TrainingRun[PretrainingConfig], sources: Sequence[str | Path]) -> None:
        self.run, self.config = run, run.config
        config = run.config
        self.pairs = config.objective != "mlm"
        self._sources = sources
        torch.manual_seed(config.seed)
        with run.lock():
            self.masked = self._model()
            self._teacher = self._load_teacher()
            self._limit = self._max_length()
            frame = Frame.of(self.masked.tokenizer, types=self.masked.has_types)
            self.counts = self._rows(frame)
        self.train_rows = Rows(run.folder / "rows" / "train.arrow")
        self.held_out = Rows(run.folder / "rows" / "held_out.arrow")
        torch.manual_seed(config.seed)
        set_dropout(self.masked.model, config.dropout)
        attention.speed_up(self.masked.model)
        self.learner = MaskedLearner(self.masked.model, pairs=self.pairs, teacher=self._teacher)
        self.learner.to(environment.device())
        tokenizer = self.masked.tokenizer
        masking = Masking.of(
            tokenizer.mask_token_id,
            tokenizer.all_special_ids,
            len(tokenizer),
            share=config.share,
            whole_words=config.whole_words,
        )
        self.batches, self.held_out_batches = (
            MaskedBatches(rows, masking, frame, self._limit, config.objective, config.seed)
            for rows in (self.train_rows, self.held_out)
        )

    def _model(self) -> MaskedModel:
        """Load the base, take some of the teacher's layers, or build a new BERT."""
        settings = self.run.settings
        if settings["from_scratch"] is not None:
            return masked_model.new_bert(settings["from_scratch"], self._vocabulary())
        masked = masked_model.load(settings["base"])
        if settings["layers"] is not None:
            keep_spread_layers(settings["base"], masked.model, settings["layers"])
        return masked

    def _load_teacher(self) -> MaskedTeacher | None:
        name = self.run.settings["teacher"]
        return None if name is None else MaskedTeacher.load(name, self.run.base, self.masked.tokenizer)

    def _max_length(self) -> int:
        """Return the number of tokens that the model and its teacher take.

        :raises InputError: when the settings ask for more.
        """
        limits = {self.run.base: self.masked.max_length}
        if self._teacher:
            limits.setdefault(self.run.settings["teacher"], self._teacher.max_length)
        name, limit = min(limits.items(), key=lambda item: item[1])
        if self.config.max_length is not None and self.config.max_length > limit:
            raise InputError(f"max length is {self.config.max_length} tokens, but {name} takes {limit} at most")
        return limit

    def _vocabulary(self) -> Any:
        """Take the teacher's tokenizer, or learn one from the documents to train on, once in a run."""
        if self.run.settings["teacher"] is not None:
            return masked_model.load(self.run.settings["teacher"]).tokenizer
        folder = self.run.folder / "tokenizer"
        if not folder.is_dir():
            self.run.report("learning a vocabulary from the texts")
            tokenizer = learn_vocabulary(_TrainingTexts(self), self.config.vocabulary)
            part = self.run.folder / "tokenizer.part"
            tokenizer.save_pretrained(str(part))
            part.replace(folder)
        return masked_model.read_tokenizer(folder)

    def split_texts(self) -> Iterator[tuple[str, bool]]:
        """Each text with whether it is held out."""
        texts = documents(self._sources, self.run.settings["column"], self.run.progress)
        return split_held_out(texts, self.config.held_out, self._min_held_out(), self.config.seed)

    def _min_held_out(self) -> int:
        """Minimum number of held-out documents: a sentence from another document needs two."""
        return 2 if self.config.objective == "mlm+nsp" else 1

    def _rows(self, frame: Frame) -> Counts:
        """Tokenize the texts into rows on disk, and check that they suffice."""
        config = self.config
        self.run.report("reading and tokenizing the texts")
        counts = prepare(
            self.split_texts(),
            self.run.folder / "rows",
            self.masked.tokenizer,
            room=(config.max_length or min(_LENGTH, self._limit)) - frame.size(2 if self.pairs else 1),
            pack=config.pack,
        )
        if counts.rows < 1 or (config.held_out and counts.held_out_rows < 1):
            raise InputError("the texts hold too few words to train on and to hold some out: expected more documents")
        if self.pairs and not counts.pairs:
            raise InputError(f"no text has two sentences to make a pair of, which {config.objective} asks for")
        if config.objective == "mlm+nsp":
            for file in ("train.arrow", "held_out.arrow")[: 2 if config.held_out else 1]:
                if len(np.unique(Rows(self.run.folder / "rows" / file).documents)) < 2:
                    raise InputError(
                        "the next sentence may be from another document: expected two documents with words at least, "
                        "to learn from and to hold out"
                    )
        return counts

    def train(self) -> PretrainingResult:
        """Train, measure, and write the model into the run's folder."""
        self.run.report("measuring the model to begin with")
        before = self.run.measure_once(self._measures)
        loop = self.run.train(self._trainer(), texts=self.config.batch_size * self.config.accumulate)
        result = PretrainingResult(
            folder=str(self.run.out),
            base=self.run.base,
            objective=self.config.objective,
            new_head=self.masked.new_head and self.run.settings["base"] is not None,
            counts=self.counts,
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
        rate = config.learning_rate or (5e-4 if self.masked.new_head else 1e-4)
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
        self.masked.model.eval().save_pretrained(str(folder))
        self.masked.tokenizer.save_pretrained(str(folder))
        result.fingerprint = fingerprint(folder, ModelSettings.read(folder))
        write_atomic(result_file(self.run.folder), json.dumps(asdict(result)))


class _TrainingTexts:
    """The texts to train on, for repeated iteration."""

    def __init__(self, training: MaskedTraining) -> None:
        self._training = training

    def __iter__(self) -> Iterator[str]:
        return (text for text, is_held_out in self._training.split_texts() if not is_held_out)
