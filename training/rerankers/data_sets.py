"""The data sets of a reranker's run: files of pairs, test collections, and queries made from an index's documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.errors import InputError
from ..data import dataset as datasets
from ..data.dataset import Shape
from .document_queries import QUERIES, DocumentQueries, index_in

if TYPE_CHECKING:
    from ..data.dataset import TrainingSet
    from ..runs.training_run import TrainingRun
    from .config import RerankerConfig


@dataclass(frozen=True, slots=True)
class DataSet:
    """One data set of a run."""

    source: Any  # as the caller gave it
    rows: TrainingSet
    queries: DocumentQueries | None = None  # if the rows are queries made from documents


def read(run: TrainingRun[RerankerConfig], sources: list[Any], split: str) -> list[DataSet]:
    """Read and check all rows. No training row shares a text with a held-out row of any data set.

    :raises InputError: if one of several data sets does not consist of pairs, or has no row left to train on.
    """
    sets = [_read(run, source, number, split) for number, source in enumerate(sources, 1)]
    for data in sets if len(sets) > 1 else ():
        if data.rows.shape is not Shape.PAIRS:
            raise InputError(
                f"of several data sets each consists of {Shape.PAIRS.value}, but {datasets.source_name(data.source)} "
                f"has {data.rows.shape.value}: train on it alone"
            )
    if len(sets) > 1:
        datasets.keep_apart([data.rows for data in sets])
    return sets


def _read(run: TrainingRun[RerankerConfig], source: Any, number: int, split: str) -> DataSet:
    """Read one data set. Its number names its folder in the run's."""
    queries, config = _queries(run, source), run.config
    name = "data" if number == 1 else f"data-{number}"
    rows = datasets.prepare_once(
        run, queries or source, name=name, split=split, held_out=config.held_out, seed=config.seed
    )
    return DataSet(source, rows, queries)


def _queries(run: TrainingRun[RerankerConfig], source: Any) -> DocumentQueries | None:
    """Return the queries of an index; None for data that bring their own."""
    from ...retriever.retriever import Retriever

    index = index_in(source)
    if index is None:
        return None
    run.report(f"making queries from the documents of {source}")
    return DocumentQueries(Retriever.open(index), run.config.queries or QUERIES, run.config.seed)
