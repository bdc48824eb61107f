"""Compare several models or modes on the same data: the measures of each, and the differences that are real."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ....core.errors import InputError
from ....core.files import expand_home
from ....core.progress import ignore
from ....retriever.models import model_files
from ....retriever.models import settings as model_settings
from ....retriever.search.arguments import check_reranking
from .. import judged_rows, similarity
from ..heads import answers, classes, names
from ..heads.head_rows import HEAD_ROWS
from ..result import JudgedRowsResult, RetrievalResult
from ..retrieval import judged_queries
from ..significance import LEVEL, align, difference, holm
from . import comparison_files
from . import contenders as contender_list
from .contender_runs import CollectionRun, DataSet, evaluate_on_rows
from .poolings import with_poolings
from .table import Cell, Comparison, MeasureColumn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ....core.progress import OnProgress
    from ...runs.plots import Verdict
    from ..significance import Difference
    from .contender_runs import Result, Results
    from .contenders import Contender


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
        target = None if out is None else comparison_files.create_folder(Path(out), picture)
        stems = comparison_files.file_stems(
            [(contender.name, data_set.name) for data_set in sets for contender in parsed]
        )
        runs = {} if target is None else {pair: target / f"{stem}.run" for pair, stem in stems.items()}
        for data_set in sets:
            if data_set.rows is None:
                root = Path(indexes) if indexes else Path(temporary)
                collection = CollectionRun(data_set, parsed, root, split, rerank_depth, runs)
                results |= collection.evaluate(progress)
        results |= evaluate_on_rows([data_set for data_set in sets if data_set.rows is not None], parsed, progress)
    comparison = _comparison(parsed, first, columns, results)
    if target is not None:
        comparison_files.write(comparison, target, picture, stems, per_query=per_query)
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


def _are_for_heads(sets: Sequence[DataSet], contenders: Sequence[Contender]) -> bool:
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
            model_files.find(contender.reranker, model_files.RERANKER)
        if (
            contender.source is not None
            and model_settings.reads_pairs(model_files.find(contender.source))
            and collections
        ):
            raise InputError(
                f"{contender.written} is a cross-encoder, which can only rerank what another finds: "
                f"write MODEL+{contender.model} or lexical+{contender.model}"
            )


def _read(data: Sequence[str | Path], split: str) -> list[DataSet]:
    """Check collections and read judged rows, all of them before the first evaluation."""
    if not data:
        raise InputError("a comparison needs data: test collections, or files of judged rows")
    paths = list(map(expand_home, data))
    stems = [path.resolve().name if path.is_dir() else judged_rows.name_of(path) for path in paths]
    sets: list[DataSet] = []
    for path, stem in zip(paths, stems, strict=True):
        name = stem if stems.count(stem) == 1 else str(path)
        if any(data_set.name == name for data_set in sets):
            raise InputError(f"{path} is given twice: expected different data")
        if path.is_dir():
            judged_queries(path, split, None, None)
        sets.append(DataSet(name, path, None if path.is_dir() else judged_rows.read(path)))
    return sets


def _columns(sets: Sequence[DataSet], measures: Sequence[str]) -> list[MeasureColumn]:
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
