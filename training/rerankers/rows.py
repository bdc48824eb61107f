"""The rows of a reranker's run: candidates found for the queries of pairs, and the forms that the losses take."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
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
    from collections.abc import Callable, Iterator

    from ...retriever.retriever import Retriever
    from ..runs.run_folder import RunFolder
    from .config import RerankerConfig


def leave_out(given: TrainingSet, most: int, seed: int) -> None:
    """Learn from the rows of so many queries alone."""
    training = given.training()
    numbers = candidates.query_numbers(given, training)
    chosen = np.random.default_rng(seed).permutation(int(numbers.max()) + 1)[:most]
    given.part[training[~np.isin(numbers, chosen)]] = rows.LEFT_OUT


@dataclass(slots=True)
class Ready:
    """What is learned from, and what the first stage's weight is chosen by: set where the data are pairs."""

    data: TrainingSet
    retriever: Retriever | None
    relevant: dict[str, set[str]] = field(default_factory=dict)  # query -> paths, of held-out queries


def prepare(
    run: RunFolder,
    config: RerankerConfig,
    given: TrainingSet,
    source: Any,
    index: str | Path | None,
    encoder: str | None,
    tell: Callable[[str], None],
) -> Ready:
    """The rows, with candidates where the data are pairs."""
    if given.shape is not Shape.PAIRS:
        return Ready(given, None)
    retriever, apart = _first_stage(run, given, source, index, encoder, tell)
    judged, held_out = (candidates.Judged(given, part, apart=apart) for part in (given.training(), given.held_out()))
    folder = run.folder / "lists"
    kept = (folder / "data.json").is_file()
    made = rows.load(folder) if kept else _mined(config, retriever, judged, held_out, folder, tell)
    return Ready(made, retriever, _relevant(held_out))


def _first_stage(
    run: RunFolder, given: TrainingSet, source: Any, index: Any, encoder: str | None, tell: Callable[[str], None]
) -> tuple[Retriever, bool]:
    """The index to search, and whether it is one of the positives, each by itself."""
    from ...retriever.retriever import Retriever

    if index is not None:
        retriever = Retriever.open(index, model=encoder)
        retriever.snapshot()  # there is one
        return retriever, False
    tell("indexing the documents")
    folder = run.folder / "index"
    if isinstance(source, (str, Path)) and beir.is_collection(Path(source)):
        return candidates.index_of(folder, beir.documents(Path(source)), encoder), False
    return candidates.index_of(folder, candidates.positives(given), encoder), True


def _relevant(judged: candidates.Judged) -> dict[str, set[str]]:
    """Query -> paths of its positives, where all are known."""
    found = {query: {one.path for one in positives} for query, positives in judged}
    return {query: {path for path in paths if path} for query, paths in found.items() if None not in paths}


def _mined(
    config: RerankerConfig,
    retriever: Retriever,
    training: candidates.Judged,
    held_out: candidates.Judged,
    folder: Path,
    tell: Callable[[str], None],
) -> TrainingSet:
    """Rows (query, positive, negatives) of both parts, the parts kept."""
    counts = {rows.TRAIN: 0, rows.HELD_OUT: 0}

    def made() -> Iterator[dict[str, Any]]:
        for part, judged in ((rows.TRAIN, training), (rows.HELD_OUT, held_out)):
            for row in candidates.lists(
                retriever,
                judged,
                negatives=config.negatives,
                depth=config.depth,
                seed=config.seed,
                tell=partial(_tell_candidates, tell, len(judged)),
            ):
                counts[part] += 1
                yield row
            if not counts[rows.TRAIN]:
                raise InputError(
                    f"no query finds {config.negatives} other passages to learn from: index more documents, or ask for "
                    "fewer negatives"
                )

    prepared = rows.prepare(made(), folder, held_out=0.0)
    prepared.part = np.repeat(np.array(list(counts), np.uint8), list(counts.values()))
    rows.save(prepared)
    return prepared


def _tell_candidates(tell: Callable[[str], None], total: int, done: int) -> None:
    tell(f"candidates of {done:,} of {total:,} queries")


def as_lists(
    batch: dict[str, list[Any]], names: tuple[str, ...], positive: float, *, spread: bool = False
) -> dict[str, list[Any]]:
    """Columns query, positive, negatives to a query and the list of its passages, the positive first.

    :param spread: whether a list's labels are brought to 0 to 1: LambdaLoss takes 2 to their power, and those below 0
        for 0.
    """
    passages = [list(texts) for texts in zip(*(batch[name] for name in names[1:]), strict=True)]
    labels = batch.get("label") or [[positive, *[0.0] * (len(names) - 2)]] * len(passages)
    labels = [_spread(one) if spread else list(map(float, one)) for one in labels]
    return {"query": batch["query"], "passages": passages, "label": labels}


def _spread(labels: list[float]) -> list[float]:
    """Numbers brought to 0 to 1; where all are equal, to 0."""
    low, high = min(labels), max(labels)
    return [(label - low) / ((high - low) or 1.0) for label in labels]


def pairs(table: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """Query and passage: all rows with their first passage, all with their second and so on, without a copy of a text.

    The label is 1 for the positive and 0 for others, or the teacher's score.
    """
    parts = []
    for place, name in enumerate(names[1:]):
        if "label" in table.column_names:
            label = pc.list_element(table["label"], place)
        else:
            label = pa.array(np.full(len(table), place == 0, np.float32))
        part = table.select(["query", name]).rename_columns(["query", "passage"])
        parts.append(part.append_column("label", label))
    return pa.concat_tables(parts)
