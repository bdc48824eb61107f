"""Score mined rows by teachers, for an encoder that learns their order (listwise distillation, arXiv:2010.11386)."""

from __future__ import annotations

import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError
from ...core.files import expand_home
from ...core.progress import counted, ignore
from ..data import dataset as datasets
from ..data import sources
from ..data.columns import Shape
from ..evaluation import scorers
from ..mining.row_writer import row_writer

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from ...core.progress import OnProgress
    from ..evaluation.scorers import Model

    Scores = NDArray[np.float64]

_BLOCK = 1_024  # rows with their texts in memory at a time


@dataclass(frozen=True, slots=True)
class ScoringReport:
    """The figures of a scoring run."""

    models: tuple[str, ...]
    rows: int
    scores: int  # in each row: of the positive and of each negative
    agreement: float  # share of the rows where the positive scores highest
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return asdict(self) | {"seconds": round(self.seconds, 1), "agreement": round(self.agreement, 4)}


def score(
    data: str | Path,
    out: str | Path,
    *,
    models: Sequence[str],
    split: str = "train",
    progress: OnProgress = ignore,
) -> ScoringReport:
    """Write the rows with a column `scores`: the positive's and each negative's.

    An encoder gives cosines, a cross-encoder its own scores. Several models give the mean of their standard scores over
    all rows, since each has a scale of its own. Scores that the rows had are replaced.

    :param data: rows with query, positive and as many negatives in each, such as `mine` writes.
    :param out: a .jsonl or .parquet file.
    :param models: names or folders of encoders and cross-encoders.
    :raises InputError: for rows without negatives, naming file and line for rows that do not fit.
    """
    if not models:
        raise InputError("expected a model that scores: an encoder or a cross-encoder")
    sources.check_apart(expand_home(out), data)
    start = time.monotonic()
    with row_writer(out) as (write, work), tempfile.TemporaryDirectory(dir=work) as folder:
        rows = datasets.prepare(data, Path(folder), split=split, held_out=0.0)
        _check_negatives(rows, datasets.source_name(data))
        table = rows.table()
        texts = table.select(rows.texts)
        scores = _mean([_scores(scorers.load(name), texts, progress) for name in models])
        if rows.shape is Shape.GRADED:
            table = table.drop_columns(["label"])
        for first in range(0, len(table), _BLOCK):
            write(_rows(table, scores, first))
    best = scores[:, 0] > scores[:, 1:].max(1)
    return ScoringReport(tuple(models), len(scores), scores.shape[1], float(best.mean()), time.monotonic() - start)


def _check_negatives(rows: datasets.TrainingSet, name: str) -> None:
    """:raises InputError: unless each row has a query, a positive and as many negatives as the first."""
    if rows.shape not in (Shape.TRIPLETS, Shape.GRADED):
        raise InputError(
            f"{name} has {rows.shape.value}: expected query, positive and negatives, as 'binocle mine' writes them"
        )
    if rows.unused_negatives:
        raise InputError(
            f"{name} has rows with more negatives than its first row: expected as many in each, as 'binocle mine "
            "--format tuple' writes them"
        )


def _mean(scores: Sequence[Scores]) -> Scores:
    """Return the scores of a single model as they are, and of several the mean of their standard scores."""
    if len(scores) == 1:
        return scores[0]
    mean: Scores = np.mean([(values - values.mean()) / (values.std() or 1.0) for values in scores], axis=0)
    return mean


def _scores(model: Model, texts: pa.Table, progress: OnProgress) -> Scores:
    """Return a model's scores, shape (rows, columns without the query)."""
    starts = counted(range(0, len(texts), _BLOCK), progress, f"scoring {len(texts):,} rows with {model.name}")
    return np.concatenate([_block_scores(model, texts.slice(first, _BLOCK)) for first in starts])


def _block_scores(model: Model, texts: pa.Table) -> Scores:
    queries, *passages = (column.to_pylist() for column in texts.columns)
    if scorers.is_encoder(model):
        vectors = scorers.unit_vectors(model, list(chain(*passages))).reshape(len(passages), len(queries), -1)
        query_vectors = scorers.unit_vectors(model, queries, kind="query")
        cosines: Scores = np.einsum("rd,crd->rc", query_vectors, vectors, dtype=np.float64)
        return cosines
    lists = zip(queries, zip(*passages, strict=True), strict=True)
    return scorers.finite(model, np.array([model.score(query, own) for query, own in lists], np.float64))


def _rows(texts: pa.Table, scores: Scores, first: int) -> list[dict[str, Any]]:
    """Return a block of rows with their scores, under the names that training reads."""
    block: list[dict[str, Any]] = texts.slice(first, _BLOCK).to_pylist()
    for row, own in zip(block, scores[first : first + _BLOCK].tolist(), strict=True):
        if "group" in row:
            row["document_id"] = row.pop("group")
        row["scores"] = own
    return block
