"""Train an encoder: check settings and data first, then train.

The modules that import torch are imported after the checks, so that mistakes are reported at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ...retriever.models import files as model_files
from ..data import dataset as datasets
from ..data.dataset import Shape
from ..runs import environment
from ..runs.run_folder import files_of
from ..runs.training_run import TrainingRun
from . import objectives
from .config import EncoderConfig, check, with_rate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ...core.progress import OnProgress
    from .encoder_training import Origin
    from .result import TrainingResult


def train_encoder(
    data: str | Path | Iterable[Mapping[str, Any]],
    out: str | Path,
    *,
    base: str | None = None,
    config: EncoderConfig | None = None,
    split: str = "train",
    development: str | Path | None = None,
    teacher: str | None = None,
    progress: OnProgress | None = None,
    origin: Origin | None = None,
) -> TrainingResult:
    """Train an encoder and write it to the folder `out`, which `SentenceTransformer(out)` loads too.

    If the process is killed, the same call resumes at the last checkpoint and takes the same steps as an uninterrupted
    run.

    :param data: anything that `dataset.prepare` reads.
    :param base: a sentence-transformers folder or name, or any Hugging Face encoder; all-MiniLM-L6-v2 by default.
    :param development: rows that choose the best checkpoint, instead of rows held out from `data`.
    :param teacher: an encoder to learn vectors from. The data are texts or, with the objective embeddings, pairs of a
        text and its translation.
    :param progress: called with each event.
    :param origin: base and data facts for the card, if other code prepared both.
    :raises InputError: before the first step, for data or settings that do not fit.
    """
    environment.require("training")
    config = with_rate(config or EncoderConfig())
    check(config)
    base = base or model_files.DEFAULT_MODEL
    for model in filter(None, (base, teacher, config.guide)):  # before a large file is read
        model_files.find(model)
    run = TrainingRun(out, base, config, progress)
    run.open(
        {
            "data": datasets.source_name(data),
            "split": split,
            "teacher": teacher,
            "development": development and datasets.source_name(development),
            "files": files_of(data, development),
        }
    )
    parts = {"held_out": config.held_out, "development": development, "seed": config.seed}
    training_set = datasets.prepare_once(run, data, split=split, **parts)
    with run.discard_on_error():
        _check_teacher(teacher, training_set.shape, config.objective)
        helpers = {"teacher": teacher is not None, "guide": config.guide is not None}
        objective = objectives.choose(config.objective, training_set.shape, **helpers)
        objectives.check_uses(objective, config)
        from .encoder_training import EncoderTraining

        return EncoderTraining(run, training_set, objective, teacher=teacher, origin=origin).train()


def _check_teacher(teacher: str | None, shape: Shape, objective: str | None) -> None:
    """:raises InputError: where there is nothing to learn from a teacher.

    Pairs need the objective by name: a translation can learn the vector of its text, but an answer must not learn the
    vector of its question.
    """
    if teacher is None or shape is Shape.TEXTS or (shape is Shape.PAIRS and objective == "embeddings"):
        return
    raise InputError(
        f"a teacher's vectors are learned from texts alone, but the data are {shape.value}: leave the teacher out, or "
        "give texts; for texts with their translations, take the objective embeddings"
    )
