"""Evaluate contenders on a test collection or on judged rows; contenders share indexes and scores."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ....core.progress import Progress, within
from ....retriever.models import model_files
from ....retriever.models import settings as model_settings
from ....retriever.models.load import load_reranker
from .. import judged_rows
from ..evaluate_file import evaluate_rows
from ..heads.head_rows import HEAD_ROWS
from ..retrieval import evaluate
from ..scorers import load
from .comparison_files import slug
from .contenders import BM25

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ....core.progress import OnProgress
    from ..heads.head_rows import Head
    from ..result import JudgedRowsResult, RetrievalResult
    from ..scorers import Model
    from .contenders import Contender

    Result = RetrievalResult | JudgedRowsResult
    Results = dict[tuple[str, str], Result]  # by contender and data set


@dataclass(frozen=True, slots=True)
class DataSet:
    """A test collection, or judged rows in memory."""

    name: str
    path: Path
    rows: judged_rows.Pairs | judged_rows.Rankings | judged_rows.HeadRows | None  # None for a test collection

    @property
    def kind(self) -> str:
        """The kind of the data, which has measures of its own."""
        if self.rows is None:
            return "retrieval"
        return "reranking" if isinstance(self.rows, judged_rows.Rankings) else self.rows.kind


class CollectionRun:
    """A test collection with an index for each encoder; all modes share it, and BM25 alone takes the first."""

    def __init__(
        self,
        data: DataSet,
        contenders: Sequence[Contender],
        root: Path,
        split: str,
        rerank_depth: int,
        runs: Mapping[tuple[str, str], Path],
    ) -> None:
        """:param runs: the file for the run of each contender and data set, if runs are wanted."""
        self._data, self._contenders, self._root, self._runs = data, contenders, root, runs
        self._options: dict[str, Any] = {"split": split, "rerank_depth": rerank_depth}
        models = (contender.source for contender in contenders if contender.source is not None)
        self._any_model = next(models, model_files.DEFAULT_MODEL)

    def evaluate(self, progress: OnProgress) -> Results:
        """Evaluate all contenders."""
        return {
            (contender.name, self._data.name): self._evaluate(contender, progress) for contender in self._contenders
        }

    def _evaluate(self, contender: Contender, progress: OnProgress) -> RetrievalResult:
        title = f"{contender.name} on {self._data.name}"
        progress(Progress(title))
        model = contender.source or self._any_model
        result = evaluate(
            self._data.path,
            mode=contender.mode,
            model=model,
            index=self._index(model),
            rerank=contender.reranker,
            run_file=self._runs.get((contender.name, self._data.name)),
            progress=within(progress, f"{title}: "),
            **self._options,
        )
        return result if contender.model in (None, model) else replace(result, model=contender.model)

    def _index(self, model: str) -> Path:
        folder = model_files.find(model)
        fingerprint = model_settings.fingerprint(folder, model_settings.ModelSettings.read(folder))
        whole, length = model_files.split_length(model)
        if model_files.split_precision(whole)[1]:
            fingerprint = model_settings.int8_fingerprint(fingerprint)
        collection = self._data.path.resolve()
        key = hashlib.sha256(str(collection).encode()).hexdigest()[:8]
        return self._root / f"{slug(collection.name)}-{key}-{fingerprint[:12]}{f'-{length}' if length else ''}"


def evaluate_on_rows(sets: Sequence[DataSet], contenders: Sequence[Contender], progress: OnProgress) -> Results:
    """Evaluate contenders on judged rows. Contenders that differ only in mode share a result: no index is needed."""
    results: Results = {}
    for scorer in dict.fromkeys(map(_scorer, contenders)) if sets else ():
        if scorer is None:
            continue
        name, is_reranker, written = scorer
        head = HEAD_ROWS.get(sets[0].kind)
        model: Model | Head = head.load(name) if head else load_reranker(name) if is_reranker else load(name)
        for data_set in sets:
            progress(Progress(f"{written} on {data_set.name}"))
            assert data_set.rows is not None
            result = evaluate_rows(data_set.rows, model)
            result = result if written == name else replace(result, model=written)
            results |= {
                (contender.name, data_set.name): result for contender in contenders if _scorer(contender) == scorer
            }
    return results


def _scorer(contender: Contender) -> tuple[str, bool, str] | None:
    """Return the model that scores pairs of texts, whether it is a reranker, and its name; None for BM25."""
    if contender.reranker is not None:
        return contender.reranker, True, contender.reranker
    if contender.mode == BM25 or contender.source is None or contender.model is None:
        return None
    return contender.source, False, contender.model
