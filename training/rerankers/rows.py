"""Prepare the rows of a reranker's run: negatives for pairs, in the forms that the losses take."""

from __future__ import annotations

from dataclasses import dataclass, field
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
    from collections.abc import Iterator

    from ...retriever.retriever import Retriever
    from ..runs.training_run import TrainingRun
    from .config import RerankerConfig


def leave_out(data: TrainingSet, maximum: int, seed: int) -> None:
    """Leave out all training rows except for `maximum` random queries."""
    training = data.training()
    numbers = candidates.query_numbers(data, training)
    sample = np.random.default_rng(seed).permutation(int(numbers.max()) + 1)[:maximum]
    data.part[training[~np.isin(numbers, sample)]] = rows.LEFT_OUT


@dataclass(slots=True)
class RerankerRows:
    """Rows to learn from. Where the data are pairs: the first stage, and the queries that choose its weight."""

    data: TrainingSet
    retriever: Retriever | None
    relevant: dict[str, set[str]] = field(default_factory=dict)  # held-out query -> paths of its documents


def prepare(
    run: TrainingRun[RerankerConfig], data: TrainingSet, source: Any, index: str | Path | None, encoder: str | None
) -> RerankerRows:
    """Find candidates where the data are pairs, and take other data unchanged.

    :param source: of the data, as the caller gave it.
    :param index: the index to search; by default a new one.
    :param encoder: of that new index.
    """
    if data.shape is not Shape.PAIRS:
        return RerankerRows(data, None)
    retriever, apart = _first_stage(run, data, source, index, encoder)
    judged, held_out = (candidates.Judged(data, part, apart=apart) for part in (data.training(), data.held_out()))
    folder = run.folder / "lists"
    is_done = (folder / "data.json").is_file()
    lists = rows.load(folder) if is_done else _mine(run, retriever, judged, held_out, folder)
    return RerankerRows(lists, retriever, _relevant(held_out))


def _first_stage(
    run: TrainingRun[Any], data: TrainingSet, source: Any, index: Any, encoder: str | None
) -> tuple[Retriever, bool]:
    """Return the index to search, and whether it holds each positive as a document of its own."""
    from ...retriever.retriever import Retriever

    if index is not None:
        retriever = Retriever.open(index, model=encoder)
        retriever.snapshot()  # raises if there is no index
        return retriever, False
    run.report("indexing the documents")
    folder = run.folder / "index"
    if isinstance(source, (str, Path)) and beir.is_collection(Path(source)):
        return candidates.index_of(folder, beir.documents(Path(source)), encoder), False
    return candidates.index_of(folder, candidates.positives(data), encoder), True


def _relevant(judged: candidates.Judged) -> dict[str, set[str]]:
    """Map each query to the paths of its positives, if all are known."""
    paths = {query: {positive.path for positive in positives} for query, positives in judged}
    return {query: {path for path in known if path} for query, known in paths.items() if None not in known}


def _mine(
    run: TrainingRun[RerankerConfig],
    retriever: Retriever,
    training: candidates.Judged,
    held_out: candidates.Judged,
    folder: Path,
) -> TrainingSet:
    """Write rows (query, positive, negatives) of both parts, and remember the part of each."""
    config, counts = run.config, {rows.TRAIN: 0, rows.HELD_OUT: 0}

    def mined_rows() -> Iterator[dict[str, Any]]:
        for part, judged in ((rows.TRAIN, training), (rows.HELD_OUT, held_out)):
            for row in candidates.lists(
                retriever,
                judged,
                negatives=config.negatives,
                depth=config.depth,
                seed=config.seed,
                on_progress=run.progress,
            ):
                counts[part] += 1
                yield row
            if not counts[rows.TRAIN]:
                raise InputError(
                    f"no query finds {config.negatives} other passages to learn from: index more documents, or ask for "
                    "fewer negatives"
                )

    lists = rows.prepare(mined_rows(), folder, held_out=0.0)
    lists.part = np.repeat(np.array(list(counts), np.uint8), list(counts.values()))
    rows.save(lists)
    return lists


def as_lists(
    batch: dict[str, list[Any]], names: tuple[str, ...], positive: float, *, spread: bool = False
) -> dict[str, list[Any]]:
    """Turn the columns query, positive, negatives into a query and the list of its passages, the positive first.

    :param spread: bring each list's labels to 0 to 1, since LambdaLoss raises 2 to their power and takes negative
        labels for 0.
    """
    passages = [list(texts) for texts in zip(*(batch[name] for name in names[1:]), strict=True)]
    labels = batch.get("label") or [[positive, *[0.0] * (len(names) - 2)]] * len(passages)
    labels = [_spread(scores) if spread else list(map(float, scores)) for scores in labels]
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
