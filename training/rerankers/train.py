"""Train a reranker: check settings and data and find negatives first, then train.

The modules that import torch are imported after the checks, so that mistakes are reported at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core import checks as limits
from ...core.errors import InputError
from ...retriever.models import files as model_files
from ..data import dataset as datasets
from ..data.dataset import Shape
from ..encoders import heldout
from ..runs import environment
from ..runs.run_folder import files_of
from ..runs.training_run import TrainingRun
from . import ranking_objectives
from . import rows as reranker_rows
from .config import RerankerConfig, check

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ...core.progress import OnProgress
    from ..encoders.result import TrainingResult


def train_reranker(
    data: str | Path | Iterable[Mapping[str, Any]],
    out: str | Path,
    *,
    base: str | None = None,
    config: RerankerConfig | None = None,
    split: str = "train",
    index: str | Path | None = None,
    encoder: str | None = None,
    progress: OnProgress | None = None,
) -> TrainingResult:
    """Train a cross-encoder and write it to the folder `out`, which `CrossEncoder(out)` loads too.

    Pairs of query and positive get their negatives from the hybrid search of an index, since a search will give this
    reranker the same passages; other shapes of data are learned unchanged. The weight of the first stage's score is
    chosen on held-out queries and written beside the model.

    :param base: a reranker, a sentence-transformers encoder or any Hugging Face encoder; a new head is added if it has
        none.
    :param index: the index that negatives come from; by default one is made of the collection, or of the positives.
    :param encoder: of that new index.
    :param progress: called with each event.
    :raises InputError: before the first step, for data or settings that do not fit.
    """
    environment.require("training")
    config = config or RerankerConfig()
    check(config)
    base = base or model_files.DEFAULT_MODEL
    for model in filter(None, (base, encoder)):  # before a large file is read
        model_files.find(model)
    run = TrainingRun(out, base, config, progress)
    run.open(
        {
            "data": datasets.source_name(data),
            "split": split,
            "index": str(index) if index else None,
            "encoder": encoder,
            "files": files_of(data),
        }
    )
    with run.discard_on_error():
        training_set = datasets.prepare_once(run, data, split=split, held_out=config.held_out, seed=config.seed)
        objective = ranking_objectives.choose(config.objective, training_set)
        if training_set.shape is not Shape.PAIRS and (index or encoder):
            raise InputError(
                f"an index and its encoder find negatives for {Shape.PAIRS.value}, but the data are "
                f"{training_set.shape.value}: leave them out"
            )
        if training_set.shape is not Shape.PAIRS:
            limits.left_out(config, ("negatives", "depth"), f"for {Shape.PAIRS.value}: leave it out of other data")
        account, counts = heldout.account(training_set), datasets.counts(training_set)
        run.report(account)
        if config.queries is not None:
            reranker_rows.leave_out(training_set, config.queries, config.seed)
        rows = reranker_rows.prepare(run, training_set, data, index, encoder)
        from .reranker_training import RerankerTraining

        result = RerankerTraining(run, rows, objective).train()
        result.rows, result.account = counts, account
        return result
