"""Train a head: check settings and data first, then train.

The modules that import torch are imported after the checks, so that mistakes are reported at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ...retriever.models import files as model_files
from ..data.dataset import source_name
from ..runs import environment
from ..runs.run_folder import files_of
from ..runs.training_run import TrainingRun
from . import squad
from .config import ReaderConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ...core.progress import OnProgress
    from .result import HeadResult

_MOST_HELD_OUT = 1_000  # questions


def train_reader(
    data: str | Path | Iterable[Mapping[str, Any]],
    out: str | Path,
    *,
    base: str | None = None,
    config: ReaderConfig | None = None,
    progress: OnProgress | None = None,
) -> HeadResult:
    """Train a reader and write it to the folder `out`, which transformers loads for question answering too.

    If the process is killed, the same call resumes at the last checkpoint and takes the same steps as an uninterrupted
    run. Some questions are read with another passage, so that the reader learns to find no answer.

    :param data: anything that `squad.read_questions` reads.
    :param base: a sentence-transformers folder or name, or any Hugging Face encoder; all-MiniLM-L6-v2 by default.
    :param progress: called with each event.
    :raises InputError: before the first step, for data or settings that do not fit.
    """
    environment.require("training")
    config = config or ReaderConfig()
    config.check()
    base = base or model_files.DEFAULT_MODEL
    model_files.find(base)  # before a large file is read
    run = TrainingRun(out, base, config, progress)
    run.open({"data": source_name(data), "files": files_of(data)})
    with run.discard_on_error():
        run.report("reading the data")
        questions = squad.read_questions(data)
        rows, held_out = squad.split(questions, config.held_out, _MOST_HELD_OUT, config.seed)
        if not any(question.answers for question in rows):
            raise InputError("no question to learn from has an answer: expected some that have one")
        from .reader_training import ReaderTraining

        training = ReaderTraining(run, rows, held_out)
    source = {"source": Path(data).name} if isinstance(data, (str, Path)) else {}
    return training.train({**source, "questions": len(questions)})
