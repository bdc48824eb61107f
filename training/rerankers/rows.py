"""Prepare the rows of a reranker's run: negatives for pairs, in the forms that the losses take."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.errors import InputError
from ..data import beir
from ..data import dataset as rows
from ..data.dataset import Shape, TrainingSet
from . import candidates

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...retriever.retriever import Retriever
    from ..runs.training_run import TrainingRun
    from .config import RerankerConfig
    from .data_sets import DataSet


def leave_out(data: TrainingSet, maximum: int, seed: int) -> None:
    """Leave out all training rows except for `maximum` random queries."""
    training = data.training()
    numbers = candidates.query_numbers(data, training)
    sample = np.random.default_rng(seed).permutation(int(numbers.max()) + 1)[:maximum]
    data.part[training[~np.isin(numbers, sample)]] = rows.LEFT_OUT


@dataclass(frozen=True, slots=True)
class FirstStage:
    """The index that gives one data set its candidates, and the judged queries of both parts of the data."""

    retriever: Retriever
    judged: dict[int, candidates.Judged]  # by part: TRAIN and HELD_OUT
    is_generated: bool = False  # whether the queries were made from the documents of the index

    def relevant(self) -> dict[str, set[str]]:
        """Map each held-out query to the paths of its positives, if all are known."""
        paths = {query: {answer.path for answer in answers} for query, answers in self.judged[rows.HELD_OUT]}
        return {query: {path for path in known if path} for query, known in paths.items() if None not in known}


@dataclass(slots=True)
class RerankerRows:
    """Rows to learn from and, if the data are pairs, the first stages that give their candidates."""

    data: TrainingSet
    stages: list[FirstStage] = field(default_factory=list)


def prepare(
    run: TrainingRun[RerankerConfig], sets: Sequence[DataSet], index: str | Path | None, encoder: str | None
) -> RerankerRows:
    """Find candidates where the data are pairs, and take other data unchanged.

    :param index: the index to search; by default a new one of each data set.
    :param encoder: of a new index.
    """
    if sets[0].rows.shape is not Shape.PAIRS:
        return RerankerRows(sets[0].rows)
    stages = [_first_stage(run, data, number, index, encoder) for number, data in enumerate(sets, 1)]
    folder = run.folder / "lists"
    is_done = (folder / "data.json").is_file()
    return RerankerRows(rows.load(folder) if is_done else _mine(run, stages, folder), stages)


def _first_stage(run: TrainingRun[Any], data: DataSet, number: int, index: Any, encoder: str | None) -> FirstStage:
    """Open the index of a data set, or make one. Its number names its folder in the run's."""
    retriever, apart = _index(run, data, run.folder / ("index" if number == 1 else f"index-{number}"), index, encoder)
    parts = {rows.TRAIN: data.rows.training(), rows.HELD_OUT: data.rows.held_out()}
    judged = {part: candidates.Judged(data.rows, numbers, apart=apart) for part, numbers in parts.items()}
    return FirstStage(retriever, judged, data.queries is not None)


def _index(
    run: TrainingRun[Any], data: DataSet, folder: Path, index: Any, encoder: str | None
) -> tuple[Retriever, bool]:
    """Return the index to search, and whether it holds each positive as a document of its own."""
    from ...retriever.retriever import Retriever

    if data.queries is not None:
        return data.queries.retriever, False
    if index is not None:
        retriever = Retriever.open(index, model=encoder)
        retriever.snapshot()  # raises if there is no index
        return retriever, False
    run.report("indexing the documents")
    if isinstance(data.source, (str, Path)) and beir.is_collection(Path(data.source)):
        return candidates.index_of(folder, beir.documents(Path(data.source)), encoder), False
    return candidates.index_of(folder, candidates.positives(data.rows), encoder), True


def _mine(run: TrainingRun[RerankerConfig], stages: Sequence[FirstStage], folder: Path) -> TrainingSet:
    """Write rows (query, positive, negatives) of both parts, and remember the part of each."""
    counts = {rows.TRAIN: 0, rows.HELD_OUT: 0}

    def mined_rows() -> Iterator[dict[str, Any]]:
        for part in counts:
            for row in chain.from_iterable(_lists(run, stage, part) for stage in stages):
                counts[part] += 1
                yield row
            if not counts[rows.TRAIN]:
                raise InputError(
                    f"no query finds {run.config.negatives} other passages to learn from: index more documents, or ask "
                    "for fewer negatives"
                )

    lists = rows.prepare(mined_rows(), folder, held_out=0.0)
    lists.part = np.repeat(np.array(list(counts), np.uint8), list(counts.values()))
    rows.save(lists)
    return lists


def _lists(run: TrainingRun[RerankerConfig], stage: FirstStage, part: int) -> Iterator[dict[str, Any]]:
    config = run.config
    return candidates.lists(
        stage.retriever,
        stage.judged[part],
        negatives=config.negatives,
        depth=config.depth,
        seed=config.seed,
        as_given=stage.is_generated,
        on_progress=run.progress,
    )


def as_lists(
    batch: dict[str, list[Any]], names: tuple[str, ...], scale: float, *, spread: bool = False
) -> dict[str, list[Any]]:
    """Turn the columns query, positive, negatives into a query and the list of its passages, the positive first.

    :param scale: of the labels: a teacher's scores, or 1 for the positive and 0 for the others.
    :param spread: bring each list's labels to 0 to 1, since LambdaLoss raises 2 to their power and takes negative
        labels for 0.
    """
    passages = [list(texts) for texts in zip(*(batch[name] for name in names[1:]), strict=True)]
    labels = batch.get("label") or [[1.0, *[0.0] * (len(names) - 2)]] * len(passages)
    labels = [_spread(scores) if spread else [scale * score for score in scores] for scores in labels]
    return {"query": batch["query"], "passages": passages, "label": labels}


def _spread(labels: list[float]) -> list[float]:
    """Bring numbers to 0 to 1; to 0 if all are equal."""
    low, high = min(labels), max(labels)
    return [(label - low) / ((high - low) or 1.0) for label in labels]


def pairs(table: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """Return (query, passage, label): all rows with their first passage, then all with their second, and so on.

    No text is copied. The label is 1 for the positive and 0 for negatives, or the teacher's score.
    """
    parts = []
    for position, name in enumerate(names[1:]):
        if "label" in table.column_names:
            label = pc.list_element(table["label"], position)
        else:
            label = pa.array(np.full(len(table), position == 0, np.float32))
        part = table.select(["query", name]).rename_columns(["query", "passage"])
        parts.append(part.append_column("label", label))
    return pa.concat_tables(parts)
