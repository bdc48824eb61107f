"""Train a reranker: check settings and data and find negatives first, then train.

The modules that import torch are imported after the checks, so that mistakes are reported at once.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core import checks as limits
from ...core.errors import InputError
from ...retriever.documents.scan import index_at
from ...retriever.models import model_files
from ..data import dataset as datasets
from ..data.dataset import Shape
from ..data.sources import by_name
from ..encoders import heldout
from ..runs import environment
from ..runs.run_folder import files_of
from ..runs.training_run import TrainingRun
from . import ranking_objectives
from . import rows as reranker_rows
from .config import RerankerConfig, check
from .data_sets import read
from .document_queries import index_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ...core.progress import OnProgress
    from ..encoders.result import TrainingResult
    from .data_sets import DataSet

    Data = str | Path | Iterable[Mapping[str, Any]]


def train_reranker(
    data: Data | Mapping[str, Data],
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

    :param data: anything that `dataset.prepare` reads; or an index, or a folder with one: queries are made from its
        documents; or a mapping from names to several of these, each with pairs.
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
    sources = list(by_name(data).values())
    if len(sources) > 1 and index is not None:
        raise InputError("an index finds the negatives of one data set, but there are several: leave the index out")
    run = TrainingRun(out, base, config, progress)
    run.open(_run_settings(sources, split, index, encoder))
    with run.discard_on_error():
        sets = read(run, sources, split)
        objective = ranking_objectives.choose(config.objective, sets[0].rows)
        _check_uses(config, sets[0], index, encoder)
        account, counts = "; ".join(heldout.account(data.rows) for data in sets), _counts(sets)
        run.report(account)
        if config.queries is not None:
            for data_set in sets:
                reranker_rows.leave_out(data_set.rows, config.queries, config.seed)
        rows = reranker_rows.prepare(run, sets, index, encoder)
        from .reranker_training import RerankerTraining, make_model

        run.report("loading the model")
        result = RerankerTraining(run, rows, objective, make_model(base, run.config)).train()
        result.rows, result.account = counts, account
        return result


def _run_settings(sources: list[Any], split: str, index: str | Path | None, encoder: str | None) -> dict[str, Any]:
    """Return the settings that a call must repeat to resume the run, beside its base and its configuration."""
    names = [datasets.source_name(source) for source in sources]
    return {
        "data": names if len(names) > 1 else names[0],
        "split": split,
        "index": str(index) if index else None,
        "encoder": encoder,
        "files": files_of(*(index_in(source) or source for source in sources), index and index_at(Path(index))),
    }


def _check_uses(config: RerankerConfig, data: DataSet, index: Any, encoder: str | None) -> None:
    """:raises InputError: if a setting is given that these data have no use for."""
    shape = data.rows.shape
    if index is not None and data.queries is not None:
        raise InputError(f"{data.source} is searched in its own index: leave the other index out")
    if shape is Shape.PAIRS:
        return
    if index or encoder:
        raise InputError(
            f"an index and its encoder find negatives for {Shape.PAIRS.value}, but the data are {shape.value}: leave "
            "them out"
        )
    limits.left_out(config, ("negatives", "depth"), f"for {Shape.PAIRS.value}: leave it out of other data")


def _counts(sets: list[DataSet]) -> dict[str, int]:
    """Count the rows of each part in all data sets together."""
    total: Counter[str] = Counter()
    for data in sets:
        total.update(datasets.counts(data.rows))
    return dict(total)
