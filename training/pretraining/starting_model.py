"""Load the model to pretrain and its teacher, and write the rows to learn from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...core.errors import InputError
from ..data.tokenized import TokenRows
from ..data.unlabelled_texts import documents
from ..encoders.base_model import keep_spread_layers
from . import masked_model
from .data.masked_batches import Frame
from .data.token_rows import prepare, split_held_out
from .teacher import MaskedTeacher
from .vocabulary import learn_vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ..runs.training_run import TrainingRun
    from .config import PretrainingConfig
    from .data.token_rows import RowCounts
    from .masked_model import MaskedModel

    Run = TrainingRun[PretrainingConfig]

_LENGTH = 128  # tokens of a row: as Devlin et al. had for nine tenths of the steps


@dataclass(frozen=True, slots=True)
class StartingModel:
    """The model to begin with, and the texts in its tokens."""

    masked: MaskedModel
    teacher: MaskedTeacher | None
    max_length: int  # tokens that both take
    frame: Frame
    counts: RowCounts  # of the rows on disk

    @classmethod
    def prepare(cls, run: Run, sources: Sequence[str | Path]) -> StartingModel:
        """Load the models and write the rows, in one of several processes at a time.

        :raises InputError: for texts or settings that do not fit.
        """
        name = run.settings["teacher"]
        torch.manual_seed(run.config.seed)
        with run.lock():
            masked = _load(run, sources)
            teacher = None if name is None else MaskedTeacher.load(name, run.base, masked.tokenizer)
            max_length = _max_length(run, masked, teacher)
            frame = Frame.of(masked.tokenizer, types=masked.has_types)
            counts = _write_rows(run, sources, masked.tokenizer, frame, max_length)
        return cls(masked, teacher, max_length, frame, counts)


def row_files(run: Run) -> tuple[Path, Path]:
    """Return the files of the rows to train on, and of the held-out rows."""
    return run.folder / "rows" / "train.arrow", run.folder / "rows" / "held_out.arrow"


class _TrainingTexts:
    """The texts to train on, for repeated iteration."""

    def __init__(self, run: Run, sources: Sequence[str | Path]) -> None:
        self._run, self._sources = run, sources

    def __iter__(self) -> Iterator[str]:
        return (text for text, is_held_out in _split_texts(self._run, self._sources) if not is_held_out)


def _split_texts(run: Run, sources: Sequence[str | Path]) -> Iterator[tuple[str, bool]]:
    """Return each text with whether it is held out."""
    minimum = 2 if run.config.objective == "mlm+nsp" else 1  # documents: the next sentence may be from another
    texts = documents(sources, run.settings["column"], run.progress)
    return split_held_out(texts, run.config.held_out, minimum, run.config.seed)


def _load(run: Run, sources: Sequence[str | Path]) -> MaskedModel:
    """Load the base, take some of the teacher's layers, or build a new BERT."""
    settings = run.settings
    if settings["from_scratch"] is not None:
        return masked_model.new_bert(settings["from_scratch"], _vocabulary(run, sources))
    masked = masked_model.load(settings["base"])
    if settings["layers"] is not None:
        keep_spread_layers(settings["base"], masked.model, settings["layers"])
    return masked


def _vocabulary(run: Run, sources: Sequence[str | Path]) -> Any:
    """Take the teacher's tokenizer, or learn one from the documents to train on, once in a run."""
    if run.settings["teacher"] is not None:
        return masked_model.load(run.settings["teacher"]).tokenizer
    folder = run.folder / "tokenizer"
    if not folder.is_dir():
        run.report("learning a vocabulary from the texts")
        tokenizer = learn_vocabulary(_TrainingTexts(run, sources), run.config.vocabulary)
        part = run.folder / "tokenizer.part"
        tokenizer.save_pretrained(str(part))
        part.replace(folder)
    return masked_model.read_tokenizer(folder)


def _max_length(run: Run, masked: MaskedModel, teacher: MaskedTeacher | None) -> int:
    """Return the number of tokens that the model and its teacher take.

    :raises InputError: when the settings ask for more.
    """
    limits = {run.base: masked.max_length}
    if teacher:
        limits.setdefault(run.settings["teacher"], teacher.max_length)
    name, limit = min(limits.items(), key=lambda item: item[1])
    if run.config.max_length is not None and run.config.max_length > limit:
        raise InputError(f"max length is {run.config.max_length} tokens, but {name} takes {limit} at most")
    return limit


def _write_rows(run: Run, sources: Sequence[str | Path], tokenizer: Any, frame: Frame, max_length: int) -> RowCounts:
    """Tokenize the texts into rows on disk, and check that they suffice."""
    config, has_pairs = run.config, run.config.objective != "mlm"
    run.report("reading and tokenizing the texts")
    counts = prepare(
        _split_texts(run, sources),
        run.folder / "rows",
        tokenizer,
        room=(config.max_length or min(_LENGTH, max_length)) - frame.size(2 if has_pairs else 1),
        pack=config.pack,
    )
    if counts.rows < 1 or (config.held_out and counts.held_out_rows < 1):
        raise InputError("the texts hold too few words to train on and to hold some out: expected more documents")
    if has_pairs and not counts.pairs:
        raise InputError(f"no text has two sentences to make a pair of, which {config.objective} asks for")
    if config.objective == "mlm+nsp":
        for file in row_files(run)[: 2 if config.held_out else 1]:
            if len(np.unique(TokenRows(file).documents)) < 2:
                raise InputError(
                    "the next sentence may be from another document: expected two documents with words at least, "
                    "to learn from and to hold out"
                )
    return counts
