"""Train an encoder: check settings and data first, then train.

The modules that import torch are imported after the checks, so that mistakes are reported at once. Only the dimensions
of a teacher need the base itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import checks as limits
from ...core.errors import InputError
from ...retriever.models import model_files
from ...retriever.models.load import load_encoder
from ..data import dataset as datasets
from ..data.dataset import Shape
from ..data.sources import by_name
from ..runs import environment
from ..runs.run_folder import check_outside, files_of
from ..runs.training_run import TrainingRun
from .config import EncoderConfig, check, check_whole, with_rate
from .objectives import objectives

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ...core.progress import OnProgress
    from ..data.dataset import TrainingSet
    from .encoder_training import Origin
    from .result import TrainingResult

    Data = str | Path | Iterable[Mapping[str, Any]]
    Source = tuple[Any, str | None]  # data, and the name of the objective that is asked for


def train_encoder(
    data: Data | Mapping[str, Data | tuple[Data, str | None]],
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

    :param data: anything that `dataset.prepare` reads; or a mapping from names to several data sets, each alone or in a
        pair with its objective. Rows of the first are held out and measured. `config.sampler` mixes the batches.
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
    check_whole(base)
    for model in filter(None, (base, teacher, config.guide)):  # before a large file is read
        model_files.find(model)
    sources = _sources(data, config)
    if len(sources) > 1 and (teacher or environment.processes() > 1):
        raise InputError("several data sets are trained on in one process and without a teacher: give one data set")
    if teacher is not None and config.objective != "tsdae":
        _check_dimensions(base, config, teacher)
    run = TrainingRun(out, base, config, progress)
    check_outside(run.out, teacher)
    run.open(_run_settings(sources, split, teacher, development))
    with run.discard_on_error():
        sets = _training_sets(run, [source for source, _ in sources.values()], split, development, teacher)
        names = _objectives(config, sets, [name for _, name in sources.values()], teacher)
        from .encoder_training import EncoderTraining

        (name, *_), *auxiliary = zip(sources, sets, names, strict=True)
        training = EncoderTraining.load(
            run, sets[0], names[0], name=name, auxiliary=auxiliary, teacher=teacher, origin=origin
        )
        return training.train()


def _run_settings(
    sources: dict[str, Source], split: str, teacher: str | None, development: str | Path | None
) -> dict[str, Any]:
    """Return the settings that a call must repeat to resume the run, beside its base and its configuration."""
    names = [(name, datasets.source_name(source), objective) for name, (source, objective) in sources.items()]
    return {
        "data": names if len(names) > 1 else names[0][1],
        "split": split,
        "teacher": teacher,
        "development": development and datasets.source_name(development),
        "files": files_of(*(source for source, _ in sources.values()), development),
    }


def _objectives(
    config: EncoderConfig, sets: list[TrainingSet], names: list[str | None], teacher: str | None
) -> list[str]:
    """Return the objective of each data set: the named one, or else one that fits its columns.

    :raises InputError: if an objective does not fit the columns, or a setting that no objective uses is given.
    """
    _check_teacher(teacher, sets[0].shape, names[0])
    models = {"teacher": teacher is not None, "guide": config.guide is not None}
    objective_names = [objectives.choose(name, part.shape, **models) for name, part in zip(names, sets, strict=True)]
    objectives.check_uses(config, *objective_names)
    if config.lora is not None and "tsdae" in objective_names:
        raise InputError("the objective tsdae trains all weights with its decoder's: leave --lora out")
    return objective_names


def _training_sets(
    run: TrainingRun[EncoderConfig],
    sources: list[Any],
    split: str,
    development: str | Path | None,
    teacher: str | None,
) -> list[TrainingSet]:
    """Prepare the data sets of a run. Rows are held out from the first; the others share no text with these rows."""
    seed = run.config.seed
    parts: dict[str, Any] = {"held_out": run.config.held_out, "development": development, "seed": seed}
    sets = [datasets.prepare_once(run, sources[0], split=split, **parts)]
    if sets[0].shape is Shape.TEXTS and teacher is None:
        _check_unmeasured(run.config, development)
        sets[0].part = np.full_like(sets[0].part, datasets.TRAIN)
    parts = {"held_out": 0.0, "main": sets[0], "seed": seed}
    for number, source in enumerate(sources[1:], 2):
        sets.append(datasets.prepare_once(run, source, name=f"data-{number}", split=split, **parts))
    return sets


def _check_unmeasured(config: EncoderConfig, development: str | Path | None) -> None:
    """:raises InputError: for an option of the measurement, which texts alone do not have."""
    why = "for data with a measure, which texts alone do not have without a teacher: leave it out"
    limits.left_out(config, ("evaluations", "patience", *(("held_out",) if config.held_out else ())), why)
    if development is not None:
        raise InputError(f"a file of held-out rows is {why}")


def _sources(data: Any, config: EncoderConfig) -> dict[str, Source]:
    """Return each source with the objective that is asked for, by name.

    :raises InputError: for a mapping without data.
    """

    def with_objective(source: Any) -> Source:
        is_pair = isinstance(source, tuple) and len(source) == 2 and not isinstance(source[1], Mapping)
        return source if is_pair else (source, config.objective)

    return {name: with_objective(source) for name, source in by_name(data).items()}


def _check_dimensions(base: str, config: EncoderConfig, teacher: str) -> None:
    """:raises InputError: when the teacher's vectors are shorter than the student's."""
    from .base_model import make_model

    student, dim = int(make_model(base, config).get_embedding_dimension()), load_encoder(teacher).dim
    if dim < student:
        raise InputError(
            f"the teacher's vectors have {dim} dimensions, the student's {student}: expected as many or more"
        )


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
