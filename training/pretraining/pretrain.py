"""Pretrain an encoder on texts by masked language modelling, optionally with a task on pairs of segments.

As in Devlin et al. 2019 (arXiv:1810.04805): on an existing model, which adapts it to a domain (Gururangan et al. 2020,
arXiv:2004.10964), or from random weights. The loop is transformers'.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from ...retriever.models.model_files import DEFAULT_MODEL, find
from ..data.unlabelled_texts import check as check_texts
from ..runs import environment
from ..runs.run_folder import files_of
from ..runs.training_run import LoopResult, TrainingRun
from .config import PretrainingConfig, check_start
from .result import PretrainingResult, result_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ...core.progress import OnProgress
    from ..runs.model_card import Card


def pretrain(
    texts: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    base: str | None = None,
    from_scratch: str | None = None,
    teacher: str | None = None,
    layers: int | None = None,
    config: PretrainingConfig | None = None,
    column: str | None = None,
    progress: OnProgress | None = None,
) -> PretrainingResult:
    """Pretrain on texts and write a transformers folder with its head to `out`.

    If the run is killed, the same call resumes it from its last checkpoint, with the same steps.

    :param texts: one or more sources of `data.unlabelled_texts.documents`.
    :param base: a Hugging Face or sentence-transformers encoder by folder or name; all-MiniLM-L6-v2 by default.
    :param from_scratch: a size of `config.SIZES` instead, with a new vocabulary, or the teacher's.
    :param teacher: a masked language model by folder or name: the model also learns its guesses for hidden tokens and,
        if it has the same width, its states.
    :param layers: number of the teacher's layers to start with, evenly spread.
    :param column: the column of texts, if there are several.
    :raises InputError: before the first step, for unsuitable texts or invalid settings.
    """
    environment.require("pretraining")
    config = config or PretrainingConfig()
    check_start(base, from_scratch, teacher, layers)
    config.check()
    sources = check_texts(texts, column)
    start = None if from_scratch else teacher if layers else base or DEFAULT_MODEL
    for model in filter(None, (start, teacher)):
        find(model)
    run = TrainingRun(out, start or f"random weights ({from_scratch})", config, progress)
    settings = {"texts": list(map(str, sources)), "base": start, "from_scratch": from_scratch, "column": column}
    files = files_of(*sources, leave_out=run.out)
    run.open({**settings, "teacher": teacher, "layers": layers, "files": files})
    file = result_file(run.folder)
    if file.is_file():  # killed after the last step
        result = PretrainingResult.from_dict(json.loads(file.read_text("utf-8")))
    else:
        with run.discard_on_error():
            environment.silence()
            from .masked_training import MaskedTraining
            from .starting_model import StartingModel

            training = MaskedTraining(run, StartingModel.prepare(run, sources))
        with run.release_on_error():
            result = training.train()
    if environment.is_main_process():
        with run.release_on_error():
            run.finish(_card(run, result), result.history, "perplexity" if result.after else None)
    return result


def _card(run: TrainingRun[PretrainingConfig], result: PretrainingResult) -> Card:
    measures = [
        row
        for when, perplexity in (("before", result.before), ("after", result.after))
        if perplexity
        for row in perplexity.measures(when)
    ]
    words = "whole words" if run.config.whole_words else "words"
    pairs = {"mlm": "", "mlm+nsp": " and next sentence", "mlm+sop": " and sentence order (arXiv:1909.11942)"}
    objective = f"masked {words} (arXiv:1810.04805){pairs[run.config.objective]}"
    if run.settings["teacher"] is not None:
        objective += f", taught by {run.settings['teacher']} (arXiv:1910.01108)"
    loop = LoopResult(
        result.steps,
        result.seconds,
        result.texts_per_second,
        history=result.history,
        planned=result.planned,
        best_step=result.best_step,
    )
    card = run.card("masked", objective, result.counts.as_dict(), measures, loop, result.fingerprint)
    return replace(card, notes=tuple(result.notes), verdict=result.difference.as_dict() if result.difference else None)
