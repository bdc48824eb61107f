"""Compare several models or modes on the same data: the measures of each, and the differences that are real."""

from __future__ import annotations

import hashlib
import math
import re
import tempfile
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....core.errors import InputError
from ....core.files import expand_home, write_atomic
from ....core.progress import Progress, ignore, within
from ....core.strict_json import strict_json
from ....retriever.models import files as model_folder
from ....retriever.models import settings as model_settings
from ....retriever.models.load import load_reranker
from ....retriever.search.arguments import check_reranking
from ...runs import plots
from .. import judged_rows, similarity
from ..evaluate_file import evaluate_rows
from ..heads import answers, classes, names
from ..heads.head_rows import HEAD_ROWS
from ..result import JudgedRowsResult, RetrievalResult
from ..retrieval import evaluate, judged_queries
from ..scorers import load
from ..significance import LEVEL, align, difference, holm
from ..trec_run import write_run
from . import contenders as contender_list
from .poolings import with_poolings
from .table import Cell, Comparison, MeasureColumn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ....core.progress import OnProgress
    from ...runs.plots import Verdict
    from ..heads.head_rows import Head
    from ..scorers import Model
    from ..significance import Difference
    from .contenders import Contender

    Result = RetrievalResult | JudgedRowsResult
    Results = dict[tuple[str, str], Result]  # by contender and data set

_MAIN_MEASURE = {
    "retrieval": "nDCG@10",
    "similarity": "Spearman",
    "pairs": "AP",
    "reranking": "MAP",
    "classes": "Macro-F1",
    "names": "Span F1",
    "answers": "F1 of words",
}
_MEASURES: dict[str, tuple[str, ...]] = {  # of each kind of data
    "retrieval": ("nDCG@10", "Recall@100", "MRR@10", "MAP"),
    "reranking": ("MAP", "MRR@10", "nDCG@10"),
    **{kind: tuple(measures) for kind, measures in similarity.MEASURES.items()},
    "classes": tuple(classes.MEASURES),
    "names": tuple(names.MEASURES),
    "answers": tuple(answers.MEASURES),
}
_STATISTICS = {**similarity.MEASURES, "classes": classes.MEASURES, "names": names.MEASURES}


@dataclass(frozen=True, slots=True)
class _Data:
    """A test collection, or judged rows in memory."""

    name: str
    path: Path
    rows: judged_rows.Pairs | judged_rows.Rankings | judged_rows.HeadRows | None  # None for a test collection

    @property
    def kind(self) -> str:
        if self.rows is None:
            return "retrieval"
        return "reranking" if isinstance(self.rows, judged_rows.Rankings) else self.rows.kind


def compare(
    contenders: Sequence[str],
    data: Sequence[str | Path],
    *,
    modes: Sequence[str] = ("semantic",),
    baseline: str | None = None,
    measures: Sequence[str] = (),
    split: str = "test",
    rerank_depth: int = 50,
    indexes: str | Path | None = None,
    out: str | Path | None = None,
    picture: str | None = "svg",
    per_query: bool = False,
    progress: OnProgress = ignore,
) -> Comparison:
    """Evaluate contenders on the same data, and test each difference to the baseline.

    :param contenders: each "MODEL[@POOLING][@MODE][+RERANKER]", or "lexical" for BM25 alone: see `contenders`.
    :param data: test collections, and files of judged rows (see `judged_rows`).
    :param modes: the modes of models without a mode of their own; with several modes, each model is measured in each.
    :param baseline: the contender that the others are compared with, spelled as in `contenders`; by default the first.
    :param measures: by default one for each data set: nDCG@10, Spearman, AP or MAP.
    :param rerank_depth: the number of passages that a RERANKER reads.
    :param indexes: keep the indexes of collections here for the next comparison; by default they are temporary.
    :param out: a folder for comparison.json and .txt, TREC runs, and plots.
    :param picture: "svg" or "png" for plots in `out`; None for none.
    :param per_query: write the values of each query to comparison.json too.
    :raises InputError: for any impossible argument, before the first evaluation.
    """
    check_reranking(rerank_depth, None)
    parsed = contender_list.parse(contenders, modes)
    first = _baseline(parsed, baseline)
    sets = _read(data, split)
    columns = _columns(sets, measures)
    results: Results = {}
    with tempfile.TemporaryDirectory(prefix="binocle-") as temporary:
        if not _are_for_heads(sets, parsed):
            parsed = with_poolings(parsed, Path(temporary))
            _check_models(parsed, collections=any(data_set.rows is None for data_set in sets))
        target = None if out is None else _create_folder(Path(out), picture)
        stems = _file_stems([(contender.name, data_set.name) for data_set in sets for contender in parsed])
        runs = {} if target is None else {pair: target / f"{stem}.run" for pair, stem in stems.items()}
        for data_set in sets:
            if data_set.rows is None:
                root = Path(indexes) if indexes else Path(temporary)
                collection = _Collection(data_set, parsed, root, split, rerank_depth, runs)
                results |= collection.evaluate(progress)
        results |= _evaluate_rows([data_set for data_set in sets if data_set.rows is not None], parsed, progress)
    comparison = _comparison(parsed, first, columns, results)
    if target is not None:
        _write(comparison, target, picture, stems, per_query=per_query)
    return comparison


def _baseline(contenders: Sequence[Contender], baseline: str | None) -> Contender:
    if baseline is None:
        return contenders[0]
    matches = [contender for contender in contenders if baseline in (contender.name, contender.written)]
    matches = matches or [contender for contender in contenders if baseline == contender.model]
    if len(matches) != 1:
        names = ", ".join(contender.name for contender in contenders)
        raise InputError(f"the baseline {baseline!r} is not one of the contenders: expected one of {names}")
    return matches[0]


def _are_for_heads(sets: Sequence[_Data], contenders: Sequence[Contender]) -> bool:
    """Whether the data are rows of one kind of head.

    :raises InputError: when they are of several kinds, or a contender cannot be such a head.
    """
    kinds = {data_set.kind for data_set in sets}
    head = next((HEAD_ROWS[kind] for kind in sorted(kinds) if kind in HEAD_ROWS), None)
    if head is None:
        return False
    if len(kinds) > 1:
        raise InputError(f"{head.rows} are for a {head.noun}: compare these on other data separately")
    unfit = next((contender.written for contender in contenders if contender.model is None or contender.reranker), None)
    if unfit:
        raise InputError(f"{unfit} is no {head.noun}: expected the folders of {head.noun}s for {head.rows}")
    return True


def _check_models(contenders: Sequence[Contender], *, collections: bool) -> None:
    """Raise the errors of loading the models that can be detected quickly."""
    for contender in contenders:
        if contender.reranker is not None:
            model_folder.find(contender.reranker, model_folder.RERANKER)
        if (
            contender.source is not None
            and model_settings.reads_pairs(model_folder.find(contender.source))
            and collections
        ):
            raise InputError(
                f"{contender.written} is a cross-encoder, which can only rerank what another finds: "
                f"write MODEL+{contender.model} or lexical+{contender.model}"
            )


def _read(data: Sequence[str | Path], split: str) -> list[_Data]:
    """Check collections and read judged rows, all of them before the first evaluation."""
    if not data:
        raise InputError("a comparison needs data: test collections, or files of judged rows")
    paths = list(map(expand_home, data))
    stems = [path.resolve().name if path.is_dir() else judged_rows.name_of(path) for path in paths]
    sets: list[_Data] = []
    for path, stem in zip(paths, stems, strict=True):
        name = stem if stems.count(stem) == 1 else str(path)
        if any(data_set.name == name for data_set in sets):
            raise InputError(f"{path} is given twice: expected different data")
        if path.is_dir():
            judged_queries(path, split, None, None)
        sets.append(_Data(name, path, None if path.is_dir() else judged_rows.read(path)))
    return sets


def _columns(sets: Sequence[_Data], measures: Sequence[str]) -> list[MeasureColumn]:
    """Return a column for each measure of each data set.

    :raises InputError: for an unknown measure, or a measure that no data set has.
    """
    known = {measure.lower(): measure for of_kind in _MEASURES.values() for measure in of_kind}
    for measure in measures:
        if measure.lower() not in known:
            raise InputError(f"there is no measure {measure!r}: expected one of {', '.join(known.values())}")
    measure_names = list(dict.fromkeys(known[measure.lower()] for measure in measures))
    available = list(dict.fromkeys(measure for data_set in sets for measure in _MEASURES[data_set.kind]))
    unused = next((measure for measure in measure_names if measure not in available), None)
    if unused:
        raise InputError(f"{unused} is no measure of any of these data, which have {', '.join(available)}")
    return [
        MeasureColumn(data_set.name, measure)
        for data_set in sets
        for measure in [name for name in measure_names if name in _MEASURES[data_set.kind]]
        or [_MAIN_MEASURE[data_set.kind]]
    ]


# Evaluation


class _Collection:
    """A test collection with an index for each encoder; all modes share it, and BM25 alone takes the first."""

    def __init__(
        self,
        data: _Data,
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
        self._any_model = next(models, model_folder.DEFAULT_MODEL)

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
        folder = model_folder.find(model)
        fingerprint = model_settings.fingerprint(folder, model_settings.ModelSettings.read(folder))
        whole, length = model_folder.split_length(model)
        if model_folder.split_precision(whole)[1]:
            fingerprint = model_settings.int8_fingerprint(fingerprint)
        collection = self._data.path.resolve()
        key = hashlib.sha256(str(collection).encode()).hexdigest()[:8]
        return self._root / f"{_slug(collection.name)}-{key}-{fingerprint[:12]}{f'-{length}' if length else ''}"


def _evaluate_rows(sets: Sequence[_Data], contenders: Sequence[Contender], progress: OnProgress) -> Results:
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
    if contender.mode == contender_list.BM25 or contender.source is None or contender.model is None:
        return None
    return contender.source, False, contender.model


# Tests of the differences


def _comparison(
    contenders: Sequence[Contender], baseline: Contender, columns: Sequence[MeasureColumn], results: Results
) -> Comparison:
    cells: dict[tuple[str, MeasureColumn], Cell | None] = {}
    for column in columns:
        of_data = {contender.name: results.get((contender.name, column.data)) for contender in contenders}
        cells |= {(name, column): cell for name, cell in _cells(column.measure, baseline.name, of_data).items()}
    modes = {contender.mode for contender in contenders}
    has_retrieval = any(isinstance(result, RetrievalResult) for result in results.values())
    return Comparison(
        contenders=tuple(contender.name for contender in contenders),
        baseline=baseline.name,
        columns=tuple(columns),
        cells=cells,
        evaluations=results,
        mode=modes.pop() if len(modes) == 1 and has_retrieval else None,
    )


def _cells(measure: str, baseline: str, results: Mapping[str, Result | None]) -> dict[str, Cell | None]:
    """Return the cells of one column, with p corrected for the number of contenders in it."""
    differences = _differences(measure, baseline, results)
    corrected = dict(zip(differences, holm([gap.p for gap in differences.values()]), strict=True))
    cells: dict[str, Cell | None] = {}
    for name, result in results.items():
        if result is None:
            cells[name] = None
            continue
        verdict = _verdict(differences[name].value, corrected[name]) if name in differences else "same"
        low, high = result.intervals[measure]
        cells[name] = Cell(
            result.measures[measure],
            low,
            high,
            "baseline" if name == baseline else verdict,
            differences.get(name),
            corrected.get(name),
        )
    return cells


def _differences(measure: str, baseline: str, results: Mapping[str, Result | None]) -> dict[str, Difference]:
    """Test each contender against the baseline, if both were evaluated and they do not share one result."""
    base = results[baseline]
    if base is None:
        return {}
    differences = {
        name: _difference(measure, result, base)
        for name, result in results.items()
        if result is not None and result is not base
    }
    return {name: gap for name, gap in differences.items() if math.isfinite(gap.value)}


def _difference(measure: str, a: Result, b: Result) -> Difference:
    if a.per_query or isinstance(a, RetrievalResult):
        return difference(*align(a.per_query[measure], b.per_query[measure]))
    assert isinstance(b, JudgedRowsResult)
    return _STATISTICS[a.kind][measure].difference(a.scores, b.scores, a.gold)


def _verdict(value: float, p: float) -> Verdict:
    if p >= 1 - LEVEL:
        return "same"
    return "better" if value > 0 else "worse"


# Files


def _create_folder(out: Path, picture: str | None) -> Path:
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: expected a folder to write the comparison into")
    out.mkdir(parents=True, exist_ok=True)
    if picture is not None:
        plots.check(out / f"comparison.{picture}")
    return out


def _write(
    comparison: Comparison, out: Path, picture: str | None, stems: Mapping[tuple[str, str], str], *, per_query: bool
) -> None:
    for name in ("comparison", "scores.*"):  # plots of an earlier comparison
        for suffix in ("svg", "png"):
            for file in out.glob(f"{name}.{suffix}"):
                file.unlink()
    (out / "comparison.json").write_text(strict_json(comparison.as_dict(per_query=per_query), indent=1) + "\n", "utf-8")
    write_atomic(out / "comparison.txt", comparison.text())
    for pair, result in comparison.evaluations.items():
        if isinstance(result, JudgedRowsResult) and result.run:
            write_run(out / f"{stems[pair]}.run", result.run, "reranking")
    if picture is None:
        return
    if comparison.bars():
        plots.comparison(comparison.bars(), out / f"comparison.{picture}")
    for name, data, scores in _distributions(comparison):
        file = out / f"scores.{stems[name, data]}.{picture}"
        plots.score_distributions(**scores, file=file, title=f"{name} on {data}")


def _distributions(comparison: Comparison) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield contender, data set and the arguments of `plots.score_distributions`, for rows with positives."""
    for (name, data), result in comparison.evaluations.items():
        if isinstance(result, JudgedRowsResult) and result.kind in ("pairs", "reranking"):
            positive = result.gold > 0
            scores = {"positives": result.scores[positive], "negatives": result.scores[~positive]}
            yield name, data, {**scores, "threshold": result.thresholds.get("F1"), "score": result.score}


def _file_stems(pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Name the files of each contender and data set, with a number where names that differ have the same slug."""
    stems: dict[tuple[str, str], str] = {}
    taken: set[str] = set()
    for name, data in pairs:
        stem = f"{_slug(data)}.{_slug(name)}"
        names = chain([stem], (f"{stem}-{number}" for number in count(2)))
        stems[name, data] = next(free for free in names if free.lower() not in taken)
        taken.add(stems[name, data].lower())  # some file systems take no account of case
    return stems


def _slug(name: str) -> str:
    return re.sub(r"[^\w.@+-]+", "-", name).strip("-.") or "data"
