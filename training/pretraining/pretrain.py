"""Pretrain an encoder on texts alone: masked words, and if wanted how two segments belong together.

Devlin et al. 2019 (arXiv:1810.04805) on a model that exists, which fits it to a domain (Gururangan et al. 2020,
arXiv:2004.10964), or from random weights. The loop is transformers'.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core import checks as limits
from ...core.errors import BinocleError, InputError
from ...core.files import write_atomic
from ...core.progress import ignore
from ...retriever.models.files import DEFAULT_MODEL, find
from ...retriever.models.settings import ModelSettings, fingerprint
from ..data.texts import check as check_texts
from ..data.texts import documents
from ..data.tokenized import Rows
from ..runs import environment
from ..runs.progress import lines
from ..runs.training_run import LoopResult, TrainingRun
from . import model as masked_model
from .batches import Frame, MaskedBatches
from .masking import Masking
from .perplexity import Perplexity, measure
from .rows import Counts, parted, prepare
from .segments import OBJECTIVES
from .trainer import masked_trainer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ...core.progress import OnProgress
    from ..runs.model_card import Card
    from .model import MaskedModel

_LENGTH = 128  # tokens of a row: as Devlin et al. had for nine tenths of the steps


@dataclass(frozen=True, slots=True)
class PretrainingConfig:
    """How to pretrain."""

    objective: str = "mlm"  # one of OBJECTIVES
    share: float = 0.15  # of the tokens, to be named
    whole_words: bool = False
    max_length: int | None = None  # tokens of a row, special ones included; 128, or what the base takes if it is less
    pack: bool = False  # rows go on from one document to the next
    vocabulary: int = 30_522  # tokens at most, of a new tokenizer
    epochs: float = 3.0
    steps: int | None = None  # instead of epochs
    batch_size: int = 32  # rows
    accumulate: int = 1  # batches to a step
    learning_rate: float | None = None  # 1e-4; 5e-4 where the head, or all, is new
    warmup: float = 0.06  # share of the steps
    weight_decay: float = 0.01
    dropout: float = 0.0  # Lan et al. 2020 found it to hurt here, and its random numbers cost a CPU half of each step
    bf16: bool | None = None  # None: where the hardware has it
    held_out: float = 0.05  # share of the documents
    evaluations: int = 8  # of the held-out rows during the run
    patience: int | None = 3  # evaluations without a gain before the run ends
    seed: int = 0


@dataclass(slots=True)
class PretrainingResult:
    """What a run made."""

    folder: str
    base: str
    objective: str
    new_head: bool  # the base had no head for masked words, and got one tied to its word embeddings
    counts: Counts
    steps: int
    seconds: float
    texts_per_second: float  # rows
    before: Perplexity | None
    after: Perplexity | None
    fingerprint: str = ""
    resumed_from: int | None = None
    history: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "history"}

    @classmethod
    def of(cls, facts: dict[str, Any]) -> PretrainingResult:
        """From what `as_dict` gave, with the history."""
        before, after = Perplexity.of(facts["before"]), Perplexity.of(facts["after"])
        return cls(**{**facts, "counts": Counts(**facts["counts"]), "before": before, "after": after})


def pretrain(
    texts: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    base: str | None = None,
    from_scratch: str | None = None,
    config: PretrainingConfig | None = None,
    column: str | None = None,
    progress: OnProgress | None = None,
    tell: Callable[[str], None] | None = None,
) -> PretrainingResult:
    """Pretrain on texts and write a transformers folder with its head to `out`.

    Killed, the same call goes on from its last checkpoint and takes the steps that it would have taken.

    :param texts: one or more of what `texts.documents` reads.
    :param base: a Hugging Face or sentence-transformers encoder by folder or name; all-MiniLM-L6-v2 unless given.
    :param from_scratch: a size in `masked_model.SIZES` instead, with a new vocabulary.
    :param column: the column of texts, where there are several.
    :param tell: told what is being done besides the steps.
    :raises InputError: before the first step, for texts or settings that do not fit.
    """
    environment.require("pretraining")
    config = config or PretrainingConfig()
    sources = [texts] if isinstance(texts, (str, Path)) else list(texts)
    check(config, sources, base, from_scratch)
    check_texts(sources, column)
    begun_with = None if from_scratch else base or DEFAULT_MODEL
    if begun_with is not None:
        find(begun_with)
    run = TrainingRun(out, begun_with or f"random weights ({from_scratch})", config, progress)
    run.open({"texts": list(map(str, sources)), "base": begun_with, "from_scratch": from_scratch, "column": column})
    if _written(run).is_file():
        made = PretrainingResult.of(json.loads(_written(run).read_text("utf-8")))
    else:
        try:
            session = _Session(run, sources, tell or lines(run.progress))
        except BinocleError:
            run.discard()
            raise
        made = session.train()
    if environment.is_main_process():
        run.finish(_card(run, made), made.history, "perplexity" if made.after else None)
    return made


def check(config: PretrainingConfig, sources: Sequence[Any], base: str | None, from_scratch: str | None) -> None:
    """Raise InputError for the first setting that cannot be."""
    if not sources:
        raise InputError("expected texts: a folder, a file or an index")
    if base is not None and from_scratch is not None:
        raise InputError("give a base or a size to begin with from scratch, not both")
    for what, value, known in (
        ("objective", config.objective, OBJECTIVES),
        ("size", from_scratch, masked_model.SIZES),
    ):
        if value is not None and value not in known:
            raise InputError(f"there is no {what} {value!r}: expected one of {', '.join(known)}")
    limits.above_0(config, "epochs", "steps", "batch_size", "accumulate", "learning_rate", "evaluations", "patience")
    limits.above_0(config, "share")
    limits.from_0(config, "weight_decay")
    limits.share(config, "warmup", "dropout", "held_out", "share")
    limits.seed(config)
    if config.vocabulary < 200:
        raise InputError(f"a vocabulary has 200 tokens at least, not {config.vocabulary}")
    if config.max_length is not None and config.max_length < 8:
        raise InputError(f"max length is in tokens, special ones included: at least 8, not {config.max_length}")
    if config.pack and config.objective != "mlm":
        raise InputError(f"packed rows mix documents, which {config.objective} must tell apart: leave one of them out")


class _Session:
    """One pretraining run in one process."""

    def __init__(
        self,
        run: TrainingRun[PretrainingConfig],
        sources: Sequence[str | Path],
        tell: Callable[[str], None],
    ) -> None:
        import torch

        from ..encoders.base_model import set_dropout

        environment.silence()
        self.run, self.config, self.tell = run, run.config, tell
        config = run.config
        self.pairs = config.objective != "mlm"
        self._sources = sources
        torch.manual_seed(config.seed)
        with run.lock():
            self.masked = self._begin()
            frame = Frame.of(self.masked.tokenizer, types=self.masked.has_types)
            self.counts = self._rows(frame)
        self.train_rows = Rows(run.folder / "rows" / "train.arrow")
        self.held_out = Rows(run.folder / "rows" / "held_out.arrow")
        torch.manual_seed(config.seed)
        set_dropout(self.masked.model, config.dropout)
        self.learner = masked_model.learner(self.masked.model, pairs=self.pairs).to(environment.device())
        tokenizer = self.masked.tokenizer
        masking = Masking.of(
            tokenizer.mask_token_id,
            tokenizer.all_special_ids,
            len(tokenizer),
            share=config.share,
            whole_words=config.whole_words,
        )
        self.batches, self.held_out_batches = (
            MaskedBatches(rows, masking, frame, self.masked.max_length, config.objective, config.seed)
            for rows in (self.train_rows, self.held_out)
        )

    def _begin(self) -> MaskedModel:
        config, asked = self.config, self.run.settings
        attention = environment.attention(config.max_length or _LENGTH)
        if asked["from_scratch"] is not None:
            return masked_model.begin(asked["from_scratch"], self._vocabulary(), attention=attention)
        found = masked_model.load(asked["base"], attention=attention)
        if config.max_length is not None and config.max_length > found.max_length:
            raise InputError(
                f"max length is {config.max_length} tokens, but {asked['base']} takes {found.max_length} at most"
            )
        return found

    def _vocabulary(self) -> Any:
        """A tokenizer learned from the documents to train on, once a run."""
        folder = self.run.folder / "tokenizer"
        if not folder.is_dir():
            self.tell("learning a vocabulary from the texts")
            learned = masked_model.learn_vocabulary(_Training(self), self.config.vocabulary)
            aside = self.run.folder / "tokenizer.part"
            learned.save_pretrained(str(aside))
            aside.replace(folder)
        return masked_model.read_tokenizer(folder)

    def parted(self, on_progress: OnProgress = ignore) -> Iterator[tuple[str, bool]]:
        """Each text with whether it is held out."""
        texts = documents(self._sources, self.run.settings["column"], on_progress)
        return parted(texts, self.config.held_out, self._least(), self.config.seed)

    def _least(self) -> int:
        """Documents to hold out: a sentence from another one needs two."""
        return 2 if self.config.objective == "mlm+nsp" else 1

    def _rows(self, frame: Frame) -> Counts:
        config = self.config
        self.tell("reading and tokenizing the texts")
        counts = prepare(
            self.parted(lambda event: self.tell(event.message or event.stage)),
            self.run.folder / "rows",
            self.masked.tokenizer,
            room=(config.max_length or min(_LENGTH, self.masked.max_length)) - frame.taken(2 if self.pairs else 1),
            pack=config.pack,
        )
        if counts.rows < 1 or (config.held_out and counts.held_out_rows < 1):
            raise InputError("the texts hold too few words to train on and to hold some out: expected more documents")
        if self.pairs and not counts.pairs:
            raise InputError(f"no text has two sentences to make a pair of, which {config.objective} asks for")
        if config.objective == "mlm+nsp" and counts.documents - counts.held_out_documents < 2:
            raise InputError("the next sentence may be from another document: expected two documents at least")
        return counts

    def train(self) -> PretrainingResult:
        """Train, and write the model beside the run."""
        before = self._before()
        ran = self.run.train(self._trainer(), texts=self.config.batch_size * self.config.accumulate)
        made = PretrainingResult(
            folder=str(self.run.out),
            base=self.run.base,
            objective=self.config.objective,
            new_head=self.masked.new_head and self.run.settings["base"] is not None,
            counts=self.counts,
            steps=ran.steps,
            seconds=ran.seconds,
            texts_per_second=ran.texts_per_second,
            before=before,
            after=self.measure(),
            resumed_from=ran.resumed_from,
            history=ran.history,
        )
        if environment.is_main_process():
            self._write(made)
        return made

    def _before(self) -> Perplexity | None:
        """The model that training begins with, measured once a run."""
        self.tell("measuring the model to begin with")
        facts = self.run.measure_once(lambda: (found := self.measure()) and asdict(found))
        return Perplexity.of(facts)

    def _trainer(self) -> Any:
        from transformers import TrainingArguments

        from ..runs.trainer import make_trainer, paced

        config = self.config
        batch = config.batch_size * int(os.environ.get("WORLD_SIZE", "1"))
        an_epoch = math.ceil(math.ceil(len(self.train_rows) / batch) / config.accumulate)
        steps = config.steps or math.ceil(an_epoch * config.epochs)
        rate = config.learning_rate or (5e-4 if self.masked.new_head else 1e-4)
        metric = "perplexity" if len(self.held_out) else None
        options = paced(self.run, steps, config.batch_size, rate, metric)
        options |= {"greater_is_better": False, "remove_unused_columns": False, "ddp_find_unused_parameters": False}
        return make_trainer(
            self.run,
            masked_trainer(),
            TrainingArguments,
            options,
            texts=batch * config.accumulate,
            metric=metric,
            lengths=self.train_rows.lengths,
            measure=self.measure,
            model=self.learner,
            data_collator=self.batches,
        )

    def measure(self) -> Perplexity | None:
        return measure(
            self.learner,
            self.held_out_batches,
            batch=2 * self.config.batch_size,
            bf16=environment.bf16(self.config),
            seed=self.config.seed,
        )

    def _write(self, made: PretrainingResult) -> None:
        """The model's folder, then word that it is whole."""
        ready = self.run.new_model_folder()
        model = self.masked.model.eval()
        model.save_pretrained(str(ready))
        self.masked.tokenizer.save_pretrained(str(ready))
        made.fingerprint = fingerprint(ready, ModelSettings.read(ready))
        write_atomic(_written(self.run), json.dumps(asdict(made)))


def _written(run: TrainingRun[Any]) -> Path:
    """The file that says what came of a run, once its model is written."""
    return run.folder / "trained.json"


class _Training:
    """The texts to train on, as often as wanted."""

    def __init__(self, session: _Session) -> None:
        self._session = session

    def __iter__(self) -> Iterator[str]:
        return (text for text, held in self._session.parted() if not held)


def _card(run: TrainingRun[PretrainingConfig], made: PretrainingResult) -> Card:
    config = run.config
    measures = [one for when in ("before", "after") if (found := getattr(made, when)) for one in found.measures(when)]
    words = "whole words" if config.whole_words else "words"
    also = {"mlm": "", "mlm+nsp": " and next sentence", "mlm+sop": " and sentence order (arXiv:1909.11942)"}
    loop = LoopResult(made.steps, made.seconds, made.texts_per_second)
    return run.card(
        kind="masked",
        objective=f"masked {words} (arXiv:1810.04805){also[config.objective]}",
        data=made.counts.as_dict(),
        measures=measures,
        loop=loop,
        fingerprint=made.fingerprint,
    )
